"""The PostgreSQL store: one catalogue for any number of gateways, on this machine and on others.

Guaranteed: a snapshot is one read-only transaction at REPEATABLE READ. A commit is one transaction that holds the lock
of the catalogue: two writers queue, the second gets `StoreChanged`. Nobody waits longer than `timeout_s` for a
connection or a statement; a server that was away is found again by the next who asks. Counters and leases go by the
database's clock. Not guaranteed: whether what was sent when the connection broke was written.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from time import monotonic
from typing import Any, Self

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
)
from toolfold.storage.postgres.connection import Rows, _Session, _Sessions
from toolfold.storage.postgres.listener import CHANNEL, _Listener
from toolfold.storage.postgres.schema import _prepare
from toolfold.storage.postgres.snapshot import _as_key, _folded, _path_key, _PostgresSnapshot
from toolfold.storage.records import encode, encode_definition, encode_tool
from toolfold.types import Node, Path, Tool

# What one statement carries at most, in rows and about in bytes.
_BATCH_ROWS = 5000
_BATCH_BYTES = 8 * 1024 * 1024

# How often counters that are over are deleted by who counts.
_SWEEP_S = 60.0

_NOW = "extract(epoch FROM clock_timestamp())::double precision"
_READ = """
    BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {};
    SELECT coalesce(max(number), 0) FROM generation
"""


def _runs(table: str) -> str:
    """Whether a counter or lease runs. One whose end lies further off than it ever lasts is from before the clock was
    set back."""
    return f"({table}.until > {_NOW} AND {table}.until <= {_NOW} + {table}.for_s)"


_INCREMENT = f"""
    INSERT INTO counter VALUES (%s, %s, %s, {_NOW} + %s, %s) ON CONFLICT (namespace, key) DO UPDATE SET
        value = excluded.value + CASE WHEN {_runs("counter")} THEN counter.value ELSE 0 END,
        until = CASE WHEN {_runs("counter")} THEN counter.until ELSE excluded.until END,
        for_s = CASE WHEN {_runs("counter")} THEN counter.for_s ELSE excluded.for_s END
    RETURNING value
"""  # noqa: S608 - our own words
_TAKE_LEASE = f"""
    INSERT INTO lease VALUES (%s, %s, {_NOW} + %s, %s)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until, for_s = excluded.for_s
        WHERE lease.holder = excluded.holder OR NOT {_runs("lease")}
    RETURNING 1
"""  # noqa: S608 - our own words
# Nobody is told: whoever wants a part asks for it.
_PUT_PART = f"""
    INSERT INTO part SELECT %s, %s, %s, {_NOW} + %s, %s
    WHERE %s = 0 OR EXISTS (SELECT 1 FROM part WHERE shelf = %s AND name = %s AND part = 0)
    ON CONFLICT (shelf, name, part) DO UPDATE SET until = excluded.until, value = excluded.value
    RETURNING 1
"""  # noqa: S608 - our own words
# Tells the other gateways of what a statement wrote, if it wrote anything, together with it.
_TELL = "WITH done AS ({} RETURNING 1) SELECT pg_notify(%s, %s) FROM done"
_PUT = "INSERT INTO state VALUES (%s, %s, %s, %s) ON CONFLICT (namespace, id) DO "
_AT = "WHERE namespace = %s AND id = %s"


class PostgresStore:
    """One catalogue in one database. Opens on entering; `create=False` raises `NotBuilt` where it has no tables."""

    def __init__(
        self, url: str, *, listen_url: str = "", connections: int = 10, timeout_s: float = 10.0, create: bool = True
    ) -> None:
        self._sessions = _Sessions(url, connections=connections, timeout_s=timeout_s)
        self._listener = _Listener(self._sessions, listen_url)
        self._create = create
        self._timeout_ms = max(1, int(timeout_s * 1000))
        self._swept = monotonic()

    async def __aenter__(self) -> Self:
        self._sessions.is_open = True
        try:
            async with self._sessions.session() as session:
                await _prepare(session, self._sessions.address.shown, create=self._create)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._listener.aclose()
        await self._sessions.aclose()

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[_PostgresSnapshot]:
        async with self._sessions.session() as session:
            rows = await session.run(_READ.format(self._timeout_ms), binary=False)
            snapshot = _PostgresSnapshot(session, int(rows[0][0]))
            try:
                yield snapshot
            finally:
                snapshot.end()
            with suppress(StoreError):  # nothing was written: a connection that broke is closed instead
                await session.run("ROLLBACK", binary=False)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[_Session]:
        """A write transaction around the block. Where it raises, the connection is closed, which undoes it."""
        async with self._sessions.session() as session:
            begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = "
            await session.run(f"{begin}{self._timeout_ms}", binary=False)
            yield session
            await session.run("COMMIT", binary=False)

    async def _run(self, query: str, *values: Any) -> Rows:
        async with self._sessions.session() as session:
            return await session.run(query, values)

    async def _told(self, query: str, *values: Any) -> bool:
        return bool(await self._run(_TELL.format(query), *values, CHANNEL, self._listener.own))

    async def commit(self, update: Update) -> int:
        async with self._transaction() as session:
            # The lock of the catalogue: whoever waited for it sees what the one before wrote.
            await session.run("SELECT version FROM toolfold_form FOR UPDATE")
            current = int((await session.run("SELECT coalesce(max(number), 0) FROM generation"))[0][0])
            if current != update.based_on:
                raise _moved_on(current, update)
            await _write_tools(session, update)
            await _write_nodes(session, update.nodes, update.removed_nodes)
            await _write_servers(session, update)
            if update.makes_generation:
                current += 1
                await _write_generation(session, current, update)
            await session.run("SELECT pg_notify(%s, %s)", [CHANNEL, self._listener.own])
        return current

    async def get(self, namespace: str, key: str) -> bytes | None:
        rows = await self._run(f"SELECT value FROM state {_AT}", _as_key(namespace), _as_key(key))  # noqa: S608
        return bytes(rows[0][0]) if rows else None

    async def items(self, namespace: str) -> dict[str, bytes]:
        rows = await self._run("SELECT key, value FROM state WHERE namespace = %s ORDER BY key", _as_key(namespace))
        return {row[0].decode(): row[1] for row in rows}

    async def put(self, namespace: str, key: str, value: bytes) -> None:
        values = (_as_key(namespace), _as_key(key), key.encode(), value)
        await self._told(_PUT + "UPDATE SET value = excluded.value", *values)

    async def delete(self, namespace: str, key: str) -> None:
        await self._told(f"DELETE FROM state {_AT}", _as_key(namespace), _as_key(key))  # noqa: S608 - our own words

    async def swap(self, namespace: str, key: str, old: bytes | None, new: bytes) -> bool:
        if old is None:
            return await self._told(_PUT + "NOTHING", _as_key(namespace), _as_key(key), key.encode(), new)
        query = f"UPDATE state SET value = %s {_AT} AND value = %s"  # noqa: S608 - our own words
        return await self._told(query, new, _as_key(namespace), _as_key(key), old)

    async def increment(self, namespace: str, key: str, amount: float, *, for_s: float) -> float:
        if monotonic() - self._swept > _SWEEP_S:
            self._swept = monotonic()
            await self._run(f"DELETE FROM counter WHERE NOT {_runs('counter')}")  # noqa: S608 - our own words
        values = (_as_key(namespace), _as_key(key), float(amount), float(for_s), float(for_s))
        rows = await self._run(_INCREMENT, *values)
        return float(rows[0][0])

    async def take_lease(self, name: str, holder: str, *, for_s: float) -> bool:
        return bool(await self._run(_TAKE_LEASE, _as_key(name), _as_key(holder), float(for_s), float(for_s)))

    async def release_lease(self, name: str, holder: str) -> None:
        await self._run("DELETE FROM lease WHERE name = %s AND holder = %s", _as_key(name), _as_key(holder))

    async def wait_changed(self) -> None:
        if not self._sessions.is_open:
            raise StoreError("the store is not open", next_action="use it inside `async with`")
        await self._listener.wait()

    async def put_part(self, shelf: str, name: str, part: int, value: bytes, *, for_s: float) -> bool:
        place = (_as_key(shelf), _as_key(name))
        return bool(await self._run(_PUT_PART, *place, part, float(for_s), value, part, *place))

    async def parts(self, shelf: str, part: int, name: str | None = None) -> dict[str, bytes]:
        named, place = _shelf_place(shelf, name)
        query = f"SELECT name, value FROM part WHERE {named} AND part = %s AND until > {_NOW} ORDER BY name"  # noqa: S608 - our own words
        return {row[0].decode(): row[1] for row in await self._run(query, *place, part)}

    async def delete_parts(self, shelf: str, name: str | None = None) -> None:
        named, place = _shelf_place(shelf, name)
        await self._run(f"DELETE FROM part WHERE {named}", *place)  # noqa: S608 - our own words

    async def expired_parts(self, limit: int) -> list[tuple[str, str]]:
        query = f"SELECT DISTINCT shelf, name FROM part WHERE until <= {_NOW} LIMIT %s"  # noqa: S608 - our own words
        return [(row[0].decode(), row[1].decode()) for row in await self._run(query, limit)]

    async def append_audit(self, rows: Sequence[AuditRow], *, keep: int, oldest: float = 0.0) -> None:
        async with self._transaction() as session:
            end = (await session.run("UPDATE trail_end SET number = number + %s RETURNING number", [len(rows)]))[0][0]
            await _write_many(
                session,
                "INSERT INTO trail",
                "bigint double bytea bytea bytea bytea",
                (
                    (number, row.at, row.caller.encode(), row.session.encode(), row.selection.encode(), row.record)
                    for number, row in enumerate(rows, end - len(rows) + 1)
                ),
            )
            await session.run("DELETE FROM trail WHERE number <= %s", [end - keep])
            # Up to the first row that is young enough: rows are appended in time order, so no index by time is needed.
            await session.run(
                "DELETE FROM trail WHERE number < coalesce((SELECT number FROM trail WHERE at >= %s ORDER BY number"
                " LIMIT 1), %s)",
                [float(oldest), end + 1],
            )

    async def audit_rows(
        self,
        *,
        caller: str | None = None,
        session: str | None = None,
        after: int = 0,
        last: int | None = None,
        first: int | None = None,
    ) -> list[AuditRow]:
        order, most = ("DESC", last) if first is None or last is not None else ("ASC", first)
        wanted = {"caller = %s": caller, "session = %s": session, "sha256(session) = sha256(%s)": session}
        values = {condition: value.encode() for condition, value in wanted.items() if value is not None}
        query = f"""
            SELECT number, at, caller, session, selection, record FROM trail
            WHERE {"".join(f"{condition} AND " for condition in values)} number > %s ORDER BY number {order} LIMIT %s
        """  # noqa: S608 - joined from our own words only
        rows = await self._run(query, *values.values(), after, most)
        return [
            AuditRow(
                number=row[0],
                at=row[1],
                caller=row[2].decode(),
                session=row[3].decode(),
                selection=row[4].decode(),
                record=row[5],
            )
            for row in (rows if order == "ASC" else reversed(rows))
        ]


def _shelf_place(shelf: str, name: str | None) -> tuple[str, tuple[bytes, ...]]:
    own = (_as_key(shelf),)
    return ("shelf = %s", own) if name is None else ("shelf = %s AND name = %s", (*own, _as_key(name)))


async def _write_many(
    session: _Session, query: str, types: str, rows: Iterable[tuple[Any, ...]], end: str = ""
) -> None:
    """Runs a statement on all rows, thousands at a time: each column goes as one array.

    The rows stand in it as `SELECT * FROM unnest(…) AS given`, its columns named a, b, c, ….
    """
    casts = ", ".join(f"%s::{'double precision' if name == 'double' else name}[]" for name in types.split())
    names = ", ".join("abcdefg"[: len(types.split())])
    statement = f"{query} SELECT * FROM unnest({casts}) AS given({names}) {end}"  # noqa: S608 - our own words
    waiting = iter(rows)
    while batch := list(_bounded(waiting)):
        await session.run(statement, [list(column) for column in zip(*batch, strict=True)])


def _bounded(rows: Iterable[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
    size = 0
    for row in islice(rows, _BATCH_ROWS):
        yield row
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if size > _BATCH_BYTES:
            return


async def _write_tools(session: _Session, update: Update) -> None:
    gone = [_folded(tool_id) for tool_id in update.removed_tools]
    keyed = {_folded(tool.tool_id): tool for tool in update.tools}
    touched, at = [*gone, *keyed], float(update.at)
    # A version that stops being the current one was last seen now.
    await session.run(
        "UPDATE version v SET last_seen = %s FROM tool t WHERE t.folded = ANY(%s) AND v.tool = t.folded"
        " AND v.number = t.version",
        [at, touched],
    )
    await session.run("DELETE FROM tool WHERE folded = ANY(%s)", [gone])
    await session.run("DELETE FROM placement WHERE tool = ANY(%s)", [touched])
    await session.run("DELETE FROM tag WHERE tool = ANY(%s)", [touched])
    await _write_many(
        session,
        "INSERT INTO tool",
        "bytea bytea bytea integer bytea",
        (
            (k, tool.tool_id.encode(), _as_key(tool.server), tool.version, encode_tool(tool))
            for k, tool in keyed.items()
        ),
        "ON CONFLICT (folded) DO UPDATE SET tool_id = excluded.tool_id, server = excluded.server,"
        " version = excluded.version, record = excluded.record",
    )
    await _write_many(
        session,
        "INSERT INTO version",
        "bytea integer bytea bytea double double bytea",
        (
            (k, t.version, t.fingerprint.encode(), t.tool_id.encode(), at, at, encode_definition(t.definition))
            for k, t in keyed.items()
        ),
        "ON CONFLICT (tool, number, sha256(fingerprint))"
        " DO UPDATE SET last_seen = excluded.last_seen, definition = excluded.definition",
    )
    await _write_places(session, keyed)
    await _delete_old_versions(session, update)


async def _write_places(session: _Session, tools: Mapping[bytes, Tool]) -> None:
    """Where each tool stands in the tree, and its tags."""
    placements = sorted({(_path_key(path), k) for k, tool in tools.items() for path in tool.paths})
    tags = sorted({(_folded(tag), k) for k, tool in tools.items() for tag in tool.tags})
    await _write_many(session, "INSERT INTO placement", "bytea bytea", placements)
    await _write_many(session, "INSERT INTO tag", "bytea bytea", tags)


async def _delete_old_versions(session: _Session, update: Update) -> None:
    many = [(_folded(t.tool_id), t.version) for t in update.tools if t.version > MAX_VERSIONS]
    await _write_many(
        session,
        "WITH given(tool, number) AS (",
        "bytea integer",
        many,
        f") DELETE FROM version v USING given WHERE v.tool = given.tool AND v.number <= given.number - {MAX_VERSIONS}",  # noqa: S608
    )
    if update.removed_tools:
        await session.run(
            "DELETE FROM version WHERE last_seen < %s AND tool NOT IN (SELECT folded FROM tool)",
            [update.at - REMOVED_RETENTION_S],
        )


async def _write_nodes(session: _Session, nodes: Iterable[Node], removed: Iterable[Path]) -> None:
    gone = [_path_key(path) for path in removed]
    records = {_path_key(node.path): encode(node) for node in nodes}
    await session.run("DELETE FROM node WHERE key = ANY(%s)", [gone])
    await session.run("DELETE FROM edge WHERE child = ANY(%s)", [[*gone, *records]])
    on_conflict = "ON CONFLICT (key) DO UPDATE SET record = excluded.record"
    await _write_many(session, "INSERT INTO node", "bytea bytea", records.items(), on_conflict)
    pairs = {(_as_key(parent), _as_key(child)) for parent, child in _edges(nodes)}
    await _write_many(session, "INSERT INTO edge", "bytea bytea", sorted(pairs))


async def _write_servers(session: _Session, update: Update) -> None:
    await session.run("DELETE FROM server WHERE name = ANY(%s)", [[_as_key(name) for name in update.removed_servers]])
    records = {_as_key(server.name): encode(server) for server in update.servers}
    on_conflict = "ON CONFLICT (name) DO UPDATE SET record = excluded.record"
    await _write_many(session, "INSERT INTO server", "bytea bytea", records.items(), on_conflict)


async def _write_generation(session: _Session, number: int, update: Update) -> None:
    counts = await session.run(
        "SELECT (SELECT count(*) FROM tool), (SELECT count(*) FROM node), (SELECT count(*) FROM server)"
    )
    record = _generation_record(number, update, *counts[0])
    await session.run("INSERT INTO generation VALUES (%s, %s)", [number, encode(record)])
    changes = ((number, seq, encode(change)) for seq, change in enumerate(update.changes))
    await _write_many(session, "INSERT INTO change", "bigint integer bytea", changes)
    await session.run("DELETE FROM generation WHERE number <= %s", [number - MAX_GENERATIONS])
    await session.run("DELETE FROM change WHERE generation <= %s", [number - MAX_GENERATIONS])
