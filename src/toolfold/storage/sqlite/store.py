"""The SQLite store. The event loop never waits for the disk: reads run in one thread, writes in another.

Guaranteed: a snapshot is a read transaction on a connection of its own in write-ahead mode, so readers and the one
writer do not wait for each other, in this process or between processes. A commit is one transaction: after a crash or
a kill the last complete generation is there. Two writers queue; the second gets `StoreChanged`, since its update
is out of date. Where nothing can be written, what is there is read. Not guaranteed: a file on a network drive, where
SQLite's locks are not to be trusted.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from typing import Self, TypeVar

from toolfold.errors import StoreError
from toolfold.storage.base import (
    MAX_GENERATIONS,
    MAX_VERSIONS,
    REMOVED_RETENTION_S,
    AuditRow,
    Update,
    _edges,
    _generation_record,
    _moved_on,
    fold_path,
)
from toolfold.storage.records import encode, encode_definition, encode_tool
from toolfold.storage.sqlite.connection import _is_current, connect, transaction, translate_errors
from toolfold.storage.sqlite.snapshot import _read_generation, _SqliteSnapshot
from toolfold.types import Node, Path, Tool

_T = TypeVar("_T")

# Read connections that stay open between snapshots.
_MAX_IDLE_READERS = 4

# How often a file is asked whether another process wrote to it.
_POLL_S = 1.0

# Rows of the audit log in one statement: SQLite releases the GIL while it runs.
_AUDIT_BATCH = 128


class SqliteStore:
    """One catalogue in one file. Opens on entering; `create=False` raises `NotBuilt` where there is no file."""

    def __init__(self, path: FilePath | str, *, busy_s: float = 10.0, create: bool = True) -> None:
        self.path = FilePath(path)
        self._busy_s = busy_s
        self._create = create
        self._reads: ThreadPoolExecutor | None = None
        self._writes: ThreadPoolExecutor | None = None
        self._idle: list[sqlite3.Connection] = []
        self._snapshots: set[_SqliteSnapshot] = set()
        self._writer: sqlite3.Connection | None = None
        self._watcher: sqlite3.Connection | None = None
        self._seen_version: int | None = None
        self._connected = False

    async def __aenter__(self) -> Self:
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="toolfold-read")
        self._writes = ThreadPoolExecutor(1, thread_name_prefix="toolfold-write")
        try:
            self._idle.append(await self._in(self._reads, self._connect))
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        reads, writes = self._reads, self._writes
        self._reads = self._writes = None
        if reads is None or writes is None:
            return
        closing = asyncio.ensure_future(self._close(reads, writes))
        try:
            await asyncio.shield(closing)
        finally:
            # Cancelled, the threads end by themselves as soon as what they do is done.
            reads.shutdown(wait=closing.done())
            writes.shutdown(wait=closing.done())

    async def _close(self, reads: ThreadPoolExecutor, writes: ThreadPoolExecutor) -> None:
        # One after the other: SQLite removes its log when the last connection closes, not when two close at once.
        await self._in(reads, self._close_readers)
        await self._in(writes, self._close_writer)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator["_SqliteSnapshot"]:
        reads = self._open(self._reads)
        snapshot = _SqliteSnapshot(self, reads)
        self._snapshots.add(snapshot)
        try:
            await self._in(reads, snapshot.begin)
            yield snapshot
        finally:
            self._snapshots.discard(snapshot)
            if self._reads is not None:
                # In the same thread, so after any read that was cancelled on this side and still runs on that one.
                reads.submit(snapshot.end)

    async def commit(self, update: Update) -> int:
        return await self._write(lambda db: _apply_update(db, update))

    async def get(self, namespace: str, key: str) -> bytes | None:
        query = "SELECT value FROM state WHERE namespace = ? AND key = ?"
        row = await self._read(lambda db: db.execute(query, (namespace, key)).fetchone())
        return None if row is None else bytes(row[0])

    async def items(self, namespace: str) -> dict[str, bytes]:
        query = "SELECT key, value FROM state WHERE namespace = ? ORDER BY key"
        return dict(await self._read(lambda db: db.execute(query, (namespace,)).fetchall()))

    async def put(self, namespace: str, key: str, value: bytes) -> None:
        query = "INSERT OR REPLACE INTO state (namespace, key, value) VALUES (?, ?, ?)"
        await self._write(lambda db: db.execute(query, (namespace, key, value)))

    async def delete(self, namespace: str, key: str) -> None:
        query = "DELETE FROM state WHERE namespace = ? AND key = ?"
        await self._write(lambda db: db.execute(query, (namespace, key)))

    async def swap(self, namespace: str, key: str, old: bytes | None, new: bytes) -> bool:
        return await self._write(lambda db: _swap(db, (namespace, key), old, new))

    async def increment(self, namespace: str, key: str, amount: float, *, for_s: float) -> float:
        return await self._write(lambda db: _increment(db, (namespace, key), amount, for_s))

    async def take_lease(self, name: str, holder: str, *, for_s: float) -> bool:
        return await self._write(lambda db: _take_lease(db, name, holder, for_s))

    async def release_lease(self, name: str, holder: str) -> None:
        query = "DELETE FROM lease WHERE name = ? AND holder = ?"
        await self._write(lambda db: db.execute(query, (name, holder)))

    async def wait_changed(self) -> None:
        # The first time it returns at once: what was written before it looked is not missed.
        while (version := await self._in(self._open(self._reads), self._data_version)) == self._seen_version:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)  # SQLite tells nobody
        self._seen_version = version

    def _data_version(self) -> int:
        """What SQLite counts up for one connection whenever another writes."""
        if self._watcher is not None and not _is_current(self._watcher, self.path):
            self._watcher.close()
            self._watcher, self._seen_version = None, None
        if self._watcher is None:
            self._watcher = self._connect()
        return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])

    async def put_part(self, shelf: str, name: str, part: int, value: bytes, *, for_s: float) -> bool:
        values = {"shelf": shelf, "name": name, "part": part, "until": time.time() + for_s, "value": value}
        return await self._write(lambda db: db.execute(_PUT_PART, values).rowcount > 0)

    async def parts(self, shelf: str, part: int, name: str | None = None) -> dict[str, bytes]:
        named, place = _shelf_place(shelf, name)
        query = f"SELECT name, value FROM part WHERE {named} AND part = ? AND until > ? ORDER BY name"  # noqa: S608 - our own words
        values = (*place, part, time.time())
        return dict(await self._read(lambda db: db.execute(query, values).fetchall()))

    async def delete_parts(self, shelf: str, name: str | None = None) -> None:
        named, place = _shelf_place(shelf, name)
        await self._write(lambda db: db.execute(f"DELETE FROM part WHERE {named}", place))  # noqa: S608 - our own words

    async def expired_parts(self, limit: int) -> list[tuple[str, str]]:
        query = "SELECT DISTINCT shelf, name FROM part WHERE until <= ? LIMIT ?"
        return await self._read(lambda db: db.execute(query, (time.time(), limit)).fetchall())

    async def append_audit(self, rows: Sequence[AuditRow], *, keep: int, oldest: float = 0.0) -> None:
        await self._write(lambda db: _append_audit(db, rows, keep=keep, oldest=oldest))

    async def audit_rows(
        self,
        *,
        caller: str | None = None,
        session: str | None = None,
        after: int = 0,
        last: int | None = None,
        first: int | None = None,
    ) -> list[AuditRow]:
        wanted = {"caller": caller, "session": session}
        return await self._read(lambda db: _read_audit(db, wanted, after, last, first))

    async def _read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        def run() -> _T:
            db = self.take_reader()
            try:
                return work(db)
            finally:
                self.return_reader(db)

        return await self._in(self._open(self._reads), run)

    async def _write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        def run() -> _T:
            if self._writer is None:
                self._writer = self._connect(writes=True)
            with transaction(self._writer):
                return work(self._writer)

        return await self._in(self._open(self._writes), run)

    async def _in(self, executor: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
        def translated() -> _T:
            with translate_errors(self.path):
                return work()

        return await asyncio.get_running_loop().run_in_executor(executor, translated)

    @property
    def is_open(self) -> bool:
        return self._reads is not None

    def _open(self, executor: ThreadPoolExecutor | None) -> ThreadPoolExecutor:
        if executor is None:
            raise StoreError(f"the store {self.path} is not open", next_action="use it inside `async with`")
        return executor

    def _connect(self, *, writes: bool = False) -> sqlite3.Connection:
        made = connect(self.path, busy_s=self._busy_s, create=self._create, further=self._connected, writes=writes)
        self._connected = True
        return made

    def take_reader(self) -> sqlite3.Connection:
        """A read connection that nobody uses. Only in the reading thread."""
        while self._idle:
            if _is_current(reader := self._idle.pop(), self.path):
                return reader
            reader.close()
        return self._connect()

    def return_reader(self, db: sqlite3.Connection) -> None:
        """Takes a read connection back. Only in the reading thread."""
        if db.in_transaction:
            db.execute("ROLLBACK")
        if len(self._idle) < _MAX_IDLE_READERS and self._reads is not None:
            self._idle.append(db)
        else:
            db.close()

    def _close_readers(self) -> None:
        for snapshot in tuple(self._snapshots):
            snapshot.end()
        while self._idle:
            self._idle.pop().close()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _apply_update(db: sqlite3.Connection, update: Update) -> int:
    """Writes one update, inside a transaction that the caller holds."""
    current = _read_generation(db)
    if current != update.based_on:
        raise _moved_on(current, update)
    _write_tools(db, update)
    _write_nodes(db, update.nodes, update.removed_nodes)
    _write_servers(db, update)
    if not update.makes_generation:
        return current
    _write_generation(db, current + 1, update)
    return current + 1


def _write_tools(db: sqlite3.Connection, update: Update) -> None:
    gone = [(tool_id.casefold(),) for tool_id in update.removed_tools]
    keyed = {tool.tool_id.casefold(): tool for tool in update.tools}
    touched = gone + [(key,) for key in keyed]
    # A version that stops being the current one was last seen now.
    db.executemany(
        "UPDATE version SET last_seen = ? WHERE tool = ? AND number = (SELECT version FROM tool WHERE folded = ?)",
        [(update.at, key, key) for (key,) in touched],
    )
    db.executemany("DELETE FROM tool WHERE folded = ?", gone)
    if gone or _read_generation(db):  # the first generation has nothing to delete
        db.executemany("DELETE FROM placement WHERE tool = ?", touched)
        db.executemany("DELETE FROM tag WHERE tool = ?", touched)
    db.executemany(
        "INSERT OR REPLACE INTO tool (folded, tool_id, server, version, record) VALUES (?, ?, ?, ?, ?)",
        ((key, tool.tool_id, tool.server, tool.version, encode_tool(tool)) for key, tool in keyed.items()),
    )
    db.executemany(
        "INSERT INTO version (tool, number, fingerprint, tool_id, first_seen, last_seen, definition)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET last_seen = excluded.last_seen, definition = excluded.definition",
        (
            (key, t.version, t.fingerprint, t.tool_id, update.at, update.at, encode_definition(t.definition))
            for key, t in keyed.items()
        ),
    )
    _write_places(db, keyed)
    _delete_old_versions(db, update)


def _write_places(db: sqlite3.Connection, tools: Mapping[str, Tool]) -> None:
    """Where each tool stands in the tree, and its tags."""
    # In the order of the tables' keys, which are clustered: the pages are then written one after the other.
    placements = sorted((fold_path(path), key) for key, tool in tools.items() for path in tool.paths)
    tags = sorted((tag.casefold(), key) for key, tool in tools.items() for tag in tool.tags)
    db.executemany("INSERT OR IGNORE INTO placement (node, tool) VALUES (?, ?)", placements)
    db.executemany("INSERT OR IGNORE INTO tag (tag, tool) VALUES (?, ?)", tags)


def _delete_old_versions(db: sqlite3.Connection, update: Update) -> None:
    db.executemany(
        "DELETE FROM version WHERE tool = ? AND number <> ? AND number <= ?",
        (
            (tool.tool_id.casefold(), tool.version, tool.version - MAX_VERSIONS)
            for tool in update.tools
            if tool.version > MAX_VERSIONS
        ),
    )
    if update.removed_tools:
        db.execute(
            "DELETE FROM version WHERE last_seen < ? AND tool NOT IN (SELECT folded FROM tool)",
            (update.at - REMOVED_RETENTION_S,),
        )


def _write_nodes(db: sqlite3.Connection, nodes: Iterable[Node], removed: Iterable[Path]) -> None:
    gone = [(fold_path(path),) for path in removed]
    records = [(fold_path(node.path), encode(node)) for node in nodes]
    db.executemany("DELETE FROM node WHERE key = ?", gone)
    db.executemany("DELETE FROM edge WHERE child = ?", gone + [(key,) for key, _ in records])
    db.executemany("INSERT OR REPLACE INTO node (key, record) VALUES (?, ?)", records)
    db.executemany("INSERT OR IGNORE INTO edge (parent, child) VALUES (?, ?)", _edges(nodes))


def _write_servers(db: sqlite3.Connection, update: Update) -> None:
    db.executemany("DELETE FROM server WHERE name = ?", [(name,) for name in update.removed_servers])
    db.executemany(
        "INSERT OR REPLACE INTO server (name, record) VALUES (?, ?)",
        [(server.name, encode(server)) for server in update.servers],
    )


def _write_generation(db: sqlite3.Connection, number: int, update: Update) -> None:
    tools, nodes, servers = db.execute(
        "SELECT (SELECT count(*) FROM tool), (SELECT count(*) FROM node), (SELECT count(*) FROM server)"
    ).fetchone()
    record = _generation_record(number, update, tools, nodes, servers)
    db.execute("INSERT INTO generation (number, record) VALUES (?, ?)", (number, encode(record)))
    db.executemany(
        "INSERT INTO change (generation, seq, record) VALUES (?, ?, ?)",
        ((number, seq, encode(change)) for seq, change in enumerate(update.changes)),
    )
    db.execute("DELETE FROM generation WHERE number <= ?", (number - MAX_GENERATIONS,))
    db.execute("DELETE FROM change WHERE generation <= ?", (number - MAX_GENERATIONS,))


def _swap(db: sqlite3.Connection, place: tuple[str, str], old: bytes | None, new: bytes) -> bool:
    row = db.execute("SELECT value FROM state WHERE namespace = ? AND key = ?", place).fetchone()
    if (None if row is None else bytes(row[0])) != old:
        return False
    db.execute("INSERT OR REPLACE INTO state (namespace, key, value) VALUES (?, ?, ?)", (*place, new))
    return True


def _now() -> float:
    # One clock for all processes of the machine, which nobody sets.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


# Runs, and is none of an earlier start of the machine, whose end would lie further off than it ever lasts.
_RUNS = "until > :now AND until <= :now + for_s"


def _increment(db: sqlite3.Connection, place: tuple[str, str], amount: float, for_s: float) -> float:
    values = {"namespace": place[0], "key": place[1], "amount": amount, "now": _now(), "for_s": for_s}
    db.execute(f"DELETE FROM counter WHERE NOT ({_RUNS})", values)  # noqa: S608 - our own words
    row = db.execute(
        "INSERT INTO counter (namespace, key, value, until, for_s) VALUES (:namespace, :key, :amount, :now + :for_s,"
        " :for_s) ON CONFLICT DO UPDATE SET value = value + excluded.value RETURNING value",
        values,
    ).fetchone()
    return float(row[0])


def _take_lease(db: sqlite3.Connection, name: str, holder: str, for_s: float) -> bool:
    values = {"name": name, "holder": holder, "now": _now(), "for_s": for_s}
    other = f"SELECT 1 FROM lease WHERE name = :name AND holder <> :holder AND {_RUNS}"  # noqa: S608 - our own words
    if db.execute(other, values).fetchone() is not None:
        return False
    db.execute(
        "INSERT OR REPLACE INTO lease (name, holder, until, for_s) VALUES (:name, :holder, :now + :for_s, :for_s)",
        values,
    )
    return True


_PUT_PART = """
    INSERT OR REPLACE INTO part (shelf, name, part, until, value) SELECT :shelf, :name, :part, :until, :value
    WHERE :part = 0 OR EXISTS (SELECT 1 FROM part WHERE shelf = :shelf AND name = :name AND part = 0)
"""


def _shelf_place(shelf: str, name: str | None) -> tuple[str, tuple[str, ...]]:
    return ("shelf = ?", (shelf,)) if name is None else ("shelf = ? AND name = ?", (shelf, name))


def _append_audit(db: sqlite3.Connection, rows: Sequence[AuditRow], *, keep: int, oldest: float) -> None:
    for first in range(0, len(rows), _AUDIT_BATCH):
        batch = rows[first : first + _AUDIT_BATCH]
        values = [value for row in batch for value in (row.at, row.caller, row.session, row.selection, row.record)]
        places = ",".join(("(?, ?, ?, ?, ?)",) * len(batch))
        db.execute(f"INSERT INTO trail (at, caller, session, selection, record) VALUES {places}", values)  # noqa: S608 - question marks only
    db.execute("DELETE FROM trail WHERE number <= (SELECT max(number) FROM trail) - ?", (keep,))
    # Up to the first row that is young enough: rows are appended in time order, so an index by time is not needed.
    young = "SELECT number FROM trail WHERE at >= ? ORDER BY number LIMIT 1"
    db.execute(f"DELETE FROM trail WHERE number < coalesce(({young}), 9e18)", (oldest,))  # noqa: S608 - our own words


def _read_audit(
    db: sqlite3.Connection, columns: Mapping[str, str | None], after: int, last: int | None, first: int | None
) -> list[AuditRow]:
    wanted = {column: value for column, value in columns.items() if value is not None}
    order, most = ("DESC", last) if first is None or last is not None else ("ASC", first)
    query = f"""
        SELECT number, at, caller, session, selection, record FROM trail
        WHERE {"".join(f"{column} = ? AND " for column in wanted)} number > ? ORDER BY number {order} LIMIT ?
    """  # noqa: S608 - joined from our own words only
    rows = db.execute(query, (*wanted.values(), after, -1 if most is None else most)).fetchall()
    return [
        AuditRow(number=row[0], at=row[1], caller=row[2], session=row[3], selection=row[4], record=bytes(row[5]))
        for row in sorted(rows)
    ]
