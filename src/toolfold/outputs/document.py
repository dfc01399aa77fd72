"""A stored document as extraction sees it: where it lies, where it came from, how large it is.

Above: extraction. Below: the file system. Nothing here knows sessions or who may read; the store does.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct


class Document(Struct, frozen=True):
    """One file to extract from. `path.name` is what a sub-agent calls it: for a stored output, the handle."""

    path: Path
    tool: str
    arguments: str
    """The arguments of the call that made it, verbatim JSON."""
    handle: str
    bytes: int
    lines: int
    tokens: int
    media_type: str = "text/plain"

    @property
    def binary(self) -> bool:
        """Whether it is no text at all, so that a language model could make nothing of it: no tokens were counted."""
        return self.bytes > 0 and self.tokens == 0


# --- Opening a document's file: a plain file and nothing else, no link followed, nothing that could block.


def open_regular_file(path: Path) -> BinaryIO:
    """Opens a plain file, and no link, device or pipe even if one was put there just now."""
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
