"""What a model may read of one tool: its descriptor, its schemas, any part of its output. And the toolbox's own tool.

Every question comes with the view of the caller who asks it. Declared output schemas come first; where they say
nothing, what was observed stands in, marked and counted.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from toolfold.answers import Doubts, ExpandedTool, InspectedOutput, ToolDescriptor, ToolHit
from toolfold.catalogue.kinds import TOOLBOX
from toolfold.catalogue.suggestions import is_typo
from toolfold.disclosure.descriptor import describe
from toolfold.disclosure.fold import summarize_schema_for_llm
from toolfold.disclosure.inspector import inspect_schema
from toolfold.disclosure.inspector_tool import INSPECTOR_ID, inspector_tool, with_inspector
from toolfold.disclosure.leaf import about_leaf
from toolfold.disclosure.observed import Observer, decode_schema, observed_calls, result_schema
from toolfold.disclosure.render import render_tool
from toolfold.errors import ToolNotFound
from toolfold.events import Events
from toolfold.policy.view import CatalogueView
from toolfold.storage.base import Store, update_state
from toolfold.types import CallContext, Outcome, Tool, ToolCall

# The store's namespace that counts inspections per tool.
_INSPECTIONS = "inspections"
# Ids alike by their letters that follow those alike by their meaning, where the id is no typing error.
_MAX_SIMILAR_SPELLINGS = 3
_MAX_CONTRADICTIONS = 5

# Finds the ids of tools that fit the words of an unknown id: `SearchService.similar_ids`.
Suggest = Callable[[CatalogueView, str], Awaitable[list[str]]]


class Describer:
    """Descriptions of the tools of one catalogue."""

    def __init__(self, store: Store, events: Events, suggest: Suggest | None = None) -> None:
        self._store = store
        self._events = events
        self._suggest = suggest
        self.observer = Observer(store, events)

    async def tool(self, view: CatalogueView, tool_id: str, *, current: bool = False) -> Tool:
        """A tool of the catalogue, with `current` as its server lists it now; or the toolbox's own, which is always
        there and always allowed."""
        cached = view.catalogue.cached_tool(tool_id)
        if cached is not None and not current:
            return cached
        if tool_id.casefold() == INSPECTOR_ID:
            return inspector_tool()
        try:
            return await view.tool(tool_id, current=current)
        except ToolNotFound as error:
            told = await self._with_suggestions(view, error, tool_id)
            if tool_id not in told.hints:
                raise told from None
        return await view.tool(tool_id, current=current)  # it came while what is near was looked for

    async def _with_suggestions(self, view: CatalogueView, error: ToolNotFound, tool_id: str) -> ToolNotFound:
        """The same error with ids alike by letters and by meaning: a likely typing error first, else what was meant."""
        by_meaning = await self._suggest(view, tool_id) if self._suggest is not None else []
        by_letters = error.hints
        if error.removed or (by_letters and is_typo(tool_id, by_letters[0])):
            hints = (*by_letters, *by_meaning)
        else:
            hints = (*by_meaning, *by_letters[:_MAX_SIMILAR_SPELLINGS])
        return ToolNotFound(error.message, hints=list(dict.fromkeys(hints)))

    async def descriptor(self, view: CatalogueView, tool_id: str) -> ToolDescriptor:
        tool = await self.tool(view, tool_id, current=True)
        return describe(tool, await self.observer.of(tool))

    async def available(self, view: CatalogueView, hits: Sequence[ToolHit]) -> list[ToolDescriptor]:
        """Descriptors for a planner: the inspector's first, then those of the hits of a search."""
        found = {hit["tool_id"]: await self.descriptor(view, hit["tool_id"]) for hit in hits}
        for hit in hits:
            if "same_as" in hit:
                found[hit["tool_id"]]["same_as"] = hit["same_as"]
        return with_inspector(list(found.values()))

    async def inventory(self, view: CatalogueView) -> dict[str, list[str]]:
        """The names of all tools by server, the toolbox among them."""
        names: dict[str, list[str]] = {TOOLBOX: [inspector_tool().name]}
        async with view.catalogue.snapshot() as snapshot:
            for tool in await snapshot.tools():
                if tool.kind == "tool":
                    names.setdefault(tool.server, []).append(tool.name)
        return names

    async def expand(self, view: CatalogueView, tool_id: str) -> ExpandedTool:
        """The whole of one tool, its result also folded; what was observed where the declared schema says nothing."""
        tool = await self.tool(view, tool_id, current=True)
        schema = await self._result_schema(tool)
        answer = render_tool(tool, *summarize_schema_for_llm(schema, tool_id=tool.tool_id))
        if observed_calls(schema) is not None:
            answer["result_schema"] = Raw(msgspec.json.encode(schema))
        return {**answer, **await about_leaf(view, tool), **await self._warnings(view, tool)}

    async def inspect(
        self, view: CatalogueView, tool_id: str, field_path: str | None, max_depth: int, max_fields: int
    ) -> InspectedOutput:
        """What is at one place of a tool's output."""
        tool = await self.tool(view, tool_id, current=True)
        schema = await self._result_schema(tool)
        found = inspect_schema(schema, field_path, max_depth=max_depth, max_fields=max_fields, tool_id=tool.tool_id)
        answer = cast("InspectedOutput", {"tool_id": tool.tool_id, **found})
        calls = observed_calls(schema)
        if calls is not None:
            answer["observed_calls"] = calls
        elif schema is None:
            answer["note"] = "this tool declares no output schema, and none of its results was seen yet"
        await self._count_inspection(tool.tool_id, answer["field_path"])
        return {**answer, **await self._warnings(view, tool)}

    async def contradictions(self, tool: Tool) -> list[str]:
        """Where results of a tool did not fit what it declares, a few words each."""
        if tool.definition.output_schema is None:
            return []
        return [str(found) for found in (await self.observer.contradictions(tool))[:_MAX_CONTRADICTIONS]]

    async def all_contradictions(self, view: CatalogueView) -> dict[str, list[str]]:
        """The same of all tools that a caller may see, by id."""
        async with view.catalogue.snapshot() as snapshot:
            tools = await self.observer.among(await snapshot.tools())
        found = {tool.tool_id: await self.contradictions(tool) for tool in tools}
        return {tool_id: texts for tool_id, texts in found.items() if texts}

    async def _warnings(self, view: CatalogueView, tool: Tool) -> Doubts:
        """What speaks against what is shown of a tool; nothing where nothing does."""
        doubts: Doubts = {}
        if contradicted := await self.contradictions(tool):
            doubts["contradicted"] = contradicted
        if may_be_old := await view.unread(tool.server):
            doubts["may_be_old"] = may_be_old
        return doubts

    async def inspections(self) -> Mapping[str, int]:
        """How often the output of each tool was inspected."""
        return {tool_id: int(count) for tool_id, count in (await self._store.items(_INSPECTIONS)).items()}

    async def _result_schema(self, tool: Tool) -> Any:
        declared = decode_schema(tool.definition.output_schema)
        return result_schema(declared, await self.observer.of(tool), as_seen=True)

    async def _count_inspection(self, tool_id: str, field_path: str) -> None:
        count = 0

        def add(stored: bytes | None) -> bytes:
            nonlocal count
            count = int(stored or 0) + 1
            return b"%d" % count

        await update_state(self._store, _INSPECTIONS, tool_id, add)
        self._events.emit("mcp.schema.inspect.called", tool_id=tool_id, field_path=field_path, count=count)

    def observe(self, call: ToolCall, context: CallContext, outcome: Outcome) -> None:
        """Learns from what a tool returned: a hook on the results of calls."""
        del context
        if call.tool.server != TOOLBOX and call.tool.kind == "tool":
            self.observer.observe(call.tool, outcome)

    async def aclose(self) -> None:
        """Waits until what was observed is stored."""
        await self.observer.settled()
