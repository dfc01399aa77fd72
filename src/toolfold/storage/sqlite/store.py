"""The SQLite store. The event loop never waits for the disk: reads run in one thread, writes in another.

What holds: a snapshot is a read transaction on a connection of its own in write-ahead mode, so readers and the one
writer do not wait for each other, in this process or between processes. A commit is one transaction: after a crash or
a kill the last complete generation is there. Two writers queue; the second learns with `StoreChanged` that its update
is out of date. What does not hold: a file on a network drive, where SQLite's locks are not to be trusted.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from typing import Concatenate, ParamSpec, Self, TypeVar

from toolfold.errors import StoreError
from toolfold.storage.base import AuditRow, Generation, ServerRecord, Update, Version
from toolfold.storage.sqlite import reading, trail, writing
from toolfold.storage.sqlite.connection import connect, translate_errors
from toolfold.types import Change, Node, Path, Tool

P = ParamSpec("P")
T = TypeVar("T")

_MAX_IDLE_READERS = 4
"""Read connections kept open between snapshots."""


class SqliteStore:
    """One catalogue in one file. Opens on entering; `create=False` raises `NotBuilt` where there is no file."""

    def __init__(self, path: FilePath | str, *, busy_s: float = 10.0, create: bool = True) -> None:
        self.path = FilePath(path)
        self._busy_s = busy_s
        self._create = create
        self._reads: ThreadPoolExecutor | None = None
        self._writes: ThreadPoolExecutor | None = None
        self._idle: list[sqlite3.Connection] = []
        self._views: set[SqliteView] = set()
        self._writer: sqlite3.Connection | None = None

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
        """One after the other: SQLite tidies its log away when the last connection closes, not when two do at once."""
        await self._in(reads, self._close_readers)
        await self._in(writes, self._close_writer)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator["SqliteView"]:
        reads = self._open(self._reads)
        view = SqliteView(self, reads)
        self._views.add(view)
        try:
            await self._in(reads, view.begin)
            yield view
        finally:
            self._views.discard(view)
            if self._reads is not None:
                # In the same thread, so after any read that was cancelled on this side and still runs on that one.
                reads.submit(view.end)

    async def commit(self, update: Update) -> int:
        return await self._write(lambda db: writing.apply(db, update))

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

    async def append(self, rows: Sequence[AuditRow], *, keep: int, oldest: float = 0.0) -> None:
        await self._write(lambda db: trail.append(db, rows, keep=keep, oldest=oldest))

    async def trail(
        self,
        *,
        caller: str | None = None,
        session: str | None = None,
        after: int = 0,
        last: int | None = None,
    ) -> list[AuditRow]:
        return await self._read(lambda db: trail.read(db, caller=caller, session=session, after=after, last=last))

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            db = self.take_reader()
            try:
                return work(db)
            finally:
                self.give_reader(db)

        return await self._in(self._open(self._reads), run)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            if self._writer is None:
                self._writer = self._connect()
            db = self._writer
            db.execute("BEGIN IMMEDIATE")
            try:
                result = work(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return result

        return await self._in(self._open(self._writes), run)

    async def _in(self, executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        def told() -> T:
            with translate_errors(self.path):
                return work()

        return await asyncio.get_running_loop().run_in_executor(executor, told)

    @property
    def is_open(self) -> bool:
        return self._reads is not None

    def _open(self, executor: ThreadPoolExecutor | None) -> ThreadPoolExecutor:
        if executor is None:
            raise StoreError(f"the store {self.path} is not open", next_action="use it inside `async with`")
        return executor

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path, busy_s=self._busy_s, create=self._create)

    def take_reader(self) -> sqlite3.Connection:
        """A read connection that nobody uses. Only in the reading thread."""
        return self._idle.pop() if self._idle else self._connect()

    def give_reader(self, db: sqlite3.Connection) -> None:
        """Takes a read connection back. Only in the reading thread."""
        if db.in_transaction:
            db.execute("ROLLBACK")
        if len(self._idle) < _MAX_IDLE_READERS and self._reads is not None:
            self._idle.append(db)
        else:
            db.close()

    def _close_readers(self) -> None:
        for view in tuple(self._views):
            view.end()
        while self._idle:
            self._idle.pop().close()

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class SqliteView:
    """One read transaction, used only through the store's reading thread."""

    def __init__(self, store: SqliteStore, reads: ThreadPoolExecutor) -> None:
        self._store = store
        self._reads = reads
        self._db: sqlite3.Connection | None = None
        self.generation = 0

    def begin(self) -> None:
        self._db = self._store.take_reader()
        self._db.execute("BEGIN")
        self.generation = reading.generation(self._db)  # the first read fixes what the transaction sees

    def end(self) -> None:
        if self._db is not None:
            self._store.give_reader(self._db)
            self._db = None

    async def _run(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def run() -> T:
            if self._db is None:
                raise _snapshot_over()
            with translate_errors(self._store.path):
                return work(self._db, *args, **kwargs)

        if not self._store.is_open:
            raise _snapshot_over()
        return await asyncio.get_running_loop().run_in_executor(self._reads, run)

    async def tool(self, tool_id: str) -> Tool | None:
        return await self._run(reading.tool, tool_id)

    async def tools(
        self,
        *,
        ids: Collection[str] | None = None,
        server: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> list[Tool]:
        return await self._run(reading.tools, ids=ids, server=server, after=after, limit=limit)

    async def tool_ids(self) -> list[str]:
        return await self._run(reading.tool_ids)

    async def tool_ids_at(
        self,
        path: Path,
        *,
        below: bool = False,
        tags: Collection[str] = (),
        after: str = "",
        limit: int | None = None,
    ) -> list[str]:
        return await self._run(reading.tool_ids_at, path, below=below, tags=tags, after=after, limit=limit)

    async def node(self, path: Path) -> Node | None:
        return await self._run(reading.node, path)

    async def nodes(self, *, under: Path = (), depth: int | None = None) -> list[Node]:
        return await self._run(reading.nodes, under=under, depth=depth)

    async def children(self, path: Path, *, tags: Collection[str] = ()) -> list[Node]:
        return await self._run(reading.children, path, tags=tags)

    async def servers(self) -> list[ServerRecord]:
        return await self._run(reading.servers)

    async def versions(self, tool_id: str) -> list[Version]:
        return await self._run(reading.versions, tool_id)

    async def version_numbers(self) -> dict[str, dict[str, int]]:
        return await self._run(reading.version_numbers)

    async def generations(self) -> list[Generation]:
        return await self._run(reading.generations)

    async def changes(self, first: int, last: int) -> list[tuple[int, Change]]:
        return await self._run(reading.changes, first, last)


def _snapshot_over() -> StoreError:
    return StoreError("this snapshot is over", next_action="take a new one with `store.snapshot()`")
