"""Before a key is checked nothing is free: what a connection may send, for how long, and how many there may be."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from msgspec import Raw
from serving_helpers import EchoApp, Port, legacy, modern, on_http, raw

from toolfold.containers import who_yields
from toolfold.errors import NotAuthorized
from toolfold.types import Caller
from toolfold.wire.serving import Exchange, ServeOptions
from toolfold.wire.serving.http_connection import ConnectionLimits
from toolfold.wire.serving.http_guard import HttpGuard
from toolfold.wire.serving.http_stream import ResponseStream

GET = b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n"
BLOCK = b"x" * 65536
# Whoever never ends sends this much at most, before the test says that nobody stopped it.
ENDLESS = 400


def by_key(headers: Mapping[str, str]) -> Caller:
    key = headers.get("authorization", "").removeprefix("Bearer ")
    if not key:
        raise NotAuthorized("a key is needed")
    return Caller(name=key)


GUARD = HttpGuard(identify=by_key)


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ended(self) -> bytes:
        """What came until the other side ended it."""
        got = b""
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                while data := await self.reader.read(1 << 16):
                    got += data
        return got

    async def flood(self, start: bytes, piece: bytes = BLOCK) -> bytes:
        """Sends without an end, until it is stopped."""
        with contextlib.suppress(ConnectionError):
            await self.send(start)
            for _ in range(ENDLESS):
                await self.send(piece)
            pytest.fail("all of it was taken")
        return await self.ended()

    async def ask(self, key: str = "") -> bytes:
        """One request on this connection; the answer's head."""
        said = b"authorization: Bearer " + key.encode() + b"\r\n" if key else b""
        await self.send(GET + said + b"\r\n")
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await self.reader.readexactly(length)
        return head


@contextlib.asynccontextmanager
async def connected(port: Port) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (GET + b"x: ", BLOCK),
        (GET, b"x: y\r\n" * 4096),
        (b"GET /", BLOCK),
        (b"GET / HTTP/1.1\r\n", BLOCK),
        (b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n1;", BLOCK),
        (b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ", BLOCK),
        (b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n" * 4096),
        (GET + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n", BLOCK),
    ],
    ids=["value", "fields", "address", "name", "extension", "trailer", "trailers", "upgrade"],
)
async def test_15_16_what_is_no_body_is_bounded(start: bytes, piece: bytes) -> None:
    async with on_http(EchoApp(), guard=GUARD) as port, connected(port) as connection:
        await connection.flood(start, piece)
        assert (await port.post(modern("echo"), Authorization="Bearer ann")).status_code == 200


async def test_15_16_too_many_headers_in_one_piece_are_named() -> None:
    async with on_http(EchoApp(), guard=GUARD) as port, connected(port) as connection:
        await connection.send(GET + b"x: y\r\n" * 3000 + b"\r\n")
        assert (await connection.ended()).startswith(b"HTTP/1.1 431 ")
        ordinary = {f"X-{number}": "y" * 100 for number in range(100)}
        assert (await port.post(modern("echo"), Authorization="Bearer ann", **ordinary)).status_code == 200


@pytest.mark.parametrize(("start", "piece"), [(b"", b""), (GET, b"x"), (b"", b"\r\n")], ids=["silent", "slow", "blank"])
async def test_15_16_who_does_not_finish_a_head_is_cut_off(start: bytes, piece: bytes) -> None:
    limits = ConnectionLimits(head_s=0.3)
    async with on_http(EchoApp(), guard=GUARD, limits=limits) as port, connected(port) as connection:
        await connection.send(start)
        with contextlib.suppress(ConnectionError):
            while not connection.reader.at_eof():
                await connection.send(piece)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await connection.reader.read(1)


@pytest.mark.parametrize("piece", [b"", b"\r\n"], ids=["silent", "blank"])
async def test_15_16_after_a_refusal_a_connection_does_not_stay(piece: bytes) -> None:
    limits = ConnectionLimits(head_s=0.3, idle_s=0.3)
    async with on_http(EchoApp(), guard=GUARD, limits=limits) as port, connected(port) as connection:
        assert b" 401 " in await connection.ask()
        with contextlib.suppress(ConnectionError):
            while not connection.reader.at_eof():
                await connection.send(piece)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await connection.reader.read(1)


async def test_15_16_a_body_without_a_key_is_neither_awaited_nor_endless() -> None:
    start = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999\r\n\r\n"
    limits = ConnectionLimits(rest_s=0.1)
    async with on_http(EchoApp(), guard=GUARD, limits=limits) as port, connected(port) as connection:
        await connection.send(start)
        async with asyncio.timeout(10):
            assert b" 401 " in await connection.reader.readuntil(b"\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                while True:
                    await connection.send(b"x")
                    await asyncio.sleep(0.01)


async def test_15_16_a_body_that_stops_is_not_awaited_for_ever() -> None:
    start = (
        b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ann\r\n"
        b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    )
    limits = ConnectionLimits(stalled_s=0.1)
    async with on_http(EchoApp(), guard=GUARD, limits=limits) as port, connected(port) as connection:
        await connection.send(start)
        assert await connection.ended() == b""


async def test_15_16_connections_without_a_key_make_room_and_those_with_one_stay() -> None:
    limits = ConnectionLimits(unknown=20, unknown_per_address=10)
    async with on_http(EchoApp(), guard=GUARD, limits=limits) as port, contextlib.AsyncExitStack() as stack:
        ann = await stack.enter_async_context(connected(port))
        assert b" 405 " in await ann.ask("ann")
        silent = [await stack.enter_async_context(connected(port)) for _ in range(40)]
        for connection in silent[:30]:
            assert await connection.ended() == b""
        assert b" 405 " in await ann.ask("ann")
        bob = await stack.enter_async_context(connected(port))
        assert b" 405 " in await bob.ask("bob")
        assert not silent[-1].reader.at_eof()


async def test_15_16_whoever_holds_most_connections_gives_one_up() -> None:
    limits = ConnectionLimits(known=4)
    async with on_http(EchoApp(), guard=GUARD, limits=limits) as port, contextlib.AsyncExitStack() as stack:
        many = [await stack.enter_async_context(connected(port)) for _ in range(4)]
        for connection in many:
            assert b" 405 " in await connection.ask("ann")
        bob = [await stack.enter_async_context(connected(port)) for _ in range(3)]
        for connection in bob:
            assert b" 405 " in await connection.ask("bob")
        assert await many[0].ended() == b""
        assert await many[1].ended() == b""
        # Bob has his half: the third took the place of his own first.
        assert await bob[0].ended() == b""
        assert b" 405 " in await many[2].ask("ann")
        assert b" 405 " in await bob[1].ask("bob")


async def test_15_16_where_every_connection_is_at_work_one_more_is_refused() -> None:
    app = EchoApp()
    async with on_http(app, guard=GUARD, limits=ConnectionLimits(known=1)) as port, connected(port) as connection:
        call = asyncio.create_task(port.post(modern("tools/call", {"name": "wait"}), Authorization="Bearer ann"))
        await app.started.wait()
        assert b" 503 " in await connection.ask("bob")
        call.cancel()


@pytest.mark.parametrize(
    ("held", "asking", "gives"),
    [
        ({"a": 4}, "a", "a"),
        ({"a": 4}, "b", "a"),
        ({"a": 2, "b": 2}, "b", "b"),
        ({"a": 2, "b": 2}, "c", "a"),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, "e", None),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, "a", "a"),
    ],
)
def test_15_17_nobody_gives_up_an_equal_share(held: dict[str, int], asking: str, gives: str | None) -> None:
    assert who_yields(held, asking, 4) == gives


class LargeAnswers(EchoApp):
    async def handle(self, exchange: Exchange) -> Raw:
        self.started.set()
        return raw({"content": [{"type": "text", "text": "x" * (16 << 20)}]})


def post(message: object) -> bytes:
    body = json.dumps(message).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in Port.headers(None, message).items())  # type: ignore[arg-type]
    return (
        b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ann\r\ncontent-type: application/json\r\n"
        + head.encode()
        + b"content-length: %d\r\n\r\n" % len(body)
        + body
    )


async def test_15_16_who_never_reads_an_answer_is_cut_off() -> None:
    app = LargeAnswers()
    limits = ConnectionLimits(stalled_s=0.05)
    async with on_http(app, guard=GUARD, limits=limits) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number, limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(post(modern("tools/call", {"name": "x"})))
        await app.started.wait()
        await asyncio.sleep(0.3)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        got = await Connection(reader, writer).ended()
        assert len(got) < 16 << 20
        writer.close()


async def test_15_16_who_reads_slowly_gets_all_of_it() -> None:
    limits = ConnectionLimits(stalled_s=0.1)
    async with on_http(LargeAnswers(), guard=GUARD, limits=limits) as port, connected(port) as connection:
        await connection.send(post(modern("tools/call", {"name": "x"})))
        head = await connection.reader.readuntil(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while left:
            left -= len(await connection.reader.read(1 << 20))
            await asyncio.sleep(0.005)


async def test_15_16_pipelined_requests_are_answered_in_order_and_only_so_many() -> None:
    async with on_http(EchoApp(), guard=GUARD) as port:
        async with connected(port) as connection:
            await connection.send(b"".join(post(modern("echo", {"n": number}, key=number)) for number in range(10)))
            for number in range(10):
                head = await connection.reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                assert json.loads(await connection.reader.readexactly(length))["id"] == number
        async with connected(port) as connection:
            await connection.flood(GET + b"\r\n", (GET + b"\r\n") * 1000)


async def test_15_16_no_connection_leaves_the_limits_as_a_web_socket() -> None:
    key = b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    async with on_http(EchoApp(), guard=GUARD) as port, connected(port) as connection:
        await connection.send(GET + b"connection: upgrade\r\nupgrade: websocket\r\n" + key + b"\r\n")
        async with asyncio.timeout(10):
            assert b" 401 " in await connection.reader.readuntil(b"\r\n\r\n")


def test_15_16_what_nobody_takes_from_a_stream_is_bounded() -> None:
    stream = ResponseStream("g", 256)
    for _ in range(2000):
        stream.push(b"x" * 100_000)
    assert sum(len(message) for _, message in stream.take()) <= 4 << 20
    stream.push(b"more")
    assert [message for _, message in stream.take()] == [b"more"]


async def test_15_18_a_header_that_stands_twice_is_refused() -> None:
    async with on_http(EchoApp(), guard=GUARD) as port, connected(port) as connection:
        await connection.send(GET + b"authorization: Bearer ann\r\nauthorization: Bearer bob\r\n\r\n")
        assert b" 400 " in await connection.reader.readuntil(b"\r\n\r\n")


async def test_15_17_one_callers_sessions_do_not_end_anothers() -> None:
    async with on_http(EchoApp(), ServeOptions(max_sessions=4), GUARD) as port:
        bob = await port.session(Authorization="Bearer bob")
        names = [await port.session(Authorization="Bearer ann") for _ in range(8)]
        assert (await port.post(legacy("echo"), Mcp_Session_Id=bob, Authorization="Bearer bob")).status_code == 200
        told = await port.post(legacy("echo"), Mcp_Session_Id=names[0], Authorization="Bearer ann")
        assert told.status_code == 404
        assert "more than your share" in told.json()["error"]["message"]
        foreign = await port.post(legacy("echo"), Mcp_Session_Id=names[0], Authorization="Bearer bob")
        assert "no such session" in foreign.json()["error"]["message"]
        assert len(port.mcp.legacy.sessions) == 4


async def test_15_17_one_callers_questions_leave_room_for_anothers() -> None:
    able: dict[str, Any] = {"elicitation": {}}
    ask = modern("tools/call", {"name": "ask"}, able=able)
    async with on_http(EchoApp(), ServeOptions(max_held=4, max_held_each=2), GUARD) as port:
        for _ in range(2):
            asked = await port.post(ask, Authorization="Bearer ann")
            assert asked.json()["result"]["resultType"] == "input_required"
        assert "error" in (await port.post(ask, Authorization="Bearer ann")).json()
        asked = await port.post(ask, Authorization="Bearer bob")
        assert asked.json()["result"]["resultType"] == "input_required"
