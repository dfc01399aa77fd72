"""Which tools each caller has of the servers that each signs in to with an account of its own. Kept in the store.

The catalogue has the union of what they list; `policy.access` hides from each caller what it has not. Light: commands
that only read the catalogue load this, too. Above: `per_caller.py`, which reads the lists. Below: the store.
"""

from hashlib import blake2b
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from toolfold.containers import BoundedDict
from toolfold.storage.base import Store, update_state
from toolfold.types import Kind, Listing, ServerInfo

_T = TypeVar("_T")

_NAMESPACE = "caller tools"
_MAX_CALLERS = 4096

# Tools that are not there for somebody: of which server each is, and its name there.
Hidden = frozenset[tuple[str, str]]


class _Known(Struct):
    """What is known of one server: every tool that somebody has, and of each caller the names with their digests."""

    tools: dict[str, Raw] = {}
    callers: dict[str, dict[str, str]] = {}
    info: ServerInfo = ServerInfo()
    leaves: dict[str, tuple[Kind, Raw]] = {}
    """The same of what is no tool, by its key: `callers` has both."""


class CallerTools:
    """Which tools each caller has of the servers with credentials of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._servers: dict[str, _Known] | None = None
        # Every look at the catalogue asks.
        self._hidden: BoundedDict[tuple[str, frozenset[str]], Hidden] = BoundedDict(_MAX_CALLERS)

    async def load(self, *, anew: bool = False) -> dict[str, _Known]:
        """What is known by now; with `anew` as another process may have left it."""
        if self._servers is None or anew:
            self._hidden.clear()
            stored = await self._store.items(_NAMESPACE)
            self._servers = {name: msgspec.json.decode(known, type=_Known) for name, known in stored.items()}
        return self._servers

    async def of(self, server: str) -> _Known:
        return (await self.load()).get(server, _Known())

    async def has_list(self, server: str, caller: str) -> bool:
        """Whether it is known what a server lists to a caller; for those who share an account the catalogue knows."""
        return not caller or caller in (await self.of(server)).callers

    async def hidden_from(self, caller: str, servers: frozenset[str]) -> Hidden:
        """The tools that this caller has not. One who never signed in has those that all others have."""
        if (caller, servers) in self._hidden:
            return self._hidden[caller, servers]
        hidden: set[tuple[str, str]] = set()
        for server in servers:
            known = await self.of(server)
            lists = [known.callers[caller]] if caller in known.callers else list(known.callers.values())
            everything = {*known.tools, *known.leaves}
            own = everything.intersection(*lists)
            hidden.update((server, name) for name in everything - own)
        self._hidden[caller, servers] = frozenset(hidden)
        return self._hidden[caller, servers]

    async def record(self, server: str, caller: str, listing: Listing | None) -> bool:
        """Takes in what one caller's connection lists, or with `None` that it has none any more. Gives whether there
        is a tool now that nobody had, another form of one, or one less."""
        before = after = _Known()

        def change(stored: bytes | None) -> bytes | None:
            nonlocal before, after
            before = _Known() if stored is None else msgspec.json.decode(stored, type=_Known)
            after = _with_listing(before, caller, listing)
            return stored if after == before else msgspec.json.encode(after)

        # Of what is stored, not of what is known here: other gateways record other callers.
        await update_state(self._store, _NAMESPACE, server, change)
        (await self.load())[server] = after
        self._hidden.clear()
        return (after.tools, after.leaves) != (before.tools, before.leaves)

    async def listing(self, server: str) -> Listing:
        """The tools that any caller has."""
        known = await self.of(server)
        from toolfold.upstream.definitions import read_definitions
        from toolfold.upstream.leaves import read_leaf

        tools, warnings = read_definitions(list(known.tools.values()))
        tools = (*tools, *(read_leaf(kind, raw) for kind, raw in known.leaves.values()))
        forms = [{own[name] for own in known.callers.values() if name in own} for name in (*known.tools, *known.leaves)]
        if differing := sum(len(digests) > 1 for digests in forms):
            warnings = (*warnings, f"{differing} of its tools differ by caller: the form that was listed last counts")
        return Listing(server=server, tools=tools, info=known.info, warnings=warnings)


def _with_listing(known: _Known, caller: str, listing: Listing | None) -> _Known:
    callers, tools, leaves = dict(known.callers), dict(known.tools), dict(known.leaves)
    before = callers.pop(caller, {})
    if listing is not None:
        own = callers[caller] = {tool.key: _digest(tool.raw) for tool in listing.tools}
        # The newest form counts. What a caller has listed before is not new, where another's differs from it.
        new = [tool for tool in listing.tools if before.get(tool.key) != own[tool.key]]
        tools.update((tool.key, tool.raw) for tool in new if tool.kind == "tool")
        leaves.update((tool.key, (tool.kind, tool.raw)) for tool in new if tool.kind != "tool")
    had = set().union(*callers.values())
    return _Known(_among(tools, had), callers, known.info if listing is None else listing.info, _among(leaves, had))


def _among(entries: dict[str, _T], names: set[str]) -> dict[str, _T]:
    return {name: entry for name, entry in entries.items() if name in names}


def _digest(raw: Raw) -> str:
    return blake2b(raw, digest_size=8).hexdigest()
