"""Routes the messages of one server: which requests are pending, and what an arriving message means to them.

Answers go to the request that waits, progress to its listener, other notifications to the handlers; what the server
asks of the client is answered by the request it belongs to, by the handlers, or refused. Above: `connection.py` and
the transports, which feed it. Below: `jsonrpc.py`, `repair.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, field

from toolfold.errors import (
    FrameTooLarge,
    InputUnavailable,
    ProtocolViolation,
    ServerTimeout,
    ToolfoldError,
    UpstreamError,
)
from toolfold.types import OnInput, OnProgress
from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import ABSENT, CACHEABLE_BYTES, DECODE_ERRORS, Envelope, parse_number
from toolfold.wire.repair import is_plain, repair, replace_invalid_utf8, shorten
from toolfold.wire.spill import Edges, Spill
from toolfold.wire.sse import Event
from toolfold.wire.types import RELATED_TASK, Handlers, OnSpilled

__all__ = ["input_unavailable"]

log = logging.getLogger("toolfold.wire")

# What a server may ask of a client, and the capability that the client must have declared for it.
REQUIRED_CAPABILITY = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}

_EMPTY = Raw(b"{}")


def _cannot_tell(_: Raw) -> bool:
    return False


class PendingRequest(Struct, eq=False):
    """A request that waits for its answer. `carrier` is the transport's own state for it."""

    number: int
    method: str
    future: asyncio.Future[Raw]
    on_progress: OnProgress | None = None
    on_input: OnInput | None = None
    # The capabilities of the caller of this request, where they are not those of the client itself.
    declared: frozenset[str] | None = None
    # Takes the answer as a file where it is too large to be held. Without it, such a one is read back or refused.
    on_spilled: OnSpilled | None = None
    # A quicker look than `is_plain`'s at a result that is decoded in any case. False: it cannot tell.
    is_plain: Callable[[Raw], bool] = _cannot_tell
    # The task whose result it asks for: what the server asks for that task belongs to it.
    task: str = ""
    # Hears of a result that came after the request was given up.
    on_late: Callable[[Raw], None] | None = None
    carrier: Any = None

    def resolve(self, result: Raw) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def refuse(self, error: ToolfoldError) -> None:
        """It was answered, and the answer cannot be had."""
        self.fail(error.after_work() if self.method == "tools/call" else error)

    def takes_file(self, spill: Spill) -> bool:
        return self.on_spilled is not None and spill.is_file and spill.is_result

    def accept_file(self, spill: Spill) -> None:
        if self.future.done() or self.on_spilled is None:
            spill.close()
        else:
            self.on_spilled(spill.take())
            self.resolve(_EMPTY)

    def expire(self) -> None:
        self.fail(ServerTimeout(""))


# Sends an answer to a request of the server.
SendReply = Callable[[bytes], None]


class _Progress(Struct):
    progressToken: int | float | str | None = None  # noqa: N815 - the protocol's spelling


_progress = msgspec.json.Decoder(_Progress)


class _Related(Struct, frozen=True):
    task_id: str = field(name="taskId", default="")


class _QuestionMeta(Struct, frozen=True):
    related: _Related = field(name=RELATED_TASK, default=_Related())


class _Question(Struct):
    meta: _QuestionMeta = field(name="_meta", default=_QuestionMeta())


_question = msgspec.json.Decoder(_Question)


class Dispatcher:
    """The pending requests of one connection. The transport feeds it frames; it never writes but through `reply`."""

    def __init__(self, handlers: Handlers, capabilities: Raw) -> None:
        self.handlers = handlers
        self.declared = capability_names(capabilities)
        self.pending: dict[int, PendingRequest] = {}
        # Requests that nobody waits for any more: their late answers are no noise.
        self.abandoned: dict[int, Callable[[Raw], None] | None] = {}
        # Why the connection ended.
        self.closed: str | None = None
        self.closed_error: Callable[[str], UpstreamError] | None = None
        self.announce_loss = False
        self._tasks: dict[asyncio.Task[Raw], object] = {}

    def receive(self, frame: bytes, reply: SendReply, within: PendingRequest | None = None) -> None:
        """One frame: a message, a batch, or noise. `within`: the request on whose stream it came."""
        # msgspec checks the UTF-8 of what it decodes, and `params` and `result` stay undecoded: they are checked here.
        valid = frame if frame.isascii() else replace_invalid_utf8(frame)
        try:
            message = jsonrpc.parse_envelope(valid) if valid is frame else None
        except DECODE_ERRORS:
            message = None
        request = self._answered(message, within) if message is not None else None
        if message is None or not ((request is not None and request.is_plain(message.result)) or is_plain(frame)):
            self._repair(valid, reply, within, replaced=valid is not frame)
        elif request is not None:
            request.resolve(message.result)
        else:
            self._accept(message, frame, reply, within)

    def _answered(self, message: Envelope, within: PendingRequest | None) -> PendingRequest | None:
        """The request that a message without error answers."""
        if message.method is UNSET and message.result is not ABSENT and message.error is ABSENT:
            return self._request_for(message, within)
        return None

    def _accept(self, message: Envelope, frame: bytes, reply: SendReply, within: PendingRequest | None) -> None:
        if not jsonrpc.is_message(message):
            self.noise(shorten(frame))
        elif message.method is UNSET:
            self._answer(message, within)
        elif message.id is UNSET or message.id is None:
            self._notification(str(message.method), message.params)
        else:
            self._request(message, reply, within)

    def _repair(self, frame: bytes, reply: SendReply, within: PendingRequest | None, *, replaced: bool) -> None:
        repaired = repair(frame, replaced=replaced)
        for message in repaired.messages:
            self._accept(message, frame, reply, within)
        if repaired.noise:
            self.noise(repaired.noise)
        request = self.pending.get(repaired.broken) if repaired.broken is not None else None
        if request is not None:
            request.refuse(unreadable_answer(request.method, repaired.noise))

    def spilled(self, spill: Spill, reply: SendReply, within: PendingRequest | None = None) -> None:
        """A frame that went to a file. An answer is handed over so, if its request takes it; all else is read back."""
        request = self._request_by_edges(spill, within)
        if request is None and spill.number in self.abandoned:
            self.abandoned.pop(spill.number)
            spill.close()
        elif request is not None and request.takes_file(spill):
            request.accept_file(spill)
        elif spill.is_readable:
            self.receive(spill.read(), reply, within)
        else:
            spill.close()
            self.noise(f"a message of {spill.size} bytes was skipped: {shorten(spill.head)}")
            if request is not None:
                request.refuse(spill.problem(request.method))

    def receive_event(self, event: Event, reply: SendReply, within: PendingRequest | None = None) -> None:
        """The frame of one event of a stream, in memory or in a file."""
        if event.data:
            self.receive(event.data, reply, within)
        elif event.spill is not None:
            self.spilled(event.spill, reply, within)

    def _request_by_edges(self, edges: Edges, within: PendingRequest | None = None) -> PendingRequest | None:
        """The request that a large answer belongs to; without a visible id, the one that it must belong to."""
        number = edges.number
        if number is not None or edges.is_request:
            return self.pending.get(number) if number is not None else None
        return within or self._only_pending()

    def _only_pending(self) -> PendingRequest | None:
        return next(iter(self.pending.values())) if len(self.pending) == 1 else None

    def oversized(self, edges: Edges, limit: int) -> None:
        """A message over the limit was skipped. Its request fails where its id can be recognised."""
        request = self._request_by_edges(edges)
        self.noise(f"a message of {edges.size} bytes was skipped: {shorten(edges.head)}")
        if request is not None:
            request.refuse(answer_too_large(request.method, edges.size, limit))

    def _answer(self, message: Envelope, within: PendingRequest | None) -> None:
        request = self._request_for(message, within)
        if request is None:
            self._stray(message)
        elif message.error is not ABSENT and (bytes(message.error) != b"null" or message.result is ABSENT):
            request.fail(jsonrpc.remote_error(message.error))
        elif message.result is not ABSENT:
            request.resolve(message.result)
        else:
            request.refuse(unreadable_answer(request.method, "an answer with neither result nor error"))

    def _stray(self, message: Envelope) -> None:
        number = parse_number(message.id)
        if number is None or number not in self.abandoned:
            self.noise(f"an answer to nobody, id {repr(message.id)[:40]}")
            return
        on_late = self.abandoned.pop(number)
        if message.result is not ABSENT:
            self.notify(on_late, message.result)

    def _request_for(self, message: Envelope, within: PendingRequest | None) -> PendingRequest | None:
        number = parse_number(message.id)
        if number is not None:
            return self.pending.get(number)
        if message.id is not None or message.error is ABSENT:
            return None
        return within or self._only_pending()  # an error without an id

    def _notification(self, method: str, params: Raw) -> None:
        if method == "notifications/progress" and self._progress(params):
            return
        if method == "notifications/cancelled":
            self._cancel(params)
        self.notify(self.handlers.on_notification, method, params if params is not ABSENT else _EMPTY)

    def _progress(self, params: Raw) -> bool:
        try:
            token = parse_number(_progress.decode(params).progressToken)
        except DECODE_ERRORS:
            return False
        request = self.pending.get(token) if token is not None else None
        if request is None or request.on_progress is None:
            return False
        self.notify(request.on_progress, params)
        return True

    def _request(self, message: Envelope, reply: SendReply, within: PendingRequest | None) -> None:
        method, identifier = str(message.method), message.id
        if method == "ping":
            reply(jsonrpc.result_message(identifier, b"{}"))
            return
        own = self.pending.get(parse_number(identifier) or -1)
        if own is not None and own.method == method:
            own.fail(
                ProtocolViolation(
                    "it sends back what it is sent: this is no MCP server",
                    next_action="Check the command and its arguments: run it by hand to see what it is.",
                )
            )
            return
        params = message.params if message.params is not ABSENT else _EMPTY
        answer = self._answerer(method, within or self._request_of_task(params))
        if answer is None:
            reply(jsonrpc.error_message(identifier, jsonrpc.METHOD_NOT_FOUND, f"this client does not answer {method}"))
            return
        task = asyncio.ensure_future(_run(answer, method, params))
        self._tasks[task] = identifier

        def done(task: asyncio.Task[Raw]) -> None:
            self._tasks.pop(task, None)
            if not task.cancelled():
                reply(_reply_from(task, identifier))

        task.add_done_callback(done)

    def _answerer(self, method: str, within: PendingRequest | None) -> OnInput | None:
        """Who answers `method`: the request it belongs to, else the handlers. `None`: it was not declared."""
        if within is not None and within.on_input is not None:
            return within.on_input if self.may_ask(method, within.declared) else None
        # Several callers in flight: a legacy request names none of them, and one must not answer for another.
        candidates = {pending.on_input: pending for pending in self.pending.values() if pending.on_input is not None}
        if len(candidates) == 1 and within is None:
            answer, request = candidates.popitem()
            return answer if self.may_ask(method, request.declared) else None
        return self.handlers.on_request if self.may_ask(method) else None

    def _request_of_task(self, params: Raw) -> PendingRequest | None:
        """The request that waits for the task that a question says it is of."""
        if RELATED_TASK.encode() not in bytes(params):
            return None
        try:
            task = _question.decode(params).meta.related.task_id
        except DECODE_ERRORS:
            return None
        return next((pending for pending in self.pending.values() if task and pending.task == task), None)

    def may_ask(self, method: str, declared: frozenset[str] | None = None) -> bool:
        """Whether the caller of the request declared that it answers this; without one, whether this client did."""
        return REQUIRED_CAPABILITY.get(method) in (self.declared if declared is None else declared)

    def _cancel(self, params: Raw) -> None:
        identifier = jsonrpc.cancelled_id(params)
        for task, request_id in tuple(self._tasks.items()):
            if request_id == identifier:
                task.cancel()

    def lose(self, reason: str, error: Callable[[str], UpstreamError]) -> None:
        """The connection is over: every request that waits fails, and so will later ones."""
        if self.closed is not None:
            return
        self.closed = reason
        self.closed_error = error
        for request in tuple(self.pending.values()):
            request.fail(error(request.method))
        for task in tuple(self._tasks):
            task.cancel()
        if self.announce_loss:
            self.notify(self.handlers.on_closed, reason)

    def check_open(self, doing: str) -> None:
        if self.closed_error is not None:
            raise self.closed_error(doing)

    def noise(self, text: str) -> None:
        self.notify(self.handlers.on_noise, text)

    def notify(self, listener: Callable[..., None] | None, *values: object) -> None:
        """Calls a listener. One that fails is logged: it never breaks the connection."""
        if listener is None:
            return
        try:
            listener(*values)
        except Exception:
            log.exception("a listener of a connection failed")


async def _run(answer: Callable[[str, Raw], Awaitable[Raw]], method: str, params: Raw) -> Raw:
    return await answer(method, params)


def _reply_from(task: asyncio.Task[Raw], identifier: object) -> bytes:
    error = task.exception()
    if error is None:
        return jsonrpc.result_message(identifier, jsonrpc.single_line(task.result()))
    if isinstance(error, ToolfoldError):
        return jsonrpc.error_message(identifier, jsonrpc.INTERNAL_ERROR, error.message)
    log.error("answering a server's request failed", exc_info=error)
    return jsonrpc.error_message(identifier, jsonrpc.INTERNAL_ERROR, "the client failed to answer")


def capability_names(capabilities: Raw) -> frozenset[str]:
    """The names in a capabilities object. A client declares the same with every request: short ones are parsed once."""
    text = bytes(capabilities)
    return _parse_names(text) if len(text) <= CACHEABLE_BYTES else _parse_names.__wrapped__(text)


@lru_cache(maxsize=256)
def _parse_names(capabilities: bytes) -> frozenset[str]:
    try:
        return frozenset(msgspec.json.decode(capabilities, type=dict[str, Raw]))
    except DECODE_ERRORS as error:
        raise ValueError("capabilities must be a JSON object") from error


def unreadable_answer(method: str, what: str) -> ProtocolViolation:
    return ProtocolViolation(
        f"the answer to {method} is no JSON that can be read, or is nested too deep: {what or 'it is empty'}",
        next_action="report this to the author of the server",
    )


def answer_too_large(method: str, size: int, limit: int) -> FrameTooLarge:
    return FrameTooLarge(
        f"the answer to {method} was refused: over {limit} bytes" + (f", it had {size}" if size > limit else ""),
        next_action="ask for less at once, or raise `max_frame_bytes`",
    )


def input_unavailable(method: str) -> InputUnavailable:
    return InputUnavailable(
        f"the server asks for input ({method}) that nobody here can give",
        next_action="call it from a client that declares this capability",
    )
