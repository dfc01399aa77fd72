"""A gateway that is killed in the middle of a call, again and again: it is ready again at once, leaves no process and
no half of a result, and whoever was waiting hears of it."""

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import pytest
from gateway_process import LONG, GatewayProcess, Home, figure, is_alive, scaled, until
from mcp import Client, MCPError

ROUNDS = scaled(6, 100)
CALLERS = """
[limits]
tool_response_max_bytes = 1024
"""


def spilling(gateway: GatewayProcess) -> bool:
    """Whether it is writing a message to a file without a name."""
    folder = Path(f"/proc/{gateway.pid}/fd")
    return any("(deleted)" in _target(folder / name) for name in os.listdir(folder))  # noqa: PTH208 - names are enough


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def drafting(home: Home) -> bool:
    return any(home.outputs.glob("ai-agent-*/.draft-*"))


def failure(call: "Future[Any]") -> httpx2.TransportError:
    error = call.exception(20)
    assert isinstance(error, httpx2.TransportError), call.result() if error is None else error
    return error


@pytest.mark.requirement("G-08")
def test_a_gateway_killed_in_a_call_is_ready_again_and_leaves_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path).write(
        CALLERS, Home.server("bad", "misbehaving_stdio.py"), Home.server("big", "large_stdio.py")
    )
    ready: list[float] = []
    busy: list[float] = []
    told: list[float] = []
    with ThreadPoolExecutor(4) as threads:
        for number in range(ROUNDS):
            gateway = GatewayProcess(home)
            try:
                ready.append(gateway.ready_s)
                busy.append(gateway.ready_cpu_s)
                orphans = play(home, gateway, number, threads, told)
            finally:
                gateway.close()
            until(lambda pids=orphans: not any(map(is_alive, pids)), "a server outlived its gateway")  # type: ignore[misc]
    with home.serve() as gateway:
        ready.append(gateway.ready_s)
        gateway.wait_for("bad.echo")
        until(lambda: leftovers(home, gateway) == [], f"left: {leftovers(home, gateway)}")
    assert home.is_sound()
    figure(
        "killed in a call",
        rounds=ROUNDS,
        ready_median_s=round(median(ready[1:]), 2),
        ready_worst_s=round(max(ready[1:]), 2),
        ready_cpu_median_s=round(median(busy[1:]), 2),
        told_worst_s=round(max(told), 3),
    )
    # Other tests share the cores: what counts then is the time that the gateway itself was at work.
    assert (max(ready[1:]) if LONG else median(busy[1:])) < 2


def leftovers(home: Home, gateway: GatewayProcess) -> list[str]:
    """What lies in the folder for outputs."""
    return [str(path.relative_to(home.outputs)) for path in home.outputs.rglob("*") if path.is_file()]


def play(home: Home, gateway: GatewayProcess, number: int, threads: ThreadPoolExecutor, told: list[float]) -> list[int]:
    """One round: calls under way, one of them storing, and the kill. Gives the processes that there were."""
    grandchild = int(gateway.wait_for("bad.grandchild")["content"][0]["text"])
    whole = gateway.wait_for("big.large", megabytes=0.05)["content"][0]["text"]
    handle = whole.split('handle = "')[1].split('"')[0]
    mark = home.folder / f"mark-{number}"
    asleep = threads.submit(gateway.call, "bad.sleep", seconds=60, mark=str(mark))
    until(mark.exists, "the call did not begin")
    large = threads.submit(gateway.call, "big.large", megabytes=60)
    # By turns: while the result arrives, and while it becomes an output.
    reached: Callable[[], bool] = (lambda: drafting(home)) if number % 2 else (lambda: spilling(gateway))
    until(reached, "the result is not being stored")
    processes = [grandchild, *gateway.family()]
    began = time.monotonic()
    gateway.kill()
    for call in (asleep, large):
        failure(call)
    told.append(time.monotonic() - began)
    assert_no_half(home, handle)
    return processes


def assert_no_half(home: Home, handle: str) -> None:
    """Every output that has its name is whole: the small one; the large one only if it was finished."""
    for record in home.outputs.glob("ai-agent-*/.about-*"):
        output = record.with_name(record.name.removeprefix(".about-"))
        said = int(record.read_text().split('"bytes":')[1].split(",")[0])
        assert not output.exists() or output.stat().st_size == said
    assert any(home.outputs.glob(f"ai-agent-*/{handle}"))


async def test_a_client_of_the_protocol_hears_that_its_gateway_died(tmp_path: Path) -> None:
    home = Home(tmp_path).write(Home.server("bad", "misbehaving_stdio.py"))
    mark = tmp_path / "mark"
    with home.serve("--profile", "direct") as gateway:
        gateway.wait_for("bad.echo")

        def kill() -> None:
            until(mark.exists, "the call did not begin")
            os.kill(gateway.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        began = time.monotonic()
        told: list[Exception] = []
        try:
            async with Client(f"{gateway.url}/mcp") as client:
                tool = next(tool.name for tool in (await client.list_tools()).tools if tool.name.endswith("sleep"))
                await client.call_tool(tool, {"seconds": 60, "mark": str(mark)})
        except* (httpx2.TransportError, MCPError) as errors:
            told += flat(errors)
        killer.join(20)
    assert told
    figure("a client hears of the kill", seconds=round(time.monotonic() - began, 2), error=str(told[0])[:120])


def flat(group: BaseExceptionGroup[Any]) -> list[Exception]:
    return [
        one for error in group.exceptions for one in (flat(error) if isinstance(error, BaseExceptionGroup) else [error])
    ]
