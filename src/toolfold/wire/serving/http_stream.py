"""The answer to one HTTP request: plain JSON where nothing comes before it, an event stream where something does.

A stream is filled by the answering task and emptied by the HTTP request; in the legacy era another request may resume
it where the first was cut off. Above: `http.py`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import Parts
from toolfold.wire.serving.exchange import RpcError

__all__ = ["ClientGone", "DisconnectWatch", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = b"application/json"
_EVENTS = b"text/event-stream"
# Watching for a disconnect costs a task: a request that is answered sooner than this goes without. Under load answers
# take their time, and a watch on each costs a third of the throughput.
_WATCH_AFTER_S = 0.25
# How many messages, and how much of them, wait for a client that does not read; further ones are dropped.
_MAX_WAITING = 2048
_WAITING_BYTES = 4 * 1024 * 1024
# How much of what was sent is kept for a client that resumes, beside the last message.
_REPLAY_BYTES = 256 * 1024
_BAD_REQUEST = frozenset({jsonrpc.HEADER_MISMATCH, jsonrpc.MISSING_CAPABILITY, jsonrpc.UNSUPPORTED_VERSION})


def _status_of(fault: RpcError | None, *, modern: bool) -> int:
    if fault is None:
        return 200
    if fault.refused:
        return 400
    if not modern:
        return 200
    if fault.code == jsonrpc.METHOD_NOT_FOUND:
        return 404
    return 400 if fault.code in _BAD_REQUEST else 200


class ResponseStream:
    """Messages on their way to a client. One with a `name` can be resumed."""

    def __init__(self, name: str = "", max_events: int = 0) -> None:
        self.name = name
        self.done = False
        self.fault: RpcError | None = None
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        # Bytes that are kept for a client that resumes.
        self.size = 0
        self._max_events = max_events
        self._replay: deque[tuple[int, bytes]] = deque()
        self._count = 0
        self._wake: asyncio.Future[None] | None = None
        self._expected = 1

    @property
    def started(self) -> bool:
        """Whether something came before the answer."""
        return self._count > 0

    def expect(self, answers: int) -> None:
        """How many answers end it: a batch has several."""
        self._expected = answers

    def push(self, message: bytes) -> None:
        if self.done:
            return
        self._count += 1
        self._record(self._count, message)
        if len(self._waiting) < _MAX_WAITING and self._waiting_bytes + len(message) <= _WAITING_BYTES:
            self._waiting.append((self._count, message))
            self._waiting_bytes += len(message)
        self._signal()

    def put(self, number: int, message: bytes) -> None:
        """A message that has its number from another gateway's stream, which is taken up here."""
        self._count = max(self._count, number)
        self._record(number, message)
        self._waiting.append((number, message))
        self._waiting_bytes += len(message)
        self._signal()

    def _record(self, number: int, message: bytes) -> None:
        if not self._max_events:
            return
        self._replay.append((number, message))
        self.size += len(message)
        while len(self._replay) > 1 and (len(self._replay) > self._max_events or self.size > _REPLAY_BYTES):
            self.size -= len(self._replay.popleft()[1])

    def finish(self, message: bytes, fault: RpcError | None) -> None:
        self._expected -= 1
        if message:
            self._waiting.append((self._count + 1, message))
            self._record(self._count + 1, message)
            if self._expected:
                self._count += 1
        self.fault = fault
        self.done = self._expected <= 0
        self._signal()

    def finish_long(self, parts: Parts) -> None:
        self.finish(b"".join(parts), None)

    def end(self) -> None:
        self.done = True
        self._signal()

    def _signal(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Until something is there to send, it is done, or the time is up."""
        if self._waiting or self.done:
            return
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({self._wake}, timeout=timeout_s)
        finally:
            self._wake = None

    async def finished(self) -> None:
        """Until it is done, whatever came before."""
        while not self.done:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def take(self) -> list[tuple[int, bytes]]:
        taken = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return taken

    def rewind(self, after: int) -> None:
        """Puts what was sent after that number back, as far as it was kept."""
        self._waiting = deque(entry for entry in self._replay if entry[0] > after)
        self._waiting_bytes = sum(len(message) for _, message in self._waiting)

    def event(self, number: int, message: bytes) -> bytes:
        mark = b"id: %b_%d\n" % (self.name.encode(), number) if self.name else b""
        return b"%bevent: message\ndata: %b\n\n" % (mark, message)


class ClientGone(Exception):
    """The client closed the connection."""


class Responder:
    """Sends one HTTP response and notices when nobody is left to read it."""

    def __init__(self, receive: Receive, send: Send, keep_alive_s: float) -> None:
        self._receive = receive
        self._send = send
        self._keep_alive_s = keep_alive_s

    async def plain(
        self, status: int, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = (), *, kind: bytes = _JSON
    ) -> None:
        length = (b"content-length", b"%d" % len(body))
        content_type = ((b"content-type", kind),) if body else ()
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*content_type, length, *headers]}
        )
        await self._send({"type": "http.response.body", "body": body})

    async def stream(self, stream: ResponseStream, *, modern: bool, events: bool = True, prime: bytes = b"") -> None:
        """Sends what the stream brings, until it is done. Raises `ClientGone` as soon as the client is."""
        watch = DisconnectWatch(self._receive)
        try:
            if events:
                await watch.run(stream.wait())
            else:
                await watch.run(stream.finished())
            if stream.done and (not stream.started or not events):
                taken = stream.take()[-1:]
                await self.plain(
                    _status_of(stream.fault, modern=modern) if taken else 202, taken[0][1] if taken else b""
                )
                return
            await self._events(stream, watch, prime)
        finally:
            watch.stop()

    async def follow(self, stream: ResponseStream) -> None:
        """A stream that a client listens to, from its first moment on."""
        watch = DisconnectWatch(self._receive)
        try:
            await self._events(stream, watch)
        finally:
            watch.stop()

    async def _events(self, stream: ResponseStream, watch: "DisconnectWatch", prime: bytes = b"") -> None:
        start = [(b"content-type", _EVENTS), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await self._send({"type": "http.response.start", "status": 200, "headers": start})
        if prime:
            await self._body(prime)
        while taken := await self._next(stream, watch):
            await self._body(taken)
        await self._send({"type": "http.response.body", "body": b""})

    async def _next(self, stream: ResponseStream, watch: "DisconnectWatch") -> bytes:
        """What to send next; nothing at the end."""
        taken = stream.take()
        if not taken and not stream.done:
            await watch.run(stream.wait(self._keep_alive_s))
            taken = stream.take()
        if taken:
            return b"".join(stream.event(number, message) for number, message in taken)
        return b"" if stream.done else b": still here\n\n"

    async def _body(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


class DisconnectWatch:
    """Looks whether the client is still there, once waiting takes a while."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._gone = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_WATCH_AFTER_S, self._start)

    def _start(self) -> None:
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def run(self, work: Awaitable[None]) -> None:
        """Waits for `work` in this task, and raises `ClientGone` when the client leaves meanwhile."""
        task = asyncio.current_task()
        self._waiting = task
        try:
            if self._gone:
                raise ClientGone
            await work
        except asyncio.CancelledError:
            if not self._gone or task is None:
                raise
            # The cancellation was ours: without this a later timeout of the task would take it for its own.
            task.uncancel()
            raise ClientGone from None
        finally:
            self._waiting = None
            if asyncio.iscoroutine(work):
                work.close()

    def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            self._task = None  # each holds the other
