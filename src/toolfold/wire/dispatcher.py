"""The other end of a connection, whatever the transport: which requests wait, and what an arriving message means.

Answers go to the request that waits, progress to its listener, other notifications to the handlers; what the server
asks of the client is answered by the request it belongs to, by the handlers, or refused. Above: `connection.py` and
the transports, which feed it. Below: `jsonrpc.py`, `salvage.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from toolfold.errors import (
    FrameTooLarge,
    InputUnavailable,
    ProtocolViolation,
    ServerTimeout,
    ToolfoldError,
    UpstreamError,
)
from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import ABSENT, CACHEABLE_BYTES, DECODE_ERRORS, Envelope, parse_number
from toolfold.wire.repair import (
    begins_as_request,
    begins_as_result,
    id_from_edges,
    repair,
    replace_invalid_utf8,
    shorten,
)
from toolfold.wire.spill import Spill
from toolfold.wire.types import Handlers, OnInput, OnProgress, OnSpilled

log = logging.getLogger("toolfold.wire")

REQUIRED_CAPABILITY = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""What a server may ask of a client, and the capability that the client must have declared for it."""

_EMPTY = Raw(b"{}")


class PendingRequest(Struct, eq=False):
    """A request that waits for its answer. `carrier` is what the transport keeps about it."""

    number: int
    method: str
    future: asyncio.Future[Raw]
    on_progress: OnProgress | None = None
    on_input: OnInput | None = None
    carrier: Any = None
    able: frozenset[str] | None = None
    """The capabilities of whoever made this request, where they are not those of the client itself."""
    on_spilled: OnSpilled | None = None
    """Takes the answer as a file where it is too large to be held. Without it, such a one is read back or refused."""

    def resolve(self, result: Raw) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self) -> None:
        self.fail(ServerTimeout(""))


class SendReply(Protocol):
    """Sends an answer to a request of the server."""

    def __call__(self, message: bytes, /) -> None: ...


class _Progress(Struct):
    progressToken: int | float | str | None = None  # noqa: N815 - the protocol's spelling


_progress = msgspec.json.Decoder(_Progress)


class Dispatcher:
    """Requests that wait, and the meaning of what arrives."""

    def __init__(self, handlers: Handlers, capabilities: Raw) -> None:
        self.handlers = handlers
        self.declared = capability_names(capabilities)
        self.pending: dict[int, PendingRequest] = {}
        self.abandoned: set[int] = set()
        """Requests that nobody waits for any more: their late answers are no noise."""
        self.closed: str | None = None
        """Why the connection ended."""
        self.closed_error: Callable[[str], UpstreamError] | None = None
        self.announce_loss = False
        self._tasks: dict[asyncio.Task[Raw], object] = {}

    # --- what arrives

    def receive(self, frame: bytes, reply: SendReply, within: PendingRequest | None = None) -> None:
        """One frame: a message, a batch, or noise. `within`: the request on whose stream it came."""
        if not frame.isascii():
            frame = replace_invalid_utf8(frame)
        try:
            message = jsonrpc.parse_envelope(frame)
        except DECODE_ERRORS:
            self._salvage(frame, reply, within)
            return
        if message.method is UNSET and message.result is not ABSENT and message.error is ABSENT:
            self._answer(message, within)
        else:
            self._accept(message, frame, reply, within)

    def _accept(self, message: Envelope, frame: bytes, reply: SendReply, within: PendingRequest | None) -> None:
        if not jsonrpc.is_message(message):
            self.noise(shorten(frame))
        elif message.method is UNSET:
            self._answer(message, within)
        elif message.id is UNSET or message.id is None:
            self._notification(str(message.method), message.params)
        else:
            self._request(message, reply, within)

    def _salvage(self, frame: bytes, reply: SendReply, within: PendingRequest | None) -> None:
        found = repair(frame)
        for message in found.messages:
            self._accept(message, frame, reply, within)
        if found.noise:
            self.noise(found.noise)
        waiting = self.pending.get(found.broken) if found.broken is not None else None
        if waiting is not None:
            waiting.fail(unreadable_answer(waiting.method, found.noise))

    def spilled(self, spill: Spill, reply: SendReply, within: PendingRequest | None = None) -> None:
        """A frame that went to a file. An answer is handed over so, if its request takes it; all else is read back."""
        number = id_from_edges(spill.head, spill.tail)
        waiting = self.pending.get(number) if number is not None else self._only(spill, within)
        if waiting is None and number in self.abandoned:
            self.abandoned.discard(number)
            spill.close()
        elif waiting is not None and waiting.on_spilled is not None and spill.is_file and begins_as_result(spill.head):
            if waiting.future.done():
                spill.close()
            else:
                waiting.on_spilled(spill.take())
                waiting.resolve(_EMPTY)
        elif spill.is_readable:
            self.receive(spill.read(), reply, within)
        else:
            spill.close()
            self.noise(f"a message of {spill.size} bytes was skipped: {shorten(spill.head)}")
            if waiting is not None:
                waiting.fail(spill.problem(waiting.method))

    def _only(self, spill: Spill, within: PendingRequest | None) -> PendingRequest | None:
        """The request that a large answer without a visible id must belong to."""
        if begins_as_request(spill.head):
            return None
        return within or (next(iter(self.pending.values())) if len(self.pending) == 1 else None)

    def oversized(self, head: bytes, tail: bytes, size: int, limit: int) -> None:
        """A message over the cap was skipped. Its request fails where it can be told."""
        number = id_from_edges(head, tail)
        if number is None and len(self.pending) == 1 and b'"method"' not in head[:200]:
            number = next(iter(self.pending))
        waiting = self.pending.get(number) if number is not None else None
        self.noise(f"a message of {size} bytes was skipped: {shorten(head)}")
        if waiting is not None:
            waiting.fail(answer_too_large(waiting.method, size, limit))

    def _answer(self, message: Envelope, within: PendingRequest | None) -> None:
        waiting = self._waiting_for(message, within)
        if waiting is None:
            self._stray(message.id)
        elif message.error is not ABSENT and (bytes(message.error) != b"null" or message.result is ABSENT):
            waiting.fail(jsonrpc.remote_error(message.error))
        elif message.result is not ABSENT:
            waiting.resolve(message.result)
        else:
            waiting.fail(unreadable_answer(waiting.method, "an answer with neither result nor error"))

    def _stray(self, identifier: object) -> None:
        number = parse_number(identifier)
        if number in self.abandoned:
            self.abandoned.discard(number)
        else:
            self.noise(f"an answer to nobody, id {repr(identifier)[:40]}")

    def _waiting_for(self, message: Envelope, within: PendingRequest | None) -> PendingRequest | None:
        number = parse_number(message.id)
        if number is not None:
            return self.pending.get(number)
        if message.id is not None or message.error is ABSENT:
            return None
        if within is not None:  # an error without an id, on the stream of one request
            return within
        return next(iter(self.pending.values())) if len(self.pending) == 1 else None

    def _notification(self, method: str, params: Raw) -> None:
        if method == "notifications/progress" and self._progress(params):
            return
        if method == "notifications/cancelled":
            self._cancel(params)
        self.tell(self.handlers.on_notification, method, params if params is not ABSENT else _EMPTY)

    def _progress(self, params: Raw) -> bool:
        try:
            token = parse_number(_progress.decode(params).progressToken)
        except DECODE_ERRORS:
            return False
        waiting = self.pending.get(token) if token is not None else None
        if waiting is None or waiting.on_progress is None:
            return False
        self.tell(waiting.on_progress, params)
        return True

    # --- what the server asks of us

    def _request(self, message: Envelope, reply: SendReply, within: PendingRequest | None) -> None:
        method, identifier = str(message.method), message.id
        if method == "ping":
            reply(jsonrpc.result_message(identifier, b"{}"))
            return
        answer = self.answerer(method, within)
        if answer is None:
            reply(jsonrpc.error_message(identifier, jsonrpc.METHOD_NOT_FOUND, f"this client does not answer {method}"))
            return
        params = message.params if message.params is not ABSENT else _EMPTY
        task = asyncio.ensure_future(_ask(answer, method, params))
        self._tasks[task] = identifier

        def done(task: asyncio.Task[Raw]) -> None:
            self._tasks.pop(task, None)
            if not task.cancelled():
                reply(_reply_from(task, identifier))

        task.add_done_callback(done)

    def answerer(self, method: str, within: PendingRequest | None) -> OnInput | None:
        """Who answers `method`: the request that it belongs to, else the handlers. Nobody, if it was not declared."""
        if within is not None and within.on_input is not None:
            return within.on_input if self.may_ask(method, within.able) else None
        candidates = {one.on_input: one for one in self.pending.values() if one.on_input is not None}
        if len(candidates) == 1 and within is None:
            answer, waiting = candidates.popitem()
            return answer if self.may_ask(method, waiting.able) else None
        return self.handlers.on_request if self.may_ask(method) else None

    def may_ask(self, method: str, able: frozenset[str] | None = None) -> bool:
        """Whether whoever made the request declared that they answer this; else, whether this client did."""
        return REQUIRED_CAPABILITY.get(method) in (self.declared if able is None else able)

    def _cancel(self, params: Raw) -> None:
        identifier = jsonrpc.cancelled_id(params)
        for task, known in tuple(self._tasks.items()):
            if known == identifier:
                task.cancel()

    # --- the end

    def lose(self, reason: str, error: Callable[[str], UpstreamError]) -> None:
        """The connection is over: every request that waits fails, and so will later ones."""
        if self.closed is not None:
            return
        self.closed = reason
        self.closed_error = error
        for waiting in tuple(self.pending.values()):
            waiting.fail(error(waiting.method))
        for task in tuple(self._tasks):
            task.cancel()
        if self.announce_loss:
            self.tell(self.handlers.on_closed, reason)

    def check_open(self, doing: str) -> None:
        if self.closed_error is not None:
            raise self.closed_error(doing)

    def noise(self, text: str) -> None:
        self.tell(self.handlers.on_noise, text)

    def tell(self, listener: Callable[..., None] | None, *values: object) -> None:
        """A listener that fails is logged: telling never breaks the connection."""
        if listener is None:
            return
        try:
            listener(*values)
        except Exception:
            log.exception("a listener of a connection failed")


async def _ask(answer: Callable[[str, Raw], Awaitable[Raw]], method: str, params: Raw) -> Raw:
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
    """A client declares the same with every request: what is short is read once."""
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
        f"the answer to {method} cannot be read: {what or 'it is empty'}",
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
