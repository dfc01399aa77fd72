"""A stored document as extraction reads it: where it lies, where it came from, how large it is, and how it is opened.

It knows no sessions and no permissions; `store.py` does. Above: extraction and its strategies.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct


class Document(Struct, frozen=True):
    """One file to extract from. A sub-agent knows it as `path.name`: for a stored output, the handle."""

    path: Path
    tool: str
    # The arguments of the call that produced it, verbatim JSON.
    arguments: str
    handle: str
    bytes: int
    lines: int
    tokens: int
    media_type: str = "text/plain"
    # Whether it can be had by its handle.
    stored: bool = False

    @property
    def binary(self) -> bool:
        """Whether it is no text, so that a language model could make nothing of it: no tokens were counted."""
        return self.bytes > 0 and self.tokens == 0


def open_regular_file(path: str | Path) -> BinaryIO:
    """Opens a regular file and nothing else. Raises `OSError`."""
    # Somebody may replace the file at any time: O_NOFOLLOW refuses a link, O_NONBLOCK returns from a pipe that nobody
    # writes to, and the type is read from the descriptor, so that no other file can slip in between.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError("it is no plain file") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no plain file")
    return os.fdopen(descriptor, "rb")
