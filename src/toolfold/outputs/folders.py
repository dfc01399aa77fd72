"""Folders that hold stored outputs, one a session: made so that nobody else can get in, and known again for ours.

A folder is `ai-agent-{session}` under the base, for its owner only. While its session lives, a lock is held on a file
in it; the system drops the lock with the process, however that ends, so no process id is trusted. Nothing here follows
a link or touches what another user made. Above: `store.py`, `sweeping.py`.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from toolfold.errors import OutputError, OutputFull
from toolfold.types import Stored
from toolfold.wire.spill import DISK_FULL_ERRNOS, storage_full

PREFIX = "ai-agent-"
MARK = ".toolfold"
"""The file that says that a folder is ours, and holds the lock."""

PERSISTENT = b"kept\n"
TRANSIENT = b"held\n"
"""What the mark says: whether the folder outlives the process that made it."""

_NAME = re.compile(r"ai-agent-[0-9a-f]{32}")
_MAX_ATTEMPTS = 5


class SessionFolder:
    """One session's folder. `held` is the lock, where this process owns it."""

    def __init__(self, path: Path, held: int | None = None) -> None:
        self.path = path
        self._held = held

    def remove(self) -> None:
        """The folder and all in it. Safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def create_folder(base: Path, *, kept: bool = False) -> SessionFolder:
    """A new folder with a name nobody can guess. Raises `OutputError` or `OutputFull`."""
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(_MAX_ATTEMPTS):
            path = base / f"{PREFIX}{secrets.token_hex(16)}"
            path.mkdir(mode=0o700)
            held = _lock_mark(path, kept)
            if held is not None:
                return SessionFolder(path, held)
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            raise storage_full(error, str(base)) from error
        raise OutputError(
            f"no folder for stored results can be made in {base}: {os.strerror(error.errno or 0)}",
            next_action="choose another folder with `outputs.directory`",
        ) from error
    raise OutputFull(f"no folder for stored results stays in {base}", next_action="choose another folder")


def _lock_mark(path: Path, kept: bool) -> int | None:
    """The mark, locked; `None` where a sweep took the folder away in between."""
    try:
        held = os.open(path / MARK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_SH if kept else fcntl.LOCK_EX)
        os.write(held, PERSISTENT if kept else TRANSIENT)
        still = (path / MARK).stat().st_ino == os.fstat(held).st_ino
    except FileNotFoundError:
        still = False
    except OSError:
        os.close(held)
        raise
    if not still:
        os.close(held)
        return None
    return held


def _open_persistent(base: Path, name: str) -> SessionFolder | None:
    """A folder that an earlier process kept, if it is there, ours, and private. Several may hold it at once."""
    path = base / name
    if not _NAME.fullmatch(name) or not _is_private(path):
        return None
    try:
        held = os.open(path / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    fcntl.flock(held, fcntl.LOCK_SH)
    if not (path / MARK).exists() or os.read(held, 16) != PERSISTENT:
        os.close(held)
        return None
    return SessionFolder(path, held)


def _is_private(path: Path) -> bool:
    """Whether it is a real folder of this user that nobody else can enter."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_folder_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def persistent_folder(note: Path, base: Path) -> SessionFolder:
    """The folder that outlives this process, whose name is written in `note`, a private file; made where it is gone."""
    try:
        name = note.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    found = _open_persistent(base, name)
    if found is not None:
        return found
    made = create_folder(base, kept=True)
    draft = note.with_name(f".{note.name}.{secrets.token_hex(4)}")
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(made.path.name + "\n")
        draft.replace(note)
    except OSError as error:
        made.remove()
        raise OutputError(
            f"{note} cannot be written: {os.strerror(error.errno or 0)}",
            next_action="choose another state folder with --home DIR or TOOLFOLD_HOME",
        ) from error
    return made


# --- What is known of a stored output, in a small file beside it: so that another process can read it, too.

RECORD_PREFIX = ".about-"
DRAFT_PREFIX = ".draft-"

_HANDLE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_MAX_RECORD_BYTES = 1 << 20
MAX_ARGUMENTS = 64 << 10
"""Longer arguments are not kept: a record stays small."""

_decode = msgspec.json.Decoder(Stored).decode


def is_handle(text: str) -> bool:
    return _HANDLE.fullmatch(text) is not None


def recorded_arguments(arguments: str) -> str:
    """The arguments as a record holds them, JSON in any case."""
    if len(arguments) <= MAX_ARGUMENTS:
        return arguments
    return f'"(arguments of {len(arguments)} characters, too long to keep)"'


def read_record(file: Path) -> Stored | None:
    """The record; nothing where there is none, or none of ours. Raises `OSError` where nobody can tell just now."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        try:
            return _decode(opened.read(_MAX_RECORD_BYTES))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None


def is_expired(stored: Stored, now: float) -> bool:
    return stored.expires_at is not None and stored.expires_at <= now


# --- Clears away what dead processes left: folders whose lock nobody holds, and outputs that outlived their time.

GRACE_S = 60.0
"""A folder without a mark, or a draft without a lock, may have been made just now."""


def sweep(base: Path, *, now: float | None = None) -> list[Path]:
    """Looks through the base once. Gives back the folders that are gone now."""
    now = time.time() if now is None else now
    return [path for path in _own_folders(base) if _sweep_folder(path, now)]


def _own_folders(base: Path) -> Iterator[Path]:
    try:
        with os.scandir(base) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return
    yield from (base / name for name in names if _is_folder_name(name) and _is_private(base / name))


def _sweep_folder(path: Path, now: float) -> bool:
    with contextlib.suppress(OSError):
        try:
            mark = os.open(path / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            # It died between making the folder and marking it. Only an empty one can be that.
            if now - path.stat().st_mtime > GRACE_S:
                path.rmdir()
                return True
            return False
        try:
            return _sweep_marked(path, mark, now)
        finally:
            os.close(mark)
    return False


def _sweep_marked(path: Path, mark: int, now: float) -> bool:
    kept = os.read(mark, 16) == PERSISTENT
    if kept:
        remove_expired(path, now)
    if not _try_lock(mark):
        return False
    if kept and not is_empty(path):
        return False
    shutil.rmtree(path, ignore_errors=True)
    return True


def is_empty(path: Path) -> bool:
    """Whether a session's folder holds nothing but its mark."""
    return all(file.name == MARK for file in list_files(path))


def list_files(path: Path) -> list[Path]:
    """What lies in a folder; nothing where the folder is gone, as a cleaner of temporary files may have taken it."""
    try:
        return list(path.iterdir())
    except FileNotFoundError:
        return []


def remove_expired(path: Path, now: float) -> None:
    """Removes outputs whose time is over, and drafts that nobody writes any more."""
    for file in list_files(path):
        name = file.name
        if name.startswith(RECORD_PREFIX):
            try:
                found = read_record(file)
            except OSError:  # too many open files, say: whether its time is over is looked at again later
                continue
            if found is None or is_expired(found, now):
                (path / name.removeprefix(RECORD_PREFIX)).unlink(missing_ok=True)
                file.unlink(missing_ok=True)
        elif name.startswith(DRAFT_PREFIX) and _is_abandoned(file, now):
            file.unlink(missing_ok=True)


def _is_abandoned(draft: Path, now: float) -> bool:
    with contextlib.suppress(OSError):
        descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return now - os.fstat(descriptor).st_mtime > GRACE_S and _try_lock(descriptor)
        finally:
            os.close(descriptor)
    return False


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
