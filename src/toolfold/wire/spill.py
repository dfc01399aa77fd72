"""Messages that are too large to be held: they go to a file that has no name, piece by piece, as they arrive.

The file lies in the folder for outputs and is gone with the last one who has it open, so a crash leaves nothing. What
the message says is not looked at here, only its beginning and end are kept at hand. Above: `framing.py`, `sse.py` and
the HTTP transports write; `peer.py` decides what becomes of it.
"""

import errno
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from toolfold.errors import FrameTooLarge, OutputFull, ToolfoldError
from toolfold.wire.types import WireOptions

EDGE_BYTES = 4096
"""How much of a message is kept at either end, to tell which request it answers."""

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SpillPolicy(Struct, frozen=True):
    """Where such messages go. `threshold`: those that are larger; `held`: how much may be read back into memory."""

    directory: str
    threshold: int
    held: int
    most: int

    @staticmethod
    def of(options: WireOptions) -> "SpillPolicy | None":
        if options.spill_directory is None:
            return None
        held = options.max_frame_bytes
        return SpillPolicy(options.spill_directory, min(options.spill_bytes, held), held, options.max_output_bytes)

    def open(self, parts: Iterable[bytes]) -> "Spill":
        """A message that got too large, with what came of it so far."""
        spill = Spill(self)
        for part in parts:
            spill.write(part)
        return spill


class Spill:
    """One message on its way to a file. Writing never raises: what went wrong is told by `problem`.

    Where the file cannot be written, a message that may be held is held after all.
    """

    def __init__(self, spiller: SpillPolicy) -> None:
        self.spiller = spiller
        self.size = 0
        self.head = b""
        self.tail = b""
        self._file: BinaryIO | None = None
        self._parts: list[bytes] | None = None
        self._failed: OSError | None = None
        try:
            Path(spiller.directory).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(buffering=0, dir=spiller.directory)  # noqa: SIM115 - outlives this call
        except OSError as error:
            self._failed, self._parts = error, []

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        if len(self.head) < EDGE_BYTES:
            self.head += piece[: EDGE_BYTES - len(self.head)]
        self.tail = piece[-EDGE_BYTES:] if len(piece) >= EDGE_BYTES else (self.tail + piece)[-EDGE_BYTES:]
        if self._file is not None and self.size > self.spiller.most:
            self.close()
        elif self._file is not None:
            self._to_file(self._file, piece)
        elif self._parts is not None:
            self._parts = _with(self._parts, piece) if self.size <= self.spiller.held else None

    def _to_file(self, file: BinaryIO, piece: bytes) -> None:
        start = self.size - len(piece)
        try:
            view = memoryview(piece)
            while view:
                view = view[os.write(file.fileno(), view) :]
        except OSError as error:
            self._failed = error
            if self.size <= self.spiller.held:
                self._parts = [os.pread(file.fileno(), start, 0), piece]
            self.close()

    @property
    def is_file(self) -> bool:
        return self._file is not None

    @property
    def is_readable(self) -> bool:
        """Whether it can be had in memory."""
        return self.size <= self.spiller.held and (self._file is not None or self._parts is not None)

    def take(self) -> BinaryIO:
        """The file, from now on the caller's to close."""
        file, self._file = self._file, None
        if file is None:
            raise ValueError("the message is in no file")
        file.seek(0)
        return file

    def read(self) -> bytes:
        """All of it, in memory, and the file gone."""
        if self._parts is not None:
            return b"".join(self._parts)
        with self.take() as file:
            return file.read()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def problem(self, method: str) -> ToolfoldError:
        """Why there is no answer."""
        if self._failed is not None:
            return storage_full(self._failed, self.spiller.directory)
        if self.size > self.spiller.most:
            return FrameTooLarge(
                f"the answer to {method} was refused: {self.size} bytes, over the {self.spiller.most} that are stored",
                next_action="ask for less at once, or raise `max_output_bytes`",
            )
        return FrameTooLarge(
            f"the answer to {method} was refused: over {self.spiller.held} bytes, it had {self.size}",
            next_action="ask for less at once, let it be stored and read it by its handle, or raise `max_frame_bytes`",
        )


def _with(parts: list[bytes], piece: bytes) -> list[bytes]:
    parts.append(piece)
    return parts


def storage_full(error: OSError, directory: str) -> OutputFull:
    """What to say when a result cannot be written."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    what = "there is no room to store the result" if error.errno in DISK_FULL_ERRNOS else "the result cannot be stored"
    return OutputFull(
        f"{what} in {directory}: {reason}",
        next_action="ask the tool for less, make room there, or choose another folder with `outputs.directory`",
    )
