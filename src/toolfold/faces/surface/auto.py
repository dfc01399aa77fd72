"""The profile `auto`, the default: tools as they are while that costs about what the discovery protocol would, and the
protocol from there on; for each caller by what it may see.

What was chosen for a caller stays while the costs are near each other, so that a tool more or less changes nothing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b

from msgspec import Raw, Struct

from toolfold.catalogue.kinds import is_tool_id
from toolfold.catalogue.leaf_nodes import PROMPTS, RESOURCES, SKILLS
from toolfold.containers import BoundedDict, TaskSet
from toolfold.errors import NotBuilt, StoreError
from toolfold.faces.surface.base import LOCAL_CONTEXT, CallerCache, CallerKind, OnToolsChanged, Surface
from toolfold.faces.surface.definitions import (
    BY_NAME,
    CALL_TOOL,
    EXPAND_TOOL,
    RUN_SCRIPT,
    SEARCH_TOOLS,
    TOOL_OUTPUT,
    tool_objects,
)
from toolfold.faces.surface.direct import DirectSurface, ToolListing
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.faces.surface.instructions import count_tokens
from toolfold.gateway import Gateway
from toolfold.types import EMPTY_OBJECT, CallContext, Caller

log = logging.getLogger("toolfold.surface")

# More tools are never cheap; so many and no more are read and counted.
_MAX_TOOLS = 100
_MAX_COUNTED = 100_000
# What it costs to find one tool: the answers of a search and of `expand_tool`. A conversation uses two, say.
_FIND_TOKENS = 700
_TOOLS_USED = 2
# The other form must be cheaper by this part before what a client has seen is changed.
_MARGIN = 0.25
# How long the first list of all waits for the first catalogue: a client that is shown the operations first, then the
# tools, has read both. From then on it is the operations, until there is one.
_FIRST_LIST_S = 5.0

# While the first catalogue is built nobody knows yet which of the two it will be.
STARTING_INSTRUCTIONS = (
    "Call the tools that are listed. Where `search_tool_by_category` is among them, they are an index over many more: "
    "search for what a tool must do, then `expand_tool`, then `call_tool`. A result too large to show is stored; "
    "tool_output reads it."
)
BESIDES = " Besides the tools, servers offer {}: search_tool_by_category finds them for a need, call_tool reads one."
SCRIPTS = " Many calls in a row go in one script: run_script."


_NAMES = {"resource": RESOURCES, "template": RESOURCES, "prompt": PROMPTS, "skill": SKILLS}
# What is listed beside the tools themselves where there is something that only the operations find and read.
_READERS = (SEARCH_TOOLS.name, EXPAND_TOOL.name, CALL_TOOL.name)


class _Choice(Struct, frozen=True):
    """What a caller is shown."""

    folded: bool
    besides: str = ""
    """What it may see that is no tool, counted; of a caller whose tools are not folded."""


class AutoSurface:
    """Either of two surfaces, by what the caller's tools would cost."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._direct = DirectSurface(gateway)
        self._discovery = DiscoverySurface(gateway, pin_used=True)
        self._folds = CallerCache(gateway, self._decide, max_size=256, restricted_s=1.0)
        self._folded: BoundedDict[CallerKind, bool] = BoundedDict(256)
        # What was listed, to clients that render apps and to others: for whom, its digest, and the last tools under
        # names of their own.
        self._listed: BoundedDict[tuple[CallerKind, bool], tuple[Caller, bytes, ToolListing]] = BoundedDict(256)
        self._tasks = TaskSet(log)

    async def instructions(self, caller: Caller) -> str:
        if self._gateway.initial_build.pending and not await self._has_catalogue():  # a handshake waits for no server
            return STARTING_INSTRUCTIONS
        surface = await self._choose(caller)
        text = await surface.instructions(caller)
        if surface is not self._direct:
            return text
        return text + self._more_to_say((await self._folds.get(caller)).besides, caller)

    def _more_to_say(self, besides: str, caller: Caller) -> str:
        scripts = SCRIPTS if self._discovery.runs_scripts(caller) else ""
        return (BESIDES.format(besides) if besides else "") + scripts

    async def tools(self, caller: Caller, *, listens: bool = False, apps: bool = False) -> tuple[Raw, ...]:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LIST_S):
                await self._gateway.initial_build.wait()
        await self._gateway.view(caller).settled()
        surface = await self._choose(caller)
        shown = await self._shown(surface, caller, listens=listens, apps=apps)
        before = self._listed.get((caller.kind, apps))
        named = before[2] if before is not None else ToolListing()
        if surface is self._direct:
            named = await self._direct.listing(caller)
        self._listed[caller.kind, apps] = caller, _digest(shown), named
        return shown

    async def call(self, name: str, arguments: Raw = EMPTY_OBJECT, context: CallContext = LOCAL_CONTEXT) -> Raw:
        """Takes what either surface lists: a client may not have read the list again since it changed."""
        if name in BY_NAME:
            return await self._discovery.call(name, arguments, context)
        for apps in (False, True):
            listed = self._listed.get((context.caller.kind, apps))
            if listed is not None and listed[2].has(name):
                return await listed[2].call(self._gateway, name, arguments, context)
        await self._gateway.initial_build.wait()
        return await (await self._choose(context.caller)).call(name, arguments, context)

    def watch(self, listener: OnToolsChanged) -> Callable[[], None]:
        """Of a changed catalogue hears only who would see another list."""

        def on_change(caller: Caller | None) -> None:
            if caller is not None:
                listener(caller)
            else:
                self._tasks.start(self._tell(listener), name="telling clients of their tools")

        return self._direct.watch(on_change)

    async def _tell(self, listener: OnToolsChanged) -> None:
        for (_, apps), (caller, digest, _) in list(self._listed.items()):
            with suppress(StoreError):  # the gateway closes
                if _digest(await self._shown(await self._choose(caller), caller, apps=apps)) != digest:
                    listener(caller)

    async def _shown(
        self, surface: Surface, caller: Caller, *, listens: bool = False, apps: bool = False
    ) -> tuple[Raw, ...]:
        shown = await surface.tools(caller, listens=listens, apps=apps)
        if surface is not self._direct:
            return shown
        return *shown, *self._beside_tools((await self._folds.get(caller)).besides, caller)

    def _beside_tools(self, besides: str, caller: Caller) -> Iterator[Raw]:
        names = (*(_READERS if besides else ()), *((RUN_SCRIPT.name,) if self._discovery.runs_scripts(caller) else ()))
        return (tool_objects()[name] for name in names)

    async def _choose(self, caller: Caller) -> Surface:
        """The surface that this caller sees now."""
        if self._gateway.settings.discovery.strict or not await self._has_catalogue():
            return self._discovery
        return self._discovery if (await self._folds.get(caller)).folded else self._direct

    async def _has_catalogue(self) -> bool:
        try:
            async with self._gateway.catalogue.snapshot():
                return True
        except NotBuilt:
            return False

    async def _decide(self, caller: Caller) -> _Choice:
        """Whether this caller's tools are folded, and what else it may see."""
        kind = caller.kind
        async with self._gateway.view(caller).catalogue.snapshot() as snapshot:
            ids = await snapshot.tool_ids_at((), below=True)
        few = sum(map(is_tool_id, ids)) <= _MAX_TOOLS
        kinds = Counter(_NAMES[tool_id.partition(":")[0]] for tool_id in ids if not is_tool_id(tool_id))
        besides = ", ".join(f"{name} ({count:,})" for name, count in sorted(kinds.items()))
        surface = _cost(await self._discovery.tools(caller), await self._discovery.instructions(caller))
        # Not the first time: what a client has seen changes only for something better.
        margin = _MARGIN * (0 if kind not in self._folded else -1 if self._folded[kind] else 1)
        limit = (surface + _FIND_TOKENS * _TOOLS_USED) * (1 + margin)
        direct = (*await self._direct.tools(caller), *self._beside_tools(besides, caller)) if few else ()
        text = await self._direct.instructions(caller) + self._more_to_say(besides, caller)
        folded = not few or _cost(direct, text) > limit
        self._folded.renew(kind, folded)
        return _Choice(folded, besides)


def _cost(tools: tuple[Raw, ...], instructions: str) -> int:
    text = b",".join(bytes(raw) for raw in tools).decode() + instructions
    return count_tokens(text) if len(text) <= _MAX_COUNTED else len(text)


def _digest(tools: tuple[Raw, ...]) -> bytes:
    """Of a list, `tool_output` aside: it comes and goes with what is stored, and is told of by itself."""
    aside = tool_objects()[TOOL_OUTPUT.name]
    return blake2b(b",".join(bytes(raw) for raw in tools if raw is not aside), digest_size=16).digest()
