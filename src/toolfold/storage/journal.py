"""An append-only file of events, a JSON line each, readable by its owner alone. Agents and live sessions write these.

The file is created with its first line; the oldest files of its folder are deleted then.
"""

import contextlib
import os
from pathlib import Path
from typing import IO

from toolfold.errors import StoreError

# O_NOFOLLOW: a link that somebody put there must not lead the lines into another file.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Journal:
    """One file of a folder, of which the newest `kept` files stay."""

    def __init__(self, file: Path, *, kept: int) -> None:
        self.file = file
        self._kept = kept
        self._out: IO[bytes] | None = None

    def write(self, line: bytes) -> None:
        """Adds a line, at once. Raises `StoreError`."""
        try:
            if self._out is None:
                self._out = self._open()
            self._out.write(line + b"\n")
            self._out.flush()
        except OSError as error:
            raise StoreError(
                f"{self.file} cannot be written: {os.strerror(error.errno or 0)}",
                next_action="check the folder's permissions and the free space",
            ) from error

    def close(self) -> None:
        out, self._out = self._out, None
        if out is not None:
            with contextlib.suppress(OSError):  # a line that could not be written was reported by `write`
                out.close()

    def _open(self) -> IO[bytes]:
        folder = self.file.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        opened = os.fdopen(os.open(self.file, _FLAGS, 0o600), "ab")
        for old in sorted(folder.glob("*.jsonl"), reverse=True)[self._kept :]:
            with contextlib.suppress(OSError):  # somebody else's, or no file: it stays
                old.unlink(missing_ok=True)
        return opened
