"""The reaper's own steps, taken in this process: whom it finds, what it remembers, and how it ends them."""

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from toolfold.wire import reaper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the reaper finds processes in /proc")

OBEDIENT = "print('up', flush=True); import time; time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {OBEDIENT}"


@contextmanager
def running(program: str, *, owner: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a group of its own, which has begun to do what it does."""
    environment = {**os.environ, **({reaper.OWNER_VARIABLE: owner} if owner else {})}
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        try:
            yield child
        finally:
            child.kill()


@contextmanager
def register(*lines: bytes, close: bool = True) -> Iterator[int]:
    """Puts a pipe in the place of stdin, with these pieces written to it; gives its other end."""
    read, write = os.pipe()
    before = os.dup(0)
    os.dup2(read, 0)
    os.close(read)
    try:
        for line in lines:
            os.write(write, line)
        if close:
            os.close(write)
        yield write
    finally:
        os.dup2(before, 0)
        os.close(before)
        if not close:
            os.close(write)


def test_a_process_is_found_by_the_start_of_its_owners_tag_and_by_no_other() -> None:
    owner = uuid.uuid4().hex
    with running(OBEDIENT, owner=f"{owner}-7") as child:
        assert reaper._tagged(owner) == [child.pid]
        assert reaper._tagged(uuid.uuid4().hex) == []


def test_the_tag_counts_at_the_start_of_an_environment_and_not_inside_of_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments = {
        "11": b"TOOLFOLD_OWNER=me\0A=1\0",
        "12": b"A=1\0TOOLFOLD_OWNER=me-2\0",
        "13": b"A=TOOLFOLD_OWNER=me\0",
    }
    for name, environment in environments.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "environ").write_bytes(environment)
    (tmp_path / "14").mkdir()  # it ended between the listing and the reading
    (tmp_path / "self").mkdir()
    monkeypatch.setattr(reaper, "_PROC", str(tmp_path))
    assert sorted(reaper._tagged("me")) == [11, 12]


def test_nothing_is_found_where_the_system_has_no_list_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "_PROC", str(tmp_path / "none"))
    assert reaper._tagged("") == []


def test_killing_by_tag_ends_also_what_ignores_a_request_to_end() -> None:
    owner = uuid.uuid4().hex
    with running(STUBBORN, owner=owner) as child:
        reaper.kill_tagged(owner)
        assert child.wait(10) == -signal.SIGKILL


def test_the_register_adds_and_forgets_groups_also_when_a_line_comes_in_pieces() -> None:
    with register(b"+11\n+2", b"2\n+33\n-11\n"):
        assert reaper._read_groups(os.getpid()) == {22, 33}


def test_the_register_ends_when_the_parent_ends_though_another_holds_the_pipe_open() -> None:
    with running(OBEDIENT) as parent, register(close=False):
        killer = threading.Timer(0.2, parent.kill)
        killer.start()
        assert reaper._read_groups(parent.pid) == set()
        killer.join()


@pytest.mark.parametrize("known", [True, False])
def test_without_a_parent_to_watch_the_pipe_alone_tells_the_end(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if known:
        with running(OBEDIENT) as gone:
            pass
        assert reaper._watch(gone.pid) == [0]
    else:
        monkeypatch.delattr(os, "pidfd_open")
        assert reaper._watch(os.getpid()) == [0]
        with register(b"+5\n"):
            assert reaper._read_groups(os.getpid()) == {5}


def test_groups_and_tagged_processes_are_asked_to_end_and_not_killed_when_they_do() -> None:
    owner = uuid.uuid4().hex
    with running(OBEDIENT) as grouped, running(OBEDIENT, owner=owner) as tagged:
        waiting = [threading.Thread(target=child.wait) for child in (grouped, tagged)]
        for thread in waiting:
            thread.start()
        reaper._end({grouped.pid}, owner)
        for thread in waiting:
            thread.join(10)
        assert (grouped.returncode, tagged.returncode) == (-signal.SIGTERM, -signal.SIGTERM)


def test_what_does_not_end_in_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "_GRACE_S", 0.1)
    owner = uuid.uuid4().hex
    with running(STUBBORN) as grouped, running(STUBBORN, owner=owner) as tagged:
        reaper._end({grouped.pid}, owner)
        assert (grouped.wait(10), tagged.wait(10)) == (-signal.SIGKILL, -signal.SIGKILL)
