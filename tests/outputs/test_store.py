"""The store: private folders, whole files, nobody else's handles, and nothing left of the dead."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolfold.errors import OutputError, OutputFull, UnknownHandle
from toolfold.outputs.store import OutputStore, _sweep
from toolfold.outputs.token_counter import Counts
from toolfold.types import LOCAL, Caller, Stored

ANNA = Caller(name="anna", session="one")


def put(store: OutputStore, caller: Caller = LOCAL, text: bytes = b"hello\n") -> Stored:
    draft = store.draft(caller)
    draft.write(text)
    return draft.finish(Counts(len(text), 1, 2), tool_id="s.t", arguments='{"a": 1}', media_type="text/plain")


def folders(base: Path) -> list[Path]:
    return sorted(base.glob("ai-agent-*"))


@pytest.mark.requirement("O-02")
def test_an_output_is_a_private_file_named_by_its_handle_in_a_private_folder(tmp_path: Path) -> None:
    store = OutputStore(tmp_path / "base" / "deeper")
    stored = put(store)
    found, path = store.find(stored.handle, LOCAL)
    assert found == stored
    assert path.read_bytes() == b"hello\n"
    assert path.name == stored.handle
    assert path.parent.name.startswith("ai-agent-")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    store.close()
    assert folders(store.base) == []


@pytest.mark.requirement("O-02")
def test_a_handle_of_somebody_else_answers_as_one_that_never_was(tmp_path: Path) -> None:
    store = OutputStore(tmp_path)
    stored, own = put(store, ANNA), put(store)
    never = "00000000-0000-4000-8000-000000000000"
    told = []
    for handle in (stored.handle, never):
        for caller in (LOCAL, Caller(name="bob", session="one")):
            with pytest.raises(UnknownHandle) as caught:
                store.find(handle, caller)
            told.append(str(caught.value.as_dict()).replace(handle, "HANDLE"))
            assert caught.value.next_action
    assert told[:2] == told[2:]
    assert store.find(stored.handle, ANNA)[0] == stored
    assert [found.handle for found in store.all(LOCAL)] == [own.handle]
    store.close()


@pytest.mark.parametrize(
    "handle", ["", ".", "..", "../x", "/etc/passwd", ".toolfold", "a\nb", "\0", "x" * 5000, "%2e%2e", "\uff41" * 36]
)
def test_what_is_no_handle_is_unknown_and_never_a_path(tmp_path: Path, handle: str) -> None:
    store = OutputStore(tmp_path)
    put(store)
    with pytest.raises(UnknownHandle):
        store.find(handle, LOCAL)
    store.close()


@pytest.mark.requirement("O-02")
def test_an_output_that_outlived_its_time_is_gone_and_says_so(tmp_path: Path) -> None:
    store = OutputStore(tmp_path, lifetime_s=-1.0)
    stored = put(store)
    with pytest.raises(UnknownHandle, match="expired") as caught:
        store.find(stored.handle, LOCAL)
    assert "s.t" in caught.value.next_action
    assert store.all(LOCAL) == []
    assert [file.name for file in folders(tmp_path)[0].iterdir()] == [".toolfold"]
    store.close()


def test_a_draft_is_nobodys_until_it_is_whole(tmp_path: Path) -> None:
    store = OutputStore(tmp_path)
    draft = store.draft(LOCAL)
    draft.write(b"half")
    assert store.all(LOCAL) == []
    with pytest.raises(UnknownHandle):
        store.find(draft.handle, LOCAL)
    draft.discard()
    assert [file.name for file in folders(tmp_path)[0].iterdir()] == [".toolfold"]
    store.close()


def test_ending_one_session_leaves_the_others(tmp_path: Path) -> None:
    store = OutputStore(tmp_path)
    put(store, ANNA)
    other = put(store)
    assert store.end(ANNA)
    assert not store.end(ANNA)
    assert store.all(ANNA) == []
    assert [found.handle for found in store.all(LOCAL)] == [other.handle]
    store.close()
    with pytest.raises(OutputError):
        store.draft(LOCAL)


@pytest.mark.requirement("O-02")
def test_a_sweep_takes_what_a_killed_process_left_and_nothing_of_a_living_one(tmp_path: Path) -> None:
    living = OutputStore(tmp_path)
    stored = put(living)
    left = subprocess.run([sys.executable, "-c", DYING, str(tmp_path)], check=False, timeout=60)
    assert left.returncode == -9
    dead = [folder for folder in folders(tmp_path) if not (folder / stored.handle).exists()]
    assert len(dead) == 1
    names = [file.name for file in dead[0].iterdir()]
    assert any(name.startswith(".draft-") for name in names)
    assert _sweep(tmp_path) == dead
    assert living.find(stored.handle, LOCAL)[1].read_bytes() == b"hello\n"
    living.close()
    assert folders(tmp_path) == []


DYING = """
import os, signal, sys
from pathlib import Path
from toolfold.outputs.token_counter import Counts
from toolfold.outputs.store import OutputStore
from toolfold.types import LOCAL
store = OutputStore(Path(sys.argv[1]))
draft = store.draft(LOCAL)
draft.write(b"whole")
draft.finish(Counts(5, 1, 1), tool_id="s.t", arguments="{}", media_type="text/plain")
store.draft(LOCAL).write(b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.requirement("O-02")
def test_a_sweep_touches_nothing_that_is_not_surely_ours(tmp_path: Path) -> None:
    base, elsewhere = tmp_path / "base", tmp_path / "elsewhere"
    base.mkdir()
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    (elsewhere / ".toolfold").write_text("held\n")
    name = "ai-agent-" + "0" * 31
    (base / f"{name}1").symlink_to(elsewhere)
    unmarked = base / f"{name}2"
    unmarked.mkdir(mode=0o700)
    (unmarked / "precious").write_text("x")
    os.utime(unmarked, (1, 1))
    open_to_all = base / f"{name}3"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (open_to_all / ".toolfold").write_text("held\n")
    other_name = base / "ai-agent-somebody"
    other_name.mkdir(mode=0o700)
    (other_name / ".toolfold").write_text("held\n")
    linked_mark = base / f"{name}4"
    linked_mark.mkdir(mode=0o700)
    (linked_mark / ".toolfold").symlink_to(elsewhere / "precious")
    (base / f"{name}5").write_text("a file")
    young = base / f"{name}6"
    young.mkdir(mode=0o700)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert _sweep(base) == []
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    os.utime(young, (1, 1))
    assert _sweep(base) == [young]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that belongs to somebody else")
def test_a_folder_of_another_user_is_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / ("ai-agent-" + "0" * 32)
    foreign.mkdir(mode=0o700)
    (foreign / ".toolfold").write_text("held\n")
    os.chown(foreign, 12345, 12345)
    assert _sweep(tmp_path) == []
    assert foreign.exists()


def test_an_output_that_was_replaced_by_a_link_is_not_read(tmp_path: Path) -> None:
    store = OutputStore(tmp_path / "base")
    stored = put(store)
    path = store.find(stored.handle, LOCAL)[1]
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(UnknownHandle):
        store.find(stored.handle, LOCAL)
    store.close()


@pytest.mark.requirement("O-02")
def test_kept_outputs_outlive_their_process_until_their_time_is_over(tmp_path: Path) -> None:
    note = tmp_path / "home" / "outputs-session"
    first = OutputStore(tmp_path / "base", lifetime_s=60, note=note)
    stored, gone = put(first), put(first, ANNA)
    first.close()
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    second = OutputStore(tmp_path / "base", lifetime_s=60, note=note)
    assert _sweep(tmp_path / "base") == []
    assert second.find(stored.handle, LOCAL)[1].read_bytes() == b"hello\n"
    with pytest.raises(UnknownHandle):
        second.find(gone.handle, ANNA)
    second.close()
    assert len(_sweep(tmp_path / "base", now=time.time() + 61)) == 1
    assert folders(tmp_path / "base") == []


def test_a_kept_folder_that_somebody_put_there_is_not_used(tmp_path: Path) -> None:
    note = tmp_path / "note"
    name = "ai-agent-" + "0" * 32
    note.write_text(name + "\n")
    trap = tmp_path / "base" / name
    trap.mkdir(parents=True)
    trap.chmod(0o755)
    (trap / ".toolfold").write_text("kept\n")
    store = OutputStore(tmp_path / "base", note=note)
    stored = put(store)
    assert store.find(stored.handle, LOCAL)[1].parent != trap
    assert [file.name for file in trap.iterdir()] == [".toolfold"]
    store.close()
    for hostile in ("../../etc", "/etc", "", "x\0y"):
        note.write_text(hostile)
        again = OutputStore(tmp_path / "base", note=note)
        assert put(again).handle
        again.close()


@pytest.mark.requirement("O-02")
def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert b"OUTPUT_FULL" in done.stdout
    assert b"outputs.directory" in done.stdout
    assert b"small ones go on" in done.stdout
    assert not list(tmp_path.rglob(".draft-*"))


FULL = """
import resource, sys
from pathlib import Path
from toolfold.errors import OutputFull
from toolfold.outputs.token_counter import Counts
from toolfold.outputs.store import OutputStore
from toolfold.types import LOCAL
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
store = OutputStore(Path(sys.argv[1]))
draft = store.draft(LOCAL)
try:
    draft.write(b"x" * 200_000)
except OutputFull as error:
    draft.discard()
    print(error.as_dict())
draft = store.draft(LOCAL)
draft.write(b"x" * 1000)
draft.finish(Counts(1000, 1, 1), tool_id="s.t", arguments="{}", media_type="text/plain")
print("small ones go on", store.all(LOCAL))
store.close()
"""


def test_a_base_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file") as caught:
        OutputStore(tmp_path / "file").draft(LOCAL)
    assert "outputs.directory" in caught.value.next_action
    assert not isinstance(caught.value, OutputFull)
