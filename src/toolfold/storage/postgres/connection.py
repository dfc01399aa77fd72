"""Connections to PostgreSQL, each bounded in time, and its errors as `StoreError`. The only place that knows its codes.

No session state is kept, so that a pooler which hands out another session for each transaction may stand between: no
prepared statement, no `SET`, no session lock. The few connections of a gateway are kept here and not by `psycopg_pool`,
which answers whatever is wrong with a time-out and waits up to minutes before it tries again.
"""

import asyncio
import contextlib
import os
import select
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
from msgspec import MsgspecError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from toolfold.errors import StoreBusy, StoreDamaged, StoreError, StoreFull

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Rows = list[tuple[Any, ...]]

# Whoever asks so soon after PostgreSQL could not be reached is told the same, and waits for nothing.
_DOWN_S = 0.5

_TRY_AGAIN = "try again; toolfold goes on by itself once it answers"
_GRANT = "grant it, as docs/postgres.md says (`toolfold help postgres`)"

# What a refused connection says, in English; the code is not passed on. In another language it is told as it stands.
_REFUSALS = (
    ("authentication failed", "does not accept the user or the password", "correct them in storage.url"),
    ("no password supplied", "wants a password, and storage.url has none", "add it to storage.url as a ${…} reference"),
    ("no pg_hba.conf entry", "lets nobody in from here", "add a line for this user and machine to its pg_hba.conf"),
    ("role", "does not know the user", "create it with CREATE ROLE … LOGIN, or correct storage.url"),
    ("database", "has no such database", "create it with CREATE DATABASE … OWNER …, or correct storage.url"),
    ("too many", "has no connection left", "lower storage.connections, or raise max_connections there"),
    ("slots are reserved", "has no connection left", "lower storage.connections, or raise max_connections there"),
    ("permission denied for database", "does not let this user into the database", _GRANT),
)  # fmt: skip


# Of PostgreSQL's codes: what they are to a person, and what to do. Others are told as they stand.
_ERRORS: tuple[tuple[str, type[StoreError], str, str], ...] = (
    ("53100 53200", StoreFull, "has no room left", "free some space there: what was complete before is as it was"),
    ("53300 57014 55P03 40001 40P01", StoreBusy, "is too busy", _TRY_AGAIN),
    ("42501", StoreError, "does not allow this", _GRANT),
    ("25006", StoreError, "is a standby, which may only be read",
     "name the primary in storage.url, or several hosts with ?target_session_attrs=read-write"),
    ("42P01 42703 3F000", StoreDamaged, "lacks what was there", "put a backup back, or restart toolfold"),
)  # fmt: skip


class _Address:
    """An address of PostgreSQL, and the form of it that may be shown."""

    def __init__(self, url: str, timeout_s: float) -> None:
        try:
            parts = conninfo_to_dict(url)
        except psycopg.Error:
            parts = {"host": "@"}  # what is wrong with it may quote the password
        if "@" in str(parts.get("host", "")):
            raise StoreError(
                "storage.url cannot be read as an address of PostgreSQL",
                next_action="write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %40 for @, %2F for /, %3A for :",
            )
        user, host, name = (str(parts.get(part, "")) for part in ("user", "host", "dbname"))
        port = f":{parts['port']}" if parts.get("port") else ""
        self.shown = f"postgresql://{user}{'@' * bool(user)}{host}{port}/{name}"
        self.timeout_s = timeout_s
        alive = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3, "application_name": "toolfold"}
        self._conninfo = make_conninfo(url, **{**alive, "connect_timeout": max(2, round(timeout_s)), **_given(parts)})

    async def connect(self) -> Connection:
        with _translate_errors(self):
            try:
                async with asyncio.timeout(self.timeout_s):
                    # Autocommit: transactions are begun and ended in words, each in one message.
                    return await psycopg.AsyncConnection.connect(
                        self._conninfo, autocommit=True, prepare_threshold=None
                    )
            except TimeoutError:
                raise psycopg.errors.ConnectionTimeout(f"no answer within {self.timeout_s:g} s") from None


def _given(parts: dict[str, Any]) -> dict[str, Any]:
    """What the address itself says wins."""
    return {name: value for name, value in parts.items() if name.startswith(("keepalives", "application"))}


class _Session:
    """One connection while somebody uses it. PostgreSQL that does not answer in time is cut off."""

    def __init__(self, connection: Connection, address: _Address) -> None:
        self.connection = connection
        self.address = address

    async def run(self, query: str, values: Sequence[Any] = (), *, binary: bool = True) -> Rows:
        """Runs a statement, and gives its rows. Raises `StoreError`."""
        timer = asyncio.get_running_loop().call_later(self.address.timeout_s, _cut_off, self.connection)
        late = False
        with _translate_errors(self.address):
            try:
                cursor = await self.connection.execute(query.encode(), values or None, binary=binary)
                # Of several statements the last one's rows are wanted.
                while cursor.nextset():
                    pass
                return await cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:
                late = timer.when() <= asyncio.get_running_loop().time()
                if not late:
                    raise
            finally:
                timer.cancel()
        raise StoreBusy(
            f"{self.address.shown} did not answer within {self.address.timeout_s:g} s", next_action=_TRY_AGAIN
        )

    @property
    def is_idle(self) -> bool:
        """Whether it can be used again: it is open, outside any transaction, and nothing came that nobody asked for,
        such as the word that PostgreSQL shuts down."""
        pgconn = self.connection.pgconn
        if self.connection.closed or pgconn.transaction_status != TransactionStatus.IDLE:
            return False
        poll = select.poll()
        poll.register(pgconn.socket, select.POLLIN)
        return not poll.poll(0)


def _cut_off(connection: Connection) -> None:
    """Ends a connection whose other side is silent: whoever waits for it is told at once."""
    with (
        contextlib.suppress(OSError, psycopg.OperationalError),
        socket.socket(fileno=os.dup(connection.pgconn.socket)) as other,
    ):
        other.shutdown(socket.SHUT_RDWR)


class _Hold:
    """That somebody has a connection. Tasks that they start meanwhile share in it."""

    active = True


_hold: ContextVar[_Hold | None] = ContextVar("_hold", default=None)


class _Sessions:
    """The connections of one gateway: opened when they are needed, kept while they are good.

    Whoever has one and needs another, such as for a read beside a snapshot, gets it beyond the limit: where all waited
    for each other's, none would come back.
    """

    def __init__(self, url: str, *, connections: int, timeout_s: float) -> None:
        self.address = _Address(url, timeout_s)
        self._connections = connections
        self._free = asyncio.Semaphore(connections)
        self._idle: list[_Session] = []
        self._used: set[_Session] = set()
        self._down: tuple[float, StoreError] | None = None
        self.is_open = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[_Session]:
        """A connection for the block. Where the block raises or leaves a transaction open it is not used again."""
        if not self.is_open:
            raise StoreError(f"the store {self.address.shown} is not open", next_action="use it inside `async with`")
        outer, hold = _hold.get(), _Hold()
        nested = outer is not None and outer.active
        if not nested:
            await self._wait_for_turn()
        try:
            session = await self._take()
            self._used.add(session)
            _hold.set(hold)
            try:
                yield session
            finally:
                hold.active = False
                _hold.set(outer)
                self._used.discard(session)
                await self._give_back(session)
        finally:
            if not nested:
                self._free.release()

    async def _give_back(self, session: _Session) -> None:
        if self.is_open and session.is_idle and len(self._idle) < self._connections:
            self._idle.append(session)
        else:
            await session.connection.close()

    async def _wait_for_turn(self) -> None:
        try:
            async with asyncio.timeout(self.address.timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise StoreBusy(
                f"all connections to {self.address.shown} were in use for {self.address.timeout_s:g} s",
                next_action="try again; if it lasts, raise storage.connections",
            ) from None

    async def _take(self) -> _Session:
        while self._idle:
            session = self._idle.pop()
            if session.is_idle:
                return session
            await session.connection.close()
        if self._down is not None and time.monotonic() < self._down[0]:
            raise self._down[1]
        try:
            session = _Session(await self.address.connect(), self.address)
        except StoreError as error:
            self._down = (time.monotonic() + _DOWN_S, error)
            raise
        self._down = None
        return session

    async def aclose(self) -> None:
        self.is_open = False
        for session in (*self._used, *self._idle):
            _cut_off(session.connection)
            await session.connection.close()
        self._idle.clear()


@contextmanager
def _translate_errors(address: _Address) -> Iterator[None]:
    """Raises a `StoreError` in place of whatever PostgreSQL, or reading a row, raises inside."""
    try:
        yield
    except psycopg.Error as error:
        raise _store_error(error, address.shown) from error
    except MsgspecError as error:
        raise StoreDamaged(
            f"a row of the store {address.shown} cannot be read: {error}",
            next_action="put a backup back, or empty the database and run `toolfold build`",
        ) from error


def _store_error(error: psycopg.Error, shown: str) -> StoreError:
    code, told = error.sqlstate or "", str(error).strip().partition("\n")[0]
    for codes, kind, what, fix in _ERRORS:
        if code and code in codes.split():
            return kind(f"{shown} {what}: {told}", next_action=fix)
    if (isinstance(error, psycopg.OperationalError) and not code) or code[:2] in ("08", "57", "28", "3D"):
        return _unreachable(told, shown)
    return StoreError(f"{shown} failed: {told}", next_action="run `toolfold doctor`")


def _unreachable(told: str, shown: str) -> StoreError:
    for words, what, fix in _REFUSALS:
        if words in told and (words not in ("role", "database") or "does not exist" in told):
            return StoreError(f"PostgreSQL {what}: {shown}", next_action=fix)
    return StoreError(
        f"PostgreSQL cannot be reached at {shown}: {told}",
        next_action="start it, or correct storage.url; toolfold goes on by itself once it answers",
    )
