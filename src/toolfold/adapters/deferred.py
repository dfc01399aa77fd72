"""Tools that a provider's own tool search loads one by one, with our search behind it.

A model sees one search tool, whatever there is. What it finds is named to the provider in its own form (a reference, a
definition), which takes it in without touching what stood before. Nothing is kept between two requests: what was found
stands in the conversation. Above: the adapters of each provider. Below: the surface `direct`, `gateway`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from toolfold.errors import ConfigError, InvalidArguments, NoMatchInCategory, ToolfoldError
from toolfold.faces.surface.base import Surface
from toolfold.faces.surface.definitions import QUERY, TOOL_OUTPUT
from toolfold.faces.surface.direct import DirectSurface
from toolfold.faces.surface.results import _without_operations, error_dict, to_json
from toolfold.gateway import BlockingGateway, Gateway
from toolfold.types import Caller

__all__ = ["SEARCH_DESCRIPTION", "SEARCH_NAME", "SEARCH_SCHEMA", "_DeferredTools", "_Found"]

# Without an underscore: the name of no tool is so, which begins with that of its server.
SEARCH_NAME = "search-tools"
_INSTRUCTIONS = (
    "Most tools are not loaded yet: search for what a tool must do, then call what was found. A result that is too "
    "large to show is stored, and its message tells how to get the part you need with tool_output."
)
SEARCH_DESCRIPTION = (
    "Find tools that are not loaded yet, by what they do. What is found can be called at once. Search before you say "
    "that something cannot be done."
)
SEARCH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"query": QUERY},
    "required": ["query"],
    "additionalProperties": False,
}
_RESULTS = 5
# Each tool that is found costs its whole definition: those that hardly fit are not worth it.
_LEAST = 0.1
# A conversation that names more has long left its context: the first are dropped.
_MAX_DECLARED = 1_000


class _Name(Struct):
    name: str


class _Found(Struct, frozen=True):
    """What a search found: names of tools, or why there are none."""

    names: tuple[str, ...] = ()
    problem: str = ""
    is_error: bool = False


_NOTHING = _Found(problem="No tool was found. Search in other words, or for another way to do it.")


class _DeferredTools:
    """The tools of one gateway for one caller, under the names that they have in the profile `direct`."""

    def __init__(self, source: Gateway | BlockingGateway | Surface, caller: Caller) -> None:
        gateway = source.gateway if isinstance(source, BlockingGateway) else source
        if not isinstance(gateway, Gateway):
            raise ConfigError(
                "tools are deferred of a gateway", next_action="give the gateway itself, not a surface of it"
            )
        self._gateway = gateway
        self._caller = caller
        self.surface = DirectSurface(gateway)

    async def instructions(self) -> str:
        _, _, more = (await self.surface.instructions(self._caller)).partition("\n")
        return f"{_INSTRUCTIONS}\n{more}" if more else _INSTRUCTIONS

    async def find(self, arguments: Any) -> _Found:
        """Searches as a model asked: an object with `query`, or its JSON text. What goes wrong is told, not raised."""
        try:
            query = _query(arguments)
            page = await self._gateway.search_tool_by_category(query, limit=_RESULTS, caller=self._caller, sure=True)
        except NoMatchInCategory:
            return _NOTHING
        except ToolfoldError as error:
            return _Found(problem=to_json({"error": _without_operations(error_dict(error))}), is_error=True)
        names = {tool_id: name for name, tool_id in (await self.surface.listing(self._caller)).ids.items()}
        # What is found beside tools, resources and prompts, is no tool that could be loaded.
        likely = [hit["tool_id"] for hit in page["results"] if hit["confidence"] >= _LEAST]
        found = tuple(names[tool_id] for tool_id in likely if tool_id in names)
        return _Found(found) if found else _NOTHING

    async def definitions(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """The tools of these names as MCP describes them, in this order; those that are gone are left out."""
        wanted = list(dict.fromkeys(names))[-_MAX_DECLARED:]
        objects = {msgspec.json.decode(raw, type=_Name).name: raw for raw in await self.surface.tools(self._caller)}
        return [msgspec.json.decode(objects[name]) for name in wanted if name in objects]

    async def servers(self) -> dict[str, str]:
        """The server of each tool, by the tool's name here."""
        ids = (await self.surface.listing(self._caller)).ids
        return {name: tool_id.partition(".")[0] for name, tool_id in ids.items()}

    @property
    def always(self) -> tuple[str, ...]:
        """The tools beside the search that are loaded from the start: what reads a result that was too large."""
        return (TOOL_OUTPUT.name,)


class _Asked(Struct):
    query: str


def _query(arguments: Any) -> str:
    try:
        if isinstance(arguments, str):
            return msgspec.json.decode(arguments, type=_Asked).query
        return msgspec.convert(arguments, _Asked).query
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidArguments(
            f"the search takes one text: {error}"[:300], next_action='give {"query": "what to do, in one sentence"}'
        ) from None
