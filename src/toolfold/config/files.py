"""Reads configuration files as text, and writes them safely: whole or not at all, never over a file without a backup.

Read is UTF-8, with or without a byte order mark and with any line ends. On writing a link is followed, so that the file
it leads to changes and the link stays. Above: the reader and the import.
"""

import contextlib
import fcntl
import glob
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from toolfold.config.validation import syntax_error
from toolfold.errors import ConfigError

__all__ = ["read_text"]

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644
_MAX_BYTES = 64 * 1024**2
# How long another toolfold that writes the same files is waited for.
_LOCK_S = 10.0
_BACKUP = re.compile(r"(?P<name>.+)\.(?P<stamp>\d{8}-\d{6})(?:-(?P<number>\d+))?\.bak")


def read_text(path: Path) -> str:
    """The file's text without its byte order mark. Line ends stay as they are."""
    data = _read_bytes(path)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise syntax_error(str(path), "the file is UTF-16, and only UTF-8 can be read", fix="Save it as UTF-8.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Latin-1 gives a character a byte, so the offset stays true.
        line, column = line_and_column(data[: error.start].decode("latin-1"), error.start)
        message, fix = "the file is not UTF-8 here", "Save it as UTF-8."
        raise syntax_error(str(path), message, line=line, column=column, fix=fix) from None


def _read_bytes(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ConfigError(
                f"{path} is a directory, not a configuration file",
                next_action=f"Name the file, such as {path / 'toolfold.toml'}.",
            )
        # Reading a pipe or a device could wait for ever.
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is not a regular file", next_action="Name a toolfold.toml or mcp.json file.")
        if status.st_size > _MAX_BYTES:
            raise ConfigError(f"{path} has {status.st_size} bytes; a configuration has at most {_MAX_BYTES}")
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {path}",
            next_action="Check the path, or run `toolfold import` to make a configuration from an MCP client's.",
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{path} cannot be read: {reason}", next_action="Check the path and its permissions."
        ) from None


def path_exists(path: Path) -> bool:
    """Whether something is there. What may not be looked at counts as absent."""
    return os.path.exists(path)  # noqa: PTH110 - `Path.exists` raises where a folder may not be read


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """1-based line and column of an offset."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


@contextlib.contextmanager
def locked(*paths: Path) -> Iterator[None]:
    """Inside, no other toolfold changes these files. It is their folders that are locked: a file is replaced when it is
    written, and a lock of its own beside it would stay behind."""
    with contextlib.ExitStack() as held:
        for folder in sorted({Path(os.path.realpath(path)).parent for path in paths}):
            held.enter_context(_locked_folder(folder))
        yield


@contextlib.contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # it may become the one for state
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # whoever writes there says why it cannot be done
        yield
        return
    try:
        deadline = time.monotonic() + _LOCK_S
        while not _is_locked(handle):
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"another toolfold has been writing in {folder} for {_LOCK_S:g} s; nothing was changed",
                    next_action="Wait until it is done, or end it, and run this again.",
                )
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: then there is none
        return True
    return True


def write_atomically(path: Path, data: bytes, mode: int) -> None:
    """Puts the data in place under the path in one step. The old content stays if anything fails."""
    real = Path(os.path.realpath(path))
    # In the same folder: a rename is atomic only within one file system.
    temporary = real.with_name(f".{real.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        real.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _create(temporary, data, mode)
        if path_exists(real):
            _copy_owner(real, temporary)
        temporary.replace(real)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}",
            next_action="Check the folder's permissions and the free space; the file is as it was.",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def create_backup(path: Path, copy: Path) -> None:
    """A copy beside the file, under a name that nothing has."""
    try:
        _create(copy, path.read_bytes(), path.stat().st_mode & 0o777)
        _copy_owner(path, copy)  # with `sudo` it stays the person's
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be backed up: {error.strerror or error}",
            next_action="Check the folder's permissions and the free space; nothing was changed.",
        ) from None


def _free_name(path: Path, now: float | None = None) -> Path:
    """What the next backup of a file is called, by the time: `toolfold.toml.20260131-120000.bak`."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    for number in range(1, 1000):
        copy = path.with_name(f"{path.name}.{stamp}{f'-{number}' if number > 1 else ''}.bak")
        if not os.path.lexists(copy):
            return copy
    raise ConfigError(f"{path} has too many backups of one second", next_action="Remove some and try again.")


def _remove_stale(path: Path, *, is_locked: bool = False) -> None:
    """Removes what a `write_atomically` of this file left that was killed. Where it `is_locked`, nobody else writes."""
    real = Path(os.path.realpath(path))
    for left in real.parent.glob(f".{glob.escape(real.name)}.*.*.tmp"):
        pid = left.name.split(".")[-3]
        with contextlib.suppress(OSError):
            try:
                if not is_locked:
                    os.kill(int(pid) if pid.isdigit() else os.getpid(), 0)
                    continue
            except ProcessLookupError:
                pass
            left.unlink()


def backups(path: Path) -> list[Path]:
    """The backups beside the file, the newest first."""
    stamped = [
        (match.group("stamp"), int(match.group("number") or 1), item)
        for item in path.parent.glob("*.bak")
        if (match := _BACKUP.fullmatch(item.name)) and match.group("name") == path.name
    ]
    return [item for _, _, item in sorted(stamped, reverse=True)]


def restore(backup: Path, target: Path | None = None, *, now: float | None = None) -> Path | None:
    """Brings a backup's content back. Where the target exists, it is backed up first and that copy is returned."""
    match = _BACKUP.fullmatch(backup.name)
    if target is None and match is None:
        raise ConfigError(f"{backup} is not named like a backup", next_action="Say which file to restore.")
    target = target or backup.with_name(match.group("name") if match else "")
    try:
        data, mode = backup.read_bytes(), backup.stat().st_mode & 0o777
    except OSError as error:
        raise ConfigError(
            f"{backup} cannot be read: {error.strerror or error}",
            hints=[str(item) for item in backups(target)],
            next_action="Name one of the backups that are there.",
        ) from None
    saved = _free_name(target, now) if path_exists(target) else None
    if saved is not None:
        create_backup(target, saved)
    write_atomically(target, data, mode)
    return saved


def _create(path: Path, data: bytes, mode: int) -> None:
    """A new file that is never wider open than it will be."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        path.chmod(mode)
    except BaseException:
        path.unlink()  # half a file is worse than none
        raise


def _copy_owner(old: Path, new: Path) -> None:
    status = old.stat()
    if hasattr(os, "chown"):
        with contextlib.suppress(OSError):
            os.chown(new, status.st_uid, status.st_gid)
