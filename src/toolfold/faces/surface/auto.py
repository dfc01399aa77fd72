"""The profile `auto`: tools as they are while all their definitions fit in a small part of a context window, the
discovery protocol from there on."""

from collections.abc import Callable

from msgspec import Raw

from toolfold import tokens
from toolfold.containers import BoundedDict
from toolfold.errors import NotBuilt
from toolfold.faces.surface.base import LOCAL_CONTEXT, OnToolsChanged, Surface
from toolfold.faces.surface.direct import DirectSurface, ToolListing
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.gateway import Gateway
from toolfold.types import EMPTY_OBJECT, CallContext, Caller

# Two hundredths of a window of 200,000 tokens.
MAX_TOKENS = 4_000
# Definitions with more bytes than this for each token allowed are too long, and need not be counted.
MAX_BYTES_PER_TOKEN = 16
# While the first catalogue is built nobody knows yet which of the two it will be.
STARTING_INSTRUCTIONS = (
    "Call the tools that are listed. Where `search_tool_by_category` is among them, they are an index over many more: "
    "search for what a tool must do, in general words, then `expand_tool`, then `call_tool`. A result too large "
    "to show is stored; tool_output reads it."
)


class AutoSurface:
    """Either of two surfaces, by what the caller's tools would cost."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._direct = DirectSurface(gateway)
        self._discovery = DiscoverySurface(gateway)
        self._fits: BoundedDict[int, tuple[ToolListing, bool]] = BoundedDict(100)

    async def instructions(self, caller: Caller) -> str:
        if self._gateway.initial_build.pending:  # a handshake waits for no server
            return STARTING_INSTRUCTIONS
        return await (await self._choose(caller)).instructions(caller)

    async def tools(self, caller: Caller, *, listens: bool = False) -> tuple[Raw, ...]:
        return await (await self._choose(caller)).tools(caller, listens=listens)

    async def call(self, name: str, arguments: Raw = EMPTY_OBJECT, context: CallContext = LOCAL_CONTEXT) -> Raw:
        return await (await self._choose(context.caller)).call(name, arguments, context)

    def watch(self, listener: OnToolsChanged) -> Callable[[], None]:
        return self._direct.watch(listener)

    async def _choose(self, caller: Caller) -> Surface:
        """The surface that this caller sees now."""
        try:
            listing = await self._direct.listing(caller)
        except NotBuilt:
            return self._discovery
        entry = self._fits.get(id(listing))
        # An id may be used again once its object is gone, so the object itself decides.
        if entry is None or entry[0] is not listing:
            entry = self._fits[id(listing)] = (listing, _fits_budget(listing.objects))
        return self._direct if entry[1] else self._discovery


def _fits_budget(objects: tuple[Raw, ...]) -> bool:
    """Whether the definitions of all tools fit in the share of the window."""
    if sum(len(memoryview(raw)) for raw in objects) > MAX_TOKENS * MAX_BYTES_PER_TOKEN:
        return False
    text = b"[" + b",".join(bytes(raw) for raw in objects) + b"]"
    return tokens.count(text.decode()) <= MAX_TOKENS
