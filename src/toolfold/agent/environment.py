"""What the loop uses of a gateway, and the value that each command results in.

Everything that comes out is already folded: text that a model may read. Above: `executor` and `planner`. The gateway
itself is above, too, and known here as the protocol `AgentGateway` only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct, structs

from toolfold.catalogue.ids import natural_id
from toolfold.config.sections import Extraction
from toolfold.errors import InvalidArguments, OutputError
from toolfold.outputs.tool_output_definition import failure_text, too_large_message
from toolfold.types import Caller, Outcome, Tool

if TYPE_CHECKING:
    from toolfold.config import Settings
    from toolfold.outputs.service import OutputService
    from toolfold.policy.view import CatalogueView
    from toolfold.search.service import SearchService
    from toolfold.upstream.initial_build import InitialBuild

# Up to so many tools are offered all: looking for one would take more turns than it saves tokens.
_ALL_OFFERED_MAX = 30
# Of more, those nearest to the task are offered with it: small models search with the task's own words, or not at all.
_NEAR_TASK = 8
SEARCHED_MAX = 50
# A larger schema of arguments is told by the descriptor's summary of it.
_SCHEMA_MAX_BYTES = 6_000


# The compact descriptor of a tool, as JSON; with `args_schema`, for a native offer, where that is not too large.
Descriptor = Mapping[str, Any]
_Allows = Callable[[str], bool]


class CommandResult(Struct, frozen=True, kw_only=True):
    """The result of a command. The field names are those of the stored record."""

    ok: bool
    text: str  # what the model reads
    found: tuple[Descriptor, ...] = ()  # the tools of a search
    holds_outputs: bool = False  # whether there are stored outputs afterwards
    data: Any = None
    counted: str = ""  # the budget that it used, successful or not; empty: none


class _ScriptResult(Protocol):
    @property
    def ok(self) -> bool: ...


class _ScriptRunner(Protocol):
    def as_text(self, result: Any) -> str:
        """The result of a script as a model reads it."""


class AgentGateway(Protocol):
    """What an agent needs of a gateway."""

    @property
    def settings(self) -> "Settings": ...

    @property
    def outputs(self) -> "OutputService": ...

    @property
    def scripts(self) -> _ScriptRunner: ...

    @property
    def initial_build(self) -> "InitialBuild": ...

    @property
    def search(self) -> "SearchService": ...

    def view(self, caller: Caller) -> "CatalogueView": ...

    async def inventory(self, *, caller: Caller) -> Mapping[str, Sequence[str]]: ...

    async def tools_below(self, path: tuple[str, ...], *, caller: Caller) -> Sequence[Tool]: ...

    async def tool(self, tool_id: str, caller: Caller) -> Tool: ...

    async def descriptor(self, tool_id: str, *, caller: Caller) -> Descriptor: ...

    async def available_tools(
        self, query: str, category_path: Sequence[str], *, limit: int, caller: Caller
    ) -> Sequence[Descriptor]:
        """The inspector's descriptor, then those of the tools that match."""

    async def call_tool(
        self, tool_id: str, args: Mapping[str, Any], *, caller: Caller, max_response: tuple[int | None, int | None]
    ) -> Outcome: ...

    async def run_script(self, code: str, *, caller: Caller, allowed: Callable[[str], bool]) -> _ScriptResult: ...


class Environment:
    """The operations of a gateway for one caller, as the loop uses them. Failures are `ToolfoldError`s.

    `thresholds` say when results are stored and how they are extracted from, where an agent differs from the settings.
    """

    def __init__(self, gateway: AgentGateway, caller: Caller, thresholds: Mapping[str, int] | None = None) -> None:
        self._gateway = gateway
        self._caller = caller
        self._thresholds = dict(thresholds or {})
        self.holds_outputs = False

    def with_thresholds(self, thresholds: Mapping[str, int]) -> "Environment":
        return Environment(self._gateway, self._caller, thresholds) if thresholds else self

    async def inventory(self, allows: _Allows) -> Mapping[str, Sequence[str]]:
        """The names of the tools that may be used, by server."""
        names = await self._gateway.inventory(caller=self._caller)
        kept = {server: [name for name in tools if allows(natural_id(server, name))] for server, tools in names.items()}
        return {server: tools for server, tools in kept.items() if tools}

    async def first_tools(self, task: str, allows: _Allows) -> tuple[tuple[Descriptor, ...], bool]:
        """What is offered before any search, and whether that is all: all of few tools, of many those near the task."""
        await self._gateway.initial_build.wait()
        tools, everything = await self._allowed_tools(allows)
        # Of none a search says why.
        if 0 < len(tools) <= _ALL_OFFERED_MAX:
            return tuple([await self._describe(tool) for tool in tools]), True
        return await self._nearest(task, None if everything else tools, _NEAR_TASK), False

    async def nearest(self, query: str, allows: _Allows, limit: int) -> tuple[Descriptor, ...]:
        """Of the tools that may be used those that come nearest to a request, whether they fit or not."""
        tools, everything = await self._allowed_tools(allows)
        return await self._nearest(query, None if everything else tools, limit)

    async def _nearest(self, query: str, tools: Sequence[Tool] | None, limit: int) -> tuple[Descriptor, ...]:
        ids = None if tools is None else [tool.tool_id for tool in tools]
        view, search = self._gateway.view(self._caller), self._gateway.search
        return await self.describe_all(
            [hit.tool_id for hit in await search.hits(view, query, (), ids=ids, limit=limit)]
        )

    async def _allowed_tools(self, allows: _Allows) -> tuple[list[Tool], bool]:
        """The tools that may be used, and whether those are all."""
        tools = await self._gateway.tools_below((), caller=self._caller)
        allowed = [tool for tool in tools if allows(tool.tool_id)]
        return allowed, len(allowed) == len(tools)

    async def search(self, query: str, category_path: Sequence[str], limit: int) -> tuple[Descriptor, ...]:
        """Descriptors of matching tools. Raises `NoMatchInCategory`."""
        tools = await self._gateway.available_tools(query, category_path, limit=limit, caller=self._caller)
        # The first is the inspector, which every conversation begins with.
        return tuple(
            [self.with_schema(one, await self._gateway.tool(one["tool_id"], self._caller)) for one in tools[1:]]
        )

    async def describe_all(self, tool_ids: Iterable[str]) -> tuple[Descriptor, ...]:
        return tuple([await self._describe(await self._gateway.tool(tool_id, self._caller)) for tool_id in tool_ids])

    async def _describe(self, tool: Tool) -> Descriptor:
        return self.with_schema(await self._gateway.descriptor(tool.tool_id, caller=self._caller), tool)

    @staticmethod
    def with_schema(descriptor: Descriptor, tool: Tool) -> Descriptor:
        """A descriptor from which a native offer can be made."""
        schema = tool.definition.input_schema
        large = len(bytes(schema)) > _SCHEMA_MAX_BYTES
        return descriptor if large else {**descriptor, "args_schema": msgspec.json.decode(schema)}

    async def call(self, tool_id: str, args: dict[str, Any]) -> tuple[bool, str]:
        """Whether the tool succeeded, and its text or the message that stands in for it."""
        own = (self._thresholds.get("tool_response_max_bytes"), self._thresholds.get("tool_response_max_tokens"))
        outcome = await self._gateway.call_tool(tool_id, args, caller=self._caller, max_response=own)
        self.holds_outputs = self.holds_outputs or outcome.stored is not None
        return not outcome.is_error, outcome.text

    async def run_script(self, code: str, allowed: Callable[[str], bool]) -> tuple[bool, str]:
        """Runs a script whose calls of tools that are not allowed fail with `NotAuthorized`."""
        result = await self._gateway.run_script(code, caller=self._caller, allowed=allowed)
        text = self._gateway.scripts.as_text(result)
        limit = self._thresholds.get("tool_response_max_bytes", self._gateway.settings.limits.tool_response_max_bytes)
        if len(text.encode()) > limit:
            text = await self.store("run_script", "{}", text)
        return result.ok, text

    async def extract(self, handle: str, extract: str, mode: str) -> str:
        own = {key: value for key, value in self._thresholds.items() if key in Extraction.__struct_fields__}
        options = structs.replace(self._gateway.settings.outputs, **own)
        try:
            return await self._gateway.outputs.extract(handle, extract, mode, self._caller, options=options)
        except (OutputError, InvalidArguments) as error:
            return failure_text(error.as_dict(), handle=handle, mode=mode)

    async def store(self, name: str, arguments: str, text: str) -> str:
        """Stores a text that does not fit the history, and returns the message with its handle."""
        stored = await self._gateway.outputs.store_text(text, tool_id=name, arguments=arguments, caller=self._caller)
        self.holds_outputs = True
        return too_large_message(stored)
