"""Keeps large results away from the model: over the byte limit or the token budget, it stores them.

A result for a program (`CallContext.whole`) passes, and a small one passes after one comparison. All else is split in a
thread, so that the event loop goes on, and so that a cancelled call leaves nothing. Above: the gateway, which lists
it among the hooks on results. Below: `split.py`.
"""

import asyncio
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import translate
from functools import partial
from typing import BinaryIO, TypeVar

import msgspec

from toolfold.catalogue.ids import ids_of
from toolfold.config.sections import Limits, MetadataRule
from toolfold.errors import OutputError, UpstreamError
from toolfold.events import Events
from toolfold.outputs.json_scan import BytesSource, FileSource
from toolfold.outputs.split import Origin, ResultLimits, ResultSplitter
from toolfold.outputs.store import OutputStore
from toolfold.outputs.tool_output_definition import too_large_message
from toolfold.types import CallContext, Caller, Outcome, Stored, Tool, ToolCall
from toolfold.upstream.result_reader import ResultReader
from toolfold.upstream.threads import run_in_thread
from toolfold.wire import jsonrpc
from toolfold.wire.dispatcher import unreadable_answer
from toolfold.wire.repair import is_plain, repair, repair_result

log = logging.getLogger("toolfold.outputs")

# Results that are stored at once. Each takes a thread of its own, so that nothing else waits for it.
MAX_CONCURRENT = 8

T = TypeVar("T")

# Called now and then by what works in a thread; raises once nobody waits for it.
CheckCancelled = Callable[[], None]

# Called on the event loop with the caller and what was stored.
OnStored = Callable[[Caller, Sequence[Stored]], None]

# Called before anybody hears of what was stored, so that every gateway can be asked for it.
Share = Callable[[Sequence[Stored]], Awaitable[None]]


class LargeResults:
    """Stores the large results of one gateway."""

    def __init__(
        self,
        store: OutputStore,
        limits: Limits,
        rules: Sequence[MetadataRule] = (),
        *,
        events: Events,
        on_stored: OnStored | None = None,
        share: Share | None = None,
    ) -> None:
        self._store = store
        self.reconfigure(limits, rules)
        self._events = events
        self._on_stored = on_stored
        self._share = share
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    def reconfigure(self, limits: Limits, rules: Sequence[MetadataRule]) -> None:
        """Takes over other limits for results that come from now on."""
        self._config = limits
        own = [rule for rule in rules if rule.max_bytes is not None or rule.max_tokens is not None]
        self._rules = [(re.compile(translate(rule.match), re.IGNORECASE), rule) for rule in own]
        self._limits: dict[str, ResultLimits] = {}

    def store_large(self, call: ToolCall, context: CallContext, outcome: Outcome) -> Awaitable[Outcome] | None:
        """The outcome with what is too large of it stored; `None` where nothing is. Raises `OutputError`."""
        if context.whole:
            return None
        limits = self._limits_for(call.tool, context)
        # No text has more tokens than bytes, and no result more text than its message: most pass by one comparison.
        smallest = min(limits.max_bytes, limits.max_tokens)
        if outcome.spilled is None:
            if len(memoryview(outcome.raw)) <= smallest:
                return None
        elif os.fstat(outcome.spilled.fileno()).st_size <= min(smallest, limits.held_bytes):
            return run_in_thread(partial(_read_spilled, outcome.spilled))
        return self._store_excess(call, context, outcome, limits)

    def _limits_for(self, tool: Tool, context: CallContext) -> ResultLimits:
        # Every call asks: the other ids of a tool are worked out once.
        limits = self._limits.get(tool.tool_id) or self.tool_limits(*ids_of(tool))
        max_bytes, max_tokens = context.max_response
        if max_bytes is not None:
            limits = msgspec.structs.replace(limits, max_bytes=max_bytes)
        if max_tokens is not None:
            limits = msgspec.structs.replace(limits, max_tokens=max_tokens)
        return limits

    def tool_limits(self, tool_id: str, *other_ids: str) -> ResultLimits:
        """The configured limits of one tool, by any of its ids."""
        limits = self._limits.get(tool_id)
        if limits is None:
            config = self._config
            max_bytes, max_tokens = config.tool_response_max_bytes, config.response_tokens
            for pattern, rule in self._rules:
                if any(map(pattern.match, (tool_id, *other_ids))):
                    max_bytes = max_bytes if rule.max_bytes is None else rule.max_bytes
                    max_tokens = max_tokens if rule.max_tokens is None else rule.max_tokens
            limits = ResultLimits(max_bytes, max_tokens, config.tool_media_max_bytes, config.max_frame_bytes)
            self._limits[tool_id] = limits
        return limits

    async def _store_excess(
        self, call: ToolCall, context: CallContext, outcome: Outcome, limits: ResultLimits
    ) -> Outcome:
        arguments = bytes(call.arguments).decode("utf-8", "replace")
        tool = call.tool
        origin = Origin(context.caller, tool.tool_id, arguments, context.tool_name, tool.definition.input_schema)
        on_skipped = outcome.spilled.close if outcome.spilled is not None else None
        try:
            reduced, stored = await self._run(origin, partial(self._split, origin, outcome, limits), on_skipped)
        except UpstreamError as error:
            error.server = error.server or call.tool.server
            raise
        await self._notify(context.caller, stored)
        return reduced

    async def store_large_text(self, text: str, origin: Origin) -> Stored | None:
        """Stores a text that is no tool's result where it does not fit the limits."""
        fits = self.tool_limits(origin.tool_id).allow([text.encode("utf-8", "replace")])
        return None if fits else await self.store_text(text, origin)

    async def store_text(self, text: str, origin: Origin) -> Stored:
        """Stores a text that is no tool's result. Raises `OutputError`."""
        data = text.encode("utf-8", "replace")

        def work(check_cancelled: CheckCancelled) -> Stored:
            return ResultSplitter(BytesSource(data), self._store, origin, check_cancelled).store_text(len(data))

        stored = await self._run(origin, work)
        await self._notify(origin.caller, (stored,))
        return stored

    async def _run(
        self, origin: Origin, work: Callable[[CheckCancelled], T], on_skipped: Callable[[], None] | None = None
    ) -> T:
        """Works in a thread, a few at once. `on_skipped` is called where a call is cancelled before its turn comes."""
        stop = threading.Event()
        started = False

        def check_cancelled() -> None:
            if stop.is_set():
                raise OutputError("the call was cancelled while its result was being stored")

        try:
            await self._slots.acquire()
            started = True
            return await run_in_thread(partial(work, check_cancelled), ended=self._slots.release)
        except OutputError as error:
            self._events.emit("output.failed", tool_id=origin.tool_id, code=error.code, error=error.message)
            raise
        finally:
            # A thread cannot be cancelled from outside: it notices this at its next piece and removes what it wrote.
            stop.set()
            if not started and on_skipped is not None:
                on_skipped()

    def _split(
        self, origin: Origin, outcome: Outcome, limits: ResultLimits, check_cancelled: CheckCancelled
    ) -> tuple[Outcome, tuple[Stored, ...]]:
        if outcome.spilled is None:
            splitter = ResultSplitter(BytesSource(outcome.raw), self._store, origin, check_cancelled)
            reduced, stored = splitter.split(limits, enveloped=False)
            return (reduced if stored else outcome), stored
        with outcome.spilled as file:
            check_cancelled()
            source = FileSource(_sequential_descriptor(file))
            reduced, stored = ResultSplitter(source, self._store, origin, check_cancelled).split(limits, enveloped=True)
            whole = ResultReader().read(repair_result(reduced.raw)).raw
            return msgspec.structs.replace(reduced, raw=whole), stored

    async def _notify(self, caller: Caller, stored: Sequence[Stored]) -> None:
        if stored and self._share is not None:
            await self._share(stored)
        for record in stored:
            message = too_large_message(record)
            log.info("%s: %s", record.tool_id, message.replace("\n", " "))
            facts = msgspec.structs.asdict(record)
            del facts["arguments"]  # they may hold what no log should
            self._events.emit("output.stored", **facts, message=message)
        if stored and self._on_stored is not None:
            self._on_stored(caller, stored)


def _read_spilled(file: BinaryIO) -> Outcome:
    """A result that is small enough after all, out of the message that it came in."""
    with file:
        frame = file.read()
    try:
        result = jsonrpc.parse_envelope(frame).result if is_plain(frame) else None
    except jsonrpc.DECODE_ERRORS:
        result = None
    if result is None:
        messages = repair(frame).messages
        if not messages:
            raise unreadable_answer("tools/call", "it is no message")
        result = messages[0].result
    return ResultReader().read(result)


def _sequential_descriptor(file: BinaryIO) -> int:
    descriptor = file.fileno()
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    return descriptor
