"""Clears away what dead processes left: folders whose lock nobody holds, and outputs that outlived their time.

Only folders that this user made, that carry our mark, and whose lock can be had are touched; links are not followed.
What a living gateway uses is never touched, however many share the base. Above: `store.py`. Below: `folders.py`.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from toolfold.outputs.folders import KEPT, MARK, PREFIX, is_named_so, is_private
from toolfold.outputs.records import DRAFT, RECORD, expired, read_record

YOUNG_S = 60.0
"""A folder without a mark, or a draft without a lock, may have been made just now."""


def sweep(base: Path, *, now: float | None = None) -> list[Path]:
    """Looks through the base once. Gives back the folders that are gone now."""
    now = time.time() if now is None else now
    return [path for path in _ours(base) if _swept(path, now)]


def _ours(base: Path) -> Iterator[Path]:
    try:
        with os.scandir(base) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return
    yield from (base / name for name in names if is_named_so(name) and is_private(base / name))


def _swept(path: Path, now: float) -> bool:
    with contextlib.suppress(OSError):
        try:
            mark = os.open(path / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            # It died between making the folder and marking it. Only an empty one can be that.
            if now - path.stat().st_mtime > YOUNG_S:
                path.rmdir()
                return True
            return False
        try:
            return _swept_marked(path, mark, now)
        finally:
            os.close(mark)
    return False


def _swept_marked(path: Path, mark: int, now: float) -> bool:
    kept = os.read(mark, 16) == KEPT
    if kept:
        clear_expired(path, now)
    if not _lock(mark):
        return False
    if kept and not is_empty(path):
        return False
    shutil.rmtree(path, ignore_errors=True)
    return True


def is_empty(path: Path) -> bool:
    """Whether a session's folder holds nothing but its mark."""
    return all(file.name == MARK for file in files_in(path))


def files_in(path: Path) -> list[Path]:
    """What lies in a folder; nothing where the folder is gone, as a cleaner of temporary files may have taken it."""
    try:
        return list(path.iterdir())
    except FileNotFoundError:
        return []


def clear_expired(path: Path, now: float) -> None:
    """Removes outputs whose time is over, and drafts that nobody writes any more."""
    for file in files_in(path):
        name = file.name
        if name.startswith(RECORD):
            try:
                found = read_record(file)
            except OSError:  # too many open files, say: whether its time is over is looked at again later
                continue
            if found is None or expired(found, now):
                (path / name.removeprefix(RECORD)).unlink(missing_ok=True)
                file.unlink(missing_ok=True)
        elif name.startswith(DRAFT) and _is_dead(file, now):
            file.unlink(missing_ok=True)


def _is_dead(draft: Path, now: float) -> bool:
    with contextlib.suppress(OSError):
        descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return now - os.fstat(descriptor).st_mtime > YOUNG_S and _lock(descriptor)
        finally:
            os.close(descriptor)
    return False


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
