"""What tools were seen to return, kept per tool and version, for those that declare nothing useful about it.

Each result that is looked at is merged into a bounded shape in the store; no value is kept. Not every result is looked
at: the first ones, then fewer and fewer, so that calls stay cheap. What contradicts a declared schema is told.
"""

import asyncio
import logging
from collections import deque

import msgspec
from msgspec import Raw

from toolfold.disclosure.descriptor import decode_schema
from toolfold.disclosure.observed import (
    Contradiction,
    Observed,
    find_contradictions,
    is_due,
    is_uninformative,
    merge,
    observe_result,
)
from toolfold.errors import ToolfoldError
from toolfold.events import Events
from toolfold.storage.base import Store
from toolfold.types import Outcome, Tool

OBSERVED = "observed"
"""The namespace of the store that keeps the shapes."""

MOST_WAITING = 64
"""Results that wait to be looked at. Where more come at once, the others are left out: there will be more of them."""

log = logging.getLogger("toolfold.gateway")

_decode = msgspec.json.Decoder(Observed).decode
_encode = msgspec.json.Encoder().encode


class Observer:
    """The shapes of one catalogue's results. A call never waits for it: one task takes results in, in their order."""

    def __init__(self, store: Store, events: Events) -> None:
        self._store = store
        self._events = events
        self._calls: dict[tuple[str, str], int] = {}
        self._reported: set[tuple[str, Contradiction]] = set()
        self._waiting: deque[tuple[Tool, Raw]] = deque()
        self._working: asyncio.Task[None] | None = None

    def saw(self, tool: Tool, outcome: Outcome) -> None:
        """Takes a successful result in, where it is due, soon."""
        if outcome.is_error or outcome.spilled is not None:
            return
        key = (tool.tool_id, tool.fingerprint)
        calls = self._calls.get(key, 0)
        self._calls[key] = calls + 1
        if is_due(calls, len(memoryview(outcome.result))) and len(self._waiting) < MOST_WAITING:
            self._waiting.append((tool, outcome.result))
            if self._working is None:
                self._working = asyncio.get_running_loop().create_task(self._work())

    async def settled(self) -> None:
        """Waits until what was seen is taken in."""
        while self._working is not None:
            await asyncio.shield(self._working)

    async def _work(self) -> None:
        try:
            while self._waiting:
                tool, result = self._waiting.popleft()
                try:
                    await self._take_in(tool, result)
                except ToolfoldError as error:
                    log.warning("what %s returned could not be noted: %s", tool.tool_id, error.message)
                except (msgspec.MsgspecError, UnicodeError):  # a record, or a result, that cannot be read
                    log.exception("what %s returned could not be noted", tool.tool_id)
        finally:
            self._working = None

    async def _take_in(self, tool: Tool, result: Raw) -> None:
        seen = await asyncio.to_thread(observe_result, result)
        if seen is None:
            return
        known = await self._stored(tool)
        merged = merge(known, seen) if known else seen
        key = (tool.tool_id, tool.fingerprint)
        self._calls[key] = max(self._calls[key], merged.calls)
        await self._store.put(OBSERVED, _key(tool), _encode(merged))
        self._report(tool, merged)

    async def of(self, tool: Tool) -> Observed | None:
        """What this version of a tool was seen to return so far."""
        await self.settled()
        return await self._stored(tool)

    async def _stored(self, tool: Tool) -> Observed | None:
        stored = await self._store.get(OBSERVED, _key(tool))
        return None if stored is None else _decode(stored)

    async def contradictions(self, tool: Tool) -> list[Contradiction]:
        """Where results did not fit what the tool declares."""
        known = await self.of(tool)
        declared = decode_schema(tool.definition.output_schema)
        if known is None or is_uninformative(declared):
            return []
        return find_contradictions(known, declared)

    def _report(self, tool: Tool, seen: Observed) -> None:
        declared = decode_schema(tool.definition.output_schema)
        if is_uninformative(declared):
            return
        for found in find_contradictions(seen, declared):
            once = (tool.tool_id, msgspec.structs.replace(found, count=0))
            if once not in self._reported:
                self._reported.add(once)
                self._events.emit(
                    "schema.contradicted",
                    tool_id=tool.tool_id,
                    path=found.path,
                    declared=found.declared,
                    seen=found.seen,
                )


def _key(tool: Tool) -> str:
    return f"{tool.tool_id.casefold()}@{tool.fingerprint}"
