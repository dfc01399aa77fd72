"""Zygotes and children come and go: nothing is left behind, whoever dies first."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sandbox_lab import CONFINED, ENTRY, WAYS

from toolfold.errors import SandboxError
from toolfold.sandbox.base import Child, ChildLimits
from toolfold.sandbox.control_messages import Message, send
from toolfold.sandbox.status_channel import StatusChannel
from toolfold.sandbox.zygote import Zygote

IN_EACH_WAY = pytest.mark.parametrize("way", CONFINED)
IN_ALL_WAYS = pytest.mark.parametrize("way", [*CONFINED, "unsafe"])


async def ask(child: Child, code: str) -> Any:
    await child.send(json.dumps({"code": code}).encode())
    frame = await child.receive()
    return None if frame is None else json.loads(frame)


def family(session: int) -> set[int]:
    """The processes of a zygote's session, as the host counts them; zombies do not live."""
    pids = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                pids.add(int(entry.name))
    return pids


def list_of(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def until_gone(session: int) -> None:
    async with asyncio.timeout(10):
        while family(session):  # noqa: ASYNC110 - processes that are not ours tell nobody
            await asyncio.sleep(0.01)


def descriptors() -> set[str]:
    names = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists them
            names.add(f"{entry.name}:{entry.readlink()}")
    return names


def leftovers() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("toolfold-*")}


def use_as_tempdir(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children of another user must get through it to their own folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    folder.chmod(0o755)


@IN_ALL_WAYS
async def test_nothing_is_left_when_it_closes(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_as_tempdir(tmp_path, monkeypatch)
    before = descriptors()
    async with Zygote(ENTRY, **WAYS[way]) as zygote:
        await zygote.start()
        busy = await zygote.take()
        await busy.send(b"{\"code\": \"open('file', 'w').write('x')\\nwhile True: pass\"}")
        async with await zygote.take() as child:
            assert await ask(child, "result = 1") == {"result": 1}
            session = os.getsid(child.pid)
            assert family(session)
    await until_gone(session)
    assert (await busy.wait()).ending == "killed"
    assert leftovers() == set()
    assert descriptors() == before


@IN_EACH_WAY
async def test_a_scratch_folder_belongs_to_one_child_and_the_host_sees_it(way: str) -> None:
    async with Zygote(ENTRY, **WAYS[way]) as zygote, await zygote.take() as first, await zygote.take() as other:
        (first.scratch / "in.txt").write_text("from the host")
        (first.scratch / "in.txt").chmod(0o644)
        assert await ask(first, "result = open('in.txt').read()") == {"result": "from the host"}
        await ask(first, "import shutil, tempfile\nopen(tempfile.mkdtemp() + '/x', 'w').close()")
        await ask(first, "open('out.txt', 'w').write('from the child')")
        assert (first.scratch / "out.txt").read_text() == "from the child"
        listing = await ask(
            other, f"import os\nresult = [os.listdir('.'), os.path.exists({str(first.scratch)!r} + '/x')]"
        )
        assert listing == {"result": [[], False]}
        first.close_input()
        assert (await first.wait()).ending == "finished"
        assert (first.scratch / "out.txt").read_text() == "from the child"


@IN_EACH_WAY
async def test_the_next_child_knows_nothing_of_the_last(way: str) -> None:
    async with Zygote(ENTRY, **WAYS[way]) as zygote:
        async with await zygote.take() as child:
            await ask(
                child,
                "import sys, json\nsys.left = 1\njson.dumps = None\nopen('f', 'w').close()\nsys.settrace(print)",
            )
        async with await zygote.take() as child:
            code = "import sys, json, os\nresult = [hasattr(sys, 'left'), json.dumps is None, os.listdir('.')]"
            assert await ask(child, code) == {"result": [False, False, []]}


@pytest.mark.parametrize("way", ["namespaces", "plain", "unsafe"])
async def test_a_dead_zygote_is_replaced(way: str) -> None:
    async with Zygote(ENTRY, **WAYS[way]) as zygote:
        async with await zygote.take() as child:
            session = os.getsid(child.pid)
            os.kill(session, signal.SIGKILL)
            assert (await child.wait()).ending == "killed"
        await until_gone(session)
        async with await zygote.take() as child:
            assert await ask(child, "result = 2") == {"result": 2}


@IN_ALL_WAYS
async def test_a_child_takes_its_descendants_with_it(way: str) -> None:
    """Also a daemon that forked twice and tried to leave its session."""
    code = """
import os, time
reading, writing = os.pipe()
if os.fork() == 0:
    try:
        os.setsid()
    except OSError:
        pass
    if os.fork() == 0:
        os.write(writing, str(os.getpid()).encode())
        time.sleep(600)
    os._exit(0)
os.wait()
result = int(os.read(reading, 20))
"""

    limits = ChildLimits(may_fork=True, wall_s=20)
    async with Zygote(ENTRY, limits=limits, ready=0, **WAYS[way]) as zygote:
        for ending in ("finished", "killed"):
            async with await zygote.take() as child:
                session = os.getsid(child.pid)
                before = family(session) - {child.pid}
                daemon = (await ask(child, code))["result"]
                assert len(family(session) - before) >= (1 if way == "unsafe" else 2)
                if ending == "killed":
                    child.kill()
                child.close_input()
                assert (await child.wait()).ending == ending
                assert family(session) - before - {child.pid} == set() or way == "bubblewrap"
                if way == "unsafe":
                    assert not alive(daemon)


@IN_EACH_WAY
async def test_a_session_that_may_fork_may_end_its_own_forks(way: str) -> None:
    code = """
import os, signal, time
pid = os.fork()
if pid == 0:
    time.sleep(600)
os.kill(pid, signal.SIGKILL)
result = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""

    limits = ChildLimits(may_fork=True, wall_s=20)
    async with Zygote(ENTRY, limits=limits, ready=0, **WAYS[way]) as zygote, await zygote.take() as child:
        assert await ask(child, code) == {"result": -9}


HOST = """
import asyncio, json, os, sys
from toolfold.sandbox.base import ChildLimits
from toolfold.sandbox.zygote import Zygote
async def main():
    options = json.loads(sys.argv[1])
    async with Zygote("toolfold.sandbox.probe:execute", limits=ChildLimits(may_fork=True), **options) as zygote:
        child = await zygote.take()
        await zygote.take()
        code = "import os, time\\nos.fork()\\nif os.fork(): result = 1\\nelse: time.sleep(600)"
        await child.send(json.dumps({"code": code}).encode())
        await child.receive()
        print(os.getsid(child.pid), flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


@IN_ALL_WAYS
def test_a_host_that_is_killed_takes_everything_along(way: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, json.dumps(WAYS[way])],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert host.stdout is not None
    with host, host.stdout:
        session = int(host.stdout.readline())
        assert len(family(session)) >= 4
        host.kill()
        host.wait()

    async def gone() -> None:
        await until_gone(session)
        async with asyncio.timeout(10):
            while list_of(tmp_path) and way != "bubblewrap":  # noqa: ASYNC110 - nor do folders
                await asyncio.sleep(0.01)

    asyncio.run(gone())


async def test_twenty_at_once() -> None:
    async with Zygote(ENTRY) as zygote:

        async def square(number: int) -> Any:
            async with await zygote.take() as child:
                return await ask(child, f"result = {number} ** 2")

        answers = await asyncio.gather(*(square(number) for number in range(20)))
        assert answers == [{"result": number**2} for number in range(20)]


async def test_a_take_that_is_cancelled_wastes_no_child() -> None:
    async with Zygote(ENTRY, ready=1) as zygote:
        waiting = asyncio.create_task(zygote.take())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with await zygote.take() as child:
            assert await ask(child, "result = 3") == {"result": 3}


async def test_an_entry_that_cannot_be_imported_is_named() -> None:
    async with Zygote("toolfold.sandbox.no_such_module:run") as zygote:
        with pytest.raises(SandboxError, match="no_such_module"):
            await zygote.take()


async def test_a_closed_zygote_says_so() -> None:
    zygote = Zygote(ENTRY)
    await zygote.aclose()
    await zygote.aclose()
    with pytest.raises(SandboxError, match="closed"):
        await zygote.take()


@pytest.mark.parametrize("first", ["the shim's end", "the zygote's answer"])
async def test_a_child_that_never_came_is_over_in_whichever_order_that_is_learnt(first: str) -> None:
    ours, theirs = socket.socketpair()
    over = asyncio.Event()
    status = StatusChannel(ours, lambda *_: None, over.set)
    if first == "the zygote's answer":
        status.abandon()
    theirs.close()
    if first == "the shim's end":
        await asyncio.sleep(0)
        status.abandon()
    await asyncio.wait_for(over.wait(), 10)


async def test_a_shim_that_is_ready_before_its_number_is_known_is_heard_after_it() -> None:
    """On a busy machine the shim speaks first: whoever took the child then had one with the number 0."""
    ours, theirs = socket.socketpair()
    numbers: list[int] = []
    over, heard = asyncio.Event(), asyncio.Event()

    def on_message(message: Message, descriptors: list[int]) -> None:
        numbers.append(status.pid)
        heard.set()

    status = StatusChannel(ours, on_message, over.set)
    send(theirs, {"event": "ready", "layers": []})
    for _ in range(10):
        await asyncio.sleep(0)
    assert numbers == []
    status.attach(os.getpid(), [])
    await asyncio.wait_for(heard.wait(), 10)
    assert numbers == [os.getpid()]
    theirs.close()
    await asyncio.wait_for(over.wait(), 10)
