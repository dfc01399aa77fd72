"""Finding tools and categories for a request: the catalogue and the search index joined into what a model reads.

The index follows the catalogue: before a search it is brought to the generation that is there, which costs next to
nothing where nothing changed. Search runs in a thread, and loads its model with the first request.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolfold.catalogue.catalogue import Catalogue, resolve_node, tool_batches
from toolfold.catalogue.cursor import Position, decode_cursor, encode_cursor
from toolfold.disclosure.render import pointer_to, render_node, render_node_hit, render_pointer
from toolfold.errors import BadCursor, NoMatchInCategory, ToolNotFound
from toolfold.events import Events
from toolfold.storage.base import Snapshot, Store
from toolfold.types import Hit, Node, NodeHit, Path, Tool

if TYPE_CHECKING:
    from toolfold.search.index import SearchIndex

SYNCED = "search"
"""The namespace of the store that remembers what the index holds."""
HELD = "generation"
MAX_LIMIT = 50
SUGGESTED = 3
"""Categories named in a hint."""
FITTING_NODES = 3
"""Categories that a filtered listing shows, before its tools."""
MAX_HITS = 200
"""How deep a ranking goes."""
MAX_ID = 200
"""How much of an id that does not exist is looked at."""


Allowed = Callable[[str], bool]
AllowedSource = Callable[[], Awaitable[Allowed]]
"""Asked for the test of what may be seen, as it is now."""


class ResolvedTool(Struct, frozen=True):
    """A request in plain words, resolved to one tool."""

    query: str
    tool: Tool
    confidence: float


class SearchService:
    """Search over one catalogue. `folder` keeps the index."""

    def __init__(
        self, catalogue: Catalogue, store: Store, folder: FilePath, events: Events, *, learns: bool = False
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._folder = folder
        self._events = events
        self._index: SearchIndex | None = None
        self._learns = learns
        self._whole: SearchService | None = None
        self._allowed: AllowedSource | None = None
        self._held: int | None = None
        self._syncing = asyncio.Lock()
        self._opening = asyncio.Lock()

    def limited(self, catalogue: Catalogue, allowed: "AllowedSource") -> "SearchService":
        """The same search over what `allowed` lets through; the catalogue shows just that."""
        seen = copy(self)
        seen._whole, seen._catalogue, seen._allowed = self, catalogue, allowed  # noqa: SLF001 - a copy of itself
        return seen

    async def learn(self, query: str, tool_id: str) -> bool:
        """Notes that a tool was chosen for a request and worked. Does nothing where learning is off."""
        index = await self._opened()
        return await asyncio.to_thread(index.learn, query, tool_id)

    async def _permitted(self) -> "Allowed | None":
        return None if self._allowed is None else await self._allowed()

    async def sync(self) -> int:
        """Brings the index to the catalogue as it is now, and tells how many texts had to be embedded."""
        if self._whole is not None:
            return await self._whole.sync()
        async with self._syncing, self._catalogue.snapshot() as view:
            index = await self._opened()
            if self._held == view.generation or await self._is_whole(index, view):
                self._held = view.generation
                return 0
            tools = [tool async for batch in tool_batches(view) for tool in batch]
            done = await asyncio.to_thread(index.sync, tools)
            self._held = view.generation
            await self._store.put(SYNCED, HELD, str(view.generation).encode())
            if done.embedded:
                self._events.emit("search.synced", embedded=done.embedded, tools=len(tools))
            return done.embedded

    async def _is_current(self) -> bool:
        """Whether the index can answer as it is."""
        if self._whole is not None:
            return await self._whole._is_current()  # noqa: SLF001 - the finder that this one is a copy of
        if self._syncing.locked():
            return False
        async with self._catalogue.snapshot() as view:
            return self._held == view.generation or await self._is_whole(await self._opened(), view)

    async def _is_whole(self, index: "SearchIndex", view: Snapshot) -> bool:
        """Whether an earlier run left the index with just this generation: then no tool has to be read."""
        held = await self._store.get(SYNCED, HELD)
        tools = (await view.generations())[-1].tools
        return held == str(view.generation).encode() and not index.damage and len(index) == tools

    async def _opened(self) -> "SearchIndex":
        if self._whole is not None:
            return await self._whole._opened()  # noqa: SLF001 - the finder that this one is a copy of
        if self._index is None:
            async with self._opening:
                if self._index is None:
                    from toolfold.search import open_index

                    self._index = await asyncio.to_thread(open_index, self._folder, learn=self._learns)
        return self._index

    async def hits(self, query: str, path: Path, *, tags: Sequence[str] = (), limit: int) -> list[Hit]:
        """The raw hits with their reasons, best first."""
        await self.sync()
        index = await self._opened()
        allowed = await self._permitted()
        return await asyncio.to_thread(index.search, query, path=path, tags=tags, allowed=allowed, limit=limit)

    async def in_category(self, query: str, path: Path, *, limit: int, cursor: str | None) -> dict[str, Any]:
        """Ranked pointers inside a category and everything below it. Raises `NoMatchInCategory` where nothing fits."""
        limit = max(1, min(limit, MAX_LIMIT))
        async with self._catalogue.snapshot() as view:
            node = await resolve_node(view, path)
            place = node.path if node else ()
            shown = _shown(cursor, place, (query,), view.generation)
            hits = await self.hits(query, place, limit=shown + limit + 1)
            if not shown and not _fits(hits):
                raise await self._nothing_fits(query, place, view)
            page = hits[shown : shown + limit]
            more = len(hits) > shown + limit
            tools = {tool.tool_id: tool for tool in await view.tools(ids=[hit.tool_id for hit in page])}
        results = [
            render_pointer(pointer_to(tools[hit.tool_id], confidence=hit.confidence))
            for hit in page
            if hit.tool_id in tools
        ]
        position = Position("rank", f"{shown + limit}", view.generation)
        next_cursor = encode_cursor(place, (query,), position) if more else None
        return {"category_path": list(place), "results": results, "next_cursor": next_cursor}

    async def listed(
        self, query: str, path: Path, *, tags: Sequence[str], limit: int, cursor: str | None
    ) -> dict[str, Any]:
        """What `list` shows with a query: categories below the path that fit, then the tools below it that do.

        Raises `NoMatchInCategory` where nothing fits.
        """
        limit = max(1, min(limit, MAX_LIMIT))
        question = (f"query:{query}", *(f"tag:{tag}" for tag in tags))
        async with self._catalogue.snapshot() as view:
            node = await resolve_node(view, path)
            place = node.path if node else ()
            shown = _shown(cursor, place, question, view.generation)
            hits = await self._fitting(query, place, tags, view)
            if not hits:
                raise await self._nothing_fits(query, place, view, tags)
            nodes = [] if shown else await self._fitting_nodes(query, place, tags, view, min(FITTING_NODES, limit // 2))
            end = shown + limit - len(nodes)
            tools = {tool.tool_id: tool for tool in await view.tools(ids=[hit.tool_id for hit in hits[shown:end]])}
        entries = [
            render_pointer(pointer_to(tools[hit.tool_id], _place_below(tools[hit.tool_id], place), hit.confidence))
            for hit in hits[shown:end]
            if hit.tool_id in tools
        ]
        position = Position("rank", f"{end}", view.generation)
        next_cursor = encode_cursor(place, question, position) if len(hits) > end else None
        return {
            "path": list(place),
            "nodes": [render_node(one) for one in nodes],
            "tools": entries,
            "next_cursor": next_cursor,
        }

    async def _fitting(self, query: str, path: Path, tags: Sequence[str], view: Snapshot) -> list[Hit]:
        """The tools below a path that fit and carry all tags. They are judged beside everything below the path: among
        the few that carry a tag nothing would stand out."""
        hits = [hit for hit in await self.hits(query, path, limit=MAX_HITS) if _fits([hit])]
        if not tags or not hits:
            return hits
        tagged = set(await view.tool_ids_at(path, below=True, tags=tags))
        found = [hit for hit in hits if hit.tool_id in tagged]
        return found or [hit for hit in await self.hits(query, path, tags=tags, limit=MAX_HITS) if _fits([hit])]

    async def _fitting_nodes(
        self, query: str, path: Path, tags: Sequence[str], view: Snapshot, limit: int
    ) -> list[Node]:
        """The categories right below a path through which the tools that fit are reached."""
        found = await self._node_hits(query, path, view, limit=MAX_LIMIT)
        ranked = [hit.path for hit in found if _fits([hit]) and len(hit.path) == len(path) + 1]
        children = {node.path: node for node in await view.children(path, tags=tags)}
        return [children[one] for one in ranked if one in children and children[one].rank <= 0][:limit]

    async def ids_like(self, text: str) -> list[str]:
        """The ids of tools that fit the words of an id that does not exist. None where the index would have to be
        brought up to date for it: an error is not worth the wait."""
        words = re.sub(r"[\W_]+", " ", text[:MAX_ID]).strip()
        if not words or not await self._is_current():
            return []
        return [hit.tool_id for hit in await self.hits(words, (), limit=SUGGESTED) if _fits([hit])]

    async def nodes(self, query: str, *, limit: int) -> dict[str, Any]:
        """Ranked categories. Raises `NoMatchInCategory` where nothing in the whole catalogue fits."""
        async with self._catalogue.snapshot() as view:
            found = await self._node_hits(query, (), view, limit=MAX_LIMIT)
            if not _fits(found):
                raise await self._nothing_fits(query, (), view)
            views = {node.path[0] for node in await view.children(()) if node.rank > 0}
            said = query.casefold()
            # A second view shows the same tools once more: only what the request names in it is news.
            chosen = [hit for hit in found if hit.path[0] not in views or hit.path[-1].casefold() in said]
            entries = []
            for hit in (chosen or found)[: max(1, min(limit, MAX_LIMIT))]:
                node = await view.node(hit.path)
                if node is not None:
                    entries.append(render_node_hit(node, hit.confidence))
        return {"results": entries}

    async def resolve(self, query: str, *, server: str | None = None) -> ResolvedTool:
        """The one tool for a need in plain words. Raises `ToolNotFound`, with `query` and the nearest candidates."""
        async with self._catalogue.snapshot() as view:
            await self.sync()
            index = await self._opened()
            ids = None if server is None else [tool.tool_id for tool in await view.tools(server=server)]
            allowed = await self._permitted()
            hits = await asyncio.to_thread(index.search, query, ids=ids, allowed=allowed, limit=SUGGESTED)
            if not _fits(hits):
                raise ToolNotFound(
                    f"no tool fits {query!r}",
                    query=query,
                    hints=[hit.tool_id for hit in hits],
                    next_action="say it in other words, or name one of the tools in hints if it is meant",
                )
            tool = await view.tool(hits[0].tool_id)
            if tool is None:
                raise BadCursor("the catalogue changed while it was searched", next_action="try again")
            return ResolvedTool(query, tool, hits[0].confidence)

    async def _node_hits(self, query: str, path: Path, view: Snapshot, *, limit: int) -> list[NodeHit]:
        await self.sync()
        index = await self._opened()
        summaries = {node.path: node.summary for node in await view.nodes()}
        found: list[NodeHit] = await asyncio.to_thread(
            index.search_nodes,
            query,
            path=path,
            own_text=lambda node: summaries.get(node, ""),
            allowed=await self._permitted(),
            limit=limit,
        )
        return found if self._allowed is None else [hit for hit in found if hit.path in summaries]

    async def _nothing_fits(
        self, query: str, path: Path, view: Snapshot, tags: Sequence[str] = ()
    ) -> NoMatchInCategory:
        """What to say instead of a poor tool: categories elsewhere that do match, where there are any."""
        elsewhere = [] if not path else await self._node_hits(query, (), view, limit=20)
        fitting = [hit for hit in elsewhere if _fits([hit]) and hit.path[: len(path)] != path][:SUGGESTED]
        where = f" in {list(path)}" if path else ""
        where += f" with the tags {[tag[:50] for tag in tags[:10]]}" if tags else ""
        if fitting:
            action = "call search_tool_by_category with one of the category paths in hints"
        else:
            action = "no tool here does this; say it in other words, or tell the user that it cannot be done"
        return NoMatchInCategory(
            f"no tool{where} fits {query[:200]!r}", hints=[list(hit.path) for hit in fitting], next_action=action
        )


def _place_below(tool: Tool, path: Path) -> Path | None:
    """Where a tool stands at or below a path."""
    return next((one for one in tool.paths if one[: len(path)] == path), None)


def _fits(hits: Sequence[Hit] | Sequence[NodeHit]) -> bool:
    from toolfold.search.calibration import fits

    return fits(hits)


def _shown(cursor: str | None, path: Path, question: Sequence[str], generation: int) -> int:
    """How many hits earlier pages showed. A ranking belongs to one generation of the catalogue."""
    if not cursor:
        return 0
    position = decode_cursor(cursor, path, question)
    if position.kind != "rank" or position.before != generation:
        raise BadCursor(
            "the catalogue changed since the cursor was given out", next_action="search again without a cursor"
        )
    return int(position.name)
