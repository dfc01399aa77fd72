"""Pinned tools: the few that stand beside the discovery operations, to be called without being looked for.

Those that the configuration names, and in the profile `auto` those that a caller used most, by the audit log. These are
chosen once for each caller and process: a list that changed with every call would cost the client its prompt cache. For
clients that render apps the tools that have one.
"""

import logging
from collections import Counter
from fnmatch import fnmatchcase
from functools import partial

from toolfold.catalogue.kinds import is_tool_id
from toolfold.containers import BoundedDict
from toolfold.errors import NotBuilt
from toolfold.faces.surface.apps import has_app
from toolfold.faces.surface.base import CallerCache, CallerKind
from toolfold.faces.surface.direct import ToolListing
from toolfold.gateway import Gateway
from toolfold.types import Caller, Tool

log = logging.getLogger("toolfold.surface")

# More than a client takes beside each other is not pinned, whatever the patterns say.
_MAX_PINNED = 100
# A tool is one of the most used from so many days or sessions on; so many steps are looked at.
_FEWEST_USES = 3
_MAX_STEPS = 5_000
# What those may cost together, in bytes of their definitions: about 1,000 tokens.
_MAX_USED_BYTES = 4_000
_DAY_S = 86_400


class PinnedTools:
    """The pinned tools of each caller. With `used`, its most used ones are among them."""

    def __init__(self, gateway: Gateway, *, used: bool) -> None:
        self._gateway = gateway
        self._used = used
        self._most_used: BoundedDict[CallerKind, list[str]] = BoundedDict(256)
        self._listings = CallerCache(gateway, self._load, max_size=64, restricted_s=1.0)
        self._with_apps = CallerCache(gateway, partial(self._load, apps=True), max_size=64, restricted_s=1.0)
        self._lists_apps = False

    async def listing(self, caller: Caller, *, apps: bool = False) -> ToolListing:
        """The pinned tools that a caller may see; none before there is a catalogue. `apps`: for a client that renders
        apps."""
        if apps:
            self._lists_apps = True
            return await self._with_apps.get(caller)
        return await self._listings.get(caller) if self._limit or self._patterns else ToolListing()

    @property
    def follow_catalogue(self) -> bool:
        """Whether a client may see another list once the catalogue changed."""
        return bool(self._patterns) or self._lists_apps

    @property
    def _patterns(self) -> tuple[str, ...]:
        return self._gateway.settings.discovery.pin

    @property
    def _limit(self) -> int:
        return self._gateway.settings.discovery.pin_used if self._used else 0

    async def _load(self, caller: Caller, *, apps: bool = False) -> ToolListing:
        used = await self._used_ids(caller)
        try:
            async with self._gateway.view(caller).catalogue.snapshot() as snapshot:
                tool_ids = list(filter(is_tool_id, await snapshot.tool_ids()))
                named = _matching(tool_ids, self._patterns) if self._patterns else []
                used = list(filter(is_tool_id, used))
                tools = {tool.tool_id: tool for tool in await snapshot.tools(ids=[*named, *used])}
            with_app = await self._with_app(caller) if apps else []
        except NotBuilt:
            return ToolListing()
        chosen = {tool_id: tools[tool_id] for tool_id in named}
        chosen |= _within([tools[tool_id] for tool_id in used if tool_id in tools and tool_id not in named])
        return ToolListing.of(list({**chosen, **{tool.tool_id: tool for tool in with_app}}.values()))

    async def _with_app(self, caller: Caller) -> list[Tool]:
        found = [tool for tool in await self._gateway.tools_below((), caller=caller) if has_app(tool)]
        if len(found) > _MAX_PINNED:
            log.warning("%s tools have an app; the first %s are listed", len(found), _MAX_PINNED)
        return found[:_MAX_PINNED]

    async def _used_ids(self, caller: Caller) -> list[str]:
        if self._limit and caller.kind not in self._most_used:
            self._most_used[caller.kind] = await self._count_uses(caller)
        return self._most_used.get(caller.kind, [])[: self._limit]

    async def _count_uses(self, caller: Caller) -> list[str]:
        """The tools that this caller called with success, on most days and in most sessions first."""
        # A loop in one script is one use, however often it calls.
        uses = {
            (step.tool_id, step.session, step.at // _DAY_S)
            for step in await self._gateway.audit_log.steps(last=_MAX_STEPS)
            if step.step == "call" and step.caller == caller.name and not (step.code or step.is_error)
        }
        counts = Counter(tool_id for tool_id, _, _ in uses)
        return sorted((one for one in counts if counts[one] >= _FEWEST_USES), key=lambda one: (-counts[one], one))


def _within(tools: list[Tool]) -> dict[str, Tool]:
    """Those of them that fit into what the most used may cost."""
    room, chosen = _MAX_USED_BYTES, {}
    for tool in tools:
        if (size := len(memoryview(tool.definition.raw))) <= room:
            room -= size
            chosen[tool.tool_id] = tool
    return chosen


def _matching(tool_ids: list[str], patterns: tuple[str, ...]) -> list[str]:
    """The ids that fit a pattern, in the order of the patterns."""
    folded = [pattern.casefold() for pattern in patterns]
    found = [one for pattern in folded for one in sorted(tool_ids) if fnmatchcase(one.casefold(), pattern)]
    found = list(dict.fromkeys(found))
    if len(found) > _MAX_PINNED:
        log.warning("discovery.pin fits %s tools; the first %s are pinned", len(found), _MAX_PINNED)
    return found[:_MAX_PINNED]
