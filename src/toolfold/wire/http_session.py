"""What only legacy streamable HTTP has: a session, a GET stream for what the server starts, and resuming.

Above: `http.py`. Below: `http_client.py`, `sse.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from toolfold.errors import UpstreamError
from toolfold.wire.dispatcher import Dispatcher, PendingRequest, SendReply
from toolfold.wire.http_client import JSON_TYPE, STREAM_TYPE, BodyTooLarge, HttpClient, content_type, read_body
from toolfold.wire.jsonrpc import DECODE_ERRORS, notification_message, parse_envelope
from toolfold.wire.spill import SpillPolicy
from toolfold.wire.sse import Event, SseParser
from toolfold.wire.types import WireOptions

if TYPE_CHECKING:
    import httpx2

_RETRY_S = 1.0
_MAX_RETRY_S = 30.0
_ATTEMPTS = 5
"""How often in a row a stream is tried again that cannot be opened."""

_Follow = Callable[
    ["httpx2.Response", PendingRequest, str | None, int | None], Awaitable[tuple[str | None, int | None]]
]


class HttpSession:
    """The session with one server. `id` is the server's name for it, `hello` the message that opens one, `version` the
    one that was agreed on."""

    def __init__(self, http: HttpClient, options: WireOptions, peer: Dispatcher, reply: SendReply) -> None:
        self._http = http
        self._options = options
        self._peer = peer
        self._reply = reply
        self._listener: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()
        self.id: str | None = None
        self.hello = b""
        self.version = ""

    def headers(self, method: str) -> dict[str, str]:
        if method == "initialize":
            return {}
        headers = {"MCP-Protocol-Version": self.version} if self.version else {}
        return headers | ({"Mcp-Session-Id": self.id} if self.id is not None else {})

    # --- the session

    def expired(self, status: int, error: UpstreamError) -> bool:
        """Whether a refusal says that the session is gone, and so that nothing was done."""
        return status == 404 or (status == 400 and "session" in error.message.lower())

    async def renew(self, old: str | None) -> None:
        """Opens a new session, once for all requests that found the old one gone."""
        async with self._renewing:
            if self.id != old:
                return
            self.stop()
            headers = {"Accept": f"{JSON_TYPE}, {STREAM_TYPE}", "Content-Type": JSON_TYPE}
            async with self._http.open("POST", headers, self.hello) as response:
                if not response.is_success or not await self._welcomed(response):
                    raise self._http.cut_off("its session ended and no new one could be opened")
                self.id = response.headers.get("mcp-session-id")
            ready = notification_message("notifications/initialized", None)
            async with self._http.open("POST", headers | self.headers(""), ready):
                pass
            self.listen()

    async def _welcomed(self, response: "httpx2.Response") -> bool:
        if content_type(response) == STREAM_TYPE:
            async for event in read_events(self._http, response, self._options.max_frame_bytes):
                if event.data and _is_result(event.data):
                    return True
            return False
        try:
            return _is_result(await read_body(response, self._options.max_frame_bytes))
        except BodyTooLarge:
            return False

    async def end(self) -> None:
        """Tells the server that the session is over. It need not care."""
        if self.id is None:
            return
        headers, self.id = self.headers(""), None
        try:
            async with asyncio.timeout(self._options.close_grace_s), self._http.open("DELETE", headers):
                pass
        except (UpstreamError, TimeoutError):
            return

    # --- streams

    def listen(self) -> None:
        self._listener = asyncio.get_running_loop().create_task(self._follow())

    def stop(self) -> list[asyncio.Task[None]]:
        """Stops listening; gives back what to wait for."""
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
                    if not response.is_success or content_type(response) != STREAM_TYPE:
                        return
                    failures = 0
                    async for event in read_events(self._http, response, self._options.max_frame_bytes):
                        last = event.id or last
                        pause = event.retry_ms / 1000 if event.retry_ms is not None else pause
                        if event.data:
                            self._peer.receive(event.data, self._reply)
            except UpstreamError:
                failures += 1
            await asyncio.sleep(min(pause * 2**failures, _MAX_RETRY_S))

    def _stream_headers(self, last: str | None) -> dict[str, str]:
        headers = {"Accept": STREAM_TYPE} | self.headers("")
        return headers | ({"Last-Event-ID": last} if last else {})

    async def resume(self, pending: PendingRequest, last: str | None, retry_ms: int | None, follow: _Follow) -> None:
        """Takes up the stream of a request that ended before the answer came."""
        failures = 0
        while failures < _ATTEMPTS:
            await asyncio.sleep(retry_ms / 1000 if retry_ms is not None else _RETRY_S)
            try:
                async with self._http.open("GET", self._stream_headers(last)) as response:
                    if not response.is_success or content_type(response) != STREAM_TYPE:
                        break
                    before = last
                    last, retry_ms = await follow(response, pending, last, retry_ms)
                    failures = failures + 1 if last == before else 0
            except UpstreamError:
                failures += 1
            if pending.future.done():
                return
        raise self._http.cut_off("its stream ended without an answer and could not be taken up again")


def _is_result(body: bytes) -> bool:
    try:
        return bool(bytes(parse_envelope(body).result))
    except DECODE_ERRORS:
        return False


async def read_events(
    http: HttpClient, response: "httpx2.Response", limit: int, spiller: SpillPolicy | None = None
) -> AsyncIterator[Event]:
    """The events of a stream; raises `ServerClosed` where it breaks off. Their spills are the caller's to close."""
    import httpx2

    parser = SseParser(limit, spiller)
    try:
        async for chunk in response.aiter_bytes():
            for event in parser.feed(chunk):
                yield event
    except httpx2.RequestError as error:
        raise http.cut_off(str(error)) from None
    finally:
        parser.close()
