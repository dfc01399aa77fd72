"""The storage protocol: snapshot reads, atomic commits, and a little named state. Engines stand beside this file.

The store keeps one catalogue and its past. It knows tools, servers, nodes and versions as values; it does not build,
rank or render them. The catalogue stands above it; below is only the engine.

A *generation* is one state of the catalogue, numbered from 1; 0 means that nothing was committed yet. All reads inside
one snapshot see the same generation. A commit makes the next one, whole or not at all. Paths, tool ids and tags are
looked up without regard to letter case and returned as they were stored.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol, Self

from msgspec import Struct

from toolfold.errors import StoreBusy, StoreChanged, StoreError
from toolfold.types import Change, Node, Path, ServerInfo, Tool, ToolDefinition

# Versions of one tool that are kept, the newest and the current one always among them.
MAX_VERSIONS = 20

# Of one change, where others keep on writing the same value. One of all who try at once succeeds each time.
_MAX_ATTEMPTS = 1000

# Generations whose changes are kept, so that any two of them can be compared.
MAX_GENERATIONS = 200

# How long the versions of a removed tool are kept: a tool that comes back goes on with its numbers.
REMOVED_RETENTION_S = 90 * 86400.0


class ServerRecord(Struct, frozen=True, kw_only=True):
    """What the catalogue knows of one server."""

    name: str
    info: ServerInfo = ServerInfo()
    read_at: float | None = None
    """When its tools were last read, in seconds since 1970; `None`: never."""
    ttl_ms: int | None = None
    """How long the server says that its list stays fresh."""
    tools: int = 0
    stale: bool = False
    """Its last reading failed: the tools are those of an earlier one."""
    error: str = ""
    warnings: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """The ids of tools that the owner hides."""
    others: int = 0
    """How many leaves it has that are no tools."""


class Version(Struct, frozen=True, kw_only=True):
    """One definition that a tool has had. The same fingerprint always has the same number."""

    tool_id: str
    number: int
    fingerprint: str
    first_seen: float
    definition: ToolDefinition


class Generation(Struct, frozen=True, kw_only=True):
    """One state of the catalogue, in figures."""

    number: int
    at: float
    tools: int
    nodes: int
    servers: int
    added: int = 0
    removed: int = 0
    changed: int = 0


class AuditRow(Struct, frozen=True, kw_only=True):
    """One line of the audit log: by whom and to which selection of a tool it belongs, and the record itself."""

    at: float
    caller: str
    session: str
    selection: str
    record: bytes
    number: int = 0
    """Assigned by the store: later lines have higher numbers, and none is ever assigned twice."""


class Update(Struct, frozen=True, kw_only=True):
    """What one commit writes: only what differs from the generation it was made from."""

    based_on: int
    """The generation this was computed from; a store that has moved on refuses with `StoreChanged`."""
    at: float
    tools: tuple[Tool, ...] = ()
    """New and altered tools, whole. A tool's definition is kept as its version `tool.version`."""
    removed_tools: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    removed_nodes: tuple[Path, ...] = ()
    servers: tuple[ServerRecord, ...] = ()
    removed_servers: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def makes_generation(self) -> bool:
        """Whether the catalogue's content changes, or is there for the first time. News about servers alone is written
        under the same number."""
        content = self.tools or self.removed_tools or self.nodes or self.removed_nodes or self.removed_servers
        return bool(content) or not self.based_on


class Snapshot(Protocol):
    """One generation, held still. All answers of one snapshot fit each other."""

    @property
    def generation(self) -> int: ...

    async def tool(self, tool_id: str) -> Tool | None: ...

    async def tools(
        self,
        *,
        ids: Collection[str] | None = None,
        server: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> list[Tool]:
        """Tools in the order of their ids, those after the id `after`. `ids` that do not exist are left out."""

    async def tool_ids(self) -> list[str]: ...

    async def tool_ids_at(
        self,
        path: Path,
        *,
        below: bool = False,
        tags: Collection[str] = (),
        after: str = "",
        limit: int | None = None,
    ) -> list[str]:
        """Ids of the tools that stand at a path, or `below=True` also anywhere below it, with all of the `tags`."""

    async def node(self, path: Path) -> Node | None: ...

    async def nodes(self, *, under: Path = (), depth: int | None = None) -> list[Node]:
        """Every node below `under`, at most `depth` steps down, in the order of their paths."""

    async def children(self, path: Path, *, tags: Collection[str] = ()) -> list[Node]:
        """The nodes right below a path, further parents counted, by rank and name. With `tags`: those that carry them
        all, or hold, at any depth, a tool that does."""

    async def servers(self) -> list[ServerRecord]: ...

    async def versions(self, tool_id: str) -> list[Version]:
        """Oldest first, of a removed tool too, while they are kept."""

    async def version_numbers(self) -> dict[str, dict[str, int]]:
        """Of every tool that is or was here, by its id in lower case (`casefold`): fingerprint to version number."""

    async def generations(self) -> list[Generation]:
        """Those whose changes are kept, oldest first."""

    async def changes(self, first: int, last: int) -> list[tuple[int, Change]]:
        """The changes that made the generations `first` to `last`, both included, in order."""


class Store(Protocol):
    """A catalogue and its past on disk. Safe to use from many tasks, and by many processes at once."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Holds one generation still for reading. Writers are not held up; keep it short all the same."""

    async def commit(self, update: Update) -> int:
        """Writes all of it or nothing, and returns the generation that holds it. Raises `StoreChanged` where another
        writer came first."""

    async def get(self, namespace: str, key: str) -> bytes | None: ...

    async def put(self, namespace: str, key: str, value: bytes) -> None: ...

    async def delete(self, namespace: str, key: str) -> None: ...

    async def items(self, namespace: str) -> Mapping[str, bytes]: ...

    async def swap(self, namespace: str, key: str, old: bytes | None, new: bytes) -> bool:
        """Writes `new` where `old` stands, `None` being nothing; where something else stands, writes nothing."""

    async def increment(self, namespace: str, key: str, amount: float, *, for_s: float) -> float:
        """Adds to a counter that all gateways share, and returns the sum. It begins at 0 once `for_s` have gone by
        since it began; counters that are over are forgotten."""

    async def take_lease(self, name: str, holder: str, *, for_s: float) -> bool:
        """Takes a lease, or prolongs one's own, for so long from now. `False`: another holds it. A holder that is gone
        loses it by the store's clock alone."""

    async def release_lease(self, name: str, holder: str) -> None: ...

    async def wait_changed(self) -> None:
        """Returns soon after another gateway or process wrote to the store: at times for nothing, never too seldom, so
        that whoever looks after each return misses nothing. For one follower of a store: the rest of a gateway listens
        to its event `store.changed`."""

    async def put_part(self, shelf: str, name: str, part: int, value: bytes, *, for_s: float) -> bool:
        """Writes one part of what is kept on a shelf under a name, for so long from now. Part 0 begins it; another is
        written only while that is there, else `False`."""

    async def parts(self, shelf: str, part: int, name: str | None = None) -> Mapping[str, bytes]:
        """One part of everything on a shelf, or of what has this name, by name; what has run out is not there."""

    async def delete_parts(self, shelf: str, name: str | None = None) -> None:
        """Removes everything from a shelf, or what has this name, whole."""

    async def expired_parts(self, limit: int) -> Sequence[tuple[str, str]]:
        """Shelf and name of what has run out and is still to be removed."""

    async def append_audit(self, rows: Sequence[AuditRow], *, keep: int, oldest: float = 0.0) -> None:
        """Adds lines to the audit log, all or none. Of the whole log the newest `keep` lines stay that are not from
        before `oldest`. Lines are never altered."""

    async def audit_rows(
        self,
        *,
        caller: str | None = None,
        session: str | None = None,
        after: int = 0,
        last: int | None = None,
        first: int | None = None,
    ) -> list[AuditRow]:
        """Lines in the order of their numbers, those after the number `after`; of these the `last` ones, or else the
        `first`."""

    async def aclose(self) -> None:
        """Waits for what is being written and closes everything. Safe to call twice."""


async def update_state(store: Store, namespace: str, key: str, change: Callable[[bytes | None], bytes | None]) -> None:
    """Writes what `change` makes of what stands there, also where others write at the same time: it may be called more
    than once. What it leaves as it is, and `None`, is not written."""
    for _ in range(_MAX_ATTEMPTS):
        old = await store.get(namespace, key)
        new = change(old)
        if new is None or new == old or await store.swap(namespace, key, old, new):
            return
    raise StoreBusy(
        f"others wrote {key!r} of {namespace!r} {_MAX_ATTEMPTS} times while it was being changed",
        next_action="try again a little later",
    )


async def _put_hint(store: Store, namespace: str, key: str, value: bytes) -> None:
    """Writes what is found out again where it cannot be written."""
    with suppress(StoreError):
        await store.put(namespace, key, value)


def fold_path(path: Sequence[str]) -> str:
    """A path as one key that ignores letter case."""
    # Names hold no control characters, so this joint cannot stand inside one.
    return "\x1f".join(name.casefold() for name in path)


def sibling_order(node: Node) -> tuple[int, str, str]:
    """The sort key of a node among its siblings."""
    return node.rank, node.name.casefold(), fold_path(node.path)


def _edges(nodes: Iterable[Node]) -> Iterator[tuple[str, str]]:
    """Each parent of each node with it, as keys."""
    for node in nodes:
        key = fold_path(node.path)
        yield fold_path(node.path[:-1]), key
        for parent in node.parents:
            yield fold_path(parent), key


def _generation_record(number: int, update: Update, tools: int, nodes: int, servers: int) -> Generation:
    """The figures of the generation that an update made."""
    kinds = [change.kind for change in update.changes]
    return Generation(
        number=number,
        at=update.at,
        tools=tools,
        nodes=nodes,
        servers=servers,
        added=kinds.count("added"),
        removed=kinds.count("removed"),
        changed=kinds.count("changed"),
    )


def _moved_on(current: int, update: Update) -> StoreChanged:
    """What a writer is told who was not the first."""
    return StoreChanged(
        f"the catalogue moved on to generation {current} while an update of {update.based_on} was made",
        next_action="read the catalogue again and compute the update from what is there now",
    )
