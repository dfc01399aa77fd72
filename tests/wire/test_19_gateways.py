"""Several gateways on one store, and clients whose every request may come to another of them."""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_helpers import EchoApp, Port, events, hello, legacy, modern, on_http

from toolfold.storage.base import Store
from toolfold.storage.sqlite.store import SqliteStore
from toolfold.types import Caller
from toolfold.wire.serving import ServeOptions, http_session, peers, seal
from toolfold.wire.serving.http_guard import HttpGuard
from toolfold.wire.serving.peers import Peers
from toolfold.wire.serving.seal import Seals
from toolfold.wire.types import TOOLS_CHANGED

ABLE: dict[str, Any] = {"elicitation": {}}
YES = {"action": "accept", "content": {}}
MANY = ServeOptions(session_idle_s=3600)


def by_key(headers: Mapping[str, str]) -> Caller:
    return Caller(name=headers.get("authorization", "nobody").removeprefix("Bearer "))


GUARD = HttpGuard(identify=by_key)
ANN, BOB = {"Authorization": "Bearer ann"}, {"Authorization": "Bearer bob"}


def store_in(folder: Path) -> Store:
    """The store that gateways share: the one place that knows its engine."""
    return SqliteStore(folder / "toolfold.sqlite")


class Gateway:
    """One gateway: its port, its application, and itself among the others."""

    def __init__(self, port: Port, app: EchoApp, own: Peers) -> None:
        self.port, self.app, self.peers = port, app, own
        self.post = port.post


@contextlib.asynccontextmanager
async def gateway_on(store: Store, options: ServeOptions = MANY, keys: tuple[str, ...] = ()) -> AsyncIterator[Gateway]:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(store)
        app, own = EchoApp(), Peers(store, Seals(store, keys))
        await own.open()
        stack.push_async_callback(own.aclose)
        port = await stack.enter_async_context(on_http(app, options, GUARD, peers=own))
        yield Gateway(port, app, own)


@contextlib.asynccontextmanager
async def gateways(folder: Path, count: int = 3, options: ServeOptions = MANY) -> AsyncIterator[list[Gateway]]:
    async with contextlib.AsyncExitStack() as stack:
        one = [gateway_on(store_in(folder), options) for _ in range(count)]
        yield [await stack.enter_async_context(gateway) for gateway in one]


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not (await condition() if asyncio.iscoroutinefunction(condition) else condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# --- sessions


@pytest.mark.requirement("G-18")
async def test_19_a_session_goes_on_at_gateways_that_never_saw_it(tmp_path: Path) -> None:
    async with gateways(tmp_path) as (a, b, c):
        name = await a.port.session(able=ABLE, **ANN)
        assert name.isascii()
        assert name.isprintable()
        assert len(name) <= http_session.MAX_ID_CHARS
        for gateway in (b, c, a, b):
            answer = await gateway.post(legacy("echo", {"n": 1}), Mcp_Session_Id=name, **ANN)
            assert answer.json()["result"] == {"given": {"n": 1}, "caller": "ann"}
        for gateway in (a, b, c):
            refused = await gateway.post(legacy("echo"), Mcp_Session_Id=name, **BOB)
            assert refused.status_code == 404
            assert "no such session" in refused.json()["error"]["message"]


async def test_19_a_session_is_ended_everywhere_by_one_delete(tmp_path: Path) -> None:
    async with gateways(tmp_path) as (a, b, c):
        name = await a.port.session(**ANN)
        assert (await b.post(legacy("echo"), Mcp_Session_Id=name, **ANN)).status_code == 200
        foreign = await b.port.client.delete(b.port.url, headers={"Mcp-Session-Id": name, **BOB})
        assert foreign.status_code == 404
        assert (await b.port.client.delete(b.port.url, headers={"Mcp-Session-Id": name, **ANN})).status_code == 200
        for gateway in (b, c):  # the one that ended it, and one that never had it
            assert (await gateway.post(legacy("echo"), Mcp_Session_Id=name, **ANN)).status_code == 404
        await until(lambda: len(a.port.mcp.legacy.sessions) == 0)
        assert (await a.post(legacy("echo"), Mcp_Session_Id=name, **ANN)).status_code == 404
        assert a.app.log[-1] == "left ann"
        assert dict(await a.peers.store.items("serving.sessions")) == {}  # type: ignore[union-attr]


async def test_19_a_session_outlives_the_gateway_that_opened_it(tmp_path: Path) -> None:
    async with gateway_on(store_in(tmp_path)) as a:
        name = await a.port.session("2025-06-18", **ANN)
    assert "left ann" not in a.app.log
    async with gateway_on(store_in(tmp_path)) as b:
        assert (await b.post(legacy("echo"), Mcp_Session_Id=name, **ANN)).status_code == 200
        assert (await b.post([legacy("echo")], Mcp_Session_Id=name, **ANN)).status_code == 400  # of its version


async def test_19_what_a_client_says_of_itself_may_be_longer_than_a_header(tmp_path: Path) -> None:
    able = {"elicitation": {}, "experimental": {"x": {"text": "y" * 20_000}}}
    async with gateways(tmp_path, 2) as (a, b):
        name = await a.port.session(able=able, **ANN)
        assert len(name) <= http_session.MAX_ID_CHARS
        assert (await b.post(legacy("echo"), Mcp_Session_Id=name, **ANN)).status_code == 200
        refused = await a.post(hello(able={"x": "y" * 100_000}), **ANN)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32602)


async def test_19_an_unused_session_ends_at_all_gateways_and_a_used_one_at_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_session, "_SWEEP_S", 0.1)
    async with gateways(tmp_path, 2, ServeOptions(session_idle_s=0.6)) as (a, b):
        used, unused = await a.port.session(**ANN), await a.port.session(**ANN)
        for name in (used, unused):
            assert (await b.post(legacy("echo"), Mcp_Session_Id=name, **ANN)).status_code == 200

        async def only_one_is_left() -> bool:
            answer = await b.post(legacy("echo"), Mcp_Session_Id=used, **ANN)
            assert answer.status_code == 200, answer.text
            return len(b.port.mcp.legacy.sessions) == 1 and len(a.port.mcp.legacy.sessions) == 0

        await until(only_one_is_left)
        assert (await a.post(legacy("echo"), Mcp_Session_Id=used, **ANN)).status_code == 200
        assert (await a.post(legacy("echo"), Mcp_Session_Id=unused, **ANN)).status_code == 404


async def test_19_whoever_holds_most_sessions_gives_one_up_at_a_gateway_that_takes_them_over(tmp_path: Path) -> None:
    options = ServeOptions(max_sessions=4, session_idle_s=3600)
    async with gateways(tmp_path, 2, options) as (a, b):
        bob = await b.port.session(**BOB)
        names = [await a.port.session(**ANN) for _ in range(4)]
        for name in names:
            assert (await b.post(legacy("echo"), Mcp_Session_Id=name, **ANN)).status_code == 200
        assert (await b.post(legacy("echo"), Mcp_Session_Id=bob, **BOB)).status_code == 200
        told = await b.post(legacy("echo"), Mcp_Session_Id=names[0], **ANN)
        assert (told.status_code, "more than your share" in told.text) == (404, True)


# --- what is held by one gateway


async def listening(gateway: Gateway, name: str, answers: asyncio.Queue[Any]) -> None:
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": name, **ANN}
    async with gateway.port.client.stream("GET", gateway.port.url, headers=headers, timeout=30) as answer:
        answers.put_nowait(answer.status_code)
        async for line in answer.aiter_lines():
            if line.startswith("data: ") and len(line) > 6:
                answers.put_nowait(json.loads(line[6:]))


async def test_19_notifications_reach_a_client_wherever_it_listens(tmp_path: Path) -> None:
    async with gateways(tmp_path) as (a, b, c), asyncio.TaskGroup() as group:
        name = await a.port.session(**ANN)
        heard: asyncio.Queue[Any] = asyncio.Queue()
        following = group.create_task(listening(b, name, heard))
        async with asyncio.timeout(20):
            assert await heard.get() == 200
            # At the gateway where it listens, at one that has the session, and at one that gets it later.
            await until(lambda: any(s.listens_at for s in a.port.mcp.legacy.sessions._by_name.values()))
            assert (await c.post(legacy("echo"), Mcp_Session_Id=name, **ANN)).status_code == 200
            await until(lambda: any(s.listens_at for s in c.port.mcp.legacy.sessions._by_name.values()))
            for gateway in (b, a, c):
                gateway.app.hub.publish(TOOLS_CHANGED, caller="ann")
                assert (await heard.get())["method"] == TOOLS_CHANGED
            a.app.hub.publish(TOOLS_CHANGED, caller="bob")
            watch = legacy("resources/subscribe", {"uri": "file:///x"})
            assert (await c.post(watch, Mcp_Session_Id=name, **ANN)).json()["result"] == {}
            await until(lambda: b.app.watched == ["file:///x"])
            b.app.hub.publish("notifications/resources/updated", b'{"uri":"file:///x"}', uri="file:///x")
            assert (await heard.get())["params"] == {"uri": "file:///x"}
        following.cancel()


async def test_19_the_answer_to_a_legacy_question_may_come_in_at_another_gateway(tmp_path: Path) -> None:
    async with gateways(tmp_path) as (a, b, c):
        name = await a.port.session(able=ABLE, **ANN)
        assert (await b.post(legacy("echo"), Mcp_Session_Id=name, **ANN)).status_code == 200
        request = legacy("tools/call", {"name": "ask", "arguments": {"times": 2}}, key="q")
        headers = a.port.headers(request, Mcp_Session_Id=name, **ANN)
        async with a.port.client.stream("POST", a.port.url, json=request, headers=headers) as answer:
            heard = []
            async for line in answer.aiter_lines():
                if not line.startswith("data: ") or len(line) == 6:
                    continue
                heard.append(json.loads(line[6:]))
                if heard[-1].get("method") == "elicitation/create":
                    reply = {"jsonrpc": "2.0", "id": heard[-1]["id"], "result": YES}
                    stranger = (await b.post(reply, Mcp_Session_Id=name, **BOB)).status_code
                    assert stranger == 404
                    to = b if len(heard) == 1 else c
                    assert (await to.post(reply, Mcp_Session_Id=name, **ANN)).status_code == 202
        assert heard[-1]["id"] == "q"
        assert json.loads(heard[-1]["result"]["content"][0]["text"]) == [YES, YES]


async def test_19_a_request_is_cancelled_from_another_gateway(tmp_path: Path) -> None:
    async with gateways(tmp_path, 2) as (a, b):
        name = await a.port.session(**ANN)
        running = asyncio.ensure_future(
            a.post(legacy("tools/call", {"name": "wait"}, key="w"), Mcp_Session_Id=name, **ANN)
        )
        await a.app.started.wait()
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}}
        assert (await b.post(note, Mcp_Session_Id=name, **ANN)).status_code == 202
        await until(lambda: a.app.log[-1:] == ["cancelled"])
        await running


async def test_19_a_stream_that_was_cut_off_is_taken_up_at_another_gateway(tmp_path: Path) -> None:
    async with gateways(tmp_path, 2) as (a, b):
        name = await a.port.session(able=ABLE, **ANN)
        request = legacy("tools/call", {"name": "ask"}, key="c")
        headers = a.port.headers(request, Mcp_Session_Id=name, **ANN)
        last, asked = "", None
        async with a.port.client.stream("POST", a.port.url, json=request, headers=headers) as answer:
            async for line in answer.aiter_lines():
                last = line.removeprefix("id: ") if line.startswith("id: ") else last
                if line.startswith("data: ") and len(line) > 6:
                    asked = json.loads(line[6:])
                    break
        assert asked is not None
        reply = {"jsonrpc": "2.0", "id": asked["id"], "result": YES}
        assert (await b.post(reply, Mcp_Session_Id=name, **ANN)).status_code == 202
        taken_up = {"Accept": "text/event-stream", "Mcp-Session-Id": name, "Last-Event-ID": last, **ANN}
        [end] = events((await b.port.client.get(b.port.url, headers=taken_up)).text)
        assert (end["id"], "result" in end) == ("c", True)
        gone = await b.port.client.get(b.port.url, headers={**taken_up, "Last-Event-ID": "77.3_1"})
        assert gone.status_code == 404
        assert "make its request anew in this session" in gone.json()["error"]["message"]


def question(key: Any = 1, **more: Any) -> dict[str, Any]:
    asked = modern("tools/call", {"name": "ask", "arguments": {}}, key=key, able=ABLE)
    asked["params"] |= more
    return asked


def answered(first: Any, key: Any = 2) -> dict[str, Any]:
    result = first["result"]
    return question(
        key, inputResponses=dict.fromkeys(result["inputRequests"], YES), requestState=result["requestState"]
    )


@pytest.mark.requirement("G-18")
async def test_19_a_request_that_one_gateway_holds_goes_on_from_any_other_and_once(tmp_path: Path) -> None:
    async with gateways(tmp_path) as (a, b, c):
        first = (await a.post(question(), **ANN)).json()
        stolen = (await b.post(answered(first), **BOB)).json()
        assert stolen["error"]["code"] == -32602
        done = (await b.post(answered(first, "again"), **ANN)).json()
        assert (done["id"], done["result"]["resultType"]) == ("again", "complete")
        assert (a.app.log, b.app.log) == (["answered"], [])
        for gateway in (a, b, c):
            assert (await gateway.post(answered(first), **ANN)).json()["error"]["code"] == -32602
        assert a.app.log == ["answered"]


async def test_19_a_request_that_a_gone_gateway_held_is_answered_with_what_to_do(tmp_path: Path) -> None:
    async with gateways(tmp_path, 1) as (b,):
        async with gateway_on(store_in(tmp_path)) as a:
            first = (await a.post(question(), **ANN)).json()
        told = (await b.post(answered(first), **ANN)).json()["error"]["message"]
        assert "has ended" in told
        assert "make it anew" in told


async def test_19_a_gateway_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_TAKEN_S", 0.3)
    async with gateways(tmp_path, 2) as (a, b):
        first = (await a.post(question(), **ANN)).json()
        assert a.peers._running is not None
        a.peers._running.cancel()  # it lives, and reads nothing
        told = (await b.post(answered(first), **ANN)).json()["error"]["message"]
        assert "does not answer" in told
        assert a.app.log == []
        # What was withdrawn is not taken later: the client may still bring its answer to the gateway itself.
        assert (await a.post(answered(first), **ANN)).json()["result"]["resultType"] == "complete"


async def test_19_nothing_of_a_gateway_that_is_gone_stays_in_the_store(tmp_path: Path) -> None:
    async with gateways(tmp_path, 1) as (a,):
        async with gateway_on(store_in(tmp_path)) as b:
            a.peers.post(b.peers.number, "nothing", b"x" * 100)
            await until(lambda: a.peers._sending is not None and a.peers._sending.done())
        assert a.peers.store is not None
        assert list(await a.peers.store.items("serving.gateways")) == [f"{a.peers.number:x}"]
        assert dict(await a.peers.store.items(f"serving.mail.{b.peers.number:x}")) == {}


# --- what nobody may do with an id


def altered(name: str) -> list[bytes]:
    sealed = bytearray(base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)))
    flipped = []
    for place in (0, 8, 21, len(sealed) // 2, -1):  # the key's name, the nonce, the value, its tag
        sealed[place] ^= 1
        flipped.append(base64.urlsafe_b64encode(sealed).rstrip(b"="))
        sealed[place] ^= 1
    text = name.encode()
    odd = ["ü".encode(), b"\xff" * 40, b"a" * 3000, b"%00", text[:-1] + bytes([text[-1] ^ 1]), b"A" * 60]
    return [*flipped, text[:-1], text[:40], text + b"A", text + b"=", text.lower(), text + text, *odd]


async def test_19_no_other_value_than_the_id_itself_opens_a_session(tmp_path: Path) -> None:
    async with gateways(tmp_path, 2) as (a, b):
        name = await a.port.session(**ANN)
        strange = Seals()
        told = set()
        for value in [*altered(name), strange.seal_text("session", b"x").encode()]:
            headers = {b"Mcp-Session-Id": value, b"Authorization": b"Bearer ann", b"Accept": b"*/*"}
            answer = await b.port.client.post(b.port.url, json=legacy("echo"), headers=headers)
            told.add((answer.status_code, answer.text))
        assert len(told) == 1
        assert next(iter(told))[0] == 404
        state = b.peers.seals.seal_text("state", b.peers.seals.unseal_text("session", name) or b"")
        assert (await b.post(legacy("echo"), Mcp_Session_Id=state, **ANN)).status_code == 404  # sealed for another use
        assert len(b.port.mcp.legacy.sessions) == 0
        assert (await b.post(legacy("echo"), Mcp_Session_Id=name, **ANN)).status_code == 200


async def test_19_an_id_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateways(tmp_path, 2) as (a, b):
        monkeypatch.setattr(http_session, "_LIFETIME_S", -1.0)
        name = await a.port.session(**ANN)
        answer = await b.post(legacy("echo"), Mcp_Session_Id=name, **ANN)
        assert (answer.status_code, "no such session" in answer.text) == (404, True)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300), text=st.text(max_size=300))
def test_19_whatever_is_not_sealed_opens_as_nothing(data: bytes, text: str) -> None:
    seals = Seals()
    assert seals.unseal("session", data) is None
    assert seals.unseal_text("session", text) is None
    sealed = seals.seal_text("session", data)
    assert seals.unseal_text("session", sealed) == data
    assert seals.unseal_text("state", sealed) is None
    for place in range(0, len(sealed), 7):
        assert seals.unseal_text("session", sealed[:place] + chr(ord(sealed[place]) ^ 1) + sealed[place + 1 :]) is None
        assert seals.unseal_text("session", sealed[:place]) is None


# --- keys


async def test_19_keys_are_shared_and_rotate_and_old_ones_still_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_in(tmp_path) as one, store_in(tmp_path) as other:
        seals = [Seals(one), Seals(other)]
        await asyncio.gather(*(each.open() for each in seals))
        early = seals[0].seal("x", b"early")
        assert seals[1].unseal("x", early) == b"early"
        monkeypatch.setattr(seal, "_PAUSE_S", 0.0)
        for number in range(10):
            monkeypatch.setattr(seal, "_ROTATE_S", -1.0)
            assert seals[0].is_due
            await seals[0].open()
            monkeypatch.setattr(seal, "_ROTATE_S", 3600.0)
            late = seals[0].seal("x", b"late")
            assert seals[1].unseal("x", late) is None
            await seals[1].find_key(late)
            assert seals[1].unseal("x", late) == b"late"
            assert seals[1].unseal("x", early) == (b"early" if number < 7 else None)
        found = await one.get("serving", "seal-keys")
        assert found is not None
        assert len(msgspec.msgpack.decode(found)) == 8


async def test_19_strange_keys_cost_the_store_little(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        seals = Seals(store)
        await seals.open()
        began = time.monotonic()
        await asyncio.gather(*(seals.find_key(bytes([number]) * 40) for number in range(1, 200)))
        await asyncio.gather(*(seals.find_key(bytes([number]) * 40) for number in range(1, 200)))
        assert seals._read_at - began <= 2  # two readings in all, one after a pause


async def test_19_given_keys_leave_none_in_the_store(tmp_path: Path) -> None:
    old, new = "an-older-secret-of-somebody", "a-newer-secret-of-somebody"
    async with (
        gateway_on(store_in(tmp_path), keys=(old,)) as a,
        gateway_on(store_in(tmp_path), keys=(new, old)) as b,
        gateway_on(store_in(tmp_path), keys=(new,)) as c,
    ):
        early, late = await a.port.session(**ANN), await b.port.session(**ANN)
        assert (await b.post(legacy("echo"), Mcp_Session_Id=early, **ANN)).status_code == 200
        assert (await c.post(legacy("echo"), Mcp_Session_Id=late, **ANN)).status_code == 200
        assert (await c.post(legacy("echo"), Mcp_Session_Id=early, **ANN)).status_code == 404
        assert a.peers.store is not None
        assert dict(await a.peers.store.items("serving")) == {}
