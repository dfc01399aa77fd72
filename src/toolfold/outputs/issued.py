"""Handles that were given out, so that one which is gone can be told from one that never was.

They are held in memory, and in a small private file that the next run reads: whose they were, for which tool, from when
until when. Nothing of an output or of its call stands there. Above: `store.py`.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from toolfold.containers import BoundedDict
from toolfold.types import Stored

MAX_HELD = 10_000
# A longer file is set aside, in the place of the one before it.
MAX_FILE_BYTES = 256 << 10

_decode = msgspec.json.Decoder(Stored).decode


class IssuedHandles:
    """The handles of one store. Without a `file` they are forgotten with it."""

    def __init__(self, file: Path | None = None) -> None:
        self._files = [] if file is None else [file, file.with_name(f"{file.name}.old")]
        self.own: BoundedDict[str, Stored] = BoundedDict(MAX_HELD)

    def add(self, stored: Stored) -> None:
        known = self.own[stored.handle] = msgspec.structs.replace(stored, arguments="{}")
        # The output itself is stored: where no note can be made of it, its end is told less precisely.
        with contextlib.suppress(OSError):
            for file in self._files[:1]:
                if file.exists() and file.stat().st_size > MAX_FILE_BYTES:
                    file.replace(self._files[1])
                with open(file, "ab", opener=_open_private) as noted:
                    noted.write(msgspec.json.encode(known) + b"\n")

    def find(self, handle: str) -> Stored | None:
        """A handle of this run, else of an earlier one."""
        return self.own.get(handle) or next((known for known in self._noted() if known.handle == handle), None)

    def _noted(self) -> Iterator[Stored]:
        for file in self._files:
            with contextlib.suppress(OSError):
                for line in file.read_bytes().splitlines():
                    with contextlib.suppress(msgspec.MsgspecError):  # a process was killed while it wrote
                        yield _decode(line)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
