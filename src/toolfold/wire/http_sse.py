"""The oldest HTTP transport (2024-11-05): one event stream down, a POST for each message up.

Tried last, when an endpoint knows nothing newer. Above: `http_open.py`. Below: `http_client.py`, `sse.py`.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from toolfold.errors import ProtocolViolation, UpstreamError
from toolfold.types import Era
from toolfold.wire.dispatcher import Dispatcher, PendingRequest
from toolfold.wire.http_client import JSON_TYPE, STREAM_TYPE, HttpClient, content_type
from toolfold.wire.http_session import read_events
from toolfold.wire.jsonrpc import cancelled_message
from toolfold.wire.spill import SpillPolicy
from toolfold.wire.transport import RequestHead
from toolfold.wire.types import WireOptions

if TYPE_CHECKING:
    import httpx2


class SseTransport:
    """Its stream says where to send messages, and brings every answer."""

    mirrors_parameters = False
    pid = None
    congested = False

    def __init__(self, http: HttpClient, options: WireOptions, peer: Dispatcher) -> None:
        self._http = http
        self._limit = options.max_frame_bytes
        self._spiller = SpillPolicy.of(options)
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._endpoint: asyncio.Future[httpx2.URL] = self._loop.create_future()
        self._stream: asyncio.Task[None] | None = None
        self._sends: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Opens the stream and waits for the address."""
        self._stream = self._loop.create_task(self._read())
        waiting: set[asyncio.Future[Any]] = {self._stream, self._endpoint}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not self._endpoint.done():
            await self._stream
            raise ProtocolViolation(f"{self._http.origin} ended its event stream before saying where to send messages")
        self._endpoint.result()

    async def _read(self) -> None:
        try:
            async with self._http.open("GET", {"Accept": STREAM_TYPE}) as response:
                if not response.is_success or content_type(response) != STREAM_TYPE:
                    raise await self._http.refusal(response)
                async for event in read_events(self._http, response, self._limit, self._spiller):
                    if event.name == "endpoint":
                        self._found(event.data)
                    elif event.oversized:
                        self._peer.oversized(b"", b"", self._limit + 1, self._limit)
                    elif event.spill is not None:
                        self._peer.spilled(event.spill, self.post)
                    elif event.data:
                        self._peer.receive(event.data, self.post)
        finally:
            self._peer.lose("its event stream ended", self._http.cut_off)

    def _found(self, address: bytes) -> None:
        if self._endpoint.done():
            return
        import httpx2

        try:
            url = self._http.url.join(address.decode("utf-8", "replace"))
        except httpx2.InvalidURL:
            url = None
        if url is None or not self._http.same_origin(url):
            problem = ProtocolViolation(f"{self._http.origin} wants messages to be sent to another server")
            self._endpoint.set_exception(problem)
        else:
            self._endpoint.set_result(url)

    def start(self, pending: PendingRequest, message: bytes, head: RequestHead) -> None:
        pending.carrier = self._send(self._carry(pending, message))

    async def _carry(self, pending: PendingRequest, message: bytes) -> None:
        try:
            await self._post(message)
        except UpstreamError as error:
            pending.fail(error)

    async def _post(self, message: bytes) -> None:
        async with self._http.open("POST", {"Content-Type": JSON_TYPE}, message, self._endpoint.result()) as response:
            if not response.is_success:
                raise await self._http.refusal(response)

    async def _tell(self, message: bytes) -> None:
        try:
            await self._post(message)
        except UpstreamError as error:
            self._peer.noise(f"a message could not be delivered: {error}")

    def _send(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)
        return task

    def abandon(self, pending: PendingRequest, reason: str) -> None:
        self.post(cancelled_message(pending.number, reason))

    def finish(self, pending: PendingRequest) -> None:
        pass

    def post(self, message: bytes, /) -> None:
        self._send(self._tell(message))

    def settle(self, era: Era, version: str) -> None:
        pass

    def opened(self) -> None:
        pass

    async def drain(self) -> None:
        if self._sends:
            await asyncio.wait(set(self._sends))

    def kill(self) -> None:
        for task in (*self._sends, *([self._stream] if self._stream is not None else ())):
            task.cancel()

    async def aclose(self) -> None:
        self.kill()
        await asyncio.gather(
            *self._sends, *([self._stream] if self._stream is not None else ()), return_exceptions=True
        )
        if self._endpoint.done() and not self._endpoint.cancelled():
            self._endpoint.exception()
        await self._http.aclose()
