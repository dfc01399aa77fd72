"""Reads what a child prints, up to a limit, and drops the rest cheaply.

A child never blocks on its output, however much it prints, and the host never holds more than the limit. Above:
`child.py`, `zygote_handle.py`. Below: a pipe.
"""

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import Callable

_READ_BYTES = 64 * 1024
_PIPE_BYTES = 1024 * 1024
_F_SETPIPE_SZ = 1031


class OutputCapture:
    """One pipe, read in the event loop until its writers are gone; then `on_close` is called once."""

    def __init__(self, descriptor: int, limit: int, on_close: Callable[[], None] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._limit = limit
        self._on_close = on_close
        self._closed = False
        self.data = bytearray()
        self.dropped = 0
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._on_close()

    def _read(self) -> None:
        room = self._limit - len(self.data)
        try:
            chunk = os.read(self._descriptor, _READ_BYTES if room > 0 else _PIPE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return
        if room > 0:
            self.data += chunk[:room]
            if len(chunk) >= room:
                self._widen()
        self.dropped += max(0, len(chunk) - max(0, room))

    def _widen(self) -> None:
        # A wider pipe drops a flood in fewer turns of the loop. The kernel may refuse it.
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)
