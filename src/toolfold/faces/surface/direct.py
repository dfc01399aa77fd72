"""The profile `direct`: every tool of the catalogue in the list, under its id made fit for any client.

For small catalogues and for clients that bring a tool search of their own. A definition is shown as its server wrote
it, except for its name and its output schema. `tool_output` stands after the tools.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolfold.errors import ToolNotFound
from toolfold.events import Event
from toolfold.faces.surface.apps import has_app, own_app
from toolfold.faces.surface.base import LOCAL_CONTEXT, CallerCache, OnToolsChanged
from toolfold.faces.surface.definitions import BY_NAME, TOOL_OUTPUT, tool_objects
from toolfold.faces.surface.instructions import sign_in_line
from toolfold.faces.surface.listed_form import sound_entry
from toolfold.faces.surface.operations import Operations, call_tool
from toolfold.faces.surface.results import _error_json, _without_operations, to_result
from toolfold.gateway import Gateway
from toolfold.types import EMPTY_OBJECT, CallContext, Caller, Tool

# The shortest limit among the clients we know.
MAX_NAME = 64
CATALOGUE_CHANGED = ("catalogue.built", "catalogue.updated", "config.changed")
SIGN_IN_CHANGED = "sign_in.changed"
INSTRUCTIONS = (
    "Call the tools that are listed. A result that is too large to show is stored, and its message tells how to get "
    "the part you need with tool_output."
)


class ToolListing(Struct, frozen=True):
    """The tools of a caller as they are listed: name to id, and the tool objects."""

    ids: dict[str, str] = {}
    objects: tuple[Raw, ...] = ()
    own_names: dict[str, str] = {}
    """The name here of each tool with an app by the one that its server gave it, where no other has that: it is what
    the app calls it."""

    @staticmethod
    def of(tools: Sequence[Tool]) -> "ToolListing":
        tools = [tool for tool in tools if tool.kind == "tool"]  # all else has lists of its own
        names = _safe_names(tool.tool_id for tool in tools)
        return ToolListing(
            {names[tool.tool_id]: tool.tool_id for tool in tools},
            tuple(_tool_object(tool, names[tool.tool_id]) for tool in tools),
            _own_names(tools, names),
        )

    def has(self, name: str) -> bool:
        return name in self.ids or name in self.own_names

    async def call(
        self, gateway: Gateway, name: str, arguments: Raw, context: CallContext, *, alone: bool = True
    ) -> Raw:
        """Calls one of them by its name here. `alone`: no operations are listed beside them. Raises `ToolNotFound`."""
        name = name if name in self.ids else self.own_names.get(name, name)
        if name not in self.ids:
            from difflib import get_close_matches

            raise ToolNotFound(
                f"there is no tool {name[:100]!r} here",
                hints=get_close_matches(name[:100], self.ids, n=5, cutoff=0.5) or list(self.ids)[:5],
                next_action="list the tools again: they may have changed",
            )
        work = call_tool(gateway, self.ids[name], arguments, replace(context, tool_name=name))
        return await to_result(work, context, *((self._described,) if alone else ()))

    def _described(self, error: dict[str, Any]) -> str:
        """An error in the words of a list of tools: under the names that they have here."""
        names = {tool_id: name for name, tool_id in self.ids.items()}
        hints = [names.get(hint, hint) if isinstance(hint, str) else hint for hint in error["hints"]]
        return _error_json({**_without_operations(error), "hints": hints})


class DirectSurface:
    """All tools of one gateway, as they are."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._operations = Operations(gateway)
        self._listings = CallerCache(gateway, self._load, max_size=64, restricted_s=1.0)

    async def instructions(self, caller: Caller) -> str:
        waiting = await sign_in_line(self._gateway, caller, await self._sign_ins(caller))
        return f"{INSTRUCTIONS}\n{waiting}" if waiting else INSTRUCTIONS

    async def tools(self, caller: Caller, *, listens: bool = False, apps: bool = False) -> tuple[Raw, ...]:
        objects = (await self.listing(caller)).objects
        if listens and not await self._gateway.outputs.has_any(caller):
            return objects
        return (*objects, tool_objects()[TOOL_OUTPUT.name])

    async def call(self, name: str, arguments: Raw = EMPTY_OBJECT, context: CallContext = LOCAL_CONTEXT) -> Raw:
        if name == TOOL_OUTPUT.name:
            return await self._operations.result(name, arguments, context)
        return await (await self.listing(context.caller)).call(self._gateway, name, arguments, context)

    def watch(self, listener: OnToolsChanged) -> Callable[[], None]:
        def on_event(event: Event) -> None:
            if event.name in CATALOGUE_CHANGED and "tool" in event.data.get("kinds", ("tool",)):
                listener(None)
            elif event.name == SIGN_IN_CHANGED:
                listener(Caller(name=event.data["caller"]) if event.data["caller"] else None)

        stops = ExitStack()
        stops.callback(self._gateway.events.subscribe(on_event))
        stops.callback(self._gateway.outputs.on_changed(lambda caller, _: listener(caller)))
        return stops.close

    async def listing(self, caller: Caller) -> ToolListing:
        """The tools that a caller may see. Waits for the first catalogue, and for what is read for this caller."""
        await self._gateway.initial_build.wait()
        await self._gateway.view(caller).settled()
        listing = await self._listings.get(caller)
        if not (own := _sign_in_names(self._gateway, caller)):
            return listing
        # A tool of the server's own may have that name. Those that are no longer listed can be called: a client may
        # call again as it was told to.
        ids = {**{name: f"{server}.sign_in" for name, server in own.items()}, **listing.ids}
        asked = [name for name in await self._sign_ins(caller) if name not in listing.ids]
        own_objects = (_sign_in_object(name, own[name]) for name in asked)
        return ToolListing(ids, (*listing.objects, *own_objects), listing.own_names)

    async def _sign_ins(self, caller: Caller) -> list[str]:
        """The names of the tools by which this caller signs in, where it has to."""
        waiting = await self._gateway.upstreams.arrivals.to_sign_in(caller.name)
        return [name for name, server in _sign_in_names(self._gateway, caller).items() if server in waiting]

    async def _load(self, caller: Caller) -> ToolListing:
        return ToolListing.of(await self._gateway.tools_below((), caller=caller))


def _sign_in_names(gateway: Gateway, caller: Caller) -> dict[str, str]:
    """The servers that a caller signs in to itself, by the names of the tools for that."""
    view, own = gateway.view(caller), sorted(gateway.upstreams.per_caller)
    ids = {f"{server}.sign_in": server for server in own if not view.hides(server)}
    return {name: ids[tool_id] for tool_id, name in _safe_names(ids).items()}


def _sign_in_object(name: str, server: str) -> Raw:
    text = f"Sign in to {server}, with an account of the user's own: its tools are listed then. Takes no arguments."
    schema = {"type": "object", "properties": {}}
    hints = {"readOnlyHint": False, "openWorldHint": True}
    return Raw(msgspec.json.encode({"name": name, "description": text, "inputSchema": schema, "annotations": hints}))


def _own_names(tools: Sequence[Tool], names: Mapping[str, str]) -> dict[str, str]:
    apps = [(tool.definition.sent_name, names[tool.tool_id]) for tool in tools if has_app(tool)]
    uses = Counter(own for own, _ in apps)
    return {own: name for own, name in apps if uses[own] == 1}


def _tool_object(tool: Tool, name: str) -> Raw:
    """The MCP tool object as its server sent it, under the name it has here."""
    definition = sound_entry(msgspec.json.decode(tool.definition.raw))
    # A result that is too large comes as a handle, which a client that checks results against a schema would refuse.
    definition.pop("outputSchema", None)
    definition.pop("name", None)
    if not isinstance(definition.get("inputSchema"), dict):
        definition["inputSchema"] = {"type": "object"}
    own_app(tool.server, definition)
    return Raw(msgspec.json.encode({"name": name, **definition}))


def _safe_names(tool_ids: Iterable[str]) -> dict[str, str]:
    """A name for each id: at most 64 letters, digits, `_` and `-`, no two alike even when case does not count.

    Ids that would get the same name all get one that ends in a hash of the id, so that names never depend on order.
    """
    plain = {tool_id: re.sub(r"[^A-Za-z0-9_-]", "_", tool_id)[:MAX_NAME] for tool_id in tool_ids}
    # Some clients compare names without case.
    uses = Counter(name.casefold() for name in (*plain.values(), *BY_NAME))
    return {tool_id: _hashed(tool_id, name) if uses[name.casefold()] > 1 else name for tool_id, name in plain.items()}


def _hashed(tool_id: str, name: str) -> str:
    return f"{name[: MAX_NAME - 9]}_{blake2b(tool_id.encode(), digest_size=4).hexdigest()}"
