"""What one HTTP connection may cost, and how many there may be: bounds around uvicorn's HTTP/1.1.

uvicorn bounds neither the head of a request nor its time, nor for how long a client takes nothing of its answer. Here
all of it is, before anybody has shown a key. A connection is unknown until a request on it was let in: of those there
are few, and the oldest makes room. Then it is its caller's, and of connections that lie idle, whoever holds
most gives one up. Above: the face that runs the port. Below: uvicorn.
"""

import asyncio
from functools import partial
from typing import Any, cast

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from toolfold.containers import who_yields
from toolfold.wire.serving.http_guard import ENTER, HttpError

__all__ = ["ConnectionLimits"]

# As HTTP/2 counts a header: its name, its value, and what an entry costs.
_FIELD_BYTES = 32
# How many bytes around the body, as chunks have them, may come for each byte of it.
_FRAMING = 8
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """Limits of one port."""

    # Of the request line and all headers, trailers too.
    head_bytes: int = 64 * 1024
    # From the first byte of a request to the end of its headers.
    head_s: float = 20.0
    # Between two pieces of a body, and between two moments in which the client takes something of its answer.
    stalled_s: float = 30.0
    # For the rest of a body whose request is answered already.
    rest_s: float = 5.0
    # Until the next request, while the connection is unknown.
    idle_s: float = 5.0
    # Requests that wait on one connection for the answer to an earlier one.
    pipelined: int = 16
    unknown: int = 256
    unknown_per_address: int = 128
    known: int = 384

    @classmethod
    def for_descriptors(cls, descriptors: int) -> "ConnectionLimits":
        """For a process that may open so many files: the rest of them is for servers, scripts and the store."""
        room = min(descriptors, 32_768) // 8
        return cls(unknown=2 * room, unknown_per_address=room, known=3 * room)

    def protocol(self) -> type[asyncio.Protocol]:
        """What uvicorn makes a connection of, for one port."""
        return cast("type[asyncio.Protocol]", partial(_HttpConnection, _ConnectionTable(self)))


class _ConnectionTable:
    """All connections of one port."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        # The oldest first; by address, and by caller the longest unused first.
        self._unknown: dict[_HttpConnection, None] = {}
        self._by_address: dict[str, dict[_HttpConnection, None]] = {}
        self._known: dict[str, dict[_HttpConnection, None]] = {}

    def add(self, connection: "_HttpConnection") -> None:
        same = self._by_address.get(connection.address, {})
        if len(same) >= self.limits.unknown_per_address:
            self._drop(next(iter(same)))
        elif len(self._unknown) >= self.limits.unknown:
            self._drop(next(iter(self._unknown)))
        self._unknown[connection] = None
        self._by_address.setdefault(connection.address, {})[connection] = None

    def enter(self, connection: "_HttpConnection", caller: str) -> None:
        """A request of this caller was let in. Raises `HttpError` where there is no room for one more."""
        if connection.caller != caller:
            self.discard(connection)
            self._make_room(caller)
            connection.caller = caller
        own = self._known.setdefault(caller, {})
        own.pop(connection, None)
        own[connection] = None

    def _make_room(self, caller: str) -> None:
        held = {name: len(own) for name, own in self._known.items()}
        if sum(held.values()) < self.limits.known:
            return
        yields = who_yields(held, caller, self.limits.known)
        idle = next((entry for entry in self._known.get(yields or "", ()) if not entry.busy), None)
        if idle is None:
            raise HttpError(
                503,
                "too many connections are open",
                ((b"connection", b"close"), (b"retry-after", b"5")),
                code="TOO_MANY_CONNECTIONS",
                next_action="close some, or try again later",
            )
        self._drop(idle)

    def discard(self, connection: "_HttpConnection") -> None:
        groups = (self._known, connection.caller) if connection.caller else (self._by_address, connection.address)
        members = groups[0].get(groups[1], {})
        members.pop(connection, None)
        if not members:
            groups[0].pop(groups[1], None)
        self._unknown.pop(connection, None)

    def _drop(self, connection: "_HttpConnection") -> None:
        self.discard(connection)
        connection.transport.abort()


class _HttpConnection(HttpToolsProtocol):
    """One connection. `caller` is empty as long as it is unknown."""

    def __init__(self, table: _ConnectionTable, **options: Any) -> None:
        super().__init__(**options)
        self._table = table
        self._limits = table.limits
        self.caller = ""
        self.address = ""
        self._idle_s = self.timeout_keep_alive
        self.timeout_keep_alive = table.limits.idle_s  # type: ignore[assignment]  # uvicorn says whole seconds
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._unsent = 0
        # Of the request that arrives: whether its headers and all of it are there, and what of it has come.
        self._in_head = False
        self._whole = True
        self._begun = False
        self._field_bytes = 0
        self._body_bytes = 0
        self._other_bytes = 0
        self._too_large = False

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn says that there is always one
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._table.add(self)
        self._expect_within(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.discard(self)
        self._expect_within(None)
        self._stop_stall()
        super().connection_lost(exc)

    # --- what arrives

    def data_received(self, data: bytes) -> None:
        before, self._begun = self._body_bytes, False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not self._begun:
            self._other_bytes += len(data) - (self._body_bytes - before)
            if self._other_bytes > self._limits.head_bytes + _FRAMING * self._body_bytes:
                self._too_large = True
                self.send_400_response("")
            elif self._whole and not self.busy and self._deadline is None:
                self._expect_within(self._limits.head_s)  # it sends something, and no request

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][ENTER] = self._enter
        self._in_head, self._whole, self._begun = True, False, True
        self._field_bytes = self._body_bytes = self._other_bytes = 0
        self._expect_within(self._limits.head_s)

    def on_url(self, url: bytes) -> None:
        self._count_field(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_field(name, value)
        # What follows a body must not become a header of a request that was checked without it.
        if self._in_head:
            super().on_header(name, value)

    def _count_field(self, *parts: bytes) -> None:
        self._field_bytes += _FIELD_BYTES + sum(map(len, parts))
        if self._field_bytes > self._limits.head_bytes:
            self._too_large = True
            raise ValueError("the headers are too large")

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self._limits.pipelined:
            raise ValueError("too many requests at once")
        self._in_head = False
        self._expect_within(self._limits.stalled_s)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self.busy:
            self._expect_within(self._limits.stalled_s)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._whole = True
        self._expect_within(None)
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self.busy:
            self.transport.abort()  # it would stand in the middle of another answer
        elif self._too_large:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _expect_within(self, seconds: float | None) -> None:
        """Sets the time within which the client must go on; `None`: it owes nothing."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._expired, seconds)

    def _expired(self, seconds: float) -> None:
        self._deadline = None
        if self.flow.read_paused:  # it may have sent the rest long ago
            self._expect_within(seconds)
        else:
            self.transport.abort()

    def _enter(self, caller: str) -> None:
        self._table.enter(self, caller)
        self.timeout_keep_alive = self._idle_s

    # --- what is sent

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_stall()
        elif not self._whole and not self.busy:
            self._expect_within(self._limits.rest_s)

    def timeout_keep_alive_handler(self) -> None:
        # `close` would wait for a client that has not read its last answer.
        self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_stall()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall()

    def _start_stall(self) -> None:
        self._stop_stall()
        self._unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self._limits.stalled_s, self._check_stall)

    def _stop_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _check_stall(self) -> None:
        if self.transport.get_write_buffer_size() >= self._unsent:
            self.transport.abort()
        else:
            self._start_stall()
