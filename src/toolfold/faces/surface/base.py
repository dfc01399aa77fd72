"""What a model-facing surface looks like to a wire: its tools, its instructions, and one way to call them.

A profile is one of these. It knows the gateway and no wire; the MCP server, the adapters for other frameworks and the
tests all drive it the same way.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Raw, Struct

from toolfold.gateway import Gateway
from toolfold.types import EMPTY_OBJECT, LOCAL, Caller
from toolfold.wire import OnInput, OnProgress


class SurfaceCall(Struct, frozen=True, kw_only=True):
    """A model's call of one of the surface's tools."""

    name: str
    arguments: Raw = EMPTY_OBJECT
    caller: Caller = LOCAL
    meta: Raw | None = None
    """`_meta` of the request, to be passed on to an upstream."""
    capabilities: Raw | None = None
    """What the client at the far end declared that it can answer."""
    on_progress: OnProgress | None = None
    on_input: OnInput | None = None


class Surface(Protocol):
    """What one profile shows."""

    async def instructions(self, caller: Caller) -> str:
        """Rules of behaviour and a true inventory, short."""

    async def tools(self, caller: Caller, *, listens: bool = False) -> tuple[Raw, ...]:
        """MCP tool objects, the same bytes each time. `listens`: the client learns of it when the list changes."""

    async def call(self, ask: SurfaceCall) -> Raw:
        """A whole `CallToolResult`. What goes wrong is a result with `isError` that a model can act on. Raises
        `ToolNotFound` for a name that the surface does not have."""

    def watch(self, hook: Callable[[Caller | None], None]) -> Callable[[], None]:
        """Tells `hook` when the list of tools changed: for one caller, or for all (`None`). The result ends that."""


# --- Whether a caller has stored outputs, and who wants to know when that changes. For every profile that lists


async def holds_outputs(gateway: Gateway, caller: Caller) -> bool:
    """Whether something of this caller is stored."""
    return await gateway.outputs.held(caller)


def watch_outputs(gateway: Gateway, hook: Callable[[Caller | None], None]) -> Callable[[], None]:
    """Tells `hook` each caller that got its first stored output, or lost its last."""
    return gateway.outputs.on_changed(lambda caller, _: hook(caller))
