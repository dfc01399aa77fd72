"""Streamable HTTP, both eras: each request is a POST, its answer is JSON or an event stream.

Modern: no session, headers repeat what the message says, closing the stream cancels. Legacy: an optional session, a
GET stream for what the server starts, streams that can be taken up again. Above: `http_open.py`, `connection.py`.
Below: `http_client.py`, `sse.py`, `http_legacy.py`.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from toolfold.errors import RemoteError, ServerClosed, UpstreamError
from toolfold.types import Era
from toolfold.wire.channel import Head
from toolfold.wire.headers import header_value
from toolfold.wire.http_client import JSON_TYPE, STREAM_TYPE, Http, TooLarge, content_type, read_message
from toolfold.wire.http_legacy import LegacySession, events
from toolfold.wire.jsonrpc import UNREADABLE, cancelled_message, read_envelope
from toolfold.wire.peer import Peer, Pending, too_large, unreadable
from toolfold.wire.spill import Spiller
from toolfold.wire.values import MODERN_VERSION, WireOptions

if TYPE_CHECKING:
    import httpx2

LINGER_S = 1.0
"""How long a stream may take to end after its answer came, so that its connection can be used again."""

POST_TIMEOUT_S = 10.0


class StreamableChannel:
    """One endpoint. `refused` is the last status with which it refused a message, for whoever tries another way."""

    mirrors_parameters = True
    pid = None
    congested = False

    def __init__(self, http: Http, options: WireOptions, peer: Peer) -> None:
        self._http = http
        self._options = options
        self._spiller = Spiller.of(options)
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._posts: set[asyncio.Task[None]] = set()
        self._era: Era | None = None
        self.refused: int | None = None
        self._legacy = LegacySession(http, options, peer, self.post)
        self._closing: asyncio.Task[None] | None = None

    # --- what the connection asks for

    def start(self, pending: Pending, message: bytes, head: Head) -> None:
        task = self._loop.create_task(self._carry(pending, message, head))
        pending.carrier = task
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                pending.fail(error)

        task.add_done_callback(done)

    def abandon(self, pending: Pending, reason: str) -> None:
        if self._era == "legacy":
            self.post(cancelled_message(pending.number, reason))

    def finish(self, pending: Pending) -> None:
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

    def _headers(self, head: Head) -> dict[str, str]:
        headers = {"Accept": f"{JSON_TYPE}, {STREAM_TYPE}", "Content-Type": JSON_TYPE}
        if head.method == "initialize" or self._era == "legacy":
            return headers | self._legacy.headers(head.method)
        headers |= head.headers
        headers["MCP-Protocol-Version"] = MODERN_VERSION
        headers["Mcp-Method"] = header_value(head.method)
        if head.name is not None:
            headers["Mcp-Name"] = header_value(head.name)
        return headers

    async def _carry(self, pending: Pending, message: bytes, head: Head) -> None:
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

    async def _attempt(self, pending: Pending, message: bytes, head: Head, session: str | None) -> bool:
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

    async def _whole(self, response: "httpx2.Response", pending: Pending) -> None:
        try:
            body = await read_message(response, self._options.max_frame_bytes, self._spiller)
        except TooLarge:
            raise too_large(pending.method, 0, self._options.max_frame_bytes) from None
        if isinstance(body, bytes):
            self._peer.receive(body, self.post, pending)
        else:
            self._peer.spilled(body, self.post, pending)
        if not pending.future.done():
            kind = content_type(response) or "nothing"
            raise unreadable(pending.method, f"HTTP status {response.status_code} with {kind} and no answer in it")

    async def _stream(self, response: "httpx2.Response", pending: Pending) -> None:
        last, retry_ms = await self._events(response, pending)
        if pending.future.done():
            return
        if self._era == "modern" or last is None:
            raise self._http.cut_off("its stream ended without an answer")
        await self._legacy.resume(pending, last, retry_ms, self._events)

    async def _events(
        self, response: "httpx2.Response", pending: Pending, last: str | None = None, retry_ms: int | None = None
    ) -> tuple[str | None, int | None]:
        """Reads a stream until the answer came or it ended; gives back where it could be taken up again."""
        with contextlib.suppress(ServerClosed, TimeoutError):
            async with asyncio.timeout(None) as linger:
                async for event in events(self._http, response, self._options.max_frame_bytes, self._spiller):
                    last = event.id or last
                    retry_ms = event.retry_ms if event.retry_ms is not None else retry_ms
                    if event.oversized:
                        pending.fail(too_large(pending.method, 0, self._options.max_frame_bytes))
                    if event.data:
                        self._peer.receive(event.data, self.post, pending)
                    elif event.spill is not None:
                        self._peer.spilled(event.spill, self.post, pending)
                    if pending.future.done() and linger.when() is None:
                        linger.reschedule(self._loop.time() + LINGER_S)
        return last, retry_ms

    # --- notifications and answers

    async def _deliver(self, message: bytes) -> None:
        try:
            method = read_envelope(message).method
        except UNREADABLE:
            method = ""
        head = Head(method if isinstance(method, str) else "")
        try:
            async with (
                asyncio.timeout(POST_TIMEOUT_S),
                self._http.open("POST", self._headers(head), message) as response,
            ):
                if not response.is_success:
                    self._peer.noise(f"a message was refused with HTTP status {response.status_code}")
        except (UpstreamError, TimeoutError) as error:
            self._peer.noise(f"a message could not be delivered: {error}")
