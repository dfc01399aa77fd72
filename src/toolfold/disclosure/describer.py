"""What a model may read of one tool: its descriptor, its schemas, any part of its output. And the toolbox's own tool.

Declared output schemas come first; where they say nothing, what was observed stands in, marked and counted.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from toolfold.calls import CallRequest, Handler
from toolfold.catalogue.catalogue import Catalogue
from toolfold.catalogue.suggestions import is_typo
from toolfold.disclosure.descriptor import decode_schema, describe
from toolfold.disclosure.inspector import inspect_schema
from toolfold.disclosure.observed import observed_calls, result_schema
from toolfold.disclosure.observer import Observer
from toolfold.disclosure.render import render_tool
from toolfold.disclosure.toolbox import INSPECTOR_ID, TOOLBOX, inspector_tool, with_inspector
from toolfold.errors import ToolNotFound
from toolfold.events import Events
from toolfold.storage.base import Store
from toolfold.types import Caller, Outcome, Tool

INSPECTIONS = "inspections"
"""The namespace of the store that counts inspections per tool."""


NEAR = 3
"""Ids near by their letters that stand behind those near by their meaning, where it was no slip of the hand."""

Suggest = Callable[[str], Awaitable[list[str]]]
"""Finds the ids of tools that fit the words of an id that does not exist."""


class _HasDescriber(Protocol):
    @property
    def describer(self) -> "Describer": ...


class Describer:
    """Descriptions of the tools of one catalogue."""

    def __init__(self, catalogue: Catalogue, store: Store, events: Events, suggest: Suggest | None = None) -> None:
        self._catalogue = catalogue
        self._suggest = suggest
        self._store = store
        self._events = events
        self.observer = Observer(store, events)
        self.scenes: Callable[[Caller], _HasDescriber] | None = None
        """Where callers see different things: what each works with."""

    def limited(self, catalogue: Catalogue, suggest: Suggest) -> "Describer":
        """The same descriptions over a catalogue that shows a part."""
        seen = copy(self)
        seen._catalogue, seen._suggest = catalogue, suggest  # noqa: SLF001 - a copy of itself
        return seen

    async def tool(self, tool_id: str) -> Tool:
        """A tool of the catalogue, or the toolbox's own, which is always there and always allowed."""
        known = self._catalogue.known(tool_id)
        if known is not None:
            return known
        if tool_id.casefold() == INSPECTOR_ID:
            return inspector_tool()
        try:
            return await self._catalogue.tool(tool_id)
        except ToolNotFound as error:
            raise await self._with_suggestions(error, tool_id) from None

    async def _with_suggestions(self, error: ToolNotFound, tool_id: str) -> ToolNotFound:
        """The ids that are near by their letters, and those that are near by their meaning; what looks like a slip of
        the hand comes first, else what was meant."""
        by_meaning = await self._suggest(tool_id) if self._suggest is not None else []
        by_letters = error.hints
        slipped = bool(by_letters) and is_typo(tool_id, by_letters[0])
        hints = dict.fromkeys((*by_letters, *by_meaning) if slipped else (*by_meaning, *by_letters[:NEAR]))
        return ToolNotFound(error.message, hints=list(hints), next_action=error.next_action)

    async def descriptor(self, tool_id: str) -> dict[str, Any]:
        tool = await self.tool(tool_id)
        return describe(tool, await self.observer.of(tool)).as_dict()

    async def available(self, tool_ids: Iterable[str]) -> list[dict[str, Any]]:
        """Descriptors for a planner: the inspector's first, then those of what a search found."""
        return with_inspector([await self.descriptor(tool_id) for tool_id in tool_ids])

    async def inventory(self) -> dict[str, list[str]]:
        """The names of all tools by server, the toolbox among them."""
        found: dict[str, list[str]] = {TOOLBOX: [inspector_tool().name]}
        async with self._catalogue.snapshot() as view:
            for tool in await view.tools():
                found.setdefault(tool.server, []).append(tool.name)
        return found

    async def expand(self, tool_id: str) -> dict[str, Any]:
        tool = await self.tool(tool_id)
        answer = render_tool(tool)
        schema = result_schema(decode_schema(tool.definition.output_schema), await self.observer.of(tool))
        if observed_calls(schema) is not None:
            answer["result_schema"] = Raw(msgspec.json.encode(schema))
        return answer

    async def inspect(self, tool_id: str, field_path: str | None, max_depth: int, max_fields: int) -> dict[str, Any]:
        tool = await self.tool(tool_id)
        schema = result_schema(decode_schema(tool.definition.output_schema), await self.observer.of(tool))
        answer = inspect_schema(schema, field_path, max_depth=max_depth, max_fields=max_fields, tool_id=tool.tool_id)
        calls = observed_calls(schema)
        if calls is not None:
            answer["observed_calls"] = calls
        elif schema is None:
            answer["note"] = "this tool declares no output schema, and none of its results was seen yet"
        await self._count(tool.tool_id, answer["field_path"])
        return {"tool_id": tool.tool_id, **answer}

    async def _count(self, tool_id: str, field_path: str) -> None:
        count = int(await self._store.get(INSPECTIONS, tool_id) or 0) + 1
        await self._store.put(INSPECTIONS, tool_id, str(count).encode())
        self._events.emit("mcp.schema.inspect.called", tool_id=tool_id, field_path=field_path, count=count)

    async def inspections(self) -> Mapping[str, int]:
        return {tool_id: int(count) for tool_id, count in (await self._store.items(INSPECTIONS)).items()}

    def wrap(self, handler: Handler) -> Handler:
        """Answers calls of the toolbox here, and looks at what all others return."""

        async def handled(request: CallRequest) -> Outcome:
            if request.tool.server == TOOLBOX:
                return await self._inspector_call(request)
            outcome = await handler(request)
            self.observer.saw(request.tool, outcome)
            return outcome

        return handled

    async def _inspector_call(self, request: CallRequest) -> Outcome:
        given = {"field_path": "", "max_depth": 4, "max_fields": 120, **msgspec.json.decode(request.arguments)}
        seen = self if self.scenes is None else self.scenes(request.caller).describer
        answer = await seen.inspect(given["tool_id"], given["field_path"], given["max_depth"], given["max_fields"])
        text = msgspec.json.encode(answer).decode()
        result = {"content": [{"type": "text", "text": text}], "structuredContent": answer}
        return Outcome(result=Raw(msgspec.json.encode(result)))
