"""What one caller may see of the catalogue: one class, one cache key, one rule of freshness.

A `CatalogueView` is what search, disclosure and the gateway read through. Who may see what is decided in `access.py`;
here it is only applied. What is left out is not found, counted or named, and a category that holds nothing
else is not there. `VisibleCatalogue` works that out once for a generation, `_VisibleSnapshot` then filters each read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from toolfold.catalogue.catalogue import Catalogue
from toolfold.errors import CatalogueError
from toolfold.storage.base import Generation, ServerRecord, Snapshot, Version, fold_path, sibling_order
from toolfold.types import Change, Node, Path, Tool

Compile = Callable[[Snapshot], Awaitable["VisibleCatalogue"]]
# A value that changes when what may be seen changes without a new generation, such as an accepted tool.
Stamp = Callable[[], Awaitable[object]]

# Tools that the summary of a category names where its own words speak of hidden ones, too.
_NAMED_TOOLS = 3


class CatalogueView:
    """The catalogue as one kind of caller sees it. Without `compile` nothing is filtered."""

    def __init__(self, catalogue: Catalogue, compile: Compile | None = None, stamp: Stamp | None = None) -> None:  # noqa: A002 - the name callers use
        self._whole = catalogue
        self._compile = compile
        self._stamp = stamp
        self._compiled: tuple[object, VisibleCatalogue] | None = None
        self._lock = asyncio.Lock()
        self.unrestricted = compile is None
        self.catalogue = catalogue if compile is None else catalogue.filtered(self._filter)

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


class VisibleCatalogue:
    """What may be seen of one generation: these tools, and the nodes above them.

    `refused` are those that may be known of and not used, by their folded ids, each with its error.
    """

    def __init__(
        self, tools: Iterable[Tool], nodes: Sequence[Node], refused: Mapping[str, CatalogueError] | None = None
    ) -> None:
        self.refused = refused or {}
        self.ids: dict[str, str] = {}
        self.servers: dict[str, int] = {}
        counts: dict[str, _Count] = {}
        parents = _parents(nodes)
        for tool in tools:
            self.ids[tool.tool_id.casefold()] = tool.tool_id
            self.servers[tool.server] = self.servers.get(tool.server, 0) + 1
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
        return [replace(record, tools=counts[record.name], warnings=()) for record in records if record.name in counts]

    async def versions(self, tool_id: str) -> list[Version]:
        return await self._snapshot.versions(tool_id) if self._visible.sees(tool_id) else []

    async def version_numbers(self) -> dict[str, dict[str, int]]:
        numbers = await self._snapshot.version_numbers()
        return {key: versions for key, versions in numbers.items() if key in self._visible.ids}

    async def generations(self) -> list[Generation]:
        """The last one counts what may be seen; of earlier ones only the numbers are given."""
        tools, nodes = len(self._visible.ids), len(self._visible.nodes)
        return [
            Generation(number=generation.number, at=generation.at, tools=tools, nodes=nodes, servers=0)
            for generation in await self._snapshot.generations()
        ]

    async def changes(self, first: int, last: int) -> list[tuple[int, Change]]:
        return [step for step in await self._snapshot.changes(first, last) if self._visible.sees(step[1].tool_id)]
