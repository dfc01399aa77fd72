"""No process is left behind: closing, cancelling, failing, and being killed."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from misbehaving_stdio import misbehaving
from wire_helpers import QUICK, alive, opened, raw, text_of, until

from toolfold.errors import ServerTimeout
from toolfold.wire import StdioTarget, WireOptions, connect

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to find processes by their environment")


@pytest.mark.parametrize("switches", [(), ("--stubborn",)], ids=["polite", "stubborn"])
def test_closing_ends_the_server(switches: tuple[str, ...]) -> None:
    async def main() -> int:
        options = WireOptions(close_grace_s=0.2)
        async with opened(misbehaving(*switches), options) as connection:
            assert connection.pid is not None
            assert alive(connection.pid)
            return connection.pid

    assert not alive(asyncio.run(main()))


@LINUX
def test_closing_ends_grandchildren_that_left_the_group() -> None:
    async def main() -> int:
        async with opened(misbehaving()) as connection:
            pid = int(text_of(await connection.call_tool("grandchild", raw({}))))
            assert os.getsid(pid) == pid
        await until(lambda: not alive(pid))
        return pid

    assert not alive(asyncio.run(main()))


@LINUX
def test_a_server_that_dies_takes_its_grandchildren_along() -> None:
    async def main() -> None:
        connection = await connect(misbehaving(), options=QUICK)
        pid = int(text_of(await connection.call_tool("grandchild", raw({}))))
        os.kill(connection.pid or 0, signal.SIGKILL)
        await until(lambda: not alive(pid))
        await connection.aclose()

    asyncio.run(main())


def test_a_cancelled_connect_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        mark = tmp_path / "pid"
        command = f"echo $$ > {mark}.new && mv {mark}.new {mark} && exec sleep 600"
        opening = asyncio.ensure_future(connect(StdioTarget("sh", ("-c", command)), options=QUICK))
        await until(mark.exists)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert not alive(int(mark.read_text()))

    asyncio.run(main())


def test_a_connect_that_times_out_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        mark = tmp_path / "pid"
        with pytest.raises(ServerTimeout, match=r"not ready within 0\.5 seconds"):
            await connect(
                StdioTarget("sh", ("-c", f"echo $$ > {mark}; exec sleep 600")),
                options=WireOptions(start_timeout_s=0.5),
            )
        assert not alive(int(mark.read_text()))

    asyncio.run(main())


def test_a_cancelled_close_still_ends_the_server() -> None:
    async def main() -> None:
        connection = await connect(misbehaving("--stubborn"), options=WireOptions(close_grace_s=30))
        closing = asyncio.ensure_future(connection.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await closing
        pid = connection.pid or 0
        await until(lambda: not alive(pid))
        await connection.aclose()

    asyncio.run(main())


HOST = textwrap.dedent(
    """
    import asyncio, json, signal
    from msgspec import Raw
    from misbehaving_stdio import misbehaving
    from toolfold.wire import connect

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that ran the tests with & had it ignored

    async def main():
        found = []
        for switches in ((), ("--stubborn",), ("--grandchild", "--stubborn")):
            connection = await connect(misbehaving(*switches))
            found.append(connection.pid)
            result = await connection.call_tool("grandchild", Raw(b"{}"))
            found.append(int(json.loads(bytes(result))["content"][0]["text"]))
        print(json.dumps(found), flush=True)
        await asyncio.sleep(600)

    asyncio.run(main())
    """
)


@LINUX
@pytest.mark.requirement("G-01")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_nothing_outlives_a_host_that_is_killed(number: signal.Signals) -> None:
    """Servers that ignore SIGTERM and the end of stdin, and grandchildren in sessions of their own."""
    with subprocess.Popen(
        [sys.executable, "-c", HOST],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=Path(__file__).parents[1] / "servers",
    ) as host:
        assert host.stdout is not None
        found = json.loads(host.stdout.readline())
        assert len(found) == 6
        assert all(alive(pid) for pid in found)
        children = [*found, *reapers(host.pid)]
        assert len(children) == 7
        host.send_signal(number)
        host.wait(10)
        asyncio.run(until(lambda: not any(alive(pid) for pid in children)))


def reapers(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            words = (status.parent / "cmdline").read_bytes()
            if int(fields[1]) == parent and b"reaper.py" in words:
                found.append(int(status.parent.name))
    return found


@LINUX
def test_a_reaper_that_was_killed_is_replaced() -> None:
    async def main() -> None:
        async with opened(misbehaving()):
            (first,) = reapers(os.getpid())
            os.kill(first, signal.SIGKILL)
            await until(lambda: not alive(first))
            async with opened(misbehaving()):
                running = [pid for pid in reapers(os.getpid()) if alive(pid)]
                assert len(running) == 1
                assert running != [first]

    asyncio.run(main())


def test_a_server_inherits_a_small_environment_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    target = misbehaving()

    async def main() -> dict[str, str]:
        given = StdioTarget(target.command, target.args, {"GIVEN": "yes"})
        async with opened(given) as connection:
            found: dict[str, str] = json.loads(text_of(await connection.call_tool("environment", raw({}))))[
                "environment"
            ]
            return found

    found = asyncio.run(main())
    assert found["GIVEN"] == "yes"
    assert found["PATH"] == os.environ["PATH"]
    assert found["LC_TIME"] == "C"
    assert "SOME_API_KEY" not in found


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_descriptors_are_given_back() -> None:
    async def main() -> None:
        async with opened(misbehaving()):
            pass
        before = descriptors()
        for _ in range(3):
            async with opened(misbehaving()):
                pass
        assert descriptors() == before

    asyncio.run(main())
