"""Pipes read and written straight through the event loop, without a stream object in between, and split into lines.

Works the same on asyncio and uvloop, in time linear in the bytes, whatever the size of a line and of its pieces. What a
line means is not known here. Above: `stdio.py` of either side. Below: `spill.py`.
"""

import asyncio
import contextlib
import fcntl
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from toolfold.wire.spill import Edges, Spill, SpillPolicy

_READ_SIZE = 1 << 16
_MAX_READ_SIZE = 1 << 20
_PIPE_SIZE = 1 << 20
_HIGH_WATER = 1 << 20


def enlarge_pipe(descriptor: int) -> None:
    """A larger pipe takes a large message in fewer steps. Where that is not to be had, it works all the same."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


class PipeReader:
    """Calls `on_data` with what arrives and `on_end` once at the end. Owns the descriptor."""

    def __init__(self, descriptor: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._on_data = on_data
        self._on_end = on_end
        self._open = True
        self._size = _READ_SIZE
        self._loop.add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, self._size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        # A message that fills one reading is large: the next takes more at once. Small ones keep small buffers.
        self._size = min(self._size * 4, _MAX_READ_SIZE) if len(data) == self._size else _READ_SIZE
        if data:
            self._on_data(data)
        elif self._open:
            self.close()
            self._on_end()

    def drain(self) -> None:
        """Takes what lies in the pipe now, but never more than one pipe holds: a writer may still be at it."""
        # 32 reads of 64 KiB are more than a pipe can hold.
        for _ in range(32):
            try:
                data = os.read(self._descriptor, _READ_SIZE) if self._open else b""
            except OSError:
                return
            if not data:
                return
            self._on_data(data)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)


class PipeWriter:
    """Writes at once what the pipe takes and the rest when there is room. Owns the descriptor."""

    def __init__(self, descriptor: int, on_broken: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._on_broken = on_broken
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._drained: asyncio.Future[None] | None = None
        self._open = True

    @property
    def congested(self) -> bool:
        return self._size > _HIGH_WATER

    async def empty(self) -> None:
        """Waits until everything was taken."""
        while self._open and self._waiting:
            await self._released()

    def write(self, data: bytes) -> None:
        if self._open:
            # Most messages fit the pipe: one system call, no task and no buffer.
            written = 0 if self._waiting else self._try(os.write, data, len(data))
            if written < len(data):
                self._keep((data,), written)

    def write_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """Writes one message that lies in pieces, in one step: copying them together would cost more, and a reader that
        is woken by the first piece finds nothing to do yet."""
        if self._open:
            size = sum(map(len, parts))
            written = 0 if self._waiting else self._try(os.writev, parts, size)
            if written < size:
                self._keep(parts, written)

    def _keep(self, parts: Sequence[bytes | memoryview], written: int) -> None:
        """What the pipe did not take waits."""
        if not self._waiting:
            self._loop.add_writer(self._descriptor, self._flush)
        for part in parts:
            rest = memoryview(part)[written:]
            written = max(0, written - len(part))
            if rest:
                self._waiting.append(rest)
                self._size += len(rest)

    def _try(self, write: Callable[[int, Any], int], data: Any, size: int) -> int:
        """How much the pipe took; all of it, if the pipe is broken, so that nothing is kept."""
        try:
            return write(self._descriptor, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.close()
            self._loop.call_soon(self._on_broken)
            return size

    def _flush(self) -> None:
        while self._waiting:
            data = self._waiting.popleft()
            written = self._try(os.write, data, len(data))
            self._size -= written
            if written < len(data):
                self._waiting.appendleft(data[written:])
                break
        # A broken pipe reports everything as written, which `close` has subtracted already.
        self._size = max(self._size, 0)
        if not self._waiting and self._open:
            self._loop.remove_writer(self._descriptor)
        if not self.congested:
            self._release()

    def _release(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    async def drain(self) -> None:
        """Waits while more than a megabyte waits to be taken."""
        if self._open and self.congested:
            await self._released()

    async def _released(self) -> None:
        if self._drained is None:
            self._drained = self._loop.create_future()
        await asyncio.shield(self._drained)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._waiting.clear()
            self._size = 0
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._release()


class LineFramer:
    """Feed it pieces; it gives each whole line to `on_line` and the edges of each oversized one to `on_oversized`.

    With a `policy` those go to `on_spilled` instead, whole.
    """

    def __init__(
        self,
        max_bytes: int,
        on_line: Callable[[bytes], None],
        on_oversized: Callable[[Edges], None],
        *,
        policy: SpillPolicy | None = None,
        on_spilled: Callable[[Spill], None] | None = None,
    ) -> None:
        self._max = max_bytes if policy is None else policy.threshold
        self._policy = policy
        self._on_spilled = on_spilled
        self._spill: Spill | None = None
        self._on_line = on_line
        self._on_oversized = on_oversized
        self._parts: list[bytes] = []
        self._size = 0
        # Of a line that is too large and goes nowhere.
        self._skipped: Edges | None = None

    def feed(self, data: bytes) -> None:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._finish(data[start:end])
            start = end + 1
        if start < len(data):
            self._keep(data[start:] if start else data)

    def rest(self) -> bytes:
        """The pipe ended: what came after the last newline."""
        parts, self._parts, self._size, self._skipped = self._parts, [], 0, None
        return b"".join(parts)

    def rest_spilled(self) -> Spill | None:
        """The same, where it was too large to be held."""
        spill, self._spill = self._spill, None
        return spill

    def _finish(self, rest: bytes) -> None:
        if not self._size and len(rest) <= self._max:
            if rest:
                self._on_line(rest)
            return
        self._keep(rest)
        parts, self._parts, self._size = self._parts, [], 0
        if self._spill is not None and self._on_spilled is not None:
            spill, self._spill = self._spill, None
            self._on_spilled(spill)
        elif self._skipped is not None:
            skipped, self._skipped = self._skipped, None
            self._on_oversized(skipped)
        else:
            self._on_line(b"".join(parts))

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._spill is not None:
            self._spill.write(piece)
            return
        if self._skipped is not None:
            self._skipped.add(piece)
            return
        # Pieces are joined once at the end: adding to one bytes object would be quadratic.
        self._parts.append(piece)
        if self._size <= self._max:
            return
        if self._policy is not None:
            self._spill = self._policy.open(self._parts)
        else:
            self._skipped = Edges()
            for part in self._parts:
                self._skipped.add(part)
        self._parts = []
