"""What a model-facing surface looks like to a wire: its tools, its instructions, and one way to call them.

A profile is a `Surface`. It knows the gateway and no wire; the MCP server, the adapters for other frameworks and the
tests all drive it the same way. What several profiles need stands here, too.
"""

import math
import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from msgspec import Raw

from toolfold.containers import BoundedDict
from toolfold.errors import NotBuilt
from toolfold.gateway import Gateway
from toolfold.types import EMPTY_OBJECT, CallContext, Caller

T = TypeVar("T")

LOCAL_CONTEXT = CallContext()
OnToolsChanged = Callable[[Caller | None], None]


class Surface(Protocol):
    """What one profile shows."""

    async def instructions(self, caller: Caller) -> str:
        """Rules of behaviour and a true inventory, short."""

    async def tools(self, caller: Caller, *, listens: bool = False, apps: bool = False) -> tuple[Raw, ...]:
        """MCP tool objects, the same bytes each time. `listens`: the client learns of it when the list changes;
        `apps`: it renders apps."""

    async def call(self, name: str, arguments: Raw = EMPTY_OBJECT, context: CallContext = LOCAL_CONTEXT) -> Raw:
        """A whole `CallToolResult`. What goes wrong is a result with `isError` that a model can act on. Raises
        `ToolNotFound` for a name that the surface does not have."""

    def watch(self, listener: OnToolsChanged) -> Callable[[], None]:
        """Calls `listener` when the tools change: for one caller, or for all (`None`). The result ends that."""


# A name, a policy, groups, a subset: see `Caller.kind`.
CallerKind = tuple[str, str, tuple[str, ...], str]


class CallerCache(Generic[T]):
    """A value for each kind of caller, loaded anew when the catalogue changes.

    Where callers are restricted it also expires after `restricted_s`: policies and trust change without the catalogue.
    """

    def __init__(
        self, gateway: Gateway, load: Callable[[Caller], Awaitable[T]], *, max_size: int, restricted_s: float
    ) -> None:
        self._gateway = gateway
        self._load = load
        self._restricted_s = restricted_s
        self._settings = gateway.settings
        self._entries: BoundedDict[CallerKind, tuple[int, float, T]] = BoundedDict(max_size)

    async def get(self, caller: Caller) -> T:
        if self._settings is not self._gateway.settings:
            self._settings = self._gateway.settings
            self._entries.clear()
        key = caller.kind
        generation, now = await self._state(caller), time.monotonic()
        entry = self._entries.get(key)
        if entry is None or entry[0] != generation or entry[1] < now:
            expires = now + self._restricted_s if self._gateway.settings.restricts else math.inf
            entry = (generation, expires, await self._load(caller))
            self._entries.renew(key, entry)
        return entry[2]

    async def _state(self, caller: Caller) -> int:
        """The number of the state of what this caller sees; 0 where there is none yet."""
        try:
            async with self._gateway.view(caller).catalogue.snapshot() as view:
                return getattr(view, "state", view.generation)
        except NotBuilt:
            return 0
