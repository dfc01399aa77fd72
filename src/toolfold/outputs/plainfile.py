"""Opening a document's file: a plain file and nothing else, no link followed, nothing that could block."""

import os
import stat
from pathlib import Path
from typing import BinaryIO


def refused(path: Path) -> str:
    """Why the file may not be opened; nothing where it may."""
    try:
        facts = path.lstat()
    except OSError as error:
        return f"The file cannot be opened: {error.strerror}."
    return "" if stat.S_ISREG(facts.st_mode) else "The file cannot be opened: it is no plain file."


def open_plain(path: Path) -> BinaryIO:
    """Opens a plain file, and no link, device or pipe even if one was put there just now."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no plain file")
    return os.fdopen(descriptor, "rb")
