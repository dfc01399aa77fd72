"""Serves on a pipe: one message a line, both eras side by side, until the other end closes it.

Nothing but messages is written. Above: the face that starts it. Below: `server.py`, `wire.pipes`.
"""

import asyncio
import contextlib
import logging
import os
import select
import sys
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, Struct, field

from toolfold.containers import BoundedDict, TaskSet
from toolfold.types import EMPTY_OBJECT, LOCAL, Caller
from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Envelope, Parts
from toolfold.wire.pipes import LineFramer, PipeReader, PipeWriter, enlarge_pipe
from toolfold.wire.serving.exchange import CUT_OFF, Exchange, ParsedParams, RpcError, _stopping, parse_params
from toolfold.wire.serving.server import MODERN_METHODS, Server
from toolfold.wire.serving.session import RunningRequests, Session, _parse_batch
from toolfold.wire.spill import Edges

__all__ = ["serve_stdio", "take_standard_streams"]

log = logging.getLogger("toolfold.wire.serving")

_READ_SIZE = 1 << 16
# How long requests may still be answered after the input ended, as of a client that sends them all and then closes it,
# and how often it is looked whether anybody is there to read the answers.
_SETTLE_S = 5.0
_LOOK_S = 0.1
# Of a client that does not wait for the answer to its handshake.
_MAX_WAITING = 1000
_FLUSH_S = 2.0


Identify = Callable[[str], Caller]

_MAX_NAMES = 16
_MAX_INFO_BYTES = 4096


def _local(client: str) -> Caller:
    return LOCAL


class _Named(Struct):
    name: str = ""


class _WithInfo(Struct):
    info: Raw = field(name="clientInfo", default=ABSENT)


def _initialize_info(params: Raw) -> Raw:
    with contextlib.suppress(*DECODE_ERRORS):  # whoever answers it says what is wrong with it
        return msgspec.json.decode(params, type=_WithInfo).info
    return ABSENT


def _client_name(info: Raw) -> str:
    with contextlib.suppress(*DECODE_ERRORS):
        return msgspec.json.decode(info, type=_Named).name
    return ""


class _Pipe:
    """The sink of every request on the pipe, and the state of the client at its other end."""

    def __init__(self, server: Server, identify: Identify, writer: PipeWriter) -> None:
        self._server = server
        self._identify = identify
        self._names: BoundedDict[bytes, str] = BoundedDict(_MAX_NAMES)
        self._writer = writer
        self._session: Session | None = None
        # While a handshake is answered: what came after it, from a client that does not wait.
        self._waiting: list[bytes] | None = None
        self._running = RunningRequests()
        self._tasks = TaskSet(log)

    def push(self, message: bytes) -> None:
        self._writer.write(message + b"\n")

    def finish(self, message: bytes, fault: RpcError | None) -> None:
        if message:
            self._writer.write(message + b"\n")

    def finish_long(self, parts: Parts) -> None:
        self._writer.write_parts((*parts, b"\n"))

    def _notify(self, method: str, params: bytes) -> None:
        self.push(jsonrpc.notification_message(method, params))

    def line(self, line: bytes) -> None:
        if self._waiting is not None and len(self._waiting) < _MAX_WAITING:
            self._waiting.append(line)
            return
        try:
            # Undecoded parts are never checked by msgspec: invalid UTF-8 would be passed on.
            if not line.isascii():
                line.decode()
            message = jsonrpc.parse_envelope(line)
        except DECODE_ERRORS as error:
            self._on_unreadable(line, error)
            return
        self._receive(message, self)

    def oversized(self, edges: Edges) -> None:
        fault = RpcError(jsonrpc.INVALID_REQUEST, f"a message of {edges.size} bytes is too large for this server")
        self.finish(fault.response(None), fault)

    def _on_unreadable(self, line: bytes, error: Exception) -> None:
        batch = _parse_batch(line) if self._session is not None and self._session.batches else None
        if not batch:
            fault = RpcError(jsonrpc.PARSE_ERROR, f"this is no JSON-RPC message: {error}")
            self.finish(fault.response(None), fault)
            return
        sink = _Batch(self, sum(_is_request(message) for message in batch))
        for message in batch:
            self._receive(message, sink)

    def _receive(self, message: Envelope, sink: "_Pipe | _Batch") -> None:
        if message.method is UNSET:
            if self._session is not None:
                self._session.on_answer(message)
        elif message.id is UNSET:
            self._notified(message)
        else:
            try:
                self._request(message, parse_params(message.params), sink)
            except RpcError as fault:
                self._server.refused(message, fault)
                sink.finish(fault.response(message.id), fault)

    def _request(self, message: Envelope, parsed: ParsedParams, sink: "_Pipe | _Batch") -> None:
        modern = parsed[1].version is not ABSENT or message.method in MODERN_METHODS
        if message.method == "initialize" and not modern:
            self._waiting = []
            self._tasks.start(self._initialize(message, sink))
        elif modern or self._session is None:
            self._running.add(self._server.modern(message, parsed, self._caller(parsed[1].info), sink))
        else:
            self._server.legacy(message, self._session, sink)

    def _caller(self, info: Raw) -> Caller:
        """The caller that a client is, by what it says of itself."""
        name = self._names.get(key := bytes(info))
        if name is None:
            name = _client_name(info)
            if len(key) <= _MAX_INFO_BYTES:
                self._names[key] = name
        return self._identify(name)

    async def _initialize(self, message: Envelope, sink: "_Pipe | _Batch") -> None:
        try:
            caller = self._caller(_initialize_info(message.params))
            session, answer = await self._server.initialize(message, caller, self._notify)
            # A client that shakes hands twice starts anew.
            before, self._session = self._session, session
            sink.finish(answer, None)
            if before is not None:
                await self._server.close_session(before)
        except RpcError as fault:
            sink.finish(fault.response(message.id), fault)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        """The handshake is over: what came meanwhile is taken up in its order, as far as the next handshake."""
        waiting, self._waiting = self._waiting or [], None
        for line in waiting:
            self.line(line)

    def _notified(self, message: Envelope) -> None:
        if message.method == "notifications/cancelled":
            self._running.cancel(message.params if message.params is not ABSENT else EMPTY_OBJECT)
        if self._session is not None:
            self._tasks.start(self._server.notified(message, self._session))

    async def settle(self, wanted: Callable[[], bool]) -> None:
        """The end: requests under way are still answered for a while, as long as an answer is `wanted`; those that are
        left then are told so."""
        if self._session is not None:
            self._session.requester.close()  # nobody can answer a question any more
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SETTLE_S
        while wanted() and loop.time() < deadline and (waiting := {*self._tasks, *self._unanswered()}):
            await asyncio.wait(waiting, timeout=_LOOK_S)
        for exchange in self._unanswered().values():
            fault = _stopping(CUT_OFF)
            if exchange.sink is not None:
                exchange.sink.finish(fault.response(exchange.identifier), fault)
            exchange.abandon()

    def _unanswered(self) -> dict["asyncio.Task[None]", Exchange]:
        """The requests that somebody may still want answered."""
        session = self._session.running.all() if self._session is not None else []
        return {
            exchange.task: exchange
            for exchange in (*self._running.all(), *session)
            if exchange.task is not None and exchange.sink is not None and exchange.method != "subscriptions/listen"
        }

    async def close(self) -> None:
        for exchange in self._running.all():
            exchange.abandon()
        if self._session is not None:
            await self._server.close_session(self._session)
        await self._tasks.cancel()


class _Batch:
    """The sink of a JSON-RPC batch, whose answers go out together."""

    def __init__(self, pipe: _Pipe, expected: int) -> None:
        self._pipe = pipe
        self._expected = expected
        self._answers: list[bytes] = []

    def push(self, message: bytes) -> None:
        self._pipe.push(message)

    def finish(self, message: bytes, fault: RpcError | None) -> None:
        self._expected -= 1
        if message:
            self._answers.append(message)
        if self._expected == 0 and self._answers:
            self._pipe.push(b"[" + b",".join(self._answers) + b"]")

    def finish_long(self, parts: Parts) -> None:
        self.finish(b"".join(parts), None)


def _is_request(message: Envelope) -> bool:
    return message.method is not UNSET and message.id is not UNSET


def take_standard_streams() -> tuple[int, int]:
    """Descriptors of stdin and stdout, for messages alone: from now on whatever is printed goes to stderr."""
    sys.stdout.flush()
    read_from, write_to = os.dup(0), os.dup(1)
    # A program that a tool starts inherits descriptor 0: it must not read the client's messages.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return read_from, write_to


async def serve_stdio(
    server: Server, *, identify: Identify = _local, read_from: int, write_to: int, stop: asyncio.Event | None = None
) -> None:
    """Serves until the input ends or `stop` is set. Owns both descriptors and closes them.

    `identify` gives the caller for the name that a client calls itself, which nothing proves.
    """
    ended = asyncio.Event()
    os.set_blocking(write_to, False)
    enlarge_pipe(write_to)
    writer = PipeWriter(write_to, ended.set)
    pipe = _Pipe(server, identify, writer)
    framer = LineFramer(server.options.max_body_bytes, pipe.line, pipe.oversized)
    reading = _InputReader(read_from, framer.feed, ended.set)
    try:
        await _wait_for_end(ended, stop)
    finally:
        await pipe.settle(lambda: (stop is None or not stop.is_set()) and _has_reader(write_to))
        await server.end_subscriptions()
        reading.close()
        await pipe.close()
        await server.aclose()
        await _flush(writer)
        writer.close()


def _has_reader(descriptor: int) -> bool:
    """Whether what is written there can still be read. A file always can."""
    poll = select.poll()
    poll.register(descriptor, 0)  # of itself it tells that the other end of a pipe is closed
    return not poll.poll(0)


async def _wait_for_end(ended: asyncio.Event, stop: asyncio.Event | None) -> None:
    waiting = {asyncio.ensure_future(event.wait()) for event in (ended, stop) if event is not None}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


async def _flush(writer: PipeWriter) -> None:
    """Writes what was answered in time, if the other end reads it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FLUSH_S):
            await writer.empty()


class _InputReader:
    """Reads through the event loop where it can, and in a thread where it cannot, as from a file."""

    def __init__(self, descriptor: int, feed: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._reader: PipeReader | None = None
        self._task: asyncio.Task[None] | None = None
        os.set_blocking(descriptor, False)
        try:
            self._reader = PipeReader(descriptor, feed, ended)
        except OSError:
            os.set_blocking(descriptor, True)
            self._task = asyncio.ensure_future(_read_file(descriptor, feed, ended))

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._task is not None:
            self._task.cancel()


async def _read_file(descriptor: int, feed: Callable[[bytes], None], ended: Callable[[], None]) -> None:
    try:
        while data := await asyncio.to_thread(os.read, descriptor, _READ_SIZE):
            feed(data)
    finally:
        os.close(descriptor)
    ended()
