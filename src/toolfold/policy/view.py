"""A part of the catalogue as one who may not see the rest finds it: a view in front of the store's own.

It takes the ids that may be seen and keeps the whole contract of `View`: what is left out is not found, counted, or
named, and a category that holds nothing else is not there. Who may see what is decided above. Everything about nodes
is worked out once for a generation, in `Shown`; a `VisibleView` is then cheap.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from toolfold.catalogue.catalogue import Catalogue
from toolfold.errors import CatalogueError
from toolfold.storage.base import Generation, ServerRecord, Snapshot, Version, fold_path, sibling_order
from toolfold.types import Change, Node, Path, Tool

if TYPE_CHECKING:
    from toolfold.disclosure.describer import Describer
    from toolfold.search.service import SearchService


_NAMED_TOOLS = 3
"""Tools that the summary of a category names where its own words speak of hidden ones, too."""


class _Count(Struct):
    """Of one node: the tools at or below it, those right at it, and the names of a few."""

    names: list[str]
    tools: int = 0
    own: int = 0


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
        kept = [node for node in nodes if fold_path(node.path) in counts]
        self.children: dict[str, list[Node]] = {}
        self.nodes: dict[str, Node] = {}
        below: dict[str, int] = {}
        for node in kept:
            for parent in parents[fold_path(node.path)]:
                below[parent] = below.get(parent, 0) + 1
        for node in kept:
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
        found: dict[str, Node] = {}
        level = [fold_path(path)]
        while level and depth != 0:
            nodes = {fold_path(node.path): node for key in level for node in self.children.get(key, ())}
            level = [key for key in nodes if key not in found]
            found.update(nodes)
            depth = None if depth is None else depth - 1
        found.pop(fold_path(path), None)
        return [found[key] for key in sorted(found)]


def _parents(nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    return {
        fold_path(node.path): tuple(
            dict.fromkeys((fold_path(node.path[:-1]), *(fold_path(one) for one in node.parents))),
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


def _adjusted(node: Node, count: _Count, children: int, known: dict[str, _Count]) -> Node:
    parents = tuple(parent for parent in node.parents if fold_path(parent) in known)
    if count.tools == node.tools:
        return node if parents == node.parents else replace(node, parents=parents)
    from toolfold.catalogue.ontology.draft import rank_of

    summary = node.summary
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
    from toolfold.catalogue.ontology.capabilities import NO_OTHER
    from toolfold.catalogue.ontology.servers import ALL_SERVERS
    from toolfold.catalogue.ontology.taxonomy import taxonomy

    known = taxonomy()
    said = (*(one.summary for one in known.domains), *(part.summary for part in known.parts))
    return frozenset((*said, ALL_SERVERS, NO_OTHER))


class VisibleView:
    """One generation, held still, without what may not be seen."""

    def __init__(self, view: Snapshot, shown: VisibleCatalogue) -> None:
        self._view = view
        self._shown = shown

    @property
    def generation(self) -> int:
        return self._view.generation

    async def tool(self, tool_id: str) -> Tool | None:
        if self._shown.sees(tool_id):
            return await self._view.tool(tool_id)
        refusal = self._shown.refused.get(tool_id.casefold())
        if refusal is not None:
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
        known = self._shown.ids
        if server is not None:
            wanted = None if ids is None else [one for one in ids if one.casefold() in known]
            found = await self._view.tools(ids=wanted, server=server, after=after)
            return [tool for tool in found if self._shown.sees(tool.tool_id)][:limit]
        asked = known if ids is None else {one.casefold() for one in ids} & known.keys()
        start = after.casefold()
        return await self._view.tools(ids=sorted(key for key in asked if key > start)[:limit])

    async def tool_ids(self) -> list[str]:
        return [self._shown.ids[key] for key in sorted(self._shown.ids)]

    async def tool_ids_at(
        self,
        path: Path,
        *,
        below: bool = False,
        tags: Collection[str] = (),
        after: str = "",
        limit: int | None = None,
    ) -> list[str]:
        found = await self._view.tool_ids_at(path, below=below, tags=tags, after=after)
        return [tool_id for tool_id in found if self._shown.sees(tool_id)][:limit]

    async def node(self, path: Path) -> Node | None:
        return self._shown.nodes.get(fold_path(path))

    async def nodes(self, *, under: Path = (), depth: int | None = None) -> list[Node]:
        return self._shown.below(under, depth)

    async def children(self, path: Path, *, tags: Collection[str] = ()) -> list[Node]:
        found = self._shown.children.get(fold_path(path), [])
        if not tags:
            return list(found)
        asked = {tag.casefold() for tag in tags}
        return [
            node
            for node in found
            if asked <= {tag.casefold() for tag in node.tags}
            or await self.tool_ids_at(node.path, below=True, tags=tags, limit=1)
        ]

    async def servers(self) -> list[ServerRecord]:
        """Those with a tool that may be seen. Their warnings are left out: they may name tools that may not."""
        counts = self._shown.servers
        found = await self._view.servers()
        return [replace(one, tools=counts[one.name], warnings=()) for one in found if one.name in counts]

    async def versions(self, tool_id: str) -> list[Version]:
        return await self._view.versions(tool_id) if self._shown.sees(tool_id) else []

    async def version_numbers(self) -> dict[str, dict[str, int]]:
        found = await self._view.version_numbers()
        return {key: numbers for key, numbers in found.items() if key in self._shown.ids}

    async def generations(self) -> list[Generation]:
        """The last one counts what may be seen; of earlier ones only the numbers are told."""
        shown = self._shown
        return [
            Generation(number=one.number, at=one.at, tools=len(shown.ids), nodes=len(shown.nodes), servers=0)
            for one in await self._view.generations()
        ]

    async def changes(self, first: int, last: int) -> list[tuple[int, Change]]:
        return [step for step in await self._view.changes(first, last) if self._shown.sees(step[1].tool_id)]


# --- The catalogue, search and descriptions as one kind of caller sees them: the same objects, limited to what is a

Compile = Callable[[Snapshot], Awaitable[VisibleCatalogue]]
Fresh = Callable[[], Awaitable[object]]
"""Something that changes when what may be seen changes without the catalogue changing."""


class Scene(Protocol):
    """What a step works with."""

    @property
    def catalogue(self) -> Catalogue: ...

    @property
    def finder(self) -> "SearchService": ...

    @property
    def describer(self) -> "Describer": ...


class RestrictedScene:
    """A scene for those who may not see everything."""

    def __init__(self, whole: Scene, compiled: Compile, fresh: Fresh) -> None:
        self._whole = whole
        self._compiled = compiled
        self._fresh = fresh
        self._shown: tuple[object, VisibleCatalogue] | None = None
        self._working = asyncio.Lock()
        self._finder: SearchService | None = None
        self._describer: Describer | None = None
        self.catalogue = whole.catalogue.limited(self._through)

    @property
    def finder(self) -> "SearchService":
        if self._finder is None:
            self._finder = self._whole.finder.limited(self.catalogue, self._allowed)
        return self._finder

    @property
    def describer(self) -> "Describer":
        if self._describer is None:
            self._describer = self._whole.describer.limited(self.catalogue, self.finder.ids_like)
        return self._describer

    async def _through(self, view: Snapshot) -> Snapshot:
        return VisibleView(view, await self.shown(view))

    async def shown(self, view: Snapshot) -> VisibleCatalogue:
        """What may be seen of this generation."""
        key = (view.generation, await self._fresh())
        if self._shown is not None and self._shown[0] == key:
            return self._shown[1]
        async with self._working:
            if self._shown is None or self._shown[0] != key:
                self._shown = (key, await self._compiled(view))
            return self._shown[1]

    async def _allowed(self) -> Callable[[str], bool]:
        async with self._whole.catalogue.snapshot() as view:
            return (await self.shown(view)).sees
