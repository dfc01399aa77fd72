"""Legacy streamable HTTP: sessions, the stream for what the server starts, and streams that are taken up again.

A session belongs to the caller that opened it and to nobody else. There are only so many, and an unused one ends.
Above: `http.py`. Below: `session.py`, `http_stream.py`.
"""

import asyncio
import secrets
import time

import msgspec
from msgspec import UNSET

from toolfold.types import Caller
from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import Envelope, parse_number
from toolfold.wire.serving.http_guard import HttpError
from toolfold.wire.serving.http_stream import ClientGone, Responder, ResponseStream
from toolfold.wire.serving.server import Server, error_response
from toolfold.wire.serving.session import Session
from toolfold.wire.serving.types import RpcError

_SESSION_HEADER = b"mcp-session-id"
_RESUMING_VERSION = "2025-11-25"
"""From this version on a stream begins with an empty event, so that it can be taken up from its very start."""
_RETRY_MS = 1000
_SWEEP_S = 30.0
_MAX_FINISHED = 16
"""How many finished streams of a session are kept for clients that lost the end of one."""
_LINGER_BYTES = 4 * 1024 * 1024
"""How much they may hold together, beside the last of them."""
_SMALL_BYTES = 64 * 1024
_LINGER_S = 10.0
"""How long one that holds more is kept after all of it was sent: nobody tells whether all of it arrived."""


class _HttpSession:
    """A session and its streams. `general` is the one that belongs to no request."""

    def __init__(self, name: str, caller: Caller, kept: int) -> None:
        self.name = name
        self.owner = caller.name
        self.used = time.monotonic()
        self.session: Session | None = None
        self.general = ResponseStream("g", kept)
        self.listening: ResponseStream | None = None
        self._kept = kept
        self._numbers = 0
        self._streams: dict[str, ResponseStream] = {}

    def tell(self, method: str, params: bytes) -> None:
        self.general.push(jsonrpc.notification_message(method, params))

    def stream(self) -> ResponseStream:
        self._numbers += 1
        name = str(self._numbers)
        self._tidy()
        self._streams[name] = ResponseStream(name, self._kept)
        return self._streams[name]

    def sent(self, stream: ResponseStream) -> None:
        """All of a stream went out."""
        if stream.size > _SMALL_BYTES:
            asyncio.get_running_loop().call_later(_LINGER_S, self._streams.pop, stream.name, None)

    def _tidy(self) -> None:
        """Lets go of the oldest finished streams."""
        finished = [one for one in reversed(self._streams.values()) if one.done]
        size = 0
        for place, one in enumerate(finished):
            size += one.size
            if place >= _MAX_FINISHED or (place and size > _LINGER_BYTES):
                del self._streams[one.name]

    def taken_up(self, last: str) -> ResponseStream | None:
        """The stream that an event belongs to, set back to just after it."""
        name, _, number = last.rpartition("_")
        stream, after = self.general if name == "g" else self._streams.get(name), parse_number(number)
        if stream is not None and after is not None:
            stream.rewind(after)
        return stream

    @property
    def busy(self) -> bool:
        return self.listening is not None or (self.session is not None and len(self.session.running) > 0)


class _SessionTable:
    """All sessions of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._by_name: dict[str, _HttpSession] = {}
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._by_name)

    async def open(self, message: Envelope, caller: Caller) -> tuple[_HttpSession, bytes]:
        if len(self._by_name) >= self._server.options.max_sessions and not await self._make_room():
            raise HttpError(503, "too many sessions are open: try again later")
        name = secrets.token_urlsafe(24)
        known = caller if caller.session else msgspec.structs.replace(caller, session=name)
        opened = _HttpSession(name, caller, self._server.options.kept_events)
        opened.session, answer = await self._server.hello(message, known, opened.tell)
        self._by_name[name] = opened
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())
        return opened, answer

    def get(self, name: str, caller: Caller) -> _HttpSession:
        """The caller's own session of that name. Another's is as unknown as none."""
        found = self._by_name.get(name)
        if not name:
            raise HttpError(400, "an Mcp-Session-Id is needed here; begin with initialize")
        if found is None or found.owner != caller.name:
            raise HttpError(404, "there is no such session, or no longer; begin with initialize")
        found.used = time.monotonic()
        return found

    async def end(self, session: _HttpSession) -> None:
        if self._by_name.pop(session.name, None) is None:
            return
        session.general.end()
        if session.session is not None:
            await self._server.goodbye(session.session)

    async def _sweep(self) -> None:
        """Ends sessions that nobody used for long, as long as there are any."""
        idle_s = self._server.options.session_idle_s
        while self._by_name:
            await asyncio.sleep(min(_SWEEP_S, idle_s))
            limit = time.monotonic() - idle_s
            for session in [one for one in self._by_name.values() if one.used < limit and not one.busy]:
                await self.end(session)

    async def _make_room(self) -> bool:
        idle = [one for one in self._by_name.values() if not one.busy]
        if not idle:
            return False
        await self.end(min(idle, key=lambda one: one.used))
        return True

    async def aclose(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        for session in tuple(self._by_name.values()):
            await self.end(session)


class LegacyHttpHandler:
    """Answers the requests of the legacy era."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.sessions = _SessionTable(server)

    async def initialize(self, message: Envelope, caller: Caller, responder: Responder) -> None:
        try:
            session, answer = await self.sessions.open(message, caller)
        except RpcError as fault:
            await responder.plain(400 if fault.refused else 200, error_response(message.id, fault))
            return
        await responder.plain(200, answer, ((_SESSION_HEADER, session.name.encode()),))

    async def post(
        self, messages: list[Envelope], session: _HttpSession, responder: Responder, *, events: bool
    ) -> None:
        """Messages of a session: one, or in the one version that allows it several."""
        known = session.session
        assert known is not None  # noqa: S101 - a session in the table is open
        requests = []
        for message in messages:
            if message.method is UNSET:
                known.answered(message)
            elif message.id is UNSET:
                await self._server.notified(message, known)
            else:
                requests.append(message)
        if not requests:
            await responder.plain(202)
            return
        stream = session.stream()
        stream.expect(len(requests))
        for message in requests:
            try:
                self._server.legacy(message, known, stream)
            except RpcError as fault:
                stream.finish(error_response(message.id, fault), fault)
        resumes = known.client.version >= _RESUMING_VERSION
        prime = b"id: %b_0\nretry: %d\ndata: \n\n" % (stream.name.encode(), _RETRY_MS) if resumes else b""
        try:
            await responder.stream(stream, modern=False, events=events or len(requests) > 1, prime=prime)
            session.sent(stream)
        except ClientGone:
            return  # the work goes on, and whoever lost the stream may take it up again
        finally:
            session.used = time.monotonic()

    async def listen(self, session: _HttpSession, last: str | None, responder: Responder) -> None:
        """The stream for what belongs to no request, or one that was cut off."""
        stream = session.taken_up(last) if last else session.general
        if stream is None:
            raise HttpError(404, "that stream cannot be taken up any more")
        if stream is session.general:
            if session.listening is not None:
                raise HttpError(409, "this session has a listening stream already")
            session.listening = stream
        try:
            await responder.follow(stream)
            session.sent(stream)
        except ClientGone:
            return
        finally:
            session.used = time.monotonic()
            if stream is session.general:
                session.listening = None
