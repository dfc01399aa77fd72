"""Streamable HTTP, both eras: each request is a POST, its answer is JSON or an event stream.

Modern: no session, headers repeat what the message says, closing the stream cancels. Legacy: an optional session, a
GET stream for what the server starts, streams that can be taken up again. Above: `http_open.py`, `connection.py`.
Below: `http_client.py`, `sse.py`, `http_legacy.py`.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from toolfold.errors import RemoteError, ServerClosed, ServerUnavailable, UpstreamError
from toolfold.types import Era
from toolfold.wire.connection import Connection
from toolfold.wire.dispatcher import Dispatcher, PendingRequest, answer_too_large, unreadable_answer
from toolfold.wire.headers import encode_header
from toolfold.wire.http_client import JSON_TYPE, STREAM_TYPE, BodyTooLarge, HttpClient, content_type, read_message
from toolfold.wire.http_session import HttpSession, read_events
from toolfold.wire.http_sse import SseTransport
from toolfold.wire.jsonrpc import DECODE_ERRORS, cancelled_message, parse_envelope
from toolfold.wire.negotiation import NegotiationPlan, negotiate
from toolfold.wire.spill import SpillPolicy
from toolfold.wire.transport import RequestHead
from toolfold.wire.types import MODERN_VERSION, Handlers, HttpTarget, WireOptions

if TYPE_CHECKING:
    import httpx2


_LINGER_S = 1.0
"""How long a stream may take to end after its answer came, so that its connection can be used again."""

_POST_TIMEOUT_S = 10.0


class StreamableHttpTransport:
    """One endpoint. `refused` is the last status with which it refused a message, for whoever tries another way."""

    mirrors_parameters = True
    pid = None
    congested = False

    def __init__(self, http: HttpClient, options: WireOptions, peer: Dispatcher) -> None:
        self._http = http
        self._options = options
        self._spiller = SpillPolicy.of(options)
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._posts: set[asyncio.Task[None]] = set()
        self._era: Era | None = None
        self.refused: int | None = None
        self._legacy = HttpSession(http, options, peer, self.post)
        self._closing: asyncio.Task[None] | None = None

    # --- what the connection asks for

    def start(self, pending: PendingRequest, message: bytes, head: RequestHead) -> None:
        task = self._loop.create_task(self._carry(pending, message, head))
        pending.carrier = task
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                pending.fail(error)

        task.add_done_callback(done)

    def abandon(self, pending: PendingRequest, reason: str) -> None:
        if self._era == "legacy":
            self.post(cancelled_message(pending.number, reason))

    def finish(self, pending: PendingRequest) -> None:
        future = pending.future
        answered = future.done() and not future.cancelled() and isinstance(future.exception(), RemoteError | None)
        if not answered and pending.carrier is not None:
            pending.carrier.cancel()

    def post(self, message: bytes, /) -> None:
        self._keep(self._deliver(message))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def drain(self) -> None:
        if self._posts:
            await asyncio.wait(set(self._posts))

    def settle(self, era: Era, version: str) -> None:
        self._era = era
        if era == "legacy":
            self._legacy.version = version
        elif self._legacy.id is not None:  # the handshake was tried as well and opened a session nobody needs
            self._keep(self._legacy.end())

    def opened(self) -> None:
        if self._era == "legacy":
            self._legacy.listen()

    def kill(self) -> None:
        for task in (*self._tasks, *self._posts):
            task.cancel()

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self.kill()
        await asyncio.gather(*self._tasks, *self._posts, *self._legacy.stop(), return_exceptions=True)
        await self._legacy.end()
        await self._http.aclose()

    # --- a request

    def _headers(self, head: RequestHead) -> dict[str, str]:
        headers = {"Accept": f"{JSON_TYPE}, {STREAM_TYPE}", "Content-Type": JSON_TYPE}
        if head.method == "initialize" or self._era == "legacy":
            return headers | self._legacy.headers(head.method)
        headers |= head.headers
        headers["MCP-Protocol-Version"] = MODERN_VERSION
        headers["Mcp-Method"] = encode_header(head.method)
        if head.name is not None:
            headers["Mcp-Name"] = encode_header(head.name)
        return headers

    async def _carry(self, pending: PendingRequest, message: bytes, head: RequestHead) -> None:
        """One request to its answer, which reaches `pending` through the peer."""
        if head.method == "initialize":
            self._legacy.hello = message
        session = self._legacy.id
        for attempt in range(2):
            try:
                if await self._attempt(pending, message, head, session if attempt == 0 else None):
                    return
                await self._legacy.renew(session)
            except UpstreamError as error:
                pending.fail(error)
                return

    async def _attempt(self, pending: PendingRequest, message: bytes, head: RequestHead, session: str | None) -> bool:
        """False: the session was gone, so nothing was done, and a new one may be tried."""
        async with self._http.open("POST", self._headers(head), message) as response:
            if not response.is_success:
                self.refused = response.status_code
                error = await self._http.refusal(response)
                if session is not None and self._legacy.expired(response.status_code, error):
                    return False
                raise error
            if head.method == "initialize":
                self._legacy.id = response.headers.get("mcp-session-id")
            if content_type(response) == STREAM_TYPE:
                await self._stream(response, pending)
            else:
                await self._whole(response, pending)
        return True

    async def _whole(self, response: "httpx2.Response", pending: PendingRequest) -> None:
        try:
            body = await read_message(response, self._options.max_frame_bytes, self._spiller)
        except BodyTooLarge:
            raise answer_too_large(pending.method, 0, self._options.max_frame_bytes) from None
        if isinstance(body, bytes):
            self._peer.receive(body, self.post, pending)
        else:
            self._peer.spilled(body, self.post, pending)
        if not pending.future.done():
            kind = content_type(response) or "nothing"
            raise unreadable_answer(
                pending.method, f"HTTP status {response.status_code} with {kind} and no answer in it"
            )

    async def _stream(self, response: "httpx2.Response", pending: PendingRequest) -> None:
        last, retry_ms = await self._events(response, pending)
        if pending.future.done():
            return
        if self._era == "modern" or last is None:
            raise self._http.cut_off("its stream ended without an answer")
        await self._legacy.resume(pending, last, retry_ms, self._events)

    async def _events(
        self, response: "httpx2.Response", pending: PendingRequest, last: str | None = None, retry_ms: int | None = None
    ) -> tuple[str | None, int | None]:
        """Reads a stream until the answer came or it ended; gives back where it could be taken up again."""
        with contextlib.suppress(ServerClosed, TimeoutError):
            async with asyncio.timeout(None) as linger:
                async for event in read_events(self._http, response, self._options.max_frame_bytes, self._spiller):
                    last = event.id or last
                    retry_ms = event.retry_ms if event.retry_ms is not None else retry_ms
                    if event.oversized:
                        pending.fail(answer_too_large(pending.method, 0, self._options.max_frame_bytes))
                    if event.data:
                        self._peer.receive(event.data, self.post, pending)
                    elif event.spill is not None:
                        self._peer.spilled(event.spill, self.post, pending)
                    if pending.future.done() and linger.when() is None:
                        linger.reschedule(self._loop.time() + _LINGER_S)
        return last, retry_ms

    # --- notifications and answers

    async def _deliver(self, message: bytes) -> None:
        try:
            method = parse_envelope(message).method
        except DECODE_ERRORS:
            method = ""
        head = RequestHead(method if isinstance(method, str) else "")
        try:
            async with (
                asyncio.timeout(_POST_TIMEOUT_S),
                self._http.open("POST", self._headers(head), message) as response,
            ):
                if not response.is_success:
                    self._peer.noise(f"a message was refused with HTTP status {response.status_code}")
        except (UpstreamError, TimeoutError) as error:
            self._peer.noise(f"a message could not be delivered: {error}")


# --- Opening a connection over HTTP: streamable in either era, and last the oldest form.

_PATIENCE_PROBES = 4
"""A server that is asked over HTTP may have to start first: it gets this many probe times before the other question."""


async def open_http(target: HttpTarget, options: WireOptions, handlers: Handlers, era: Era | None) -> Connection:
    """Finds out which of the three ways the server speaks."""
    legacy = era == "legacy"
    patience = options.start_timeout_s / 2 if legacy else options.probe_timeout_s * _PATIENCE_PROBES
    plan = NegotiationPlan(not legacy, legacy, options.probe_timeout_s, patience)
    peer = Dispatcher(handlers, options.capabilities)
    channel = StreamableHttpTransport(HttpClient(target, options), options, peer)
    connection = Connection(channel, peer, options)
    try:
        await negotiate(connection, options, plan)
    except ServerUnavailable:
        await asyncio.shield(connection.abort())
        raise
    except UpstreamError as error:
        await asyncio.shield(connection.abort())
        if channel.refused is None or not 400 <= channel.refused < 500:
            raise
        return await _open_sse(target, options, handlers, error)
    except BaseException:
        await asyncio.shield(connection.abort())
        raise
    return connection


async def _open_sse(
    target: HttpTarget, options: WireOptions, handlers: Handlers, first_error: UpstreamError
) -> Connection:
    peer = Dispatcher(handlers, options.capabilities)
    channel = SseTransport(HttpClient(target, options), options, peer)
    connection = Connection(channel, peer, options)
    try:
        with contextlib.suppress(UpstreamError):
            await channel.open()
            plan = NegotiationPlan(False, True, options.probe_timeout_s, options.start_timeout_s)
            await negotiate(connection, options, plan)
            return connection
    except BaseException:
        await asyncio.shield(connection.abort())
        raise
    await asyncio.shield(connection.abort())
    raise first_error
