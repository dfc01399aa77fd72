"""Folders that hold stored outputs, one a session: made so that nobody else can get in, and known again for ours.

A folder is `ai-agent-{session}` under the base, for its owner only. While its session lives, a lock is held on a file
in it; the system drops the lock with the process, however that ends, so no process id is trusted. Nothing here follows
a link or touches what another user made. Above: `store.py`, `sweeping.py`.
"""

import fcntl
import os
import re
import secrets
import shutil
import stat
from pathlib import Path

from toolfold.errors import OutputError, OutputFull
from toolfold.wire.spill import FULL, no_room

PREFIX = "ai-agent-"
MARK = ".toolfold"
"""The file that says that a folder is ours, and holds the lock."""

KEPT = b"kept\n"
HELD = b"held\n"
"""What the mark says: whether the folder outlives the process that made it."""

_NAME = re.compile(r"ai-agent-[0-9a-f]{32}")
_ATTEMPTS = 5


class Folder:
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


def make_folder(base: Path, *, kept: bool = False) -> Folder:
    """A new folder with a name nobody can guess. Raises `OutputError` or `OutputFull`."""
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(_ATTEMPTS):
            path = base / f"{PREFIX}{secrets.token_hex(16)}"
            path.mkdir(mode=0o700)
            held = _locked(path, kept)
            if held is not None:
                return Folder(path, held)
    except OSError as error:
        if error.errno in FULL:
            raise no_room(error, str(base)) from error
        raise OutputError(
            f"no folder for stored results can be made in {base}: {os.strerror(error.errno or 0)}",
            next_action="choose another folder with `outputs.directory`",
        ) from error
    raise OutputFull(f"no folder for stored results stays in {base}", next_action="choose another folder")


def _locked(path: Path, kept: bool) -> int | None:
    """The mark, locked; `None` where a sweep took the folder away in between."""
    try:
        held = os.open(path / MARK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_SH if kept else fcntl.LOCK_EX)
        os.write(held, KEPT if kept else HELD)
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


def open_kept(base: Path, name: str) -> Folder | None:
    """A folder that an earlier process kept, if it is there, ours, and private. Several may hold it at once."""
    path = base / name
    if not _NAME.fullmatch(name) or not is_private(path):
        return None
    try:
        held = os.open(path / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    fcntl.flock(held, fcntl.LOCK_SH)
    if not (path / MARK).exists() or os.read(held, 16) != KEPT:
        os.close(held)
        return None
    return Folder(path, held)


def is_private(path: Path) -> bool:
    """Whether it is a real folder of this user that nobody else can enter."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def is_named_so(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def remembered(note: Path, base: Path) -> Folder:
    """The folder that outlives this process, whose name is written in `note`, a private file; made where it is gone."""
    try:
        name = note.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    found = open_kept(base, name)
    if found is not None:
        return found
    made = make_folder(base, kept=True)
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
