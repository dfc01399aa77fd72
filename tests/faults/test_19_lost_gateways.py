"""Several gateways on one store: one of three is killed under load, and nobody notices but whoever it was answering;
the database is stopped for a while, and nothing that was completed is lost."""

import itertools
import json
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_process import GatewayProcess, Home, figure, scaled, until

from postgres_server import PostgresServer

CALLERS = 6
GOOD = Home.server("good", "misbehaving_stdio.py")


class Balanced:
    """Somebody whose every call goes to the next gateway; one that cannot be connected to is passed over."""

    def __init__(self, gateways: list[GatewayProcess], first: int, number: "itertools.count[int]") -> None:
        self.done: list[int] = []
        self.failed: list[tuple[int, float, str]] = []
        self._gateways = gateways
        self._turns = itertools.count(first)
        self._numbers = number
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(60)

    def _work(self) -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(gateway.client()) for gateway in self._gateways]
            while not self._over.wait(0.002):
                self._call(clients, next(self._numbers))

    def _call(self, clients: list[httpx2.Client], number: int) -> None:
        body = {"tool_id": "good.echo", "args": {"number": number}}
        for turn in itertools.islice(self._turns, len(clients)):
            gateway = turn % len(clients)
            began = time.monotonic()
            try:
                answer = clients[gateway].post("/v1/call_tool", json=body).json()
            except httpx2.ConnectError:
                continue
            except httpx2.TransportError as error:
                self.failed.append((gateway, began, repr(error)))
                return
            if answer.get("structuredContent") == {"number": number}:
                self.done.append(number)
            else:
                self.failed.append((gateway, began, str(answer)[:300]))
            return
        self.failed.append((-1, time.monotonic(), "no gateway could be connected to"))


def test_one_of_three_gateways_killed_under_load(tmp_path: Path) -> None:
    rounds = scaled(1, 10)
    home = Home(tmp_path).write(GOOD)
    failed: list[tuple[int, float, str]] = []
    done = in_flight = 0
    with ExitStack() as stack:
        gateways = [stack.enter_context(home.serve()) for _ in range(3)]
        for gateway in gateways:
            gateway.wait_for("good.echo")
        for number in range(rounds):
            victim = number % 3
            count = itertools.count()
            crowd = [Balanced(gateways, first, count) for first in range(CALLERS)]
            until(lambda people=crowd: sum(len(one.done) for one in people) > 60, "nobody is answered")  # type: ignore[misc]
            gateways[victim].kill()
            killed = time.monotonic()
            before = sum(len(one.done) for one in crowd)
            until(lambda people=crowd, least=before + 60: sum(len(one.done) for one in people) > least, "all stopped")  # type: ignore[misc]
            for one in crowd:
                one.end()
            done += sum(len(one.done) for one in crowd)
            failures = [failure for one in crowd for failure in one.failed]
            wrong = [failure for failure in failures if failure[0] != victim]
            assert wrong == []
            # While it dies, connections end before the socket that accepts new ones does: a caller may meet both.
            late = [failure for failure in failures if failure[1] > killed]
            # A connection that lay idle ends with its gateway, and the call that takes it up finds that out.
            assert len(late) <= CALLERS, late
            in_flight += len(failures) - len(late)
            failed += failures
            gateways[victim] = stack.enter_context(home.serve())
            gateways[victim].wait_for("good.echo")
    assert home.is_sound()
    figure("one of three killed", rounds=rounds, calls=done, failed=len(failed), in_flight=in_flight, elsewhere=0)


def steps(home: Home) -> set[int]:
    done = home.run("audit", "--json", "--last", "1000000")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    found: list[dict[str, Any]] = value if isinstance(value, list) else value["steps"]
    return {step["arguments"]["number"] for step in found if "number" in (step.get("arguments") or {})}


@pytest.mark.timeout(240)
def test_the_database_is_stopped_for_a_while(tmp_path: Path) -> None:
    seconds = scaled(4, 10)
    with PostgresServer() as server, ExitStack() as stack:
        url = server.url(server.create_database())
        home = Home(tmp_path).write(f'[storage]\nurl = "{url}"\n[audit]\nvalues = "full"\n', GOOD)
        gateways = [stack.enter_context(home.serve()) for _ in range(2)]
        for gateway in gateways:
            gateway.wait_for("good.echo")
        count = itertools.count()
        people = [Balanced(gateways, first, count) for first in range(2)]
        try:
            until(lambda: sum(len(one.done) for one in people) > 20, "nobody is answered")
            server.stop()
            stopped = time.monotonic()
            calls = sum(len(one.done) for one in people)
            slowest = 0.0
            codes: set[str] = set()
            while time.monotonic() - stopped < seconds:
                began = time.monotonic()
                answer = gateways[0].post("list", path=[])
                slowest = max(slowest, time.monotonic() - began)
                codes.add(answer.get("error", {}).get("code", "answered"))
            served = sum(len(one.done) for one in people) - calls
            server.start()
            back = time.monotonic()
            until(lambda: "error" not in gateways[0].post("list", path=[]), "it does not recover", 60)
            recovered = time.monotonic() - back
            again = sum(len(one.done) for one in people)
            until(lambda: sum(len(one.done) for one in people) > again + 20, "calls do not recover", 60)
        finally:
            for one in people:
                one.end()
        completed = {number for one in people for number in one.done}
        failures = [failure for one in people for failure in one.failed]
        until(lambda: completed <= steps(home), f"lost: {sorted(completed - steps(home))[:20]}", 60)
    figure(
        "database stopped",
        seconds=seconds,
        calls=len(completed),
        calls_meanwhile=served,
        failed_calls=len(failures),
        first_failure=str(failures[0])[:200] if failures else "",
        codes=sorted(codes),
        slowest_refusal_s=round(slowest, 2),
        recovered_s=round(recovered, 2),
        records_lost=0,
    )
    assert served > 0
    assert codes == {"STORE_ERROR"}
    assert all("STORE_ERROR" in said for _, _, said in failures), failures
    assert slowest < 10
