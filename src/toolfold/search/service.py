"""Search over a catalogue: a request in, tools and categories out, as values that hold what one caller may see.

It joins the catalogue with the search index and ranks; `disclosure.render` turns its pages into what a model reads.
Before a search the index is brought to the catalogue's generation, which costs next to nothing where nothing changed;
where much did, the index of before answers while that goes on.
Searching runs in a thread, and the encoder is loaded with the first request, or before by whoever serves.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from toolfold.catalogue.catalogue import Catalogue, resolve_node, tool_batches
from toolfold.catalogue.cursor import AGAIN, Position, decode_cursor, encode_cursor, state_of, sum_of_tools
from toolfold.catalogue.kinds import is_tool_id
from toolfold.config.settings import Settings
from toolfold.errors import BadCursor, NoMatchInCategory, ToolNotFound, UnknownPath
from toolfold.events import Event, Events
from toolfold.model import Model
from toolfold.policy.view import CatalogueView
from toolfold.search.enrichment import Enrichment, Requests
from toolfold.search.names import Names
from toolfold.storage.base import Snapshot, Store
from toolfold.types import Hit, Node, NodeHit, Path, Tool, Why

if TYPE_CHECKING:
    from toolfold.search.index import SearchIndex

__all__ = ["SearchService", "_shares"]

log = logging.getLogger("toolfold.search")

MAX_LIMIT = 50

_MAX_HITS = 200
_SYNC_BATCH = 500
# How long searches wait for a sync since it began, where an index is there: some two hundred new tools.
_PATIENCE_S = 1.0
# Of so few tools everything is waited for: it takes no longer.
_FEW_TO_SYNC = 200
_MAX_SUGGESTIONS = 3
_MAX_HINTS = 5
# Of so few tools the nearest are shown even where none fits: a wrong "nothing" costs more than a look at five lines.
_FEW_TOOLS = 30
_WITHOUT_PATH = (
    "the tools named in `tools` fit, from all categories: expand_tool one of them, then call_tool; or search again "
    "without a path"
)
_ELSEWHERE = "use a tool in hints if it does that, or call search_tool_by_category with one of the paths in categories"
_NEED_AGAIN = (
    "name a tool in hints by its id if it is meant; else say in one whole sentence what the tool must do, with what "
    "kind of thing, in which product"
)
# What whoever found nothing reads: how to ask again.
_FROM_NODES = (
    "use a tool in hints if it does that; else look for tools with search_tool_by_category, in one whole sentence as a "
    "tool's description would say it"
)
_ASK_AGAIN = (
    "use a tool in hints only if it does that; else search again in other words, in one whole sentence as a tool's "
    'description would say it ("get the state of a lock", not "is the back door locked?")'
)
# Categories that a filtered listing shows before its tools.
_MAX_LISTED_NODES = 3
# How much of an unknown id is read: it comes from a model and may be of any length.
_MAX_ID_CHARS = 200


def _shares(why: Why) -> dict[str, float]:
    """What each signal has of a hit's score, in percent; one that speaks against it has nothing."""
    from toolfold.search.ranker import LEXICAL_WEIGHT

    parts = {
        "words": LEXICAL_WEIGHT * max(why.lexical, 0.0),
        "meaning": (1 - LEXICAL_WEIGHT) * max(why.dense, 0.0),
        "learned": max(why.prior, 0.0),
    }
    total = sum(parts.values())
    return {name: 100 * part / total if total else 0.0 for name, part in parts.items()}


class _RankedTool(NamedTuple):
    """A tool, the probability that it fits the request, and the ids of the same tool at other servers."""

    tool: Tool
    confidence: float
    same_as: tuple[str, ...] = ()


class _RankedNode(NamedTuple):
    """A category, and the probability that one of its tools fits the request."""

    node: Node
    confidence: float


class _ToolPage(Struct, frozen=True, kw_only=True):
    """Tools at or below `path`, the best first."""

    path: Path
    tools: tuple[_RankedTool, ...]
    next_cursor: str | None = None
    note: str = ""
    """Said where none of them fits."""

    @property
    def tool_ids(self) -> tuple[str, ...]:
        return tuple(ranked.tool.tool_id for ranked in self.tools)

    @property
    def twins(self) -> dict[str, str]:
        return {twin: ranked.tool.tool_id for ranked in self.tools for twin in ranked.same_as}

    @property
    def confidences(self) -> tuple[float, ...]:
        return tuple(ranked.confidence for ranked in self.tools)


class _ListPage(_ToolPage, frozen=True, kw_only=True):
    """A listing that a query filters: the categories right below `path` that lead to `tools`, then the tools."""

    nodes: tuple[Node, ...] = ()


class _NodePage(Struct, frozen=True, kw_only=True):
    """Categories, the best first."""

    nodes: tuple[_RankedNode, ...]
    note: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(ranked.node.path for ranked in self.nodes)

    @property
    def confidences(self) -> tuple[float, ...]:
        return tuple(ranked.confidence for ranked in self.nodes)


class _ResolvedNeed(Struct, frozen=True):
    """A request in plain words, resolved to one tool."""

    query: str
    tool: Tool
    confidence: float
    runners_up: tuple[Hit, ...] = ()


class SearchService:
    """Search over one catalogue, with the index and the encoder that the settings name."""

    def __init__(self, catalogue: Catalogue, store: Store, settings: Settings, events: Events) -> None:
        self._catalogue = catalogue
        self._folder = settings.home / "search"
        self._events = events
        self._learn = settings.audit.learns
        self._encoder = encoder = settings.search.encoder
        # Each encoder has an index of its own.
        self._state_file = self._folder / f"state-{encoder}"
        self._enrichment = Enrichment(store)
        self._index: SearchIndex | None = None
        self._generation: int | None = None
        # What others wrote may be requests of a model, which change no generation: how often they wrote.
        self._news = 0
        self._unsubscribe = events.subscribe(self._look_again, only="store.changed")
        self._sync_lock = asyncio.Lock()
        self._sync_task: asyncio.Task[int] | None = None
        self._sync_started = 0.0
        # Whether it was ever brought up to date: before that an answer would be none.
        self._answers = False
        self._open_lock = asyncio.Lock()

    async def warm(self) -> None:
        """Opens the index and loads the encoder, so that the first request does not wait for it."""
        index = await self._open()
        await asyncio.to_thread(index.warm)

    async def aclose(self) -> None:
        """Breaks off taking tools in, wherever that is: a process that ends must not wait for it."""
        self._unsubscribe()
        if self._index is not None:
            self._index.stop()
        if self._sync_task is not None:
            self._sync_task.cancel()
            await asyncio.wait([self._sync_task])

    def _look_again(self, event: Event) -> None:
        del event
        self._news += 1
        self._generation = None

    async def learn(self, query: str, tool_id: str) -> bool:
        """Records that a tool was chosen for a request and worked. Does nothing where learning is off."""
        index = await self._open()
        return await asyncio.to_thread(index.learn, query, tool_id)

    async def learn_choice(self, query: str, tool_id: str, selected_by: str) -> bool:
        """Learns from use: that a tool was called for a request and worked, if the two have to do with each other."""
        index = await self._open()
        if not await asyncio.to_thread(index.is_plausible, query, tool_id, selected_by):
            return False
        return await self.learn(query, tool_id)

    async def count_choices(self) -> int:
        """How many choices search has learned from."""
        return (await self._open()).choices

    async def forget_choices(self) -> int:
        """Forgets every choice; returns how many there were."""
        index = await self._open()
        return await asyncio.to_thread(index.forget)

    async def sync(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Brings the index to the catalogue's generation and returns how many texts had to be embedded.

        `on_progress` hears of many new tools while they are taken in: how many are done, and of how many.
        """
        async with self._sync_lock:
            index, news = await self._open(), self._news
            async with self._catalogue.snapshot() as snapshot:
                if self._generation == snapshot.generation or await self._matches(index, snapshot):
                    self._generation = snapshot.generation
                    return 0
                tools = [tool async for batch in tool_batches(snapshot) for tool in batch]
                state, generation = await self._state(snapshot), snapshot.generation
            requests = await self._enrichment.requests()
            many = (
                tools if len(tools) - len(index) > _SYNC_BATCH else await self._newly_enriched(tools, state, requests)
            )
            embedded = 0
            # Embedding takes 5 ms a text. In parts, what is done stays done if this is broken off.
            for start in range(0, len(many), _SYNC_BATCH):
                if on_progress is not None:
                    on_progress(start, len(many))
                part = many[start : start + _SYNC_BATCH]
                embedded += (await asyncio.to_thread(index.update, part, requests=requests)).embedded
            embedded += (await asyncio.to_thread(index.sync, tools, requests=requests)).embedded
            from toolfold.search.array_file import replace_file  # which loads numpy

            await asyncio.to_thread(replace_file, self._state_file, lambda file: file.write(state))
            self._generation = generation if news == self._news else None
            if embedded:
                self._events.emit("search.synced", embedded=embedded, tools=len(tools))
            return embedded

    async def _keep_up(self) -> None:
        """What a search waits for: a sync, however long it takes where there are few tools or no index yet. Else those
        of before answer while many are taken in."""
        latest = time.monotonic() + _PATIENCE_S
        while not await self._is_synced():
            if self._sync_task is None:
                self._sync_started = time.monotonic()
                self._sync_task = asyncio.get_running_loop().create_task(self.sync())
                self._sync_task.add_done_callback(self._synced)
            running = self._sync_task
            left = min(latest, self._sync_started + _PATIENCE_S) - time.monotonic()
            if not (await asyncio.wait([running], timeout=max(0.0, left)))[0]:
                return
            running.result()  # it may have begun before the last change: then there is another

    async def _is_synced(self) -> bool:
        """Whether the index is that of the catalogue; where all searches wait for that, it is afterwards."""
        async with self._catalogue.snapshot() as snapshot:
            if self._generation is not None and self._generation == snapshot.generation:
                self._answers = True
                return True
            generations = await snapshot.generations()
        if self._answers and generations and generations[-1].tools > _FEW_TO_SYNC:
            return False
        await self.sync()
        self._answers = True
        return True

    def _synced(self, task: "asyncio.Task[int]") -> None:
        self._sync_task = None
        # Whoever waits for it is told; if nobody does any more, the next search tries again.
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("the search index is not up to date: %s", error)

    async def _is_current(self) -> bool:
        """Whether the index can answer without a sync."""
        if self._sync_lock.locked():
            return False
        async with self._catalogue.snapshot() as snapshot:
            return self._generation == snapshot.generation or await self._matches(await self._open(), snapshot)

    async def _matches(self, index: "SearchIndex", snapshot: Snapshot) -> bool:
        """Whether an earlier process left the index at this generation: then no tool has to be read."""
        last = (await snapshot.generations())[-1]
        return await self._held() == await self._state(snapshot) and not index.damage and len(index) == last.tools

    async def _held(self) -> bytes:
        """What the index was made from, which stands beside it: other gateways on the store have other indexes."""
        try:
            return await asyncio.to_thread(self._state_file.read_bytes)
        except FileNotFoundError:
            return b""

    async def _state(self, snapshot: Snapshot) -> bytes:
        """What the index is made from: a generation of the catalogue, and the requests that a model wrote."""
        # With its time: the same number may be another catalogue's, where a gateway was given another store.
        made_at = (await snapshot.generations())[-1].at
        return f"{snapshot.generation}@{made_at} {await self._enrichment.revision()}".strip().encode()

    async def _newly_enriched(self, tools: list[Tool], state: bytes, requests: Requests) -> list[Tool]:
        """The tools with requests, where the index was made with others."""
        held = await self._held()
        if held.partition(b" ")[2] == state.partition(b" ")[2]:
            return []
        return [tool for tool in tools if requests.get(tool.fingerprint)]

    async def enrich(
        self,
        model: Model,
        *,
        server: str = "",
        limit: int | None = None,
        on_start: Callable[[int], Callable[[str], None]],
    ) -> dict[str, int]:
        """Has a model write requests for the tools that have none: see `Enrichment.ask`. `on_start` is told how many
        there are, and returns who hears of each that is done."""
        tools = await self._enrichment.pending(await self._tools(), server=server, limit=limit)
        self._generation = None
        return await self._enrichment.ask(model, tools, on_start(len(tools)))

    async def forget_requests(self, *, server: str = "") -> int:
        """Drops the requests that a model wrote for the tools of a server, or for all; returns for how many."""
        self._generation = None
        known = await self._enrichment.requests()
        chosen = [tool.fingerprint for tool in await self._tools(server)] if server else list(known)
        return await self._enrichment.forget(chosen)

    async def count_enriched(self) -> int:
        """How many tools of the catalogue have requests that a model wrote."""
        known = await self._enrichment.requests()
        return sum(bool(known.get(tool.fingerprint)) for tool in await self._tools())

    async def _tools(self, server: str = "") -> list[Tool]:
        async with self._catalogue.snapshot() as snapshot:
            return [tool for tool in await snapshot.tools(server=server or None) if tool.kind == "tool"]

    async def _open(self) -> "SearchIndex":
        if self._index is None:
            async with self._open_lock:
                if self._index is None:
                    # Imported here: numpy and onnxruntime are not loaded by commands that only read the catalogue.
                    from toolfold.search.encoder import shared_encoder
                    from toolfold.search.index import SearchIndex

                    self._index = await asyncio.to_thread(
                        SearchIndex.open, self._folder, encoder=shared_encoder(self._encoder), learn=self._learn
                    )
        return self._index

    async def hits(
        self,
        view: CatalogueView,
        query: str,
        path: Path,
        *,
        tags: Sequence[str] = (),
        ids: Iterable[str] | None = None,
        limit: int,
        learned: bool = True,
    ) -> list[Hit]:
        """The tools that `view` shows at or below a path, best first, each with its reasons; of the `ids`, if given.
        Without `learned` earlier choices lift none."""
        # A need of a script is resolved by what is there now: nobody looks at it.
        await (self._keep_up() if learned else self.sync())
        index = await self._open()
        allowed = await view.allowed()
        return await asyncio.to_thread(
            index.search, query, path=path, tags=tags, ids=ids, allowed=allowed, limit=limit, learned=learned
        )

    async def threshold(self, query: str) -> float:
        """The probability from which on a tool is offered for a request."""
        index = await self._open()
        return await asyncio.to_thread(index.threshold, query)

    async def search_tools(
        self, view: CatalogueView, query: str, path: Path, *, limit: int, cursor: str | None, sure: bool = False
    ) -> _ToolPage:
        """Tools inside a category and everything below it. Raises `NoMatchInCategory` where nothing fits, unless the
        nearest of few tools will do; with `sure` they will not."""
        limit = max(1, min(limit, MAX_LIMIT))
        async with view.catalogue.snapshot() as snapshot:
            place = await self._resolve_place(view, query, path, snapshot)
            start = _offset(cursor, place, (query,), state_of(snapshot))
            hits = await self.hits(view, query, place, limit=start + limit + 1)
            _check_shown(cursor, place, (query,), hits[:start])
            note = "" if start or _fits(hits) else await self._note_on_nearest(view, query, place, snapshot, sure=sure)
            end = start + limit
            return _ToolPage(
                path=place,
                tools=await _ranked_tools(snapshot, hits[start:end]),
                next_cursor=_next_cursor(place, (query,), hits[:end], snapshot) if len(hits) > end else None,
                note=note or await _note_on_missing(query, snapshot),
            )

    async def list_matching(
        self, view: CatalogueView, query: str, path: Path, *, tags: Sequence[str], limit: int, cursor: str | None
    ) -> _ListPage:
        """What `list` shows with a query: categories below the path that fit, then the tools below it that do.

        Raises `NoMatchInCategory` where nothing fits.
        """
        limit = max(1, min(limit, MAX_LIMIT))
        question = (f"query:{query}", *(f"tag:{tag}" for tag in tags))
        async with view.catalogue.snapshot() as snapshot:
            place = await self._resolve_place(view, query, path, snapshot)
            start = _offset(cursor, place, question, state_of(snapshot))
            hits, note = await self._fitting_hits(view, query, place, tags, snapshot), ""
            if not hits:
                hits = await self.hits(view, query, place, tags=tags, limit=_MAX_HINTS)
                note = await self._note_on_nearest(view, query, place, snapshot, tags, sure=not hits)
            _check_shown(cursor, place, question, hits[:start])
            room = min(_MAX_LISTED_NODES, limit // 2)
            nodes = [] if start else await self._fitting_nodes(view, query, place, tags, snapshot, limit=room)
            end = start + limit - len(nodes)
            return _ListPage(
                path=place,
                nodes=tuple(nodes),
                tools=await _ranked_tools(snapshot, hits[start:end]),
                next_cursor=_next_cursor(place, question, hits[:end], snapshot) if len(hits) > end else None,
                note=note or await _note_on_missing(query, snapshot),
            )

    async def _resolve_place(self, view: CatalogueView, query: str, path: Path, snapshot: Snapshot) -> Path:
        """The path as it is spelled here. Raises `UnknownPath`, with the tools that fit in all categories: models make
        paths up, and small ones do not find back from an error that leads nowhere."""
        try:
            node = await resolve_node(snapshot, path)
        except UnknownPath as error:
            hits = [hit for hit in await self.hits(view, query, (), limit=_MAX_HINTS) if hit.fits]
            if hits:
                error.tools = await self._hints(snapshot, hits)
                error.next_action = _WITHOUT_PATH
            raise
        return node.path if node else ()

    async def _fitting_hits(
        self, view: CatalogueView, query: str, path: Path, tags: Sequence[str], snapshot: Snapshot
    ) -> list[Hit]:
        """The tools below a path that fit and carry all tags."""
        hits = [hit for hit in await self.hits(view, query, path, limit=_MAX_HITS) if hit.fits]
        if not tags or not hits:
            return hits
        # Judged beside everything below the path first: among the few that carry a tag nothing would stand out.
        tagged = set(await snapshot.tool_ids_at(path, below=True, tags=tags))
        matches = [match for hit in hits if (match := _among(hit, tagged)) is not None]
        return matches or [hit for hit in await self.hits(view, query, path, tags=tags, limit=_MAX_HITS) if hit.fits]

    async def _fitting_nodes(
        self, view: CatalogueView, query: str, path: Path, tags: Sequence[str], snapshot: Snapshot, *, limit: int
    ) -> list[Node]:
        """The categories right below a path through which the tools that fit are reached."""
        hits = await self._node_hits(view, query, path, snapshot, limit=MAX_LIMIT)
        ranked = [hit.path for hit in hits if hit.fits and len(hit.path) == len(path) + 1]
        children = {node.path: node for node in await snapshot.children(path, tags=tags)}
        return [children[child] for child in ranked if child in children and children[child].rank <= 0][:limit]

    async def similar_ids(self, view: CatalogueView, text: str) -> list[str]:
        """The ids of tools that fit the words of an unknown id.

        None where the index would have to be synced for it: an error is not worth the wait.
        """
        words = re.sub(r"[\W_]+", " ", text[:_MAX_ID_CHARS]).strip()
        if not words or not await self._is_current():
            return []
        return [hit.tool_id for hit in await self.hits(view, words, (), limit=_MAX_SUGGESTIONS) if hit.fits]

    async def search_nodes(self, view: CatalogueView, query: str, *, limit: int) -> _NodePage:
        """Ranked categories. Raises `NoMatchInCategory` where nothing in the whole catalogue fits."""
        async with view.catalogue.snapshot() as snapshot:
            hits = await self._node_hits(view, query, (), snapshot, limit=MAX_LIMIT)
            note = "" if _fits(hits) else await self._note_on_nearest(view, query, (), snapshot, kind="category")
            second_views = {node.path[0] for node in await snapshot.children(()) if node.rank > 0}
            request = query.casefold()
            # A second view shows the same tools once more: only what the request names in it is news.
            primary = [hit for hit in hits if hit.path[0] not in second_views or hit.path[-1].casefold() in request]
            ranked = []
            for hit in (primary or hits)[: max(1, min(limit, MAX_LIMIT))]:
                node = await snapshot.node(hit.path)
                if node is not None:
                    ranked.append(_RankedNode(node, hit.confidence))
        return _NodePage(nodes=tuple(ranked), note=note)

    async def resolve(
        self, view: CatalogueView, query: str, *, server: str | None = None, least: float = 0.0
    ) -> _ResolvedNeed:
        """The one tool for a need in plain words, of at least that confidence, whatever was chosen before: nobody looks
        at it before it is called. Raises `ToolNotFound`, with `query` and the nearest candidates."""
        async with view.catalogue.snapshot() as snapshot:
            ids = None if server is None else [tool.tool_id for tool in await snapshot.tools(server=server)]
            # A script calls functions: what else there is, it asks for by its id.
            found = await self.hits(view, query, (), ids=ids, limit=_MAX_HITS, learned=False)
            hits = [hit for hit in found if is_tool_id(hit.tool_id)][:_MAX_HINTS]
            if not _fits(hits) or hits[0].confidence < least:
                hints = await self._hints(snapshot, hits or await self.hits(view, query, (), limit=_MAX_HINTS))
                raise ToolNotFound(f"no tool fits {query[:200]!r}", query=query, hints=hints, next_action=_NEED_AGAIN)
            tool = await snapshot.tool(hits[0].tool_id)
            if tool is None:
                raise BadCursor("the catalogue changed while it was searched", next_action="try again")
            # Which server is meant is not for search to say: the same tool elsewhere is a rival like any other.
            twins = [replace(hits[0], tool_id=tool_id, same_as=()) for tool_id in hits[0].same_as]
            return _ResolvedNeed(query, tool, hits[0].confidence, (*twins, *hits[1:]))

    async def _node_hits(
        self, view: CatalogueView, query: str, path: Path, snapshot: Snapshot, *, limit: int
    ) -> list[NodeHit]:
        await self._keep_up()
        index = await self._open()
        summaries = {node.path: node.summary for node in await snapshot.nodes()}
        hits: list[NodeHit] = await asyncio.to_thread(
            index.search_nodes,
            query,
            path=path,
            own_text=lambda node: summaries.get(node, ""),
            allowed=await view.allowed(),
            limit=limit,
        )
        return hits if view.unrestricted else [hit for hit in hits if hit.path in summaries]

    async def _note_on_nearest(
        self,
        view: CatalogueView,
        query: str,
        path: Path,
        snapshot: Snapshot,
        tags: Sequence[str] = (),
        *,
        sure: bool = False,
        kind: str = "tool",
    ) -> str:
        """What is said with the nearest where none fits and there are only few tools. Raises `NoMatchInCategory` where
        there are more, or where something fits elsewhere."""
        tools = (await snapshot.generations())[-1].tools
        error = await self._no_match(view, query, path, snapshot, tags, kind=kind)
        if sure or error.categories or not 0 < tools <= _FEW_TOOLS:
            raise error
        several = f"of all {tools} tools" if kind == "tool" else f"categories of {tools} tools"
        of_all = several if tools > 1 else "of one tool"
        return f"nothing fits for sure; these are the nearest {of_all}, with the probability that each fits"

    async def _no_match(
        self, view: CatalogueView, query: str, path: Path, snapshot: Snapshot, tags: Sequence[str], *, kind: str
    ) -> NoMatchInCategory:
        """What to say instead of a poor tool: the nearest tools, and categories elsewhere that do match."""
        elsewhere = await self._fitting_elsewhere(view, query, path, snapshot) if path else []
        near = [] if elsewhere else await self.hits(view, query, path, tags=tags, limit=_MAX_HINTS)
        where = f" in {list(path)}" if path else ""
        where += f" with the tags {[tag[:50] for tag in tags[:10]]}" if tags else ""
        hints = await self._hints(snapshot, near or await self.hits(view, query, (), limit=_MAX_HINTS))
        return NoMatchInCategory(
            f"no {kind}{where} is sure to fit {query[:200]!r}{'; the nearest tools are named' if hints else ''}",
            hints=hints,
            categories=elsewhere,
            next_action=_ELSEWHERE if elsewhere else _ASK_AGAIN if kind == "tool" else _FROM_NODES,
        )

    async def _fitting_elsewhere(self, view: CatalogueView, query: str, path: Path, snapshot: Snapshot) -> list[Path]:
        """The best categories outside of a path in which something fits."""
        hits = await self._node_hits(view, query, (), snapshot, limit=20)
        return [hit.path for hit in hits if hit.fits and hit.path[: len(path)] != path][:_MAX_SUGGESTIONS]

    @staticmethod
    async def _hints(snapshot: Snapshot, hits: Sequence[Hit]) -> list[dict[str, Any]]:
        """The nearest tools as an error names them."""
        return [
            {"tool_id": tool.tool_id, "summary": tool.summary} | ({"same_as": list(same_as)} if same_as else {})
            for tool, _, same_as in await _ranked_tools(snapshot, hits)
        ]


async def _note_on_missing(query: str, snapshot: Snapshot) -> str:
    """What is said where a request names several tools, and some are not there."""
    names = Names(query)
    missing = names.missing_among(await snapshot.tools()) if len(names.requested) > 1 else []
    return f"there is no tool {', '.join(missing)}" if missing else ""


def _among(hit: Hit, tool_ids: Collection[str]) -> Hit | None:
    """A hit with those of its ids that are among the given; none where none is."""
    kept = [tool_id for tool_id in (hit.tool_id, *hit.same_as) if tool_id in tool_ids]
    return replace(hit, tool_id=kept[0], same_as=tuple(kept[1:])) if kept else None


async def _ranked_tools(snapshot: Snapshot, hits: Sequence[Hit]) -> tuple[_RankedTool, ...]:
    tools = {tool.tool_id: tool for tool in await snapshot.tools(ids=[hit.tool_id for hit in hits])}
    return tuple(_RankedTool(tools[hit.tool_id], hit.confidence, hit.same_as) for hit in hits if hit.tool_id in tools)


def _fits(hits: Sequence[Hit] | Sequence[NodeHit]) -> bool:
    return any(hit.fits for hit in hits)


def _next_cursor(path: Path, question: Sequence[str], shown: Sequence[Hit], snapshot: Snapshot) -> str:
    shown_sum = sum_of_tools(hit.tool_id for hit in shown)
    return encode_cursor(path, question, Position("rank", f"{len(shown)}", state_of(snapshot), rest=shown_sum))


def _check_shown(cursor: str | None, path: Path, question: Sequence[str], shown: Sequence[Hit]) -> None:
    """Raises `BadCursor` where earlier pages showed other tools than those that come first now: what was learned
    meanwhile may rank them anew."""
    if cursor and decode_cursor(cursor, path, question).rest != sum_of_tools(hit.tool_id for hit in shown):
        raise BadCursor("the tools are ranked anew since the cursor was given out", next_action=AGAIN)


def _offset(cursor: str | None, path: Path, question: Sequence[str], state: int) -> int:
    """How many hits earlier pages showed. A ranking belongs to one state of the catalogue."""
    if not cursor:
        return 0
    position = decode_cursor(cursor, path, question)
    if position.kind != "rank" or position.before != state:
        raise BadCursor("the catalogue changed since the cursor was given out", next_action=AGAIN)
    return int(position.name)
