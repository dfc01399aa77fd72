"""Files that only their owner reads: read whole and bounded, replaced whole, and locked. Above: the vault."""

import errno
import fcntl
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_MAX_BYTES = 1024 * 1024


def _read_private(path: Path) -> bytes:
    """A file's beginning. A pipe that lies in its place would be waited for: it is an error instead."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return file.read(_MAX_BYTES)


def _holds(path: Path, data: bytes) -> bool:
    with suppress(OSError):
        return _read_private(path) == data
    return False


def _write_private(path: Path, data: bytes, *, new: bool = False) -> None:
    """Puts a whole file in the place of what is there, be that a link, which is not followed. With `new` what is there
    stays."""
    descriptor, made = tempfile.mkstemp(prefix=".", dir=path.parent)  # nobody else may read it
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if new:
            with suppress(FileExistsError):
                os.link(made, path)
        else:
            Path(made).replace(path)
    finally:
        Path(made).unlink(missing_ok=True)


def _lock_file(path: Path) -> int | None:
    """Locks a stored credential for as long as a newer one is in memory. Whoever looks has it for a moment, too."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    for _ in range(100):
        if _try_lock(descriptor):
            return descriptor
        time.sleep(0.01)
    os.close(descriptor)
    return None


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
