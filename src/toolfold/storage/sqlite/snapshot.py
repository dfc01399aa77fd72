"""One generation of the SQLite store, held still by a read transaction. `store.py` hands these out.

Each read is a plain blocking function on a connection; `_read` makes it a method that runs in the store's reading
thread, so that the event loop never waits for the disk.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path as FilePath
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from msgspec.json import encode as to_json

from toolfold.errors import StoreError
from toolfold.storage.base import Generation, ServerRecord, Version, fold_path, sibling_order
from toolfold.storage.records import (
    decode_change,
    decode_definition,
    decode_generation,
    decode_node,
    decode_server,
    decode_tool,
)
from toolfold.storage.sqlite.connection import translate_errors
from toolfold.types import Change, Node, Path, Tool

_P = ParamSpec("_P")
_T = TypeVar("_T")

# A walk down stops here, so that a cycle in what was stored cannot make it endless.
_MAX_DEPTH = 64

_BELOW = f"""
    WITH RECURSIVE below(key, level) AS (
        SELECT :path, 0
        UNION SELECT edge.child, level + 1 FROM edge JOIN below ON edge.parent = below.key WHERE level < {_MAX_DEPTH}
    )
"""  # noqa: S608 - the only value put in is our own constant

_TAGGED = """
    (SELECT tool FROM tag WHERE tag IN (SELECT value FROM json_each(:tags)) GROUP BY tool
     HAVING count(*) = json_array_length(:tags))
"""


class _Readers(Protocol):
    """The store's read connections. Both methods are for the reading thread only."""

    path: FilePath

    @property
    def is_open(self) -> bool: ...

    def take_reader(self) -> sqlite3.Connection:
        """A read connection that nobody uses."""

    def return_reader(self, db: sqlite3.Connection) -> None: ...


def _read_generation(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(number), 0) FROM generation").fetchone()[0])


def _read(
    query: Callable[Concatenate[sqlite3.Connection, _P], _T],
) -> "Callable[Concatenate[_SqliteSnapshot, _P], Coroutine[Any, Any, _T]]":
    """A blocking read as a method of a snapshot."""

    async def method(snapshot: "_SqliteSnapshot", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await snapshot.run(lambda db: query(db, *args, **kwargs))

    return method


def _tools(
    db: sqlite3.Connection,
    *,
    ids: Collection[str] | None = None,
    server: str | None = None,
    after: str = "",
    limit: int | None = None,
) -> list[Tool]:
    where = ["t.folded > ?"]
    values: list[Any] = [after.casefold()]
    if ids is not None:
        # One JSON value instead of a question mark each: SQLite bounds the number of parameters.
        where.append("t.folded IN (SELECT value FROM json_each(?))")
        values.append(to_json([tool_id.casefold() for tool_id in ids]).decode())
    if server is not None:
        where.append("t.server = ?")
        values.append(server)
    query = f"""
        SELECT t.record, v.definition FROM tool t JOIN version v ON v.tool = t.folded AND v.number = t.version
        WHERE {" AND ".join(where)} ORDER BY t.folded LIMIT ?
    """  # noqa: S608 - joined from our own words only
    return [decode_tool(*row) for row in db.execute(query, (*values, _limit(limit)))]


def _tool(db: sqlite3.Connection, tool_id: str) -> Tool | None:
    return next(iter(_tools(db, ids=[tool_id])), None)


def _tool_ids(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT tool_id FROM tool ORDER BY folded")]


def _tool_ids_at(
    db: sqlite3.Connection,
    path: Path,
    *,
    below: bool = False,
    tags: Collection[str] = (),
    after: str = "",
    limit: int | None = None,
) -> list[str]:
    if below and not path:
        query = "SELECT folded, tool_id FROM tool t WHERE :path = ''"  # every tool is below the root, placed or not
    elif below:
        query = f"""{_BELOW}
            SELECT DISTINCT t.folded, t.tool_id FROM below JOIN placement p ON p.node = below.key
            JOIN tool t ON t.folded = p.tool WHERE TRUE
        """  # noqa: S608 - put in are only our own constants
    else:
        query = "SELECT t.folded, t.tool_id FROM placement p JOIN tool t ON t.folded = p.tool WHERE p.node = :path"
    if tags:
        query += f" AND t.folded IN {_TAGGED}"
    query += " AND t.folded > :after ORDER BY 1 LIMIT :limit"
    values = {"path": fold_path(path), "tags": _tags(tags), "after": after.casefold(), "limit": _limit(limit)}
    return [row[1] for row in db.execute(query, values)]


def _node(db: sqlite3.Connection, path: Path) -> Node | None:
    row = db.execute("SELECT record FROM node WHERE key = ?", (fold_path(path),)).fetchone()
    return decode_node(row[0]) if row else None


def _nodes(db: sqlite3.Connection, *, under: Path = (), depth: int | None = None) -> list[Node]:
    if not under and depth is None:
        rows = db.execute("SELECT record FROM node ORDER BY key")
    else:
        query = f"""{_BELOW}
            SELECT record FROM node WHERE key IN (SELECT key FROM below WHERE level BETWEEN 1 AND :depth)
            AND key <> :path ORDER BY key
        """  # noqa: S608 - put in are only our own constants
        rows = db.execute(query, {"path": fold_path(under), "depth": _MAX_DEPTH if depth is None else depth})
    return [decode_node(row[0]) for row in rows]


def _children(db: sqlite3.Connection, path: Path, *, tags: Collection[str] = ()) -> list[Node]:
    rows = db.execute(
        "SELECT key, record FROM node WHERE key IN (SELECT child FROM edge WHERE parent = ?)", (fold_path(path),)
    )
    children = {row[0]: decode_node(row[1]) for row in rows}
    if tags:
        wanted = {tag.casefold() for tag in tags}
        holding = _children_with_tagged_tools(db, path, tags)
        children = {
            key: node
            for key, node in children.items()
            if key in holding or wanted <= {tag.casefold() for tag in node.tags}
        }
    return sorted(children.values(), key=sibling_order)


def _children_with_tagged_tools(db: sqlite3.Connection, path: Path, tags: Collection[str]) -> set[str]:
    """The children of a path that hold a tool with all of the tags, at any depth."""
    rows = db.execute(
        f"""
        WITH RECURSIVE below(top, key, level) AS (
            SELECT child, child, 1 FROM edge WHERE parent = :path
            UNION SELECT top, edge.child, level + 1 FROM edge JOIN below ON edge.parent = below.key
                WHERE level < {_MAX_DEPTH}
        )
        SELECT DISTINCT top FROM below JOIN placement p ON p.node = below.key WHERE p.tool IN {_TAGGED}
        """,  # noqa: S608 - put in are only our own constants
        {"path": fold_path(path), "tags": _tags(tags)},
    )
    return {row[0] for row in rows}


def _servers(db: sqlite3.Connection) -> list[ServerRecord]:
    return [decode_server(row[0]) for row in db.execute("SELECT record FROM server ORDER BY name")]


def _versions(db: sqlite3.Connection, tool_id: str) -> list[Version]:
    rows = db.execute(
        "SELECT tool_id, number, fingerprint, first_seen, definition FROM version WHERE tool = ? ORDER BY number",
        (tool_id.casefold(),),
    )
    return [
        Version(tool_id=name, number=number, fingerprint=fingerprint, first_seen=at, definition=decode_definition(blob))
        for name, number, fingerprint, at, blob in rows
    ]


def _version_numbers(db: sqlite3.Connection) -> dict[str, dict[str, int]]:
    numbers: dict[str, dict[str, int]] = {}
    for tool_key, number, fingerprint in db.execute("SELECT tool, number, fingerprint FROM version"):
        numbers.setdefault(tool_key, {})[fingerprint] = number
    return numbers


def _generations(db: sqlite3.Connection) -> list[Generation]:
    return [decode_generation(row[0]) for row in db.execute("SELECT record FROM generation ORDER BY number")]


def _changes(db: sqlite3.Connection, first: int, last: int) -> list[tuple[int, Change]]:
    rows = db.execute(
        "SELECT generation, record FROM change WHERE generation BETWEEN ? AND ? ORDER BY generation, seq", (first, last)
    )
    return [(row[0], decode_change(row[1])) for row in rows]


def _tags(tags: Collection[str]) -> str:
    return to_json(sorted({tag.casefold() for tag in tags})).decode()


def _limit(limit: int | None) -> int:
    return -1 if limit is None else limit


class _SqliteSnapshot:
    """One read transaction, used only through the store's reading thread. The methods are those of `Snapshot`."""

    def __init__(self, readers: _Readers, thread: ThreadPoolExecutor) -> None:
        self._readers = readers
        self._thread = thread
        self._db: sqlite3.Connection | None = None
        self.generation = 0

    def begin(self) -> None:
        self._db = self._readers.take_reader()
        self._db.execute("BEGIN")
        # SQLite fixes what a transaction sees with its first read, not with BEGIN.
        self.generation = _read_generation(self._db)

    def end(self) -> None:
        if self._db is not None:
            self._readers.return_reader(self._db)
            self._db = None

    async def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        def run() -> _T:
            if self._db is None:
                raise _snapshot_over()
            with translate_errors(self._readers.path):
                return work(self._db)

        if not self._readers.is_open:
            raise _snapshot_over()
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    tool = _read(_tool)
    tools = _read(_tools)
    tool_ids = _read(_tool_ids)
    tool_ids_at = _read(_tool_ids_at)
    node = _read(_node)
    nodes = _read(_nodes)
    children = _read(_children)
    servers = _read(_servers)
    versions = _read(_versions)
    version_numbers = _read(_version_numbers)
    generations = _read(_generations)
    changes = _read(_changes)


def _snapshot_over() -> StoreError:
    return StoreError("this snapshot is over", next_action="take a new one with `store.snapshot()`")
