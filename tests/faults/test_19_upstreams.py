"""Servers that hang, die in the middle of an answer, flood, lie and chatter: each call of them fails with a clear
error, the gateway's memory stays bounded, and a well-behaved server beside them notices nothing."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from gateway_process import GatewayProcess, Home, figure, scaled, until
from misbehaving_http import MisbehavingHttp

from benchmarks.measurement import percentile

LIMITS = """
[limits]
tool_response_max_bytes = 4096
call_timeout_s = 2
max_output_bytes = 67108864
max_frame_bytes = 8388608
"""
GOOD = Home.server("good", "misbehaving_stdio.py", more="call_timeout_s = 30\n")


class Bystander:
    """Somebody who calls the good server all the while, and whose every answer must be its own."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.times: list[float] = []
        self.wrong: list[Any] = []
        self._gateway = gateway
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._call)

    def _call(self) -> None:
        with self._gateway.client() as client:
            while not self._over.wait(0.005):
                mark = f"mark-{len(self.times)}"
                began = time.monotonic()
                answer = client.post("/v1/call_tool", json={"tool_id": "good.echo", "args": {"mark": mark}}).json()
                self.times.append(time.monotonic() - began)
                if answer.get("structuredContent") != {"mark": mark}:
                    self.wrong.append(answer)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join(40)

    def figures(self) -> dict[str, Any]:
        return {
            "calls_beside": len(self.times),
            "failed_beside": len(self.wrong),
            "p95_beside_ms": round(percentile(self.times, 0.95) * 1000, 1),
        }


@contextmanager
def beside(tmp_path: Path, *tables: str) -> Iterator[tuple[GatewayProcess, Bystander]]:
    """A gateway with a good server and others, and somebody who uses the good one."""
    home = Home(tmp_path).write(LIMITS, GOOD, *tables)
    with home.serve() as gateway:
        gateway.wait_for("good.echo")
        gateway.post("search_tool_by_category", query="give the arguments back")  # what search takes is no leak
        with Bystander(gateway) as bystander:
            yield gateway, bystander
        assert bystander.wrong == []
        assert bystander.times


def error_of(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = answer["error"]
    assert found["message"], answer
    assert found["next_action"], answer
    return found


def test_a_server_that_hangs_is_timed_out_alone(tmp_path: Path) -> None:
    table = Home.server("mute", "misbehaving_stdio.py", "--hang", "tools/call")
    # The catalogue is not there yet, and its start is given longer than this test.
    never = Home.server(
        "never", "misbehaving_stdio.py", "--hang", "initialize", "--era", "legacy", more="start_timeout_s = 100\n"
    )
    began = time.monotonic()
    with beside(tmp_path, table, never) as (gateway, bystander):
        first = time.monotonic() - began
        codes = [error_of(gateway.call("mute.echo"))["code"] for _ in range(2)]
        taken = time.monotonic() - began - first
    assert first < 90
    assert codes == ["SERVER_TIMEOUT"] * 2
    figure("hangs", first_s=round(first, 1), calls=2, limit_s=2, seconds=round(taken, 2), **bystander.figures())


def test_a_server_that_starts_late_is_taken_in_when_it_does(tmp_path: Path) -> None:
    """The first client of all is answered from those that are there."""
    begin = tmp_path / "begin"
    table = Home.server("late", "misbehaving_stdio.py", "--start-when", str(begin), more="start_timeout_s = 100\n")
    with beside(tmp_path, table) as (gateway, _):
        begin.touch()
        gateway.wait_for("late.echo")


async def test_servers_that_die_in_an_answer_fail_that_call_only(tmp_path: Path) -> None:
    """Over HTTP a hundred times; a process that has to start again pauses in between, so fewer times."""
    async with MisbehavingHttp(cut="tools/call") as cutting:
        tables = (
            f'[servers.cut]\nurl = "{cutting.url}"\n',
            Home.server("dying", "misbehaving_stdio.py", "--close-mid", "tools/call"),
        )
        await asyncio.to_thread(die_often, tmp_path, tables)


def die_often(tmp_path: Path, tables: tuple[str, ...]) -> None:
    codes: dict[str, int] = {}
    with beside(tmp_path, *tables) as (gateway, bystander):
        before = gateway.memory_mb()
        calls = ["cut.echo"] * 100 + ["dying.echo"] * scaled(4, 100)
        for tool_id in calls:
            code = error_of(gateway.call(tool_id))["code"]
            codes[code] = codes.get(code, 0) + 1
        grown = gateway.memory_mb() - before
        files = gateway.open_files()
    assert set(codes) <= {"SERVER_CLOSED", "SERVER_UNAVAILABLE"}, codes
    assert codes["SERVER_CLOSED"] >= 100
    assert grown < 64
    figure(
        "dies in an answer", calls=len(calls), codes=codes, grown_mb=round(grown, 1), files=files, **bystander.figures()
    )


@pytest.mark.parametrize("way", ["answer", "text beside the protocol"])
def test_a_flood_of_500_megabytes_costs_bounded_memory(tmp_path: Path, way: str) -> None:
    megabytes = 500
    with beside(tmp_path, Home.server("flood", "large_stdio.py", more="call_timeout_s = 60\n")) as (gateway, bystander):
        gateway.wait_for("flood.echo", text="x")
        before = gateway.memory_mb()
        began = time.monotonic()
        tool = "flood.large" if way == "answer" else "flood.noise"
        answer = gateway.call(tool, timeout=90, megabytes=megabytes)
        taken = time.monotonic() - began
        peak = gateway.memory_mb("VmHWM") - before
        again = gateway.call("flood.echo", text="still here")
        left = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    if way == "answer":
        assert error_of(answer)["code"] == "FRAME_TOO_LARGE"
    else:
        # It may as well have been the answer to the one call that waits: that call is told so.
        assert "content" in answer or error_of(answer)["code"] == "FRAME_TOO_LARGE"
    assert again["content"][0]["text"] == "still here"
    assert peak < 128
    assert left < 64_000_000
    figure(
        f"flood as {way}", megabytes=megabytes, seconds=round(taken, 1), grown_mb=round(peak, 1), **bystander.figures()
    )


WRONG = {
    "another id": '{"jsonrpc":"2.0","id":987654,"result":{"content":[]}}',
    "no id": '{"jsonrpc":"2.0","id":null,"result":{"content":[]}}',
    "an object as id": '{"jsonrpc":"2.0","id":{"a":1},"result":{"content":[]}}',
    "invalid JSON": '{"jsonrpc":"2.0","id":1,"result":{"content":[',
    "no JSON": "Segmentation fault (core dumped)",
    "no UTF-8": "\xff\xfe\x00",
}


def test_answers_with_wrong_ids_or_no_json_reach_nobody(tmp_path: Path) -> None:
    with beside(tmp_path, Home.server("liar", "misbehaving_stdio.py", more="call_timeout_s = 0.3\n")) as (
        gateway,
        bystander,
    ):
        codes = {name: error_of(gateway.call("liar.raw_answer", text=text))["code"] for name, text in WRONG.items()}
        results = [gateway.call("liar.raw_result", text=text) for text in ("7", '"text"', "[1]", '{"content": 7}')]
        again = gateway.call("liar.echo", text="still here")
    assert set(codes.values()) == {"SERVER_TIMEOUT"}, codes
    for result in results:
        assert "error" not in result or error_of(result)
        assert result.get("content") != 7
    assert again["structuredContent"] == {"text": "still here"}
    figure("wrong answers", kinds=len(WRONG) + len(results), codes=codes, **bystander.figures())


def test_a_hundred_changes_a_second_are_read_no_oftener_than_is_useful(tmp_path: Path) -> None:
    seconds = scaled(4, 60)
    with beside(tmp_path, Home.server("chatter", "misbehaving_stdio.py", "--changes", "100")) as (gateway, bystander):
        until(lambda: "content" in gateway.call("chatter.tool_0"), "its tools are not read")
        before, busy, files = gateway.memory_mb(), gateway.cpu_s(), gateway.open_files()
        began = time.monotonic()
        served = len(bystander.times)
        until(lambda: time.monotonic() - began > seconds, "the time does not pass", seconds + 5)
        grown = gateway.memory_mb() - before
        share = (gateway.cpu_s() - busy) / (time.monotonic() - began)
        more_files = gateway.open_files() - files
        figures = bystander.figures()
        assert len(bystander.times) > served
        assert "content" in gateway.call("chatter.echo")
    assert grown < 64
    assert more_files < 20
    figure("100 changes a second", seconds=seconds, cpu_share=round(share, 2), grown_mb=round(grown, 1), **figures)
