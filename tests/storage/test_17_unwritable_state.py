"""A state folder that is full, or may only be read: what is there is read, and what is not written is said once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolfold.__main__ import main

# Mounts a small disk over a folder with what is in it, for itself alone, and spoils it.
SPOILED = """
import os, shutil, sys
from toolfold.sandbox.libc import call
folder, how, *command = sys.argv[1:]
call("unshare", 0x20000)
call("mount", None, "/", None, 0x4000 | 0x40000, None)
shutil.copytree(folder, folder + ".kept")
call("mount", "tmpfs", folder, "tmpfs", 0, "size=8m")
shutil.copytree(folder + ".kept", folder, dirs_exist_ok=True)
if how == "full":
    with open(folder + "/filling", "wb", 0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
else:
    call("mount", None, folder, None, 32 | 1, None)
os.execv(command[0], command)
"""
CALLS = """
import json, subprocess, sys
answers = []
for command in json.loads(sys.argv[2]):
    done = subprocess.run([sys.executable, "-m", "toolfold", *json.loads(sys.argv[1]), *command],
                          capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    answers.append([done.returncode, done.stdout, done.stderr])
print(json.dumps(answers))
"""
# Reads while nothing can be written, and again when somebody could.
FREED = """
import asyncio, sys
from pathlib import Path
from toolfold.errors import StoreError
from toolfold.sandbox.libc import call
from toolfold.storage.sqlite import SqliteStore
folder = Path(sys.argv[1])

async def use():
    async with SqliteStore(folder / "toolfold.sqlite") as store:
        seen = [(await store.get("n", "k")) is None, len(await servers_of(store))]
        try:
            await store.put("n", "k", b"lost")
        except StoreError as error:
            seen.append(error.message)
        call("mount", None, str(folder), None, 32, None)
        (folder / "filling").unlink(missing_ok=True)
        changed = asyncio.ensure_future(wait_written(store))
        async with SqliteStore(folder / "toolfold.sqlite") as other:
            await other.put("n", "k", b"written")
            seen.append(await store.get("n", "k"))
            await changed
        await store.put("n", "k", b"again")
        print(*seen, await store.get("n", "k"), sep=chr(10))

async def servers_of(store):
    async with store.snapshot() as snapshot:
        return await snapshot.servers()

async def wait_written(store):
    while await store.get("n", "k") != b"written":
        await store.wait_changed()

asyncio.run(asyncio.wait_for(use(), 60))
"""


@pytest.fixture
def state(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text('def echo(text: str) -> str:\n    """Echoes the text."""\n    return text\n')
    (tmp_path / "toolfold.toml").write_text('[servers.own]\nfunctions = "./tools.py"\n')
    base = ["--config", "toolfold.toml", "--home", "state"]
    assert main([*base, "build"]) == 0
    assert main([*base, "call", "own.echo", f"text={'long ' * 20_000}"]) == 0
    capsys.readouterr()
    return tmp_path / "state"


def spoiled(state: Path, how: str, program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SPOILED, str(state), how, sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    if "unshare" in done.stderr:
        pytest.skip("this user may mount nothing")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_17_what_is_there_is_read_and_small_calls_go_on(state: Path, how: str) -> None:
    reading = [["search", "echo"], ["tree", "--tools"], ["servers"], ["stats"], ["outputs"], ["audit"]]
    reading += [["call", "own.echo", "text=hi"], ["output", "last", "/long/"], ["expand", "own.echo"], ["build"]]
    base = ["--config", "toolfold.toml", "--home", "state"]
    answers = json.loads(spoiled(state, how, CALLS, json.dumps(base), json.dumps(reading)))
    told: dict[str, Any] = {words[0]: answer for words, answer in zip(reading, answers, strict=True)}
    assert [words for words, (code, *_) in told.items() if code != 0] == ["build"], told
    assert "own.echo" in told["search"][1]
    assert told["call"][1].strip() == "hi"
    assert "Traceback" not in str(told)
    assert told["call"][2].count("to the audit log") == 1, told["call"][2]
    assert ("there is no room to write" if how == "full" else "may only be read") in told["call"][2]


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_17_a_store_that_could_only_be_read_sees_what_is_written_later(state: Path, how: str) -> None:
    seen = spoiled(state, how, FREED, str(state)).splitlines()
    assert seen[0] == "True"
    assert seen[1] == "1"
    assert ("no room" if how == "full" else "may only be read") in seen[2]
    assert seen[3:] == ["b'written'", "b'again'"]
