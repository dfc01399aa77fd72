"""Thousands of tools that all change at once, again and again, while callers call and search: no call fails, and search
answers all the while."""

import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from gateway_process import LONG, GatewayProcess, Home, figure, scaled, until

from benchmarks.measurement import percentile

TOOLS = scaled(800, 10_000)
RELOADS = scaled(2, 5)
VERBS = ("list", "create", "delete", "update", "find", "archive", "export", "merge", "copy", "print")
THINGS = ("invoice", "branch", "ticket", "photo", "playlist", "contract", "sensor", "recipe", "flight", "backup")
PLACES = ("warehouse", "school", "clinic", "library", "harbour", "farm", "studio", "market", "office", "museum")


def write(file: Path, edition: int) -> None:
    """All tools, each of them other than in the edition before."""
    texts = itertools.islice(itertools.product(range(TOOLS // 1000 + 1), VERBS, THINGS, PLACES), TOOLS)
    tools: list[dict[str, Any]] = [
        {
            "name": f"{verb}_{thing}_{place}_{number}",
            "description": f"{verb.capitalize()} each {thing} of the {place} in region {number}, edition {edition}.",
            "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        }
        for number, verb, thing, place in texts
    ]
    tools += [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("changed", "call")]
    new = file.with_suffix(".new")
    new.write_text(json.dumps(tools))
    new.replace(file)


class Callers:
    """Two who go on all the while: one calls, one searches."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.failed: list[Any] = []
        self.calls = 0
        self.times: list[float] = []
        self._over = threading.Event()
        self._gateway = gateway
        self._threads = [threading.Thread(target=work) for work in (self._call, self._search)]

    def _call(self) -> None:
        with self._gateway.client() as client:
            while not self._over.wait(0.01):
                answer = client.post("/v1/call_tool", json={"tool_id": "filed.call", "args": {}}).json()
                self.calls += 1
                if "content" not in answer:
                    self.failed.append(answer)

    def _search(self) -> None:
        with self._gateway.client(timeout=120) as client:
            for verb, thing, place in itertools.cycle(itertools.product(VERBS, THINGS, PLACES)):
                if self._over.wait(0.05):
                    return
                query = {"query": f"{verb} every {thing} that the {place} has"}
                began = time.monotonic()
                answer = client.post("/v1/search_tool_by_category", json=query).json()
                self.times.append(time.monotonic() - began)
                if "results" not in answer:
                    self.failed.append(answer)

    def __enter__(self) -> "Callers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(130)


@pytest.mark.timeout(scaled(120, 1800))
def test_all_tools_reloaded_while_serving(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    write(file, 0)
    home = Home(tmp_path).write(Home.server("filed", "filed_stdio.py", str(file)))
    with home.serve() as gateway:
        gateway.wait_for("filed.call")
        with gateway.client(timeout=900) as client:  # all tools are taken into the index here
            client.post("/v1/search_tool_by_category", json={"query": "list every invoice"})
        taken: list[float] = []
        with Callers(gateway) as callers:
            for edition in range(1, RELOADS + 1):
                write(file, edition)
                began = time.monotonic()
                gateway.call("filed.changed")
                until(lambda number=edition: shows(gateway, number), "the tools are the old ones", 300)  # type: ignore[misc]
                taken.append(time.monotonic() - began)
            searched = len(callers.times)
            until(lambda: len(callers.times) >= searched + 20, "nobody can search any more", 300)
        memory = gateway.memory_mb("VmHWM")
    assert callers.failed == []
    p95 = percentile(callers.times, 0.95)
    figure(
        "tools reloaded",
        tools=TOOLS,
        reloads=RELOADS,
        reload_s=[round(one, 2) for one in taken],
        calls=callers.calls,
        failed=len(callers.failed),
        searches=len(callers.times),
        search_p50_ms=round(percentile(callers.times, 0.5) * 1000, 1),
        search_p95_ms=round(p95 * 1000, 1),
        search_worst_ms=round(max(callers.times) * 1000, 1),
        peak_mb=round(memory),
    )
    assert not LONG or p95 < 0.05


def shows(gateway: GatewayProcess, edition: int) -> bool:
    found = gateway.post("expand_tool", timeout=120, tool_id="filed.list_invoice_warehouse_0")
    return f"edition {edition}." in json.dumps(found)
