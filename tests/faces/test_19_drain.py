"""`/healthz`, `/readyz` and the end of `toolfold serve --http`: what is under way is answered, nothing new begins."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp_client_helpers import RecordingClient
from served_config import Served, call, wait_for_call

import fork_server
from toolfold import Gateway, Settings
from toolfold.errors import StoreError
from toolfold.faces.http_api import _Drain
from toolfold.storage.sqlite.store import SqliteStore
from toolfold.testing.memory_upstream import MemoryUpstream

pytestmark = pytest.mark.requirement("G-18")

KEY = "a-key-of-enough-characters"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def site(url: str, path: str) -> str:
    return url.replace("/mcp", path)


def ready(url: str) -> tuple[int, Any]:
    answer = httpx2.get(site(url, "/readyz"), timeout=10)
    return answer.status_code, answer.json()


def wait_until_ready(url: str, status: int) -> Any:
    deadline = time.monotonic() + 20
    while (found := ready(url))[0] != status:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found[1]


@contextmanager
def calling(served: Served, url: str, seconds: float) -> Iterator[list[Any]]:
    """A call that takes so long, begun; its answer, once it is there."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call(url, "shop.buy", {"seconds": seconds}, KEY)))
    thread.start()
    served.wait_until_called("buy")
    try:
        yield answers
    finally:
        thread.join(20)
        assert not thread.is_alive()


def test_19_health_and_readiness_need_no_key_and_tell_no_tool(served: Served) -> None:
    served.write(served.table("shop", "buy"), f'[callers.ann]\nkey = "{KEY}"\n')
    with served.over_http() as url:
        health = httpx2.get(site(url, "/healthz"))
        assert (health.status_code, health.json()["status"]) == (200, "ok")
        assert wait_until_ready(url, 200) == {"status": "ready", "missing": []}
        assert not any(word in health.text for word in ("shop", "buy", KEY))
        assert httpx2.post(site(url, "/readyz")).status_code == 405


def test_19_it_is_not_ready_while_there_is_no_catalogue(served: Served) -> None:
    held = served.home / "go"
    program = served.home / "late.py"
    program.write_text(
        "import pathlib, sys, time\nfrom toolfold.demo.server import serve\n"
        f"while not pathlib.Path({str(held)!r}).exists(): time.sleep(0.02)\n"
        "def buy() -> str:\n    'Buys.'\n    return 'bought'\nserve('shop', [buy])\n"
    )
    served.write(served.table("shop", "buy").replace(str(served.program), str(program)))
    with served.over_http() as url:
        assert httpx2.get(site(url, "/healthz")).status_code == 200
        status, said = ready(url)
        assert (status, [part["what"] for part in said["missing"]]) == (503, ["catalogue"])
        held.touch()
        wait_until_ready(url, 200)


class Unreachable(SqliteStore):
    """A real store that can be taken away: it fails, or does not answer."""

    away = ""

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Any]:
        if self.away == "fails":
            raise StoreError("postgresql://ann:secret@db is not there")
        if self.away == "hangs":
            await asyncio.Event().wait()
        async with super().snapshot() as found:
            yield found


@pytest.mark.parametrize("away", ["fails", "hangs"])
async def test_19_it_is_not_ready_while_its_store_is_away_and_tells_no_secret(tmp_path: Path, away: str) -> None:
    store = Unreachable(tmp_path / "toolfold.sqlite")
    async with Gateway(
        Settings(home=tmp_path), upstreams=[MemoryUpstream("shop", [{"name": "buy"}])], store=store
    ) as gateway:
        await gateway.build()
        drain = _Drain(gateway, asyncio.Event())
        store.away = away
        asked = await asyncio.gather(*(drain.ready() for _ in range(100)))
        assert {(status, said["missing"][0]["what"]) for status, said in asked} == {(503, "store")}
        assert "secret" not in str(asked)
        store.away = ""
        async with asyncio.timeout(20):
            while (await drain.ready())[0] != 200:  # noqa: ASYNC110 - an answer counts for a moment
                await asyncio.sleep(0.05)


def test_19_a_call_under_way_is_answered_before_a_signal_ends_the_gateway(served: Served) -> None:
    served.write(served.table("shop", "buy"), served.table("mail", "send"), f'[callers.ann]\nkey = "{KEY}"\n')
    with served.over_http() as url:
        for tool in ("shop.buy", "mail.send"):
            wait_for_call(url, tool, KEY)
        with calling(served, url, 8.0) as answers:
            served.process.send_signal(signal.SIGTERM)
            said = wait_until_ready(url, 503)
            assert [part["what"] for part in said["missing"]] == ["gateway"]
            headers = {"Authorization": f"Bearer {KEY}", "Accept": "application/json, text/event-stream"}
            refused = httpx2.post(url, json=INITIALIZE, headers=headers)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert "connect again" in refused.json()["error"]["message"]
            assert refused.headers["connection"] == "close"
            # One that needs no session is still answered: the balancer may not have noticed yet.
            assert call(url, "mail.send", {}, KEY)["content"]
            assert not answers, "the first call is still under way"
        assert answers[0]["content"][0]["text"].startswith("buy ")
        assert served.process.wait(20) == 0


def test_19_what_takes_longer_than_drain_s_is_told_and_ended(served: Served) -> None:
    served.write(served.table("shop", "buy"), f'[callers.ann]\nkey = "{KEY}"\n[limits]\ndrain_s = 0.5\n')
    with served.over_http() as url:
        wait_for_call(url, "shop.buy", KEY)
        with calling(served, url, 60.0) as answers:
            started = time.monotonic()
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(20) == 0
        assert time.monotonic() - started < 15
        assert answers[0]["error"]["code"] == "GATEWAY_STOPPING"
        assert "may have had its effect" in answers[0]["error"]["next_action"]
        served.wait_for("took longer than drain_s")


def test_19_a_second_signal_ends_it_at_once(served: Served) -> None:
    served.write(served.table("shop", "buy"), f'[callers.ann]\nkey = "{KEY}"\n[limits]\ndrain_s = 3600\n')
    with served.over_http() as url:
        wait_for_call(url, "shop.buy", KEY)
        with calling(served, url, 60.0) as answers:
            served.process.send_signal(signal.SIGTERM)
            wait_until_ready(url, 503)
            assert served.process.poll() is None
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(20) == 0
        assert answers[0]["error"]["code"] == "GATEWAY_STOPPING"


def test_19_with_a_notice_it_answers_on_until_a_balancer_could_see_it(served: Served) -> None:
    served.write(served.table("shop", "buy"), "[limits]\ndrain_notice_s = 2\n")
    with served.over_http() as url:
        wait_until_ready(url, 200)
        served.process.send_signal(signal.SIGTERM)
        wait_until_ready(url, 503)
        assert served.process.wait(20) == 0


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_19_a_client_that_listens_does_not_hold_the_end_up(served: Served, era: str) -> None:
    served.write(served.table("shop", "buy"), "[limits]\ndrain_s = 3600\n")

    async def scene(url: str) -> None:
        client: Client = RecordingClient().client(url, era)
        async with asyncio.timeout(60), client:
            await client.list_tools()
            listening = client.listen(tools_list_changed=True) if era == "modern" else None
            if listening is not None:
                await listening.__aenter__()
            served.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(served.process.wait, 20) == 0
            if listening is not None:
                await listening.__aexit__(None, None, None)

    with served.over_http() as url:
        wait_until_ready(url, 200)
        asyncio.run(scene(url))


def test_19_an_older_gateway_goes_on_while_a_newer_one_migrates_the_store(served: Served) -> None:
    """Migrations only add. What was open stays open; what starts anew must be of the newer version."""
    served.write(served.table("shop", "buy"))
    with served.over_http() as url:
        wait_for_call(url, "shop.buy")
        with closing(sqlite3.connect(served.home / "toolfold.sqlite", isolation_level=None)) as newer:
            version = newer.execute("PRAGMA user_version").fetchone()[0]
            newer.executescript(
                f"BEGIN; CREATE TABLE of_a_later_version (x); PRAGMA user_version = {version + 1}; COMMIT;"
            )
        with ThreadPoolExecutor(16) as crowd:  # more at once than it has connections open
            listed = list(crowd.map(lambda _: httpx2.post(site(url, "/v1/list"), json={}, timeout=20), range(64)))
        assert {answer.status_code for answer in listed} == {200}
        assert call(url, "shop.buy", {})["content"]
        assert ready(url)[0] == 200
        late = fork_server.run(served.command("--http", "127.0.0.1:0"), capture_output=True, timeout=60, check=False)
        assert b"newer toolfold" in late.stderr
        assert late.returncode == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_19_on_stdio_a_call_under_way_is_told_when_a_signal_ends_it(
    served: Served, number: signal.Signals, era: str
) -> None:
    served.write(served.table("shop", "buy"))
    with fork_server.Popen(served.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": "shop_buy", "arguments": {"seconds": 60.0}}
        call_it = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        if era == "legacy":
            process.stdin.write(json.dumps(INITIALIZE) + "\n")
        else:
            params["_meta"] = meta
        process.stdin.write(json.dumps(call_it) + "\n")
        process.stdin.flush()
        served.wait_until_called("buy")
        process.send_signal(number)
        answers = {answer.get("id"): answer for answer in map(json.loads, process.stdout)}
        assert process.wait(20) == 0
    assert answers[7]["error"]["data"]["code"] == "GATEWAY_STOPPING"
    assert "may have had its effect" in answers[7]["error"]["message"]
