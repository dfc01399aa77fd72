"""The handler that keeps large results away from the model: over the byte limit or the token budget, it stores them.

A result for a program (`Request.whole`) passes. A small one passes after one comparison. All else is looked at in a
thread, so that the event loop goes on, and so that a cancelled call leaves nothing. Above: the gateway's stack of
handlers. Below: `keeping.py`.
"""

import asyncio
import logging
import os
import re
import threading
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import partial
from typing import BinaryIO, TypeVar

import msgspec

from toolfold.calls import CallRequest, Handler
from toolfold.config.sections import Limits, MetadataRule
from toolfold.errors import OutputError, UpstreamError
from toolfold.events import Events
from toolfold.outputs.json_scan import ByteSource, BytesSource, FileSource
from toolfold.outputs.split import Origin, ResultLimits, ResultSplitter, fits
from toolfold.outputs.store import OutputStore
from toolfold.outputs.tool_output import too_large_message
from toolfold.types import Caller, Outcome, Stored
from toolfold.upstream.mcp import is_error_result
from toolfold.upstream.threads import run_in_thread
from toolfold.wire import jsonrpc

log = logging.getLogger("toolfold.outputs")

MAX_CONCURRENT = 8
"""How many results are stored at once. Each takes a thread of its own, so that nothing else waits for it."""

T = TypeVar("T")

CheckCancelled = Callable[[], None]
"""Called now and then by what works in a thread; raises once nobody waits for it."""

OnStored = Callable[[Caller, Sequence[Stored]], None]
"""Told what was stored for whom, on the event loop."""


class OutputMiddleware:
    """Stores the large results of one gateway."""

    def __init__(
        self,
        store: OutputStore,
        limits: Limits,
        rules: Sequence[MetadataRule] = (),
        *,
        events: Events,
        on_stored: OnStored | None = None,
    ) -> None:
        self._store = store
        self._limits = limits
        own = [rule for rule in rules if rule.max_bytes is not None or rule.max_tokens is not None]
        self._rules = [(re.compile(translate(rule.match), re.IGNORECASE), rule) for rule in own]
        self._caps: dict[str, ResultLimits] = {}
        self._events = events
        self._on_stored = on_stored
        self._turns = asyncio.Semaphore(MAX_CONCURRENT)

    def wrap(self, handler: Handler) -> Handler:
        async def stored(request: CallRequest) -> Outcome:
            if request.whole:
                return await handler(request)
            outcome = await handler(request)
            caps = self.caps(request.tool.tool_id)
            if request.max_response != (None, None):
                size, tokens = request.max_response
                caps = msgspec.structs.replace(
                    caps,
                    max_bytes=caps.max_bytes if size is None else size,
                    max_tokens=caps.max_tokens if tokens is None else tokens,
                )
            # No text has more tokens than bytes, and no result more text than its message.
            least = min(caps.max_bytes, caps.max_tokens)
            if outcome.spilled is None and len(memoryview(outcome.result)) <= least:
                return outcome
            if outcome.spilled is not None and os.fstat(outcome.spilled.fileno()).st_size <= min(
                least, caps.held_bytes
            ):
                return await run_in_thread(partial(_read_spilled, outcome.spilled))
            return await self._keep(request, outcome, caps)

        return stored

    def caps(self, tool_id: str) -> ResultLimits:
        """The limits of one tool."""
        known = self._caps.get(tool_id)
        if known is None:
            limits = self._limits
            size, tokens = limits.tool_response_max_bytes, limits.tool_response_max_tokens
            for pattern, rule in self._rules:
                if pattern.match(tool_id):
                    size = size if rule.max_bytes is None else rule.max_bytes
                    tokens = tokens if rule.max_tokens is None else rule.max_tokens
            known = ResultLimits(size, tokens, limits.tool_media_max_bytes, limits.max_frame_bytes)
            self._caps[tool_id] = known
        return known

    async def _keep(self, request: CallRequest, outcome: Outcome, caps: ResultLimits) -> Outcome:
        origin = Origin(request.caller, request.tool.tool_id, bytes(request.arguments).decode("utf-8", "replace"))
        given_up = outcome.spilled.close if outcome.spilled is not None else None
        try:
            kept, stored = await self._in_turn(origin, partial(self._kept, origin, outcome, caps), given_up)
        except UpstreamError as error:
            error.server = error.server or request.tool.server
            raise
        self._told(request.caller, stored)
        return kept

    async def fitting(self, text: str, origin: Origin) -> str:
        """A text that is no tool's result where it fits the limits, else the message about where it is kept."""
        caps = self.caps(origin.tool_id)
        if fits([text.encode("utf-8", "replace")], caps.max_bytes, caps.max_tokens):
            return text
        return too_large_message(await self.keep_text(text, origin))

    async def keep_text(self, text: str, origin: Origin) -> Stored:
        """Stores a text that is no tool's result. Raises `OutputError`."""
        data = text.encode("utf-8", "replace")

        def kept(going_on: CheckCancelled) -> Stored:
            return ResultSplitter(BytesSource(data), self._store, origin, going_on).keep_text(len(data))

        stored = await self._in_turn(origin, kept)
        self._told(origin.caller, (stored,))
        return stored

    async def _in_turn(
        self, origin: Origin, work: Callable[[CheckCancelled], T], given_up: Callable[[], None] | None = None
    ) -> T:
        """Works in a thread, a few at once. `given_up` is called where the call was cancelled before its turn came."""
        stop = threading.Event()
        begun = False

        def going_on() -> None:
            if stop.is_set():
                raise OutputError("the call was cancelled while its result was being stored")

        try:
            await self._turns.acquire()
            begun = True
            return await run_in_thread(partial(work, going_on), ended=self._turns.release)
        except OutputError as error:
            self._events.emit("output.failed", tool_id=origin.tool_id, code=error.code, error=error.message)
            raise
        finally:
            stop.set()
            if not begun and given_up is not None:
                given_up()

    def _told(self, caller: Caller, stored: Sequence[Stored]) -> None:
        for record in stored:
            self._tell(record)
        if stored and self._on_stored is not None:
            self._on_stored(caller, stored)

    def _kept(
        self, origin: Origin, outcome: Outcome, caps: ResultLimits, going_on: CheckCancelled
    ) -> tuple[Outcome, tuple[Stored, ...]]:
        if outcome.spilled is None:
            kept, stored = self._from(BytesSource(outcome.result), origin, going_on, caps, enveloped=False)
            return (kept if stored else outcome), stored
        with outcome.spilled as file:
            going_on()
            return self._from(FileSource(_sequential_descriptor(file)), origin, going_on, caps, enveloped=True)

    def _from(
        self, source: ByteSource, origin: Origin, going_on: CheckCancelled, caps: ResultLimits, *, enveloped: bool
    ) -> tuple[Outcome, tuple[Stored, ...]]:
        return ResultSplitter(source, self._store, origin, going_on).keep(caps, enveloped=enveloped)

    def _tell(self, stored: Stored) -> None:
        log.info("%s: %s", stored.tool_id, too_large_message(stored).replace("\n", " "))
        self._events.emit(
            "output.stored",
            handle=stored.handle,
            tool_id=stored.tool_id,
            caller=stored.caller,
            session=stored.session,
            bytes=stored.bytes,
            lines=stored.lines,
            tokens=stored.tokens,
            media_type=stored.media_type,
            expires_at=stored.expires_at,
            message=too_large_message(stored),
        )


def _read_spilled(file: BinaryIO) -> Outcome:
    """A result that is small enough after all, out of the message that it came in."""
    with file:
        result = jsonrpc.parse_envelope(file.read()).result
    return Outcome(result=result, is_error=is_error_result(result))


def _sequential_descriptor(file: BinaryIO) -> int:
    descriptor = file.fileno()
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    return descriptor
