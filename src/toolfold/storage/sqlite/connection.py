"""Opens the file: its pragmas, its schema by version, the refusal of foreign files. Translates SQLite's errors.

The only place that knows SQLite's error codes. A connection is used by one thread only, the one that opened it.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import MsgspecError

from toolfold.errors import NotBuilt, StoreBusy, StoreDamaged, StoreError, StoreFull

_REBUILD = "move the file away and run `toolfold build`: the catalogue is made again from the servers"

# Marks the file as ours ("tool").
_APPLICATION_ID = 0x746F6F6C

# One file a version. A file that was released never changes; a new one is added behind it.
_MIGRATIONS = tuple(file.read_text("utf-8") for file in sorted(Path(__file__).with_name("migrations").glob("*.sql")))


class _Frozen(sqlite3.Connection):
    """Reads a file as it lies there, where nothing can be written beside it: no lock is held, and nobody is seen that
    writes. So it is good only as long as the file is as it was: see `_is_current`."""

    state: object = None


def _is_current(connection: sqlite3.Connection, path: Path) -> bool:
    return not isinstance(connection, _Frozen) or connection.state == _state(path)


def _state(path: Path) -> object:
    """Changes with the first word that somebody writes, which goes into the log beside the file."""
    return [
        (found.st_mtime_ns, found.st_size, found.st_ino) if (found := _found(file)) is not None else None
        for file in (path, _log_of(path))
    ]


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _found(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def connect(
    path: Path, *, busy_s: float, create: bool, further: bool = False, writes: bool = False
) -> sqlite3.Connection:
    """A connection to a store of this version, created or migrated where needed. A `further` one of a process that has
    the store open may find it migrated by a newer toolfold: migrations only add, so it goes on. Where the disk is full
    or may only be read, one that `writes` is refused; any other reads what is there."""
    if not _exists(path):
        if not create:
            raise NotBuilt(f"there is no catalogue at {path}", next_action="run `toolfold build`")
        _create_private(path)
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, path, busy_s, further)
    except sqlite3.OperationalError as error:
        connection.close()
        frozen = None if writes or error.sqlite_errorcode & 0xFF not in _UNWRITABLE else _frozen(path)
        if frozen is None:
            raise
        return frozen
    except BaseException:
        connection.close()
        raise
    return connection


def _frozen(path: Path) -> _Frozen | None:
    """Nothing where what was written last lies in the log beside the file: it would be missing."""
    state, log = _state(path), _found(_log_of(path))
    if log is not None and log.st_size:
        return None
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, factory=_Frozen)
    try:
        if _known_version(connection, path) == len(_MIGRATIONS):
            connection.state = state
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


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


def _create_private(path: Path) -> None:
    """Makes the file and its folder, readable by their owner alone."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be made: {error.strerror or error}",
            next_action="name a folder that you may write with --home",
        ) from error


def _prepare(connection: sqlite3.Connection, path: Path, busy_s: float, further: bool) -> None:
    version = _known_version(connection, path)
    if version > len(_MIGRATIONS) and not further:
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
    """The file's version; refuses another program's file."""
    # In one transaction: another process may be creating the tables at this moment.
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
    """Readers and a writer do not wait for each other then."""
    # SQLite's own busy timeout does not cover the lock that this change of mode needs.
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
    """All missing steps in one transaction."""
    with transaction(connection):
        version = _version(connection)  # again, with the lock: another process may have migrated meanwhile
        for step in _MIGRATIONS[version:]:
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {max(version, len(_MIGRATIONS))}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A write transaction around the block, undone where it raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raises a `StoreError` in place of whatever SQLite, or reading a row, raises inside."""
    try:
        yield
    except sqlite3.Error as error:
        raise _store_error(error, path) from error
    except MsgspecError as error:
        raise StoreDamaged(f"a row of the store {path} cannot be read: {error}", next_action=_REBUILD) from error


_UNREADABLE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM)
# What SQLite says where it can make no file beside the store's.
_UNWRITABLE = (*_UNREADABLE, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY)


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < 1 << 16
    except OSError:
        return False


def _is_read_only(folder: Path) -> bool:
    """Whether nobody can make a file there, which SQLite calls one that cannot be opened."""
    return folder.is_dir() and not os.access(folder, os.W_OK)


def _store_error(error: sqlite3.Error, path: Path) -> StoreError:
    # The low byte is the primary code; the rest only refines it.
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"another process kept the store {path} locked for too long",
            next_action="try again; if it lasts, look for a toolfold process that hangs and end it",
        )
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(f"the store {path} is not a readable SQLite file: {error}", next_action=_REBUILD)
    # Where the files beside the store cannot be made for want of room, SQLite says that it cannot be opened.
    if primary == sqlite3.SQLITE_FULL or (primary in _UNREADABLE and _is_full(path.parent)):
        return StoreFull(
            f"there is no room to write the store {path}",
            next_action="free some space on that disk and try again; what was complete before is as it was",
        )
    if primary == sqlite3.SQLITE_READONLY or (primary in _UNREADABLE and _is_read_only(path.parent)):
        return StoreError(
            f"the store {path} may only be read",
            next_action="make the file and its folder writable, or name another folder with --home",
        )
    if primary in _UNREADABLE:
        return StoreError(
            f"the store {path} cannot be opened or read: {error}",
            next_action="see that its folder is on a local disk and yours to write, or name another with --home",
        )
    return StoreError(f"the store {path} failed: {error}", next_action="run `toolfold doctor`")
