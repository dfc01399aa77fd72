"""The default profile: the whole catalogue behind eight operations, the same bytes whatever its size.

`tool_output` is listed from the start for clients that do not listen for changes, and only while something is stored
for those that do.
"""

import math
import time
from collections.abc import Callable

from msgspec import Raw

from toolfold.errors import NotBuilt, ToolNotFound
from toolfold.faces.surface.base import SurfaceCall, holds_outputs, watch_outputs
from toolfold.faces.surface.definitions import BY_NAME, tool_objects
from toolfold.faces.surface.instructions import discovery_instructions
from toolfold.faces.surface.operations import Operations
from toolfold.faces.surface.results import to_result
from toolfold.gateway import Gateway
from toolfold.types import Caller

KEPT = 256
RESTRICTED_S = 5.0


class DiscoverySurface:
    """The discovery protocol over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._operations = Operations(gateway)
        self._told: dict[tuple[str, str, tuple[str, ...]], tuple[int, float, str]] = {}

    async def instructions(self, caller: Caller) -> str:
        """Made once for each kind of caller and generation; for those who may not see everything, every few seconds."""
        generation, now = await _generation(self._gateway), time.monotonic()
        key = (caller.name, caller.policy, caller.groups)
        known = self._told.get(key)
        if known is None or known[0] != generation or known[1] < now:
            if len(self._told) >= KEPT:
                self._told.clear()
            until = now + RESTRICTED_S if self._gateway.settings.restricts else math.inf
            known = self._told[key] = (generation, until, await discovery_instructions(self._gateway, caller))
        return known[2]

    async def tools(self, caller: Caller, *, listens: bool = False) -> tuple[Raw, ...]:
        hidden = {"tool_output"} if listens and not await holds_outputs(self._gateway, caller) else set()
        return tuple(raw for name, raw in tool_objects().items() if name not in hidden)

    async def call(self, ask: SurfaceCall) -> Raw:
        if ask.name not in BY_NAME:
            raise ToolNotFound(
                f"there is no tool {ask.name[:100]!r} here",
                hints=list(BY_NAME),
                next_action="use one of the tools in hints; what expand_tool shows is called through call_tool",
            )
        return await to_result(self._operations.run(ask))

    def watch(self, hook: Callable[[Caller | None], None]) -> Callable[[], None]:
        return watch_outputs(self._gateway, hook)


async def _generation(gateway: Gateway) -> int:
    """The number of the catalogue's state; 0 where there is none yet."""
    try:
        async with gateway.catalogue.snapshot() as view:
            return view.generation
    except NotBuilt:
        return 0
