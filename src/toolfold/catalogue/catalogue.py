"""The catalogue over a store: built by the gateway, browsed and read by everything above. Async.

Every read sees one generation. It answers in values; `disclosure` turns them into what a model reads. It connects to no
server: listings are passed in. Who may see what is decided above it. Reading imports nothing of the building side, so
that a command that only reads starts fast.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial as bound
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal
from weakref import WeakSet

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Encoder, decode
from msgspec.structs import replace

from toolfold.catalogue.cursor import Position, decode_cursor, encode_cursor, state_of, sum_of_tools
from toolfold.catalogue.kinds import server_of
from toolfold.containers import BoundedDict
from toolfold.errors import CatalogueError, NotBuilt, StoreError, ToolNotFound, UnknownPath
from toolfold.storage.base import (
    MAX_GENERATIONS,
    Generation,
    ServerRecord,
    Snapshot,
    Store,
    Version,
    fold_path,
    sibling_order,
)
from toolfold.types import Change, Listing, Node, Path, Tool, ToolCall, ToolDefinition

if TYPE_CHECKING:
    from toolfold.catalogue.build import Build, PlaceTools
    from toolfold.catalogue.edits import Edits
    from toolfold.config import MetadataRule


log = logging.getLogger("toolfold.catalogue")

# `tool_registry.json`: the whole catalogue as one file for other programs.

_FORMAT = 1
_TOOL_FIELDS = ("fingerprint", "paths", "version", "summary", "tags", "risks", "cost", "access")


async def _write_registry(path: FilePath, tools: AsyncIterable[Iterable[Tool]]) -> int:
    """Writes the tools, which come in batches and in order. Returns their number."""
    count = 0
    # A random name: two builds may write at the same time.
    unfinished = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    try:
        with unfinished.open("wb") as file:
            file.write(b'{"version": %d, "tools": [' % _FORMAT)
            async for batch in tools:
                count += await asyncio.to_thread(_write_batch, file, batch, first=not count)
            await asyncio.to_thread(_finish, file)
        unfinished.replace(path)
    except OSError as error:
        raise CatalogueError(
            f"the registry {path} cannot be written: {error.strerror or error}",
            next_action="name a file in a folder that exists and that you may write",
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return count


def _write_batch(file: BinaryIO, tools: Iterable[Tool], *, first: bool) -> int:
    count = 0
    for tool in tools:
        file.write(b"\n" if first and not count else b",\n")
        file.write(_encode(_entry_of(tool)))
        count += 1
    return count


def _finish(file: BinaryIO) -> None:
    file.write(b"\n]}\n")
    file.flush()
    # Before the rename, so that the name never holds a file that is cut.
    os.fsync(file.fileno())


def _entry_of(tool: Tool) -> dict[str, Any]:
    """One tool in the file, in the order of its keys there."""
    definition = tool.definition
    sent = _fields(definition.raw)
    description = sent.get("description")
    if description is None or bytes(description)[:1] != b'"':
        description = Raw(_encode(definition.description))
    return {
        "tool_id": tool.tool_id,
        "server": tool.server,
        "name": tool.name,
        "description": description,
        "input_schema": definition.input_schema,
        "output_schema": definition.output_schema,
        **{key: getattr(tool, key) for key in _TOOL_FIELDS},
        # The other fields of the tool object: title, annotations, `_meta`, …
        "more": {key: value for key, value in sent.items() if not _is_shown(key, value, definition)},
        # Those that the server did not send at all.
        "absent": [key for key in ("description", "inputSchema") if key not in sent],
    }


def _is_shown(key: str, value: Raw, definition: ToolDefinition) -> bool:
    """Whether a field already stands in the entry as it was sent."""
    if key == "description":
        return bytes(value)[:1] == b'"'
    shown = {"name": value, "inputSchema": definition.input_schema, "outputSchema": definition.output_schema}
    return shown.get(key) == value


def _fields(raw: Raw) -> dict[str, Raw]:
    try:
        return decode(raw, type=dict[str, Raw])
    except (MsgspecError, RecursionError):
        return {}


_encode = Encoder().encode

DEFAULT_LIMIT = 10
MAX_LIMIT = 50

_BATCH_SIZE = 500
# Where the store remembers the generation of the last build that somebody was told of.
_BUILDS, _TOLD = "builds", "told"
# Where it keeps the rules that were taken over last, by whichever process, and when.
_RULES, _LATEST = "rules", "latest"
# How much of an unknown name an error repeats: it comes from a model and may be of any length.
_MAX_NAME_CHARS = 100
_CACHED_TOOLS = 512
# How long a tool is served from the cache. Our own commits clear it at once; another process's count after this time.
_CACHE_S = 1.0
# And for how long where the store cannot be read.
_OUTAGE_S = 600.0

Filter = Callable[[Snapshot], Awaitable[Snapshot]]


class Page(Struct, frozen=True, kw_only=True):
    """A part of what stands at a path: nodes first, then tools."""

    path: Path
    nodes: tuple[Node, ...] = ()
    tools: tuple[Tool, ...] = ()
    next_cursor: str | None = None

    @property
    def tool_ids(self) -> tuple[str, ...]:
        return tuple(tool.tool_id for tool in self.tools)


class Branch(Struct, frozen=True):
    """A node and what stands below it. Where the depth ends `children` is empty; `node.children` says how many."""

    node: Node
    children: tuple["Branch", ...] = ()


class Tree(Struct, frozen=True, kw_only=True):
    path: Path
    generation: int
    tools: int
    branches: tuple[Branch, ...]
    may_be_old: str = ""
    """Which servers could not be read, where tools of theirs are counted."""


class Catalogue:
    """All tools of all servers, in one store."""

    def __init__(
        self,
        store: Store,
        *,
        place: "PlaceTools | None" = None,
        ontology_file: FilePath | None = None,
        rules: "Sequence[MetadataRule]" = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._place = place
        self._ontology_file = ontology_file
        self._clock = clock
        self.use_rules(rules)
        self._commit_lock = asyncio.Lock()
        self._cache: BoundedDict[str, tuple[float, Tool]] = BoundedDict(_CACHED_TOOLS)
        self._reads: dict[str, asyncio.Future[Tool]] = {}
        self._filter: Filter | None = None
        self._filtered: WeakSet[Catalogue] = WeakSet()
        # How often this object wrote: a value derived from the catalogue is stale once this differs.
        self.commits = 0
        # The generation that was there when `news` was last asked, and those since that this object made itself.
        self._seen: int | None = None
        self._made: set[int] = set()

    def use_rules(self, rules: "Sequence[MetadataRule]") -> None:
        """Takes over other rules for what is written from now on."""
        self._own = self._rules = tuple(rules)
        self._edits: Edits | None = None
        self._since = self._clock()

    async def rules(self) -> "Sequence[MetadataRule]":
        """The rules that hold for whoever shares the store: those that somebody took over last. A process with other
        rules writes by them, too; else two would take turns at writing what the other just wrote."""
        from toolfold.config import MetadataRule

        own = _encode(self._own)
        stored = await self._store.get(_RULES, _LATEST)
        since, latest = decode(stored, type=tuple[float, Raw]) if stored else (0.0, Raw(b"[]"))
        if bytes(latest) == own:
            self._rules, self._edits = self._own, None
        elif not self._since < since <= self._clock():  # of a clock that was set back, no time to come counts
            await self._store.put(_RULES, _LATEST, _encode((self._since, Raw(own))))
            self._rules, self._edits = self._own, None
        elif _encode(self._rules) != bytes(latest):
            self._rules, self._edits = decode(latest, type=tuple[MetadataRule, ...]), None
            log.warning("another toolfold on this state folder has newer [tools]: they hold here, too")
        return self._rules

    def as_sent(self, call: ToolCall) -> ToolCall:
        """A call as the tool's server knows it, where the rules changed what is shown of its tool."""
        if call.tool.definition.original is None:
            return call
        from toolfold.catalogue.edits import Edits

        self._edits = self._edits or Edits(self._rules)
        return self._edits.as_sent(call)

    def filtered(self, filter_snapshot: Filter) -> "Catalogue":
        """The same catalogue for reading, where every snapshot goes through `filter_snapshot`."""
        catalogue = Catalogue(self._store, clock=self._clock)
        catalogue._filter = filter_snapshot
        self._filtered.add(catalogue)
        return catalogue

    async def rebuild(self, listings: Iterable[Listing], *, failures: Mapping[str, str] | None = None) -> "Build":
        """Builds the catalogue of all configured servers: `listings` of those that were read, and `failures` of the
        others with the reason. Any other server is removed."""
        return await self._commit(tuple(listings), failures or {}, partial=False)

    async def update(self, listings: Iterable[Listing], *, failures: Mapping[str, str] | None = None) -> "Build":
        """Takes in servers that were read again, or could not be: their tools stay, marked stale. Others stay as is."""
        return await self._commit(tuple(listings), failures or {}, partial=True)

    async def since_last_build(self, build: "Build", *, tell: bool) -> "Build":
        """The build with all that changed since the last one that somebody was told of: what servers listed meanwhile
        was taken in by whoever connected to them. With `tell` it is the last one from now on."""
        from toolfold.catalogue.build import with_changes

        last = int(await self._store.get(_BUILDS, _TOLD) or 0)
        if tell or not last:
            await self._store.put(_BUILDS, _TOLD, b"%d" % build.generation)
        if not last:
            return build
        oldest = (await self.generations())[0].number - 1
        return with_changes(build, await self.diff(max(last, oldest), build.generation))

    async def holds(self, listing: Listing) -> bool:
        """Whether this is what it has of a server already: then there is nothing to take in."""
        from toolfold.catalogue.build import is_unchanged
        from toolfold.catalogue.edits import Edits

        async with self._store.snapshot() as snapshot:
            record = next((record for record in await snapshot.servers() if record.name == listing.server), None)
            tools = await snapshot.tools(server=listing.server) if record is not None else []
        rules = await self.rules()
        listing = Edits(rules).listing(listing)
        return record is not None and await asyncio.to_thread(is_unchanged, listing, record, tools, rules)

    async def update_server(self, listing: Listing) -> "Build":
        """Takes in one server that was read again."""
        return await self.update([listing])

    async def mark_failed(self, server: str, reason: str) -> "Build":
        """Records that a server could not be read."""
        return await self.update((), failures={server: reason})

    async def remove_servers(self, names: Collection[str]) -> "Build":
        """Takes servers out, with their tools. All others stay as they are."""
        return await self._commit((), {}, partial=True, gone=names)

    async def _commit(
        self,
        listings: Sequence[Listing],
        failures: Mapping[str, str],
        *,
        partial: bool,
        gone: Collection[str] = (),
    ) -> "Build":
        from toolfold.catalogue.build import commit, place_by_capability
        from toolfold.catalogue.edits import Edits

        async with self._commit_lock:
            rules = await self.rules()
            build = await commit(
                self._store,
                list(map(Edits(rules).listing, listings)),
                failures,
                place=self._place or bound(place_by_capability, ontology_file=self._ontology_file),
                rules=rules,
                clock=self._clock,
                partial=partial,
                gone=gone,
            )
            if self._seen is not None:
                self._made.add(build.generation)
            self._invalidate()
            return build

    def _invalidate(self) -> None:
        """Drops what was read before a commit, and what is being read right now: nobody new gets it."""
        self.commits += 1
        self._cache.clear()
        self._reads.clear()
        for catalogue in self._filtered:
            catalogue._invalidate()  # noqa: SLF001 - catalogues that it made itself

    async def news(self) -> Mapping[str, int]:
        """Of each server how many of its tools others changed since this was last asked; at first none."""
        async with self._commit_lock, self._store.snapshot() as snapshot:
            before, self._seen = self._seen, snapshot.generation
            made, self._made = self._made, set()
            others = [] if before is None else sorted(set(range(before + 1, self._seen + 1)) - made)
            if not others:
                return {}
            self._invalidate()
            changes = await snapshot.changes(others[0], others[-1])
            if not any(number == others[0] for number, _ in changes) and len(others) > MAX_GENERATIONS:
                return {record.name: record.tools for record in await snapshot.servers()}
        servers = [server_of(change.tool_id) for number, change in changes if number not in made]
        return {server: servers.count(server) for server in dict.fromkeys(servers)}

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        """One generation, held still for several questions. Raises `NotBuilt` where there is none yet."""
        async with self._store.snapshot() as snapshot:
            if not snapshot.generation:
                raise NotBuilt("there is no catalogue yet", next_action="run `toolfold build`")
            yield await self._apply_filter(snapshot)

    async def _apply_filter(self, snapshot: Snapshot) -> Snapshot:
        return snapshot if self._filter is None else await self._filter(snapshot)

    async def tree(self, path: Path = (), depth: int | None = None) -> Tree:
        """The nodes below a path, at most `depth` steps down."""
        async with self.snapshot() as snapshot:
            node = await resolve_node(snapshot, path)
            nodes = await snapshot.nodes(under=path, depth=depth)
            tools = node.tools if node else (await snapshot.generations())[-1].tools
            return Tree(
                path=node.path if node else (),
                generation=snapshot.generation,
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
        async with self.snapshot() as snapshot:
            node = await resolve_node(snapshot, path)
            after = decode_cursor(cursor, path, tags) if cursor else None
            last_tool = after.name if after is not None and after.kind == "tool" else ""
            children = [] if last_tool else await snapshot.children(path, tags=tags)
            remaining = after.nodes_after(children) if children and after is not None else children
            nodes = tuple(remaining[:limit])
            room = limit - len(nodes)
            ids = await snapshot.tool_ids_at(path, tags=tags, after=last_tool)
            if after is not None:
                await after.check_rest(snapshot, last_tool, ids)
            tools = tuple(await snapshot.tools(ids=ids[:room]))
            next_cursor = None
            if len(remaining) > len(nodes) or len(ids) > room:
                listed = children[: len(children) - len(remaining) + len(nodes)]
                rest = (state_of(snapshot), sum_of_tools(ids[room:]))
                last = Position("tool", tools[-1].tool_id, 0, *rest) if tools else Position.after_nodes(listed, *rest)
                next_cursor = encode_cursor(path, tags, last)
            return Page(path=node.path if node else (), nodes=nodes, tools=tools, next_cursor=next_cursor)

    def cached_tool(self, tool_id: str) -> Tool | None:
        """A tool that was just read. Every call looks its tool up, and most find it here."""
        cached = self._cache.get(tool_id)
        return cached[1] if cached is not None and 0 <= self._clock() - cached[0] < _CACHE_S else None

    async def tool(self, tool_id: str) -> Tool:
        """One tool. Raises `ToolNotFound` with what is near."""
        cached = self.cached_tool(tool_id)
        if cached is not None:
            return cached
        now = self._clock()
        # Of many calls that come at once, one reads and all wait for it: else each would wait for the others' reading.
        read = self._reads.get(tool_id)
        if read is None:
            read = self._reads[tool_id] = asyncio.ensure_future(self._read(tool_id, now))
            read.add_done_callback(lambda done: self._read_done(tool_id, done))
        return await asyncio.shield(read)

    async def _read(self, tool_id: str, now: float) -> Tool:
        commits = self.commits
        try:
            async with self.snapshot() as snapshot:
                tool = await snapshot.tool(tool_id)
                if tool is None:
                    raise await _tool_not_found(snapshot, tool_id)
                if tool.tool_id != tool_id:
                    tool = await _spelled(snapshot, tool_id, tool)
        except StoreError as error:  # calls go on while the store is down, of what was called before
            known = self._cache.get(tool_id)
            if known is None or isinstance(error, NotBuilt) or now - known[0] > _OUTAGE_S:
                raise
            return known[1]
        if commits == self.commits:
            self._cache.renew(tool_id, (now, tool))
        return tool

    def _read_done(self, tool_id: str, done: "asyncio.Future[Tool]") -> None:
        if self._reads.get(tool_id) is done:
            del self._reads[tool_id]
        if not done.cancelled():
            done.exception()  # marks it as retrieved: whoever waited has it, and nobody may have waited

    async def versions(self, tool_id: str) -> tuple[Version, ...]:
        """Every kept version of a tool, oldest first, of a removed one too."""
        async with self.snapshot() as snapshot:
            versions = await snapshot.versions(tool_id)
            if not versions:
                raise await _tool_not_found(snapshot, tool_id)
            return tuple(versions)

    async def servers(self) -> tuple[ServerRecord, ...]:
        """Each server as it was last read; none before the first build."""
        async with self._store.snapshot() as snapshot:
            return tuple(await (await self._apply_filter(snapshot)).servers()) if snapshot.generation else ()

    async def generations(self) -> tuple[Generation, ...]:
        """The builds that are still kept; none before the first."""
        async with self._store.snapshot() as snapshot:
            return tuple(await (await self._apply_filter(snapshot)).generations()) if snapshot.generation else ()

    async def diff(self, before: int | None = None, after: int | None = None) -> tuple[Change, ...]:
        """What changed from one generation to another; without numbers, in the last step."""
        from toolfold.catalogue.changes import net_changes

        async with self.snapshot() as snapshot:
            last = snapshot.generation if after is None else after
            first = last - 1 if before is None else before
            oldest = (await snapshot.generations())[0].number - 1
            for number in (first, last):
                if not oldest <= number <= snapshot.generation:
                    raise CatalogueError(
                        f"the catalogue cannot compare generation {number}",
                        hints=[f"it knows the generations {oldest} to {snapshot.generation}"],
                        next_action="name two of the known generations",
                    )
            steps = await snapshot.changes(min(first, last) + 1, max(first, last))
        changes = net_changes(change for _, change in steps)
        return changes if first <= last else tuple(_reversed(change) for change in changes)

    async def write_registry(self, path: FilePath) -> int:
        """Writes `tool_registry.json` and returns the number of tools in it."""
        async with self.snapshot() as snapshot:
            return await _write_registry(path, tool_batches(snapshot, leaves=False))


def _reversed(change: Change) -> Change:
    """The same step backwards."""
    kinds: dict[str, Literal["added", "removed", "changed"]] = {"added": "removed", "removed": "added"}
    return replace(change, kind=kinds.get(change.kind, "changed"), before=change.after, after=change.before)


async def tool_batches(snapshot: Snapshot, *, leaves: bool = True) -> AsyncIterator[list[Tool]]:
    """All tools in the order of their ids, a few hundred at a time; and the other leaves."""
    last = ""
    while batch := await snapshot.tools(after=last, limit=_BATCH_SIZE):
        yield batch if leaves else [tool for tool in batch if tool.kind == "tool"]
        last = batch[-1].tool_id


async def resolve_node(snapshot: Snapshot, path: Path) -> Node | None:
    """The node at a path; `None` for the root, which is no node. Raises `UnknownPath` with what may have been meant."""
    if not path:
        return None
    node = await snapshot.node(path)
    if node is None:
        from toolfold.catalogue.suggestions import closest_paths

        paths = [other.path for other in await snapshot.nodes()]
        hints = await asyncio.to_thread(closest_paths, path, paths)
        near = "one of the paths in hints, or with " if hints else ""
        raise UnknownPath(
            f"there is no category {[name[:_MAX_NAME_CHARS] for name in path[:_MAX_NAME_CHARS]]}",
            hints=[list(hint) for hint in hints],
            next_action=f"call list with {near}an empty path for the root",
        )
    return node


async def _spelled(snapshot: Snapshot, tool_id: str, found: Tool) -> Tool:
    """Of the tools of a server that differ in letter case alone, the one whose name is spelled as the id was."""
    from toolfold.catalogue.ids import natural_id

    tools = await snapshot.tools(server=found.server)
    return next((tool for tool in tools if natural_id(tool.server, tool.name) == tool_id), found)


async def _tool_not_found(snapshot: Snapshot, tool_id: str) -> ToolNotFound:
    from toolfold.catalogue.ids import ids_of, natural_id
    from toolfold.catalogue.suggestions import closest_words

    near = await asyncio.to_thread(closest_words, tool_id, await snapshot.tool_ids())
    name = repr(tool_id[:_MAX_NAME_CHARS])
    own = await _tools_of_named_server(snapshot, tool_id)
    renamed = [tool.tool_id for tool in own if tool_id.casefold() in map(str.casefold, ids_of(tool))]
    if renamed:
        return ToolNotFound(f"{name} is called {renamed[0]} here, by the owner's [tools]", hints=renamed, removed=True)
    if hashed := [tool.tool_id for tool in own if natural_id(tool.server, tool.name).casefold() == tool_id.casefold()]:
        what = f"{name} is called {hashed[0]} here: another tool had that id when it came, and ids stay"
        return ToolNotFound(what, hints=hashed, removed=True)
    versions = await snapshot.versions(tool_id)
    if not versions:
        return ToolNotFound(f"there is no tool {name}", hints=near)
    became, came = await _what_became(snapshot, tool_id, versions[-1].definition)
    return ToolNotFound(f"{name} is gone: {became}", hints=list(dict.fromkeys((*came, *near))), removed=True)


async def _tools_of_named_server(snapshot: Snapshot, tool_id: str) -> list[Tool]:
    """The tools of the server that an id begins with."""
    from toolfold.catalogue.ids import plain_id

    front = server_of(tool_id).casefold()
    servers = [
        record.name for record in await snapshot.servers() if plain_id(record.name, "").casefold() == f"{front}."
    ]
    return [tool for server in servers for tool in await snapshot.tools(server=server)]


async def _what_became(snapshot: Snapshot, tool_id: str, was: ToolDefinition) -> tuple[str, list[str]]:
    """What happened to a tool that was here, in words, and what it may be called now."""
    from toolfold.catalogue.ids import natural_id

    folded = tool_id.casefold()
    front = server_of(folded)
    steps = [(number, change.kind, change.tool_id) for number, change in await snapshot.changes(0, snapshot.generation)]
    went = max((number for number, kind, name in steps if kind == "removed" and name.casefold() == folded), default=0)
    came = [name for number, kind, name in steps if (number, kind) == (went, "added")]
    when = next((_moment(kept.at) for kept in await snapshot.generations() if kept.number == went), "a while ago")
    for server in await snapshot.servers():
        if natural_id(server.name, "a").casefold() == f"{front}.a":
            own = await snapshot.tools(server=server.name)
            return f"{server.name} listed it until {when}, and no longer does", _successors(own, came, was)
    return f"its server was taken out by {when}", []


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def _successors(tools: Iterable[Tool], came: Collection[str], was: ToolDefinition) -> list[str]:
    """What a tool may be called now: those that say and take the same, then those that came when it went."""
    alike = {tool.tool_id: _alike(tool.definition, was) for tool in tools}
    return sorted((name for name in alike if name in came or alike[name] == 2), key=lambda name: -alike[name])


def _alike(definition: ToolDefinition, other: ToolDefinition) -> int:
    """How much two tools have in common: 2 where they say and take the same."""
    takes = [_fields(_fields(one.input_schema).get("properties", Raw(b"{}"))) for one in (definition, other)]
    return (definition.description == other.description != "") + (takes[0] == takes[1])


def _branches(nodes: Iterable[Node], path: Path, depth: int | None) -> tuple[Branch, ...]:
    """Nodes as a tree. One with several parents stands under each; a loop in what was stored ends where it closes."""
    below: dict[str, list[tuple[tuple[int, str, str], Node]]] = {}
    for node in nodes:
        entry = (sibling_order(node), node)
        for parent in {fold_path(node.path[:-1]), *map(fold_path, node.parents)}:
            below.setdefault(parent, []).append(entry)

    def grow(key: str, left: int, above: frozenset[str]) -> tuple[Branch, ...]:
        if not left:
            return ()
        entries = sorted(
            (entry for entry in below.get(key, ()) if entry[0][2] not in above), key=lambda entry: entry[0]
        )
        return tuple(Branch(node, grow(order[2], left - 1, above | {order[2]})) for order, node in entries)

    root = fold_path(path)
    return grow(root, -1 if depth is None else depth, frozenset({root}))
