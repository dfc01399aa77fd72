"""Finding tools and categories for a request: the catalogue and the search index joined into what a model reads.

The index follows the catalogue: before a search it is brought to the generation that is there, which costs next to
nothing where nothing changed. Search runs in a thread, and loads its model with the first request.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolfold.catalogue.catalogue import Catalogue, batches, found_node
from toolfold.catalogue.cursor import Position, cursor_for, position_in
from toolfold.disclosure.pointers import found_node_entry, pointer, pointer_entry
from toolfold.errors import BadCursor, NoMatchInCategory, ToolNotFound
from toolfold.events import Events
from toolfold.storage.base import Store, View
from toolfold.types import Hit, NodeHit, Path, Tool

if TYPE_CHECKING:
    from toolfold.search.index import SearchIndex

SYNCED = "search"
"""The namespace of the store that remembers what the index holds."""
HELD = "generation"
MAX_LIMIT = 50
SUGGESTED = 3
"""Categories named in a hint."""


class Need(Struct, frozen=True):
    """A request in plain words, resolved to one tool."""

    query: str
    tool: Tool
    confidence: float


class Finder:
    """Search over one catalogue. `folder` keeps the index."""

    def __init__(self, catalogue: Catalogue, store: Store, folder: FilePath, events: Events) -> None:
        self._catalogue = catalogue
        self._store = store
        self._folder = folder
        self._events = events
        self._index: SearchIndex | None = None
        self._held: int | None = None
        self._syncing = asyncio.Lock()

    async def sync(self) -> int:
        """Brings the index to the catalogue as it is now, and tells how many texts had to be embedded."""
        async with self._syncing, self._catalogue.snapshot() as view:
            index = await self._opened()
            if self._held == view.generation or await self._is_whole(index, view):
                self._held = view.generation
                return 0
            tools = [tool async for batch in batches(view) for tool in batch]
            done = await asyncio.to_thread(index.sync, tools)
            self._held = view.generation
            await self._store.put(SYNCED, HELD, str(view.generation).encode())
            if done.embedded:
                self._events.emit("search.synced", embedded=done.embedded, tools=len(tools))
            return done.embedded

    async def _is_whole(self, index: "SearchIndex", view: View) -> bool:
        """Whether an earlier run left the index with just this generation: then no tool has to be read."""
        held = await self._store.get(SYNCED, HELD)
        tools = (await view.generations())[-1].tools
        return held == str(view.generation).encode() and not index.damage and len(index) == tools

    async def _opened(self) -> "SearchIndex":
        if self._index is None:
            from toolfold.search import open_index

            self._index = await asyncio.to_thread(open_index, self._folder)
        return self._index

    async def hits(self, query: str, path: Path, *, tags: Sequence[str] = (), limit: int) -> list[Hit]:
        """The raw hits with their reasons, best first."""
        await self.sync()
        index = await self._opened()
        return await asyncio.to_thread(index.search, query, path=path, tags=tags, limit=limit)

    async def in_category(self, query: str, path: Path, *, limit: int, cursor: str | None) -> dict[str, Any]:
        """Ranked pointers inside a category and everything below it. Raises `NoMatchInCategory` where nothing fits."""
        limit = max(1, min(limit, MAX_LIMIT))
        async with self._catalogue.snapshot() as view:
            node = await found_node(view, path)
            place = node.path if node else ()
            shown = _shown(cursor, place, query, view.generation)
            hits = await self.hits(query, place, limit=shown + limit + 1)
            if not shown and not _fits(hits):
                raise await self._nothing_fits(query, place, view)
            page = hits[shown : shown + limit]
            more = len(hits) > shown + limit
            tools = {tool.tool_id: tool for tool in await view.tools(ids=[hit.tool_id for hit in page])}
        results = [
            pointer_entry(pointer(tools[hit.tool_id], confidence=hit.confidence))
            for hit in page
            if hit.tool_id in tools
        ]
        position = Position("rank", f"{shown + limit}", view.generation)
        next_cursor = cursor_for(place, (query,), position) if more else None
        return {"category_path": list(place), "results": results, "next_cursor": next_cursor}

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
                    entries.append(found_node_entry(node, hit.confidence))
        return {"results": entries}

    async def resolve(self, query: str, *, server: str | None = None) -> Need:
        """The one tool for a need in plain words. Raises `ToolNotFound`, with `query` and the nearest candidates."""
        async with self._catalogue.snapshot() as view:
            await self.sync()
            index = await self._opened()
            ids = None if server is None else [tool.tool_id for tool in await view.tools(server=server)]
            hits = await asyncio.to_thread(index.search, query, ids=ids, limit=SUGGESTED)
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
            return Need(query, tool, hits[0].confidence)

    async def _node_hits(self, query: str, path: Path, view: View, *, limit: int) -> list[NodeHit]:
        await self.sync()
        index = await self._opened()
        summaries = {node.path: node.summary for node in await view.nodes()}
        return await asyncio.to_thread(
            index.search_nodes, query, path=path, own_text=lambda node: summaries.get(node, ""), limit=limit
        )

    async def _nothing_fits(self, query: str, path: Path, view: View) -> NoMatchInCategory:
        """What to say instead of a poor tool: categories elsewhere that do match, where there are any."""
        elsewhere = [] if not path else await self._node_hits(query, (), view, limit=20)
        fitting = [hit for hit in elsewhere if _fits([hit]) and hit.path[: len(path)] != path][:SUGGESTED]
        where = f" in {list(path)}" if path else ""
        if fitting:
            action = "call search_tool_by_category with one of the category paths in hints"
        else:
            action = "no tool here does this; say it in other words, or tell the user that it cannot be done"
        return NoMatchInCategory(
            f"no tool{where} fits {query[:200]!r}", hints=[list(hit.path) for hit in fitting], next_action=action
        )


def _fits(hits: Sequence[Hit] | Sequence[NodeHit]) -> bool:
    from toolfold.search.calibrate import fits

    return fits(hits)


def _shown(cursor: str | None, path: Path, query: str, generation: int) -> int:
    """How many hits earlier pages showed. A ranking belongs to one generation of the catalogue."""
    if not cursor:
        return 0
    position = position_in(cursor, path, (query,))
    if position.kind != "rank" or position.before != generation:
        raise BadCursor(
            "the catalogue changed since the cursor was given out", next_action="search again without a cursor"
        )
    return int(position.name)
