"""Events on file: one JSON line each, readable by their owner alone. Runs of agents and live sessions are kept so.

The file is made with its first line, and the oldest of its folder go then. Above: `agent/record.py`, `live/traces.py`.
"""

import contextlib
import os
from pathlib import Path
from typing import IO

from toolfold.errors import StoreError

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Journal:
    """One file of a folder that keeps the newest `kept`."""

    def __init__(self, file: Path, *, kept: int) -> None:
        self.file = file
        self._kept = kept
        self._out: IO[bytes] | None = None

    def write(self, line: bytes) -> None:
        """Adds a line, at once. Raises `StoreError`."""
        try:
            if self._out is None:
                self._out = self._opened()
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
            with contextlib.suppress(OSError):  # a line that could not be written was told of when it was
                out.close()

    def _opened(self) -> IO[bytes]:
        folder = self.file.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        opened = os.fdopen(os.open(self.file, _FLAGS, 0o600), "ab")
        for old in sorted(folder.glob("*.jsonl"), reverse=True)[self._kept :]:
            with contextlib.suppress(OSError):  # somebody else's, or no file: it stays
                old.unlink(missing_ok=True)
        return opened
