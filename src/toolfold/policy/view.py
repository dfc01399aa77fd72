"""What one caller may see of the catalogue: one class, one cache key, one rule of freshness.

A `CatalogueView` is what search, disclosure and the gateway read through. Who may see what is decided in `access.py`;
here it is only applied. What is left out is not found, counted or named, and a category that holds nothing
else is not there. `VisibleCatalogue` works that out once for a generation, `_VisibleSnapshot` then filters each read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from toolfold.answers import NodePage, ToolList, ToolPage
from toolfold.catalogue.catalogue import Catalogue, Tree
from toolfold.catalogue.ids import natural_id
from toolfold.catalogue.kinds import bare_id
from toolfold.errors import CatalogueError, ServerUnavailable, SignInRequired, ToolNotFound, UpstreamError
from toolfold.storage.base import Generation, ServerRecord, Snapshot, Version, fold_path, sibling_order
from toolfold.text import truncate
from toolfold.types import Change, Node, Path, Tool
from toolfold.upstream.refresh import UpstreamManager

__all__ = ["CatalogueView"]

Compile = Callable[[Snapshot], Awaitable["VisibleCatalogue"]]
# A value that changes when what may be seen changes without a new generation, such as an accepted tool.
Stamp = Callable[[], Awaitable[object]]

_Page = TypeVar("_Page", ToolList, ToolPage, NodePage)

# How much an error repeats of an unknown id, says of each server that could not be asked, and of all of them.
_MAX_NAME = 100
_MAX_REASON = 200
_MAX_REASONS = 1_000
# Of what is old on a page: how many servers are named, and how much is said of each.
_MAX_OLD = 3
_MAX_SHORT_REASON = 80
# Tools that the summary of a category names where its own words speak of hidden ones, too.
_NAMED_TOOLS = 3
_FIRST_STATE = 1 << 32


class CatalogueView:
    """The catalogue as one kind of caller sees it. Without `compile` nothing is filtered; with `servers` it is what
    those list now, where somebody needs that."""

    def __init__(
        self,
        catalogue: Catalogue,
        compile: Compile | None = None,  # noqa: A002 - the name callers use
        stamp: Stamp | None = None,
        servers: UpstreamManager | None = None,
        hides: Callable[..., bool] = lambda server, tool_id="": False,
        *,
        own: str = "",
    ) -> None:
        self._whole = catalogue
        # The one caller whose view it is, where each has accounts of its own.
        self._own = own
        # Of such a server nothing may be seen: to wait for it would tell that it is there.
        self.hides = hides
        self._servers = servers
        self._compile = compile
        self._stamp = stamp
        self._compiled: tuple[object, VisibleCatalogue] | None = None
        self._lock = asyncio.Lock()
        self.unrestricted = compile is None
        self.catalogue = catalogue if compile is None else catalogue.filtered(self._filter)

    async def tool(self, tool_id: str, *, current: bool = False) -> Tool:
        """One tool; with `current` as its server lists it now, as far as the server can be asked.

        One that is not there is asked for first. Raises `ServerUnavailable` where it is of a server that cannot be
        asked, else `ToolNotFound` with what is near.
        """
        try:
            tool = await self.catalogue.tool(tool_id)
        except ToolNotFound:
            unasked = await self.ask(tool_id)
            try:
                return await self.catalogue.tool(tool_id)
            except ToolNotFound as error:
                raise await self._not_found(tool_id, error, unasked) from None
        if not current or self._servers is None or self._servers.is_current(tool.server):
            return tool
        await self._servers.ask([tool.server], self._own)
        return await self.catalogue.tool(tool_id)

    async def unread(self, server: str) -> str:
        """Why what the catalogue has of a server may be old, and of when it is; nothing where it is what there is."""
        record = next((one for one in await self.catalogue.servers() if one.name == server), None)
        current = self._servers is None or self._servers.is_current(server)
        if record is None or record.read_at is None or (current and not record.stale):
            return ""
        return _is_old(record, truncate(record.error, _MAX_REASON) if record.stale else "it has not answered yet")

    async def dated(self, page: _Page) -> _Page:
        """A page with what is old in it, `may_be_old`: tools of servers that could not be read, or categories of
        such. Nobody is asked for it."""
        answer: dict[str, Any] = {**page}
        entries = [entry for key in ("nodes", "tools", "results") for entry in answer.get(key, ())]
        tool_ids = {entry["tool_id"] for entry in entries if "tool_id" in entry}
        old = await self._old(tool_ids, [tuple(entry["path"]) for entry in entries if "tool_id" not in entry])
        if old:
            page["may_be_old"] = old
        return page

    async def tree(self, path: Path, depth: int | None) -> Tree:
        tree = await self.catalogue.tree(path, depth)
        return replace(tree, may_be_old=await self._old(set(), [tree.path]))

    async def _old(self, tool_ids: set[str], paths: Iterable[Path]) -> str:
        stale = [record for record in await self.catalogue.servers() if record.stale]
        if not stale:
            return ""
        async with self.catalogue.snapshot() as snapshot:
            for path in paths:
                tool_ids.update(await snapshot.tool_ids_at(path, below=True))
            own = {one.name: {tool.tool_id for tool in await snapshot.tools(server=one.name)} for one in stale}
        return _are_old([record for record in stale if not tool_ids.isdisjoint(own[record.name])])

    async def ask(self, tool_id: str = "") -> Mapping[str, UpstreamError]:
        """Reads the server that an id names, or all of them, where that was not done yet. Gives those that could not
        be asked, with the reason."""
        if self._servers is None:
            return {}
        servers = self._servers
        named = [name for name in servers.names if _names(tool_id, name) and not self.hides(name)]
        return await servers.ask(named or [name for name in servers.awake() if not self.hides(name)], self._own)

    async def settled(self) -> "CatalogueView":
        """The same, once what is read for who has just signed in somewhere is in it, or takes too long."""
        if self._servers is not None:
            await self._servers.arrivals.settle(self._own, self.hides)
        return self

    async def _not_found(
        self, tool_id: str, error: ToolNotFound, unasked: Mapping[str, UpstreamError]
    ) -> ToolNotFound | UpstreamError:
        """The same error, or that its server is disabled or could not be asked; others that could not are named."""
        if disabled := self._disabled(tool_id):
            return ServerUnavailable.disabled(disabled)
        if unasked and not self.unrestricted:  # a server that the caller sees nothing of is not named
            own = self._servers.per_caller if self._servers is not None else frozenset()
            seen = {record.name for record in await self.catalogue.servers()} | own
            unasked = {name: reason for name, reason in unasked.items() if name in seen}
        for name, reason in unasked.items():
            if _names(tool_id, name):
                return _unasked(tool_id, name, reason)
        if not unasked:
            return error
        names = ", ".join(f"{name} ({truncate(reason.message, _MAX_REASON)})" for name, reason in unasked.items())
        message = f"{error.message}; not asked, since they could not be reached: {truncate(names, _MAX_REASONS)}"
        return ToolNotFound(message, hints=error.hints, next_action=error.next_action)

    def _disabled(self, tool_id: str) -> str:
        """The server that an id names, where it is disabled. Its tools are not there to be judged by what they do: a
        caller who might not see this one hears what it hears of any that does not exist."""
        specs = () if self._servers is None else self._servers.specs()
        own = (spec.name for spec in specs if not spec.enabled and _names(tool_id, spec.name))
        return next((name for name in own if not self.hides(name, tool_id)), "")

    async def allowed(self) -> Callable[[str], bool] | None:
        """The test for tool ids, as it is now; `None`: everything may be seen."""
        if self._compile is None:
            return None
        async with self._whole.snapshot() as snapshot:
            return (await self._visible(snapshot, self._compile)).sees

    async def _filter(self, snapshot: Snapshot) -> Snapshot:
        return (
            snapshot
            if self._compile is None
            else _VisibleSnapshot(snapshot, await self._visible(snapshot, self._compile))
        )

    async def _visible(self, snapshot: Snapshot, compile_: Compile) -> "VisibleCatalogue":
        key = (snapshot.generation, None if self._stamp is None else await self._stamp())
        if self._compiled is None or self._compiled[0] != key:
            # One caller compiles and all who come meanwhile wait for it: it reads every tool.
            async with self._lock:
                if self._compiled is None or self._compiled[0] != key:
                    self._compiled = (key, await compile_(snapshot))
                return self._compiled[1]
        return self._compiled[1]


def _is_old(record: ServerRecord, why: str) -> str:
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(record.read_at))
    return f"{record.name} could not be read the last time ({why}): this is what it listed on {at}"


def _are_old(records: Sequence[ServerRecord]) -> str:
    texts = [_is_old(record, truncate(record.error, _MAX_SHORT_REASON)) for record in records[:_MAX_OLD]]
    rest = [f"{len(records) - _MAX_OLD} more servers cannot be read"] if len(records) > _MAX_OLD else []
    return "; ".join((*texts, *rest))


def _unasked(tool_id: str, server: str, reason: UpstreamError) -> UpstreamError:
    """For a tool of a server that could not be asked. What helps against that comes first."""
    if isinstance(reason, SignInRequired):  # it says itself what to do
        return reason.with_traceback(None)
    action = f"{reason.next_action.rstrip('. ')}. Else " if reason.next_action else ""
    action += "use another tool, or try again later; whoever runs the gateway finds out more with "
    action += "`toolfold doctor --connect`"
    return ServerUnavailable(
        f"{truncate(tool_id, _MAX_NAME)!r} is not known: its server {server} could not be asked: "
        f"{truncate(reason.message, _MAX_REASON)}",
        server=server,
        next_action=action,
    )


def _names(tool_id: str, server: str) -> bool:
    """Whether an id is one of a server's tools, by its beginning."""
    return bare_id(tool_id).casefold().startswith(natural_id(server, "a").removesuffix("a").casefold())


class VisibleCatalogue:
    """What may be seen of one generation: these tools, and the nodes above them.

    `refused` are those that may be known of and not used, by their folded ids, each with its error.
    """

    def __init__(
        self, tools: Iterable[Tool], nodes: Sequence[Node], refused: Mapping[str, CatalogueError] | None = None
    ) -> None:
        self.refused = refused or {}
        self.ids: dict[str, str] = {}
        # Of each server how many tools, and how many other leaves.
        self.servers: dict[str, tuple[int, int]] = {}
        # The same for the same tools at the same places, and no number of a generation.
        self.state = _FIRST_STATE
        counts: dict[str, _Count] = {}
        parents = _parents(nodes)
        for tool in tools:
            self.ids[tool.tool_id.casefold()] = tool.tool_id
            tools_of, others_of = self.servers.get(tool.server, (0, 0))
            is_tool = tool.kind == "tool"
            self.servers[tool.server] = (tools_of + is_tool, others_of + (not is_tool))
            self.state += crc32(f"{tool.tool_id} {tool.fingerprint} {tool.paths}".encode(errors="surrogatepass"))
            _count(tool, parents, counts)
        visible = [node for node in nodes if fold_path(node.path) in counts]
        self.children: dict[str, list[Node]] = {}
        self.nodes: dict[str, Node] = {}
        below: dict[str, int] = {}
        for node in visible:
            for parent in parents[fold_path(node.path)]:
                below[parent] = below.get(parent, 0) + 1
        for node in visible:
            key = fold_path(node.path)
            adjusted = _adjusted(node, counts[key], below.get(key, 0), counts)
            self.nodes[key] = adjusted
            for parent in parents[key]:
                self.children.setdefault(parent, []).append(adjusted)
        for siblings in self.children.values():
            siblings.sort(key=sibling_order)

    def sees(self, tool_id: str) -> bool:
        return tool_id.casefold() in self.ids

    def below(self, path: Path, depth: int | None) -> list[Node]:
        """Every node below a path, at most `depth` steps down, in the order of their paths."""
        reached: dict[str, Node] = {}
        level = [fold_path(path)]
        while level and depth != 0:
            nodes = {fold_path(node.path): node for key in level for node in self.children.get(key, ())}
            level = [key for key in nodes if key not in reached]
            reached.update(nodes)
            depth = None if depth is None else depth - 1
        reached.pop(fold_path(path), None)
        return [reached[key] for key in sorted(reached)]


class _Count(Struct):
    """Of one node: the tools at or below it, those right at it, and the names of a few."""

    names: list[str]
    tools: int = 0
    own: int = 0


def _parents(nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    return {
        fold_path(node.path): tuple(
            dict.fromkeys((fold_path(node.path[:-1]), *(fold_path(parent) for parent in node.parents))),
        )
        for node in nodes
    }


def _count(tool: Tool, parents: dict[str, tuple[str, ...]], counts: dict[str, _Count]) -> None:
    """Counts a tool once at every node that it stands at or below."""
    own = {fold_path(path) for path in tool.paths}
    above: set[str] = set()
    walk = list(own)
    while walk:
        key = walk.pop()
        if key in above or key not in parents:
            continue
        above.add(key)
        walk.extend(parents[key])
    for key in above:
        count = counts.setdefault(key, _Count(names=[]))
        count.tools += 1
        count.own += key in own
        if len(count.names) < _NAMED_TOOLS:
            count.names.append(tool.name)


def _adjusted(node: Node, count: _Count, children: int, visible: dict[str, _Count]) -> Node:
    parents = tuple(parent for parent in node.parents if fold_path(parent) in visible)
    if count.tools == node.tools:
        return node if parents == node.parents else replace(node, parents=parents)
    from toolfold.catalogue.ontology.draft import rank_of

    summary = node.summary
    # A summary made from the tools of a category may name one that is hidden.
    if summary not in _fixed_summaries():
        summary = f"{', '.join(count.names)}{' and more' if count.tools > len(count.names) else ''}"
    return replace(
        node,
        summary=summary,
        tools=count.tools,
        own_tools=count.own,
        children=children,
        parents=parents,
        rank=rank_of(count.tools) if node.rank == rank_of(node.tools) else node.rank,
    )


@cache
def _fixed_summaries() -> frozenset[str]:
    """Summaries that say the same whatever tools a category holds."""
    from toolfold.catalogue.ontology.taxonomy import taxonomy
    from toolfold.catalogue.ontology.views import ALL_SERVERS, NO_OTHER

    shipped = taxonomy()
    summaries = (*(domain.summary for domain in shipped.domains), *(part.summary for part in shipped.parts))
    return frozenset((*summaries, ALL_SERVERS, NO_OTHER))


class _VisibleSnapshot:
    """One generation, held still, without what may not be seen. Keeps the whole contract of `Snapshot`."""

    def __init__(self, snapshot: Snapshot, visible: VisibleCatalogue) -> None:
        self._snapshot = snapshot
        self._visible = visible

    @property
    def generation(self) -> int:
        return self._snapshot.generation

    @property
    def state(self) -> int:
        return self._visible.state

    async def tool(self, tool_id: str) -> Tool | None:
        if self._visible.sees(tool_id):
            return await self._snapshot.tool(tool_id)
        refusal = self._visible.refused.get(tool_id.casefold())
        if refusal is not None:
            # A new one each time: an error that was raised keeps its traceback, and with it the frames of that caller.
            raise type(refusal)(refusal.message, hints=refusal.hints, next_action=refusal.next_action)
        return None

    async def tools(
        self,
        *,
        ids: Collection[str] | None = None,
        server: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> list[Tool]:
        visible = self._visible.ids
        keys = visible.keys() if ids is None else {tool_id.casefold() for tool_id in ids} & visible.keys()
        if server is not None:
            tools = await self._snapshot.tools(ids=None if ids is None else keys, server=server, after=after)
            return [tool for tool in tools if self._visible.sees(tool.tool_id)][:limit]
        start = after.casefold()
        return await self._snapshot.tools(ids=sorted(key for key in keys if key > start)[:limit])

    async def tool_ids(self) -> list[str]:
        return [self._visible.ids[key] for key in sorted(self._visible.ids)]

    async def tool_ids_at(
        self,
        path: Path,
        *,
        below: bool = False,
        tags: Collection[str] = (),
        after: str = "",
        limit: int | None = None,
    ) -> list[str]:
        tool_ids = await self._snapshot.tool_ids_at(path, below=below, tags=tags, after=after)
        return [tool_id for tool_id in tool_ids if self._visible.sees(tool_id)][:limit]

    async def node(self, path: Path) -> Node | None:
        return self._visible.nodes.get(fold_path(path))

    async def nodes(self, *, under: Path = (), depth: int | None = None) -> list[Node]:
        return self._visible.below(under, depth)

    async def children(self, path: Path, *, tags: Collection[str] = ()) -> list[Node]:
        nodes = self._visible.children.get(fold_path(path), [])
        if not tags:
            return list(nodes)
        wanted = {tag.casefold() for tag in tags}
        return [
            node
            for node in nodes
            if wanted <= {tag.casefold() for tag in node.tags}
            or await self.tool_ids_at(node.path, below=True, tags=tags, limit=1)
        ]

    async def servers(self) -> list[ServerRecord]:
        """Those with a visible tool. Their warnings are left out: they may name tools that are not."""
        counts = self._visible.servers
        records = await self._snapshot.servers()
        own = ((record, *counts[record.name]) for record in records if record.name in counts)
        return [replace(record, tools=tools, others=others, warnings=()) for record, tools, others in own]

    async def versions(self, tool_id: str) -> list[Version]:
        return await self._snapshot.versions(tool_id) if self._visible.sees(tool_id) else []

    async def version_numbers(self) -> dict[str, dict[str, int]]:
        numbers = await self._snapshot.version_numbers()
        return {key: versions for key, versions in numbers.items() if key in self._visible.ids}

    async def generations(self) -> list[Generation]:
        """The last one counts what may be seen; of earlier ones only the numbers are given."""
        tools, nodes, servers = len(self._visible.ids), len(self._visible.nodes), len(self._visible.servers)
        return [
            Generation(number=generation.number, at=generation.at, tools=tools, nodes=nodes, servers=servers)
            for generation in await self._snapshot.generations()
        ]

    async def changes(self, first: int, last: int) -> list[tuple[int, Change]]:
        return [step for step in await self._snapshot.changes(first, last) if self._visible.sees(step[1].tool_id)]
