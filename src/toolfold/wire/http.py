"""Transports over HTTP: streamable HTTP of both eras, and HTTP+SSE, its predecessor of 2024-11-05.

Streamable: each request is a POST, its answer JSON or an event stream. Modern servers have no session, headers repeat
what the message says, and closing the stream cancels; legacy ones may have a session, with a GET stream for what the
server starts, and streams that can be resumed. HTTP+SSE: one event stream down, a POST for each message up. Above:
`connect.py`. Below: `http_client.py`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from toolfold.containers import TaskSet
from toolfold.errors import ProtocolViolation, RemoteError, ServerClosed, ServerUnavailable, UpstreamError
from toolfold.types import Era
from toolfold.wire.connection import Connection
from toolfold.wire.dispatcher import Dispatcher, PendingRequest, SendReply, answer_too_large, unreadable_answer
from toolfold.wire.headers import encode_header
from toolfold.wire.http_client import (
    JSON_TYPE,
    STREAM_TYPE,
    BodyTooLarge,
    HttpClient,
    content_type,
    read_body,
    read_message,
)
from toolfold.wire.jsonrpc import DECODE_ERRORS, notification_message, parse_envelope
from toolfold.wire.negotiation import NegotiationPlan, negotiate
from toolfold.wire.spill import Edges, SpillPolicy
from toolfold.wire.transport import RequestHead, Transport
from toolfold.wire.types import MODERN_VERSION, Handlers, HttpTarget, WireOptions

if TYPE_CHECKING:
    import httpx2


log = logging.getLogger("toolfold.wire")

# How long a stream may take to end after its answer came: only a connection whose body was read can be used again.
_LINGER_S = 1.0

_POST_TIMEOUT_S = 10.0
_POST_HEADERS = {"Accept": f"{JSON_TYPE}, {STREAM_TYPE}", "Content-Type": JSON_TYPE}

# A server that is asked over HTTP may have to start first: it gets this many probe times before the other question.
_PATIENCE_PROBES = 4

_RETRY_S = 1.0
_MAX_RETRY_S = 30.0
# How often in a row a stream is tried again that cannot be opened.
_ATTEMPTS = 5

_Follow = Callable[
    ["httpx2.Response", PendingRequest, str | None, int | None], Awaitable[tuple[str | None, int | None]]
]


class _HttpMessages:
    """What the two have in common: the client, and messages that are sent in the background."""

    def __init__(self, http: HttpClient, options: WireOptions, dispatcher: Dispatcher) -> None:
        self._http = http
        self._options = options
        self._spill_policy = SpillPolicy.of(options)
        self._dispatcher = dispatcher
        self._loop = asyncio.get_running_loop()
        self._posts = TaskSet(log)

    @property
    def peer(self) -> tuple[str, str]:
        url, session = self._http.url, getattr(self, "_session", None)
        port = url.port or (443 if url.scheme == "https" else 80)
        return f"{url.host}:{port}", (session.id if session is not None else None) or ""

    def post(self, message: bytes, /) -> None:
        self._posts.start(self._deliver(message))

    async def _deliver(self, message: bytes) -> None:
        raise NotImplementedError

    async def drain(self) -> None:
        await self._posts.wait()


class _StreamableTransport(_HttpMessages, Transport):
    """One endpoint. `refused` is the last status with which it refused a message: another transport may fit then."""

    mirrors_parameters = True

    def __init__(self, http: HttpClient, options: WireOptions, dispatcher: Dispatcher) -> None:
        super().__init__(http, options, dispatcher)
        self._requests: set[asyncio.Task[None]] = set()
        self._era: Era | None = None
        self.refused: int | None = None
        self._session = _Session(http, options, dispatcher, self.post)
        self._closing: asyncio.Task[None] | None = None

    def start(self, pending: PendingRequest, message: bytes, head: RequestHead) -> None:
        task = self._loop.create_task(self._carry(pending, message, head))
        pending.carrier = task
        self._requests.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._requests.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                pending.fail(error)

        task.add_done_callback(done)

    def abandon(self, pending: PendingRequest, reason: str) -> None:
        # In the modern era `finish` closes the stream, which is the cancellation.
        if self._era == "legacy":
            super().abandon(pending, reason)

    def finish(self, pending: PendingRequest) -> None:
        future = pending.future
        answered = future.done() and not future.cancelled() and isinstance(future.exception(), RemoteError | None)
        if not answered and pending.carrier is not None:
            pending.carrier.cancel()

    def settle(self, era: Era, version: str) -> None:
        self._era = era
        if era == "legacy":
            self._session.version = version
        elif self._session.id is not None:  # the handshake was tried as well and opened a session nobody needs
            self._posts.start(self._session.end())

    def opened(self) -> None:
        if self._era == "legacy":
            self._session.listen()

    def kill(self) -> None:
        for task in self._requests:
            task.cancel()

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self.kill()
        await self._posts.cancel()
        await asyncio.gather(*self._requests, *self._session.stop(), return_exceptions=True)
        await self._session.end()
        await self._http.aclose()

    def _headers(self, head: RequestHead) -> dict[str, str]:
        if head.method == "initialize" or self._era == "legacy":
            return _POST_HEADERS | self._session.headers(head.method)
        headers = _POST_HEADERS | head.headers
        headers["MCP-Protocol-Version"] = MODERN_VERSION
        headers["Mcp-Method"] = encode_header(head.method)
        if head.name is not None:
            headers["Mcp-Name"] = encode_header(head.name)
        return headers

    async def _carry(self, pending: PendingRequest, message: bytes, head: RequestHead) -> None:
        """Carries one request to its answer, which reaches `pending` through the dispatcher."""
        if head.method == "initialize":
            self._session.initialize_message = message
        session = self._session.id
        for attempt in range(2):
            try:
                if await self._attempt(pending, message, head, session if attempt == 0 else None):
                    return
                await self._session.renew(session)
            except UpstreamError as error:
                pending.fail(error)
                return

    async def _attempt(self, pending: PendingRequest, message: bytes, head: RequestHead, session: str | None) -> bool:
        """False: the session was gone, so nothing was done, and a new one may be tried."""
        async with self._http.open("POST", self._headers(head), message) as response:
            if not response.is_success:
                self.refused = response.status_code
                error = await self._http.refusal(response)
                if session is not None and self._session.expired(response.status_code, error):
                    return False
                raise error
            if head.method == "initialize":
                self._session.id = response.headers.get("mcp-session-id")
            if content_type(response) == STREAM_TYPE:
                await self._read_stream(response, pending)
            else:
                await self._read_body(response, pending)
        return True

    async def _read_body(self, response: "httpx2.Response", pending: PendingRequest) -> None:
        try:
            body = await read_message(response, self._options.max_frame_bytes, self._spill_policy)
        except BodyTooLarge:
            pending.refuse(answer_too_large(pending.method, 0, self._options.max_frame_bytes))
            return
        if isinstance(body, bytes):
            self._dispatcher.receive(body, self.post, pending)
        else:
            self._dispatcher.spilled(body, self.post, pending)
        if not pending.future.done():
            kind = content_type(response) or "nothing"
            problem = f"HTTP status {response.status_code} with {kind} and no answer in it"
            raise unreadable_answer(pending.method, problem)

    async def _read_stream(self, response: "httpx2.Response", pending: PendingRequest) -> None:
        last, retry_ms = await self._read_events(response, pending)
        if pending.future.done():
            return
        if self._era == "modern" or last is None:
            raise self._http.cut_off("its stream ended without an answer")
        await self._session.resume(pending, last, retry_ms, self._read_events)

    async def _read_events(
        self, response: "httpx2.Response", pending: PendingRequest, last: str | None = None, retry_ms: int | None = None
    ) -> tuple[str | None, int | None]:
        """Reads a stream until its answer came or it ended; returns where it can be resumed."""
        limit = self._options.max_frame_bytes
        with contextlib.suppress(ServerClosed, TimeoutError):
            async with asyncio.timeout(None) as linger:
                async for event in self._http.events(response, limit, self._spill_policy):
                    last = event.id or last
                    retry_ms = event.retry_ms if event.retry_ms is not None else retry_ms
                    if event.oversized:
                        pending.refuse(answer_too_large(pending.method, 0, limit))
                    self._dispatcher.receive_event(event, self.post, pending)
                    if pending.future.done() and linger.when() is None:
                        linger.reschedule(self._loop.time() + _LINGER_S)
        return last, retry_ms

    async def _deliver(self, message: bytes) -> None:
        try:
            method = parse_envelope(message).method
        except DECODE_ERRORS:
            method = ""
        headers = self._headers(RequestHead(method if isinstance(method, str) else ""))
        try:
            async with asyncio.timeout(_POST_TIMEOUT_S), self._http.open("POST", headers, message) as response:
                if not response.is_success:
                    self._dispatcher.noise(f"a message was refused with HTTP status {response.status_code}")
        except (UpstreamError, TimeoutError) as error:
            self._dispatcher.noise(f"a message could not be delivered: {error}")


class _Session:
    """The session with one server. `id` is the server's name for it, `initialize_message` opens one, `version` is the
    negotiated one."""

    def __init__(self, http: HttpClient, options: WireOptions, dispatcher: Dispatcher, reply: SendReply) -> None:
        self._http = http
        self._options = options
        self._dispatcher = dispatcher
        self._reply = reply
        self._listener: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()
        self.id: str | None = None
        self.initialize_message = b""
        self.version = ""

    def headers(self, method: str) -> dict[str, str]:
        if method == "initialize":
            return {}
        headers = {"MCP-Protocol-Version": self.version} if self.version else {}
        return headers | ({"Mcp-Session-Id": self.id} if self.id is not None else {})

    # Servers differ: the protocol says 404, others answer 400 and name the session.
    def expired(self, status: int, error: UpstreamError) -> bool:
        """Whether a refusal says that the session is gone, and so that nothing was done."""
        return status == 404 or (status == 400 and "session" in error.message.lower())

    async def renew(self, old: str | None) -> None:
        """Opens a new session, once for all requests whose session was gone."""
        async with self._renewing:
            # Requests that ran at the same time found the same session gone: the first renews it for all.
            if self.id != old:
                return
            self.stop()
            async with self._http.open("POST", _POST_HEADERS, self.initialize_message) as response:
                if not response.is_success or not await self._accepted(response):
                    raise self._http.cut_off("its session ended and no new one could be opened")
                self.id = response.headers.get("mcp-session-id")
            ready = notification_message("notifications/initialized", None)
            async with self._http.open("POST", _POST_HEADERS | self.headers(""), ready):
                pass
            self.listen()

    async def _accepted(self, response: "httpx2.Response") -> bool:
        if content_type(response) == STREAM_TYPE:
            async for event in self._http.events(response, self._options.max_frame_bytes):
                if event.data and _is_result(event.data):
                    return True
            return False
        try:
            return _is_result(await read_body(response, self._options.max_frame_bytes))
        except BodyTooLarge:
            return False

    async def end(self) -> None:
        """Ends the session at the server. A server that refuses keeps it, which is its right."""
        if self.id is None:
            return
        headers, self.id = self.headers(""), None
        try:
            async with asyncio.timeout(self._options.close_grace_s), self._http.open("DELETE", headers):
                pass
        except (UpstreamError, TimeoutError):
            return

    def listen(self) -> None:
        self._listener = asyncio.get_running_loop().create_task(self._follow())

    def stop(self) -> list[asyncio.Task[None]]:
        """Stops listening; returns the tasks to wait for."""
        stopped = [self._listener] if self._listener is not None else []
        for task in stopped:
            task.cancel()
        self._listener = None
        return stopped

    async def _follow(self) -> None:
        """Keeps the GET stream open, as long as the server offers one."""
        last, pause, failures = None, _RETRY_S, 0
        while failures < _ATTEMPTS:
            try:
                async with self._http.open("GET", self._stream_headers(last)) as response:
                    if not _is_stream(response):
                        return
                    failures = 0
                    async for event in self._http.events(response, self._options.max_frame_bytes):
                        last = event.id or last
                        pause = event.retry_ms / 1000 if event.retry_ms is not None else pause
                        if event.data:
                            self._dispatcher.receive(event.data, self._reply)
            except UpstreamError:
                failures += 1
            await asyncio.sleep(min(pause * 2**failures, _MAX_RETRY_S))

    def _stream_headers(self, last: str | None) -> dict[str, str]:
        headers = {"Accept": STREAM_TYPE} | self.headers("")
        return headers | ({"Last-Event-ID": last} if last else {})

    async def resume(self, pending: PendingRequest, last: str | None, retry_ms: int | None, follow: _Follow) -> None:
        """Resumes the stream of a request that ended before its answer came."""
        failures = 0
        while failures < _ATTEMPTS:
            await asyncio.sleep(retry_ms / 1000 if retry_ms is not None else _RETRY_S)
            try:
                async with self._http.open("GET", self._stream_headers(last)) as response:
                    if not _is_stream(response):
                        break
                    before = last
                    last, retry_ms = await follow(response, pending, last, retry_ms)
                    # A server that ends the stream each time without an event would be asked for ever.
                    failures = failures + 1 if last == before else 0
            except UpstreamError:
                failures += 1
            if pending.future.done():
                return
        raise self._http.cut_off("its stream ended without an answer and could not be taken up again")


def _is_stream(response: "httpx2.Response") -> bool:
    return response.is_success and content_type(response) == STREAM_TYPE


def _is_result(body: bytes) -> bool:
    try:
        return bool(bytes(parse_envelope(body).result))
    except DECODE_ERRORS:
        return False


class _SseTransport(_HttpMessages, Transport):
    """HTTP+SSE: its event stream names the address for messages, and brings every answer. It is tried last."""

    def __init__(self, http: HttpClient, options: WireOptions, dispatcher: Dispatcher) -> None:
        super().__init__(http, options, dispatcher)
        self._limit = options.max_frame_bytes
        self._endpoint: asyncio.Future[httpx2.URL] = self._loop.create_future()
        self._stream: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Opens the stream and waits for the address. Where that fails, it is closed."""
        self._stream = self._loop.create_task(self._read())
        waiting: set[asyncio.Future[Any]] = {self._stream, self._endpoint}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not self._endpoint.done():
                await self._stream
            self._endpoint.result()
        except BaseException:
            await asyncio.shield(self.aclose())
            raise

    async def _read(self) -> None:
        try:
            async with self._http.open("GET", {"Accept": STREAM_TYPE}) as response:
                if not _is_stream(response):
                    raise await self._http.refusal(response)
                async for event in self._http.events(response, self._limit, self._spill_policy):
                    if event.name == "endpoint":
                        self._set_endpoint(event.data)
                    elif event.oversized:
                        self._dispatcher.oversized(Edges(size=self._limit + 1), self._limit)
                    else:
                        self._dispatcher.receive_event(event, self.post)
            if not self._endpoint.done():
                where = "before saying where to send messages"
                raise ProtocolViolation(f"{self._http.origin} ended its event stream {where}")
        finally:
            self._dispatcher.lose("its event stream ended", self._http.cut_off)

    def _set_endpoint(self, address: bytes) -> None:
        if self._endpoint.done():
            return
        import httpx2

        try:
            url = self._http.url.join(address.decode("utf-8", "replace"))
        except httpx2.InvalidURL:
            url = None
        # The configured headers may hold secrets: an address of another origin would send them there.
        if url is None or not self._http.same_origin(url):
            problem = ProtocolViolation(f"{self._http.origin} wants messages to be sent to another server")
            self._endpoint.set_exception(problem)
        else:
            self._endpoint.set_result(url)

    def start(self, pending: PendingRequest, message: bytes, head: RequestHead) -> None:
        pending.carrier = self._posts.start(self._carry(pending, message))

    async def _carry(self, pending: PendingRequest, message: bytes) -> None:
        try:
            await self._send(message)
        except UpstreamError as error:
            pending.fail(error)

    async def _send(self, message: bytes) -> None:
        async with self._http.open("POST", {"Content-Type": JSON_TYPE}, message, self._endpoint.result()) as response:
            if not response.is_success:
                raise await self._http.refusal(response)

    async def _deliver(self, message: bytes) -> None:
        try:
            await self._send(message)
        except UpstreamError as error:
            self._dispatcher.noise(f"a message could not be delivered: {error}")

    def kill(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    async def aclose(self) -> None:
        self.kill()
        await self._posts.cancel()
        if self._stream is not None:
            await asyncio.gather(self._stream, return_exceptions=True)
        if self._endpoint.done() and not self._endpoint.cancelled():
            self._endpoint.exception()  # asked for, so that asyncio does not log it as never retrieved
        await self._http.aclose()


async def open_http(target: HttpTarget, options: WireOptions, handlers: Handlers, era: Era | None) -> Connection:
    """Opens a connection by the first of the three ways that the server speaks."""
    legacy = era == "legacy"
    patience = options.start_timeout_s / 2 if legacy else options.probe_timeout_s * _PATIENCE_PROBES
    plan = NegotiationPlan(not legacy, legacy, options.probe_timeout_s, patience)
    dispatcher = Dispatcher(handlers, options.capabilities)
    transport = _StreamableTransport(HttpClient(target, options), options, dispatcher)
    connection = Connection(transport, dispatcher, options)
    try:
        return await negotiate(connection, options, plan)
    except UpstreamError as error:
        if isinstance(error, ServerUnavailable) or not 400 <= (transport.refused or 0) < 500:
            raise
        return await _open_sse(target, options, handlers, error)


async def _open_sse(
    target: HttpTarget, options: WireOptions, handlers: Handlers, first_error: UpstreamError
) -> Connection:
    dispatcher = Dispatcher(handlers, options.capabilities)
    transport = _SseTransport(HttpClient(target, options), options, dispatcher)
    plan = NegotiationPlan(False, True, options.probe_timeout_s, options.start_timeout_s)
    try:
        await transport.open()
        return await negotiate(Connection(transport, dispatcher, options), options, plan)
    except UpstreamError:
        raise first_error from None
