"""The profile `auto`: tools as they are while all their definitions fit in a small part of a context window, the
discovery protocol from there on."""

from collections.abc import Callable

from msgspec import Raw

from toolfold import tokens
from toolfold.errors import NotBuilt
from toolfold.faces.surface.base import Surface, SurfaceCall
from toolfold.faces.surface.direct import DirectSurface, ToolListing
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.gateway import Gateway
from toolfold.types import Caller

WINDOW_TOKENS = 200_000
SHARE = 0.02
MAX_TOKENS = int(WINDOW_TOKENS * SHARE)
KEPT = 100
MAX_BYTES_PER_TOKEN = 16
"""Definitions with more bytes than this for each token allowed are not even counted: they are too long."""
STARTING_INSTRUCTIONS = (
    "Call the tools that are listed. Where `search_tool_by_category` is among them, they are an index over many more: "
    "search, then `expand_tool`, then `call_tool`. A result that is too large to show is stored; tool_output reads it."
)
"""What is told while it is not known yet which of the two it will be."""


class AutoSurface:
    """Either of two surfaces, by what the caller's tools would cost."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._direct = DirectSurface(gateway)
        self._discovery = DiscoverySurface(gateway)
        self._fits: dict[int, tuple[ToolListing, bool]] = {}

    async def instructions(self, caller: Caller) -> str:
        if self._gateway.governor.first_build is not None:  # a handshake waits for no server
            return STARTING_INSTRUCTIONS
        return await (await self.chosen(caller)).instructions(caller)

    async def tools(self, caller: Caller, *, listens: bool = False) -> tuple[Raw, ...]:
        return await (await self.chosen(caller)).tools(caller, listens=listens)

    async def call(self, ask: SurfaceCall) -> Raw:
        return await (await self.chosen(ask.caller)).call(ask)

    def watch(self, hook: Callable[[Caller | None], None]) -> Callable[[], None]:
        return self._direct.watch(hook)

    async def chosen(self, caller: Caller) -> Surface:
        """The surface that this caller sees now."""
        try:
            shown = await self._direct.shown(caller)
        except NotBuilt:
            return self._discovery
        known = self._fits.get(id(shown))
        if known is None or known[0] is not shown:
            if len(self._fits) >= KEPT:
                self._fits.clear()
            known = self._fits[id(shown)] = (shown, _fits_budget(shown.objects))
        return self._direct if known[1] else self._discovery


def _fits_budget(objects: tuple[Raw, ...]) -> bool:
    """Whether the definitions of all tools fit in the share of the window."""
    size = sum(len(memoryview(one)) for one in objects)
    if size > MAX_TOKENS * MAX_BYTES_PER_TOKEN:
        return False
    text = b"[" + b",".join(bytes(one) for one in objects) + b"]"
    return tokens.count(text.decode()) <= MAX_TOKENS
