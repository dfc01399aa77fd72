"""The profile `discovery`: the whole catalogue behind eight operations, the same bytes whatever its size.

`tool_output` is listed from the start for clients that do not listen for changes, and only while something is stored
for those that do; `run_script` to callers whose policy allows it. Pinned tools stand after the operations.
"""

from collections.abc import Callable
from contextlib import ExitStack

from msgspec import Raw

from toolfold.errors import ToolNotFound
from toolfold.events import Event
from toolfold.faces.surface.base import LOCAL_CONTEXT, CallerCache, OnToolsChanged
from toolfold.faces.surface.definitions import BY_NAME, RUN_SCRIPT, TOOL_OUTPUT, tool_objects
from toolfold.faces.surface.direct import CATALOGUE_CHANGED
from toolfold.faces.surface.instructions import discovery_instructions
from toolfold.faces.surface.operations import Operations
from toolfold.faces.surface.pinned import PinnedTools
from toolfold.gateway import Gateway
from toolfold.types import EMPTY_OBJECT, CallContext, Caller


class DiscoverySurface:
    """The discovery protocol over one gateway. With `pin_used`, the tools that a caller uses most are pinned, too."""

    def __init__(self, gateway: Gateway, *, pin_used: bool = False) -> None:
        self._gateway = gateway
        self._operations = Operations(gateway, expands=True)
        self._pinned = PinnedTools(gateway, used=pin_used)
        self._instructions = CallerCache(gateway, self._load_instructions, max_size=256, restricted_s=5.0)

    async def _load_instructions(self, caller: Caller) -> str:
        return await discovery_instructions(self._gateway, caller, list((await self._pinned.listing(caller)).ids))

    async def instructions(self, caller: Caller) -> str:
        return await self._instructions.get(caller)

    async def tools(self, caller: Caller, *, listens: bool = False, apps: bool = False) -> tuple[Raw, ...]:
        hidden = set()
        if listens and not await self._gateway.outputs.has_any(caller):
            hidden.add(TOOL_OUTPUT.name)
        if not self.runs_scripts(caller):
            hidden.add(RUN_SCRIPT.name)
        operations = (raw for name, raw in tool_objects().items() if name not in hidden)
        return *operations, *(await self._pinned.listing(caller, apps=apps)).objects

    async def call(self, name: str, arguments: Raw = EMPTY_OBJECT, context: CallContext = LOCAL_CONTEXT) -> Raw:
        if name in BY_NAME:
            return await self._operations.result(name, arguments, context)
        pinned = await self._pinned.listing(context.caller)
        if name not in pinned.ids:
            pinned = await self._pinned.listing(context.caller, apps=True)
        if pinned.has(name):
            return await pinned.call(self._gateway, name, arguments, context, alone=False)
        meant = (shown for shown, tool_id in pinned.ids.items() if tool_id == name)
        raise ToolNotFound(
            f"there is no tool {name[:100]!r} here",
            hints=list(dict.fromkeys((*meant, *BY_NAME, *pinned.ids))),
            next_action="use one of the tools in hints; what expand_tool shows is called through call_tool",
        )

    def watch(self, listener: OnToolsChanged) -> Callable[[], None]:
        def on_event(event: Event) -> None:
            # A policy decides who sees `run_script`; pins are tools of the catalogue.
            if event.name == "config.changed" or self._pinned.follow_catalogue:
                listener(None)

        stops = ExitStack()
        for name in CATALOGUE_CHANGED:
            stops.callback(self._gateway.events.subscribe(on_event, only=name))
        stops.callback(self._gateway.outputs.on_changed(lambda caller, _: listener(caller)))
        return stops.close

    def runs_scripts(self, caller: Caller) -> bool:
        return not self._gateway.settings.restricts or self._gateway.programs.allows(RUN_SCRIPT.name, caller)
