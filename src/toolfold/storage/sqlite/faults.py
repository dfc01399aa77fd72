"""What SQLite says went wrong, told as ours. The only place that knows SQLite's error codes."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import MsgspecError

from toolfold.errors import StoreBusy, StoreDamaged, StoreError, StoreFull

REBUILD = "move the file away and run `toolfold build`: the catalogue is made again from the servers"


@contextmanager
def faults_told(path: Path) -> Iterator[None]:
    """Raises a `StoreError` in place of whatever SQLite, or reading a row, raises inside."""
    try:
        yield
    except sqlite3.Error as error:
        raise told(error, path) from error
    except MsgspecError as error:
        raise StoreDamaged(f"a row of the store {path} cannot be read: {error}", next_action=REBUILD) from error


def told(error: sqlite3.Error, path: Path) -> StoreError:
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"another process kept the store {path} locked for too long",
            next_action="try again; if it lasts, look for a toolfold process that hangs and end it",
        )
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(f"the store {path} is not a readable SQLite file: {error}", next_action=REBUILD)
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
