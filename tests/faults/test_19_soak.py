"""Hours of mixed load, or as much of them as there is time for: memory, open files and disk stay flat. What is printed
is how much each grows in an hour, by a line through the samples of the later two thirds."""

import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_process import LONG, GatewayProcess, Home, figure, scaled
from test_19_upstreams import error_of

SECONDS = int(os.environ.get("TOOLFOLD_SOAK_S") or scaled(15, 3600))
# Bounded, so that the bounds are reached within the time.
TABLES = """
[limits]
tool_response_max_bytes = 2048
call_timeout_s = 50

[outputs]
directory = "{outputs}"
lifetime_s = 3

[audit]
max_entries = 500
"""
Step = Callable[[httpx2.Client, int], None]


def post(client: httpx2.Client, operation: str, **body: Any) -> Any:
    return client.post(f"/v1/{operation}", json=body).json()


def small(client: httpx2.Client, number: int) -> None:
    answer = post(client, "call_tool", tool_id="bad.echo", args={"number": number})
    assert answer["structuredContent"] == {"number": number}


def large(client: httpx2.Client, number: int) -> None:
    stored = post(client, "call_tool", tool_id="big.large", args={"megabytes": 0.05 + number % 7 / 10})
    text = stored["content"][0]["text"]
    handle = text.split('handle = "')[1].split('"')[0]
    assert "INFO" in post(client, "tool_output", handle=handle, extract="lines 1-3")["text"]


def find(client: httpx2.Client, number: int) -> None:
    assert "results" in post(client, "search_tool_by_category", query=f"give the arguments of call {number % 50} back")
    assert post(client, "expand_tool", tool_id="bad.echo")["tool_id"] == "bad.echo"
    assert "error" not in post(client, "list", path=[])


def fail(client: httpx2.Client, number: int) -> None:
    answer = post(client, "call_tool", tool_id="bad.fail" if number % 2 else "bad.nothing_of_the_kind", args={})
    assert "error" not in answer or error_of(answer)


def change(client: httpx2.Client, number: int) -> None:
    """Now and then a server dies; its list is another one when it is back."""
    if number % 20 == 0:
        post(client, "call_tool", tool_id="mortal.crash", args={})


def converse(client: httpx2.Client, number: int) -> None:
    """A session of the older era, begun and ended."""
    begin = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "soak", "version": str(number)},
    }
    headers = {"Accept": "application/json, text/event-stream"}
    answer = client.post(
        "/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}
    )
    headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
    headers["MCP-Protocol-Version"] = "2025-11-25"
    client.post("/mcp", headers=headers, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    listed = client.post("/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    assert "tools" in listed.text
    assert client.delete("/mcp", headers=headers).status_code < 300


STEPS: tuple[Step, ...] = (small, large, find, fail, change, converse)


def work(gateway: GatewayProcess, until: float, first: int) -> int:
    done = 0
    with gateway.client() as client:
        for number in itertools.count(first, 4):
            if time.monotonic() > until:
                return done
            for step in STEPS:
                step(client, number)
            done += 1
    return done


def sample(gateway: GatewayProcess, home: Home) -> tuple[float, float, float]:
    size = 0
    for path in home.folder.rglob("*"):
        try:
            size += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # it expired just now
    return gateway.memory_mb(), float(gateway.open_files()), size / 1e6


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """How much it grows in an hour."""
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((at - middle) ** 2 for at in times)
    return sum((at - middle) * (value - mean) for at, value in zip(times, values, strict=True)) / spread * 3600


@pytest.mark.timeout(SECONDS + 120)
def test_mixed_load_leaves_memory_files_and_disk_flat(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.write(
        TABLES.format(outputs=home.outputs),
        Home.server("bad", "misbehaving_stdio.py"),
        Home.server("mortal", "misbehaving_stdio.py"),
        Home.server("big", "large_stdio.py"),
    )
    samples: list[tuple[float, tuple[float, float, float]]] = []
    with home.serve() as gateway, ThreadPoolExecutor(4) as threads:
        gateway.wait_for("big.echo", text="x")
        gateway.post("search_tool_by_category", query="give the arguments back")
        started = time.monotonic()
        workers = [threads.submit(work, gateway, started + SECONDS, first) for first in range(4)]
        while not all(worker.done() for worker in workers):
            samples.append((time.monotonic() - started, sample(gateway, home)))
            time.sleep(max(0.2, SECONDS / 200))
        rounds = sum(worker.result() for worker in workers)
        samples.append((time.monotonic() - started, sample(gateway, home)))
    late = [one for one in samples if one[0] > SECONDS / 3]
    times = [at for at, _ in late]
    grown = {
        name: round(slope(times, [values[column] for _, values in late]), 1)
        for column, name in enumerate(("memory_mb_an_hour", "files_an_hour", "disk_mb_an_hour"))
    }
    spread = {
        name: [round(min(column), 1), round(max(column), 1)]
        for name, column in zip(
            ("memory_mb", "files", "disk_mb"), zip(*(one for _, one in late), strict=True), strict=True
        )
    }
    figure("mixed load", seconds=SECONDS, rounds=rounds, steps=rounds * len(STEPS), **grown, **spread)
    assert rounds
    assert spread["memory_mb"][1] - spread["memory_mb"][0] < 128
    assert spread["files"][1] - spread["files"][0] < 64
    assert spread["disk_mb"][1] < 256
    if LONG:
        assert grown["memory_mb_an_hour"] < 16
        assert grown["files_an_hour"] < 8
        assert grown["disk_mb_an_hour"] < 16
