"""What tools were seen to return, kept per tool and version, for those that declare nothing useful about it.

Each result that is looked at is merged into a bounded shape in the store; no value is kept. Not every result is looked
at: the first ones, then fewer and fewer, so that calls stay cheap. What contradicts a declared schema is told.
"""

import msgspec

from toolfold.disclosure.descriptor import decoded
from toolfold.disclosure.observed import Observed, is_due, merge, observe_result
from toolfold.disclosure.observed_schema import Contradiction, contradictions, says_nothing
from toolfold.events import Events
from toolfold.storage.base import Store
from toolfold.types import Outcome, Tool

OBSERVED = "observed"
"""The namespace of the store that keeps the shapes."""

_decode = msgspec.json.Decoder(Observed).decode
_encode = msgspec.json.Encoder().encode


class Observer:
    """The shapes of one catalogue's results."""

    def __init__(self, store: Store, events: Events) -> None:
        self._store = store
        self._events = events
        self._calls: dict[str, int] = {}
        self._reported: set[tuple[str, Contradiction]] = set()

    async def saw(self, tool: Tool, outcome: Outcome) -> None:
        """Takes a successful result in, where it is due."""
        if outcome.is_error or outcome.spilled is not None:
            return
        key = _key(tool)
        calls = self._calls.get(key)
        if calls is None:
            known = await self.of(tool)
            calls = known.calls if known else 0
        self._calls[key] = calls + 1
        if not is_due(calls, len(memoryview(outcome.result))):
            return
        seen = observe_result(outcome.result)
        if seen is None:
            return
        known = await self.of(tool)
        merged = merge(known, seen) if known else seen
        await self._store.put(OBSERVED, key, _encode(merged))
        self._report(tool, merged)

    async def of(self, tool: Tool) -> Observed | None:
        """What this version of a tool was seen to return so far."""
        stored = await self._store.get(OBSERVED, _key(tool))
        return None if stored is None else _decode(stored)

    async def contradictions(self, tool: Tool) -> list[Contradiction]:
        """Where results did not fit what the tool declares."""
        known = await self.of(tool)
        declared = decoded(tool.definition.output_schema)
        if known is None or says_nothing(declared):
            return []
        return contradictions(known, declared)

    def _report(self, tool: Tool, seen: Observed) -> None:
        declared = decoded(tool.definition.output_schema)
        if says_nothing(declared):
            return
        for found in contradictions(seen, declared):
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
