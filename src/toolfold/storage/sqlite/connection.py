"""Opening the file: its settings, its shape by version, and the refusal of what is not ours.

A connection is used by one thread only, the one that asked for it.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import MsgspecError

from toolfold.errors import NotBuilt, StoreBusy, StoreDamaged, StoreError, StoreFull

# --- What SQLite says went wrong, told as ours. The only place that knows SQLite's error codes.

_REBUILD = "move the file away and run `toolfold build`: the catalogue is made again from the servers"


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raises a `StoreError` in place of whatever SQLite, or reading a row, raises inside."""
    try:
        yield
    except sqlite3.Error as error:
        raise _store_error(error, path) from error
    except MsgspecError as error:
        raise StoreDamaged(f"a row of the store {path} cannot be read: {error}", next_action=_REBUILD) from error


def _store_error(error: sqlite3.Error, path: Path) -> StoreError:
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"another process kept the store {path} locked for too long",
            next_action="try again; if it lasts, look for a toolfold process that hangs and end it",
        )
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(f"the store {path} is not a readable SQLite file: {error}", next_action=_REBUILD)
    if primary == sqlite3.SQLITE_FULL:
        return StoreFull(
            f"there is no room to write the store {path}",
            next_action="free some space on that disk and try again; the last complete catalogue is still there",
        )
    if primary == sqlite3.SQLITE_READONLY:
        return StoreError(
            f"the store {path} may only be read",
            next_action="make the file and its folder writable, or name another folder with --home",
        )
    if primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM):
        return StoreError(
            f"the store {path} cannot be opened or read: {error}",
            next_action="see that its folder is on a local disk and yours to write, or name another with --home",
        )
    return StoreError(f"the store {path} failed: {error}", next_action="run `toolfold doctor`")


_APPLICATION_ID = 0x746F6F6C
"""Marks the file as ours ("tool")."""

_MIGRATIONS = (
    """
    CREATE TABLE generation (number INTEGER PRIMARY KEY, record BLOB NOT NULL);
    CREATE TABLE change (generation INTEGER NOT NULL, seq INTEGER NOT NULL, record BLOB NOT NULL,
        PRIMARY KEY (generation, seq)) WITHOUT ROWID;
    CREATE TABLE server (name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE tool (folded TEXT PRIMARY KEY, tool_id TEXT NOT NULL, server TEXT NOT NULL, version INTEGER NOT NULL,
        record BLOB NOT NULL) WITHOUT ROWID;
    CREATE INDEX tool_by_server ON tool (server);
    CREATE TABLE version (tool TEXT NOT NULL, number INTEGER NOT NULL, fingerprint TEXT NOT NULL, tool_id TEXT NOT NULL,
        first_seen REAL NOT NULL, last_seen REAL NOT NULL, definition BLOB NOT NULL);
    CREATE UNIQUE INDEX version_by_number ON version (tool, number, fingerprint);
    CREATE TABLE tag (tag TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (tag, tool)) WITHOUT ROWID;
    CREATE TABLE node (key TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE edge (parent TEXT NOT NULL, child TEXT NOT NULL, PRIMARY KEY (parent, child)) WITHOUT ROWID;
    CREATE INDEX edge_by_child ON edge (child);
    CREATE TABLE placement (node TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (node, tool)) WITHOUT ROWID;
    CREATE INDEX placement_by_tool ON placement (tool);
    CREATE TABLE state (namespace TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (namespace, key)) WITHOUT ROWID;
    """,
    """
    CREATE TABLE trail (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, caller TEXT NOT NULL,
        session TEXT NOT NULL, selection TEXT NOT NULL, record BLOB NOT NULL);
    CREATE INDEX trail_by_session ON trail (session, caller, number);
    CREATE INDEX trail_by_selection ON trail (selection, number);
    CREATE INDEX trail_by_time ON trail (at);
    """,
    # Lines come in the order of their time, and nobody asks for one selection: each index would cost every line.
    "DROP INDEX trail_by_selection; DROP INDEX trail_by_time;",
)
"""One script a version. A script that was released never changes; a new one is added behind it."""


def connect(path: Path, *, busy_s: float, create: bool) -> sqlite3.Connection:
    """A connection to a store of this version, made or brought up to date where needed."""
    if not _exists(path):
        if not create:
            raise NotBuilt(f"there is no catalogue at {path}", next_action="run `toolfold build`")
        _make_private(path)
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, path, busy_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be opened: {error.strerror or error}",
            next_action="name a folder that you may read and write with --home",
        ) from error
    return True


def _make_private(path: Path) -> None:
    """Makes the file and its folder, readable by their owner alone."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be made: {error.strerror or error}",
            next_action="name a folder that you may write with --home",
        ) from error


def _prepare(connection: sqlite3.Connection, path: Path, busy_s: float) -> None:
    version = _known_version(connection, path)
    if version > len(_MIGRATIONS):
        raise StoreError(
            f"the store {path} is of a newer toolfold: its form is {version}, this one knows {len(_MIGRATIONS)}",
            next_action="upgrade toolfold, or name another folder with --home",
        )
    if version < len(_MIGRATIONS):
        _use_write_ahead_log(connection, busy_s)
        _migrate(connection)
    # A lost power supply may cost the last commits, never the file.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA journal_size_limit = 8388608")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _known_version(connection: sqlite3.Connection, path: Path) -> int:
    """The file's version; refuses another program's file. Read in one go: another process may just be making it."""
    connection.execute("BEGIN")
    try:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        ours = connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION_ID
        version = _version(connection)
    finally:
        connection.execute("ROLLBACK")
    if tables and not ours:
        raise StoreDamaged(f"{path} is an SQLite file of another program, not a toolfold store", next_action=_REBUILD)
    return version


def _use_write_ahead_log(connection: sqlite3.Connection, busy_s: float) -> None:
    """Readers and a writer do not wait for each other then. SQLite does not wait for the lock this needs: we do."""
    deadline = time.monotonic() + busy_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(connection: sqlite3.Connection) -> None:
    """All missing steps in one transaction. Another process may have done it meanwhile: the version is read again."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _version(connection)
        for step in _MIGRATIONS[found:]:
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {max(found, len(_MIGRATIONS))}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
