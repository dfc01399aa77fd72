"""The catalogue over a store: what the gateway builds, browses and asks. Async; every read sees one generation.

It answers in values; `disclosure` above turns them into what a model reads. It connects to no server: listings are
handed in. Who may see what is decided above it, too. Reading imports nothing of the building side, so that a command
that only looks starts fast.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from typing import TYPE_CHECKING
from weakref import WeakSet

from msgspec import Struct

from toolfold.catalogue.cursor import Position, decode_cursor, encode_cursor, node_position, nodes_after
from toolfold.errors import CatalogueError, NotBuilt, ToolNotFound, UnknownPath
from toolfold.storage.base import Generation, ServerRecord, Snapshot, Store, Version, fold_path, sibling_order
from toolfold.types import Change, Listing, Node, Path, Tool

if TYPE_CHECKING:
    from toolfold.catalogue.build import Build, PlaceTools
    from toolfold.config import MetadataRule

DEFAULT_LIMIT = 10
MAX_LIMIT = 50

BATCH = 500

MAX_SHOWN = 100
"""How much of a name that does not exist an error repeats."""

CACHED_TOOLS = 512
CACHE_S = 1.0
"""How long a tool that was just looked up is taken as it was. Our own commits count at once; those of another process
after this time."""


class Page(Struct, frozen=True, kw_only=True):
    """A part of what stands at a path: nodes first, then tools."""

    path: Path
    nodes: tuple[Node, ...] = ()
    tools: tuple[Tool, ...] = ()
    next_cursor: str | None = None


class Branch(Struct, frozen=True):
    """A node and what stands below it. Where the depth ends `children` is empty; `node.children` tells how many."""

    node: Node
    children: tuple["Branch", ...] = ()


class Tree(Struct, frozen=True, kw_only=True):
    path: Path
    generation: int
    tools: int
    branches: tuple[Branch, ...]


Through = Callable[[Snapshot], Awaitable[Snapshot]]


class Catalogue:
    """All tools of all servers, in one store."""

    def __init__(
        self,
        store: Store,
        *,
        place: "PlaceTools | None" = None,
        rules: "Sequence[MetadataRule]" = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._place = place
        self._rules = rules
        self._clock = clock
        self._writing = asyncio.Lock()
        self._known: dict[str, tuple[float, Tool]] = {}
        self._reading: dict[str, asyncio.Future[Tool]] = {}
        self._through: Through | None = None
        self._limited: WeakSet[Catalogue] = WeakSet()
        self.commits = 0
        """How often this object wrote: whoever keeps something worked out from the catalogue compares it."""

    def limited(self, through: "Through") -> "Catalogue":
        """The same catalogue for reading, as seen through `through`, which makes a view of each view."""
        seen = Catalogue(self._store, clock=self._clock)
        seen._through = through
        self._limited.add(seen)
        return seen

    async def rebuild(self, listings: Iterable[Listing], *, failures: Mapping[str, str] | None = None) -> "Build":
        """Makes the catalogue of all configured servers: those that were read, and those that failed with the reason.
        Any other server is forgotten."""
        return await self._commit(tuple(listings), failures or {}, partial=False)

    async def update(self, listings: Iterable[Listing], *, failures: Mapping[str, str] | None = None) -> "Build":
        """Takes in servers that were read again, and those that could not be; all others stay as they are."""
        return await self._commit(tuple(listings), failures or {}, partial=True)

    async def update_server(self, listing: Listing) -> "Build":
        """Takes in one server that was read again."""
        return await self.update([listing])

    async def mark_failed(self, server: str, reason: str) -> "Build":
        """Notes that a server could not be read; its tools stay, marked as stale."""
        return await self.update((), failures={server: reason})

    async def _commit(self, listings: Sequence[Listing], failures: Mapping[str, str], *, partial: bool) -> "Build":
        from toolfold.catalogue.build import commit

        async with self._writing:
            made = await commit(
                self._store,
                listings,
                failures,
                place=self._place,
                rules=self._rules,
                clock=self._clock,
                partial=partial,
            )
            for seen in (self, *self._limited):
                seen._forget()  # noqa: SLF001 - catalogues that it made itself
            return made

    def _forget(self) -> None:
        """Something was committed: what was read before, or is being read right now, is not given to anybody new."""
        self.commits += 1
        self._known.clear()
        self._reading.clear()

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        """One generation, held still for several questions. Raises `NotBuilt` where there is none yet."""
        async with self._store.snapshot() as view:
            if not view.generation:
                raise NotBuilt("there is no catalogue yet", next_action="run `toolfold build`")
            yield await self._seen(view)

    async def _seen(self, view: Snapshot) -> Snapshot:
        return view if self._through is None else await self._through(view)

    async def tree(self, path: Path = (), depth: int | None = None) -> Tree:
        """The nodes below a path, at most `depth` steps down."""
        async with self.snapshot() as view:
            node = await resolve_node(view, path)
            nodes = await view.nodes(under=path, depth=depth)
            tools = node.tools if node else (await view.generations())[-1].tools
            return Tree(
                path=node.path if node else (),
                generation=view.generation,
                tools=tools,
                branches=_branches(nodes, path, depth),
            )

    async def list(
        self,
        path: Path = (),
        *,
        tags: Collection[str] = (),
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page:
        """What stands at a path: nodes, then tools, at most `limit` (1 to 50) together. `tags` must all be there."""
        limit = max(1, min(limit, MAX_LIMIT))
        async with self.snapshot() as view:
            node = await resolve_node(view, path)
            after = decode_cursor(cursor, path, tags) if cursor else None
            known = [] if after is not None and after.kind == "tool" else await view.children(path, tags=tags)
            nodes = nodes_after(known, after) if known and after is not None else known
            shown = tuple(nodes[:limit])
            last_tool = after.name if after is not None and after.kind == "tool" else ""
            room = limit - len(shown)
            ids = await view.tool_ids_at(path, tags=tags, after=last_tool, limit=room + 1)
            tools = tuple(await view.tools(ids=ids[:room]))
            more = len(nodes) > len(shown) or len(ids) > room
            place = node.path if node else ()
            seen = known[: len(known) - len(nodes) + len(shown)]
            return Page(path=place, nodes=shown, tools=tools, next_cursor=_next(path, tags, seen, tools, more))

    def known(self, tool_id: str) -> Tool | None:
        """A tool that was just looked up. It stands on the way of every call, and is not read again for each."""
        known = self._known.get(tool_id.casefold())
        return known[1] if known is not None and 0 <= self._clock() - known[0] < CACHE_S else None

    async def tool(self, tool_id: str) -> Tool:
        """One tool. Raises `ToolNotFound` with what is near."""
        known = self.known(tool_id)
        if known is not None:
            return known
        key, now = tool_id.casefold(), self._clock()
        # Of many calls that come at once, one reads and all wait for it: else each would wait for the others' reading.
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.ensure_future(self._read(key, tool_id, now))
            reading.add_done_callback(lambda done: self._was_read(key, done))
        return await asyncio.shield(reading)

    async def _read(self, key: str, tool_id: str, now: float) -> Tool:
        commits = self.commits
        async with self.snapshot() as view:
            found = await view.tool(tool_id)
            if found is None:
                raise await _tool_not_found(view, tool_id)
        if commits == self.commits:
            while len(self._known) >= CACHED_TOOLS:
                self._known.pop(next(iter(self._known)))
            self._known[key] = (now, found)
        return found

    def _was_read(self, key: str, done: "asyncio.Future[Tool]") -> None:
        if self._reading.get(key) is done:
            del self._reading[key]
        if not done.cancelled():
            done.exception()  # whoever waited has it; that nobody did is no news

    async def versions(self, tool_id: str) -> tuple[Version, ...]:
        """Every kept version of a tool, oldest first, of a removed one too."""
        async with self.snapshot() as view:
            found = await view.versions(tool_id)
            if not found:
                raise await _tool_not_found(view, tool_id)
            return tuple(found)

    async def servers(self) -> tuple[ServerRecord, ...]:
        """Each server as it was last read; none before the first build."""
        async with self._store.snapshot() as view:
            return tuple(await (await self._seen(view)).servers()) if view.generation else ()

    async def generations(self) -> tuple[Generation, ...]:
        """The builds that are still known; none before the first."""
        async with self._store.snapshot() as view:
            return tuple(await (await self._seen(view)).generations()) if view.generation else ()

    async def diff(self, before: int | None = None, after: int | None = None) -> tuple[Change, ...]:
        """What changed from one generation to another; without numbers, in the last step."""
        from toolfold.catalogue.changes import net_changes, reverse_change

        async with self.snapshot() as view:
            kept = await view.generations()
            last = view.generation if after is None else after
            first = last - 1 if before is None else before
            oldest = kept[0].number - 1
            for number in (first, last):
                if not oldest <= number <= view.generation:
                    raise CatalogueError(
                        f"the catalogue cannot compare generation {number}",
                        hints=[f"it knows the generations {oldest} to {view.generation}"],
                        next_action="name two of the known generations",
                    )
            steps = await view.changes(min(first, last) + 1, max(first, last))
        changes = net_changes(change for _, change in steps)
        return changes if first <= last else tuple(reverse_change(change) for change in changes)

    async def write_registry(self, path: FilePath) -> int:
        """Writes `tool_registry.json` and gives the number of tools in it."""
        from toolfold.catalogue.registry import write_registry

        async with self.snapshot() as view:
            return await write_registry(path, tool_batches(view))


async def tool_batches(view: Snapshot, size: int = BATCH) -> AsyncIterator[list[Tool]]:
    """All tools in the order of their ids, a few at a time."""
    last = ""
    while batch := await view.tools(after=last, limit=size):
        yield batch
        last = batch[-1].tool_id


async def resolve_node(view: Snapshot, path: Path) -> Node | None:
    """The node at a path; `None` for the root, which is no node. Raises `UnknownPath` with what may have been meant."""
    if not path:
        return None
    node = await view.node(path)
    if node is None:
        from toolfold.catalogue.suggestions import closest_paths

        known = [one.path for one in await view.nodes()]
        hints = await asyncio.to_thread(closest_paths, path, known)
        raise UnknownPath(
            f"there is no category {[name[:MAX_SHOWN] for name in path[:MAX_SHOWN]]}",
            hints=[list(hint) for hint in hints],
            next_action="call list with one of the paths in hints, or with an empty path for the root",
        )
    return node


async def _tool_not_found(view: Snapshot, tool_id: str) -> ToolNotFound:
    from toolfold.catalogue.suggestions import closest_words

    return ToolNotFound(
        f"there is no tool {tool_id[:MAX_SHOWN]!r}",
        hints=await asyncio.to_thread(closest_words, tool_id, await view.tool_ids()),
        next_action="use one of the ids in hints, or find the tool with list or a search",
    )


def _next(path: Path, tags: Collection[str], seen: Sequence[Node], tools: Sequence[Tool], more: bool) -> str | None:
    if not more:
        return None
    position = Position("tool", tools[-1].tool_id) if tools else node_position(seen)
    return encode_cursor(path, tags, position)


def _branches(nodes: Iterable[Node], path: Path, depth: int | None) -> tuple[Branch, ...]:
    """Nodes as a tree. One with several parents stands under each; a loop in what was stored ends where it closes."""
    below: dict[str, list[tuple[tuple[int, str, str], Node]]] = {}
    for node in nodes:
        entry = (sibling_order(node), node)
        for parent in {fold_path(node.path[:-1]), *(fold_path(one) for one in node.parents)}:
            below.setdefault(parent, []).append(entry)

    def grow(key: str, left: int, above: frozenset[str]) -> tuple[Branch, ...]:
        if not left:
            return ()
        found = sorted((entry for entry in below.get(key, ()) if entry[0][2] not in above), key=lambda entry: entry[0])
        return tuple(Branch(node, grow(order[2], left - 1, above | {order[2]})) for order, node in found)

    root = fold_path(path)
    return grow(root, -1 if depth is None else depth, frozenset({root}))
