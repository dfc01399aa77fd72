"""The default profile: the whole catalogue behind eight operations, the same bytes whatever its size.

`tool_output` is listed from the start for clients that do not listen for changes, and only while something is stored
for those that do; `run_script` to callers whose policy allows it.
"""

from collections.abc import Callable

from msgspec import Raw

from toolfold.errors import ToolNotFound
from toolfold.faces.surface.base import LOCAL_CONTEXT, CallerCache, OnToolsChanged
from toolfold.faces.surface.definitions import BY_NAME, RUN_SCRIPT, TOOL_OUTPUT, tool_objects
from toolfold.faces.surface.instructions import discovery_instructions
from toolfold.faces.surface.operations import Operations
from toolfold.gateway import Gateway
from toolfold.types import EMPTY_OBJECT, CallContext, Caller


class DiscoverySurface:
    """The discovery protocol over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._operations = Operations(gateway)
        self._instructions = CallerCache(
            gateway, lambda caller: discovery_instructions(gateway, caller), max_size=256, restricted_s=5.0
        )

    async def instructions(self, caller: Caller) -> str:
        return await self._instructions.get(caller)

    async def tools(self, caller: Caller, *, listens: bool = False) -> tuple[Raw, ...]:
        hidden = set()
        if listens and not await self._gateway.outputs.has_any(caller):
            hidden.add(TOOL_OUTPUT.name)
        if self._gateway.settings.restricts and not self._gateway.programs.allows(RUN_SCRIPT.name, caller):
            hidden.add(RUN_SCRIPT.name)
        return tuple(raw for name, raw in tool_objects().items() if name not in hidden)

    async def call(self, name: str, arguments: Raw = EMPTY_OBJECT, context: CallContext = LOCAL_CONTEXT) -> Raw:
        if name not in BY_NAME:
            raise ToolNotFound(
                f"there is no tool {name[:100]!r} here",
                hints=list(BY_NAME),
                next_action="use one of the tools in hints; what expand_tool shows is called through call_tool",
            )
        return await self._operations.result(name, arguments, context)

    def watch(self, listener: OnToolsChanged) -> Callable[[], None]:
        # A policy decides who sees `run_script`.
        stop_events = self._gateway.events.subscribe(lambda _: listener(None), only="config.changed")
        stop_outputs = self._gateway.outputs.on_changed(lambda caller, _: listener(caller))

        def stop() -> None:
            stop_events()
            stop_outputs()

        return stop
