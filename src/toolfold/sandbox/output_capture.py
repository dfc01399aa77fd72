"""Reads what a child prints, as much as is wanted, and throws the rest away cheaply.

A child never blocks on its output, however much it prints, and the host never holds more than the limit. Above:
`child.py`. Below: a pipe.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable

_READ_BYTES = 64 * 1024
_PIPE_BYTES = 1024 * 1024
_F_SETPIPE_SZ = 1031


class OutputCapture:
    """One pipe, read in the event loop until its writers are gone. `on_close` is told once."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, descriptor: int, limit: int, on_close: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._limit = limit
        self._on_close = on_close
        self._closed = False
        self.kept = bytearray()
        self.dropped = 0
        os.set_blocking(descriptor, False)
        loop.add_reader(descriptor, self._read)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._on_close()

    def _read(self) -> None:
        try:
            size = self._keep() if len(self.kept) < self._limit else self._drop()
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if size == 0:
            self.close()

    def _keep(self) -> int:
        data = os.read(self._descriptor, _READ_BYTES)
        piece = data[: self._limit - len(self.kept)]
        self.kept += piece
        self.dropped += len(data) - len(piece)
        if len(self.kept) >= self._limit:
            self._widen()
        return len(data)

    def _drop(self) -> int:
        size = len(os.read(self._descriptor, _PIPE_BYTES))
        self.dropped += size
        return size

    def _widen(self) -> None:
        """A wider pipe makes dropping a flood cost fewer turns of the loop; if that is refused, it stays as it is."""
        if hasattr(fcntl, "F_SETPIPE_SZ") or os.uname().sysname == "Linux":
            try:
                fcntl.fcntl(self._descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)
            except OSError:
                return
