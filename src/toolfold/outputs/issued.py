"""Handles that were given out, so that one which is gone can be told from one that never was.

They are held in memory, and in a small private file that the next run reads: whose they were, for which tool, from when
until when. Nothing of an output stands there. Above: `store.py`.
"""

import logging
import os
from pathlib import Path

import msgspec

from toolfold.containers import BoundedDict
from toolfold.types import Stored

MAX_HELD = 10_000
# What is kept of the file when it has become longer than this.
MAX_FILE_BYTES = 256 << 10
KEPT_LINES = 1_000

log = logging.getLogger("toolfold.outputs")


class _Issued(msgspec.Struct, frozen=True):
    """A handle that was given out: to whom, for which tool, from when and until when."""

    handle: str
    caller: str
    session: str
    tool: str
    at: float
    expires_at: float
    ended: bool = False
    """Its session is over."""
    elsewhere: bool = False
    """It is of another run."""


_decode = msgspec.json.Decoder(_Issued).decode


class IssuedHandles:
    """The handles of one store. Without a `file` they are forgotten with it."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._held: BoundedDict[str, _Issued] = BoundedDict(MAX_HELD)

    def add(self, stored: Stored) -> None:
        expires_at = stored.at if stored.expires_at is None else stored.expires_at
        issued = _Issued(stored.handle, stored.caller, stored.session, stored.tool_name, stored.at, expires_at)
        self._held[issued.handle] = issued
        if self._file is None:
            return
        try:
            self._append(self._file, msgspec.json.encode(issued) + b"\n")
        except OSError as error:  # the output itself is stored: only its end will be told less precisely
            log.debug("a handle could not be noted: %s", error)

    def _append(self, file: Path, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o600)
        try:
            os.write(descriptor, line)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size > MAX_FILE_BYTES:
            draft = file.with_name(f".{file.name}.{os.getpid()}")
            draft.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[-KEPT_LINES:]))
            draft.chmod(0o600)
            draft.replace(file)

    def end(self, caller: str, session: str) -> None:
        """That session is over."""
        for handle, issued in self._held.items():
            if (issued.caller, issued.session) == (caller, session):
                self._held[handle] = msgspec.structs.replace(issued, ended=True)

    def find(self, handle: str) -> _Issued | None:
        return self._held.get(handle) or self._noted(handle)

    def _noted(self, handle: str) -> _Issued | None:
        try:
            lines = self._file.read_bytes().splitlines() if self._file is not None else []
        except OSError:
            return None
        for line in reversed(lines):
            if handle.encode(errors="replace") in line:
                try:
                    issued = _decode(line)
                except msgspec.MsgspecError:  # a process was killed while it wrote
                    continue
                return msgspec.structs.replace(issued, elsewhere=True) if issued.handle == handle else None
        return None
