"""Writes configuration files safely: whole or not at all, and never over a file that has no backup.

A link is followed, so that the file it leads to changes and the link stays.
"""

import contextlib
import os
import re
import secrets
import time
from pathlib import Path

from toolfold.config.text import present
from toolfold.errors import ConfigError

PRIVATE = 0o600
READABLE = 0o644
_BACKUP = re.compile(r"(?P<name>.+)\.(?P<stamp>\d{8}-\d{6})(?:-(?P<number>\d+))?\.bak")


def write_atomically(path: Path, data: bytes, mode: int) -> None:
    """Puts the data in place under the path in one step. The old content stays if anything fails."""
    real = Path(os.path.realpath(path))
    temporary = real.with_name(f".{real.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        _create(temporary, data, mode)
        if present(real):
            _keep_owner(real, temporary)
        temporary.replace(real)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}",
            next_action="Check the folder's permissions and the free space; the file is as it was.",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def back_up(path: Path, *, now: float | None = None) -> Path:
    """A copy beside the file, named by the time: `toolfold.toml.20260131-120000.bak`."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    try:
        data, mode = path.read_bytes(), path.stat().st_mode & 0o777
        for number in range(1, 1000):
            copy = path.with_name(f"{path.name}.{stamp}{f'-{number}' if number > 1 else ''}.bak")
            with contextlib.suppress(FileExistsError):
                _create(copy, data, mode)
                return copy
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be backed up: {error.strerror or error}",
            next_action="Check the folder's permissions; nothing was changed.",
        ) from None
    raise ConfigError(f"{path} has too many backups of one second", next_action="Remove some and try again.")


def backups(path: Path) -> list[Path]:
    """The backups beside the file, the newest first."""
    found = [
        (match.group("stamp"), int(match.group("number") or 1), item)
        for item in path.parent.glob("*.bak")
        if (match := _BACKUP.fullmatch(item.name)) and match.group("name") == path.name
    ]
    return [item for _, _, item in sorted(found, reverse=True)]


def original_of(backup: Path) -> Path | None:
    match = _BACKUP.fullmatch(backup.name)
    return backup.with_name(match.group("name")) if match else None


def restore(backup: Path, target: Path | None = None, *, now: float | None = None) -> Path | None:
    """Brings a backup's content back. What stands there now is backed up first; that copy is the answer."""
    target = target or original_of(backup)
    if target is None:
        raise ConfigError(f"{backup} is not named like a backup", next_action="Say which file to restore.")
    try:
        data, mode = backup.read_bytes(), backup.stat().st_mode & 0o777
    except OSError as error:
        raise ConfigError(
            f"{backup} cannot be read: {error.strerror or error}",
            hints=[str(item) for item in backups(target)],
            next_action="Name one of the backups that are there.",
        ) from None
    saved = back_up(target, now=now) if present(target) else None
    write_atomically(target, data, mode)
    return saved


def _create(path: Path, data: bytes, mode: int) -> None:
    """A new file that is never wider open than it will be."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(mode)


def _keep_owner(old: Path, new: Path) -> None:
    status = old.stat()
    if hasattr(os, "chown"):
        with contextlib.suppress(OSError):
            os.chown(new, status.st_uid, status.st_gid)
