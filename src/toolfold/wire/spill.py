"""Messages that are too large for memory: they go to a file that has no name, piece by piece, as they arrive.

The file is in the folder for outputs and vanishes when it is closed, so a crash leaves nothing. The message is not
parsed here, only its beginning and end are held. Above: `pipes.py`, `sse.py` and
`http_client.py` write; `dispatcher.py` decides what becomes of it.
"""

import errno
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from toolfold.errors import FrameTooLarge, OutputFull, ToolfoldError
from toolfold.wire.types import WireOptions

# How much of a message is kept at either end, to tell which request it answers.
EDGE_BYTES = 4096

_HEAD_ID = re.compile(rb'^[^{]{0,64}\{\s*(?:"jsonrpc"\s*:\s*"[^"]*"\s*,\s*)?"id"\s*:\s*("?)(\d{1,18})\1\s*[,}]')
_TAIL_ID = re.compile(rb'[,{]\s*"id"\s*:\s*("?)(\d{1,18})\1\s*(?:,\s*"jsonrpc"\s*:\s*"[^"]*"\s*)?\}\s*$')
_METHOD = re.compile(rb'^[^{]{0,64}\{(?:\s*"(?:jsonrpc|id)"\s*:\s*(?:"[^"]*"|\d+|null)\s*,)*\s*"method"\s*:')
_RESULT = re.compile(rb'^\s*\{(?:\s*"(?:jsonrpc|id)"\s*:\s*(?:"[^"]*"|\d+)\s*,)*\s*"result"\s*:\s*\{')

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


class Edges:
    """The size of a message, its beginning and its end: what is known of one that is not held."""

    def __init__(self, head: bytes = b"", tail: bytes = b"", size: int = 0) -> None:
        self.head = head
        self.tail = tail
        self.size = size

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if len(self.head) < EDGE_BYTES:
            self.head += piece[: EDGE_BYTES - len(self.head)]
        self.tail = piece[-EDGE_BYTES:] if len(piece) >= EDGE_BYTES else (self.tail + piece)[-EDGE_BYTES:]

    @property
    def is_request(self) -> bool:
        """Whether it begins as a request or a notification."""
        return _METHOD.match(self.head) is not None

    @property
    def is_result(self) -> bool:
        """Whether it begins as an answer that is no error."""
        return _RESULT.match(self.head) is not None

    @property
    def number(self) -> int | None:
        """The id of an answer. Requests and notifications have none."""
        match = None if self.is_request else _HEAD_ID.match(self.head) or _TAIL_ID.search(self.tail)
        return int(match[2]) if match else None


class Spill(Edges):
    """One message on its way to a file. Writing never raises: `problem` says what went wrong.

    Where the file cannot be written, a message that may be held is held after all.
    """

    def __init__(self, policy: SpillPolicy) -> None:
        super().__init__()
        self.policy = policy
        self._file: BinaryIO | None = None
        self._parts: list[bytes] | None = None
        self._failed: OSError | None = None
        try:
            Path(policy.directory).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(buffering=0, dir=policy.directory)  # noqa: SIM115 - outlives this call
        except OSError as error:
            self._failed, self._parts = error, []

    def write(self, piece: bytes) -> None:
        self.add(piece)
        if self._file is not None and self.size > self.policy.most:
            self.close()
        elif self._file is not None:
            self._to_file(self._file, piece)
        elif self._parts is not None:
            self._parts.append(piece)
            if self.size > self.policy.held:
                self._parts = None

    def _to_file(self, file: BinaryIO, piece: bytes) -> None:
        start = self.size - len(piece)
        try:
            view = memoryview(piece)
            while view:
                view = view[os.write(file.fileno(), view) :]
        except OSError as error:
            self._failed = error
            if self.size <= self.policy.held:
                # The disk is full, the memory is not: what was written is read back.
                self._parts = [os.pread(file.fileno(), start, 0), piece]
            self.close()

    @property
    def is_file(self) -> bool:
        return self._file is not None

    @property
    def is_readable(self) -> bool:
        """Whether it can be had in memory."""
        return self.size <= self.policy.held and (self._file is not None or self._parts is not None)

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
            return storage_full(self._failed, self.policy.directory)
        if self.size > self.policy.most:
            return FrameTooLarge(
                f"the answer to {method} was refused: {self.size} bytes, over the {self.policy.most} that are stored",
                next_action="ask for less at once, or raise `max_output_bytes`",
            )
        return FrameTooLarge(
            f"the answer to {method} was refused: over {self.policy.held} bytes, it had {self.size}",
            next_action="ask for less at once, let it be stored and read it by its handle, or raise `max_frame_bytes`",
        )


def storage_full(error: OSError, directory: str) -> OutputFull:
    """What to say when a result cannot be written."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    what = "there is no room to store the result" if error.errno in DISK_FULL_ERRNOS else "the result cannot be stored"
    return OutputFull(
        f"{what} in {directory}: {reason}",
        next_action="make room there, or choose another folder with `outputs.directory`",
    )
