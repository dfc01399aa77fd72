"""The line between the host and a child's shim: what the shim tells, and the way to end it.

The shim ends its child when the line closes, so a host that dies takes its children along. It is over when the shim is
gone, seen by its pidfd where there is one. Above: `child.py`. Below: `control.py`.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable

from toolfold.sandbox import control_messages as control


class StatusChannel:
    """`on_ready` is told when the child is confined, or why not; `on_closed` once when its shim is gone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        status: socket.socket,
        on_ready: Callable[[control.Message, list[int]], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._status = status
        self._on_ready = on_ready
        self._on_closed = on_closed
        self._assembler = control.MessageAssembler()
        self._handle: int | None = None
        self._alone = False
        self._cut = False
        self._held = False
        self._hung_up = False
        self.pid = 0
        self.over = False
        """The child itself has ended."""
        self.report: control.Message | None = None
        status.setblocking(False)
        loop.add_reader(status, self._read)

    def holds(self, pid: int, descriptors: list[int]) -> None:
        """The zygote forked: from here on the shim can be signalled and watched."""
        self._held = True
        self.pid = pid
        if descriptors:
            self._handle = descriptors[0]
            self.pid = _pid_of_pidfd(self._handle) or pid
            self._loop.add_reader(self._handle, self._gone)
            for spare in descriptors[1:]:
                os.close(spare)
        if self._cut:
            self.cut()
        self._settle()

    def cut(self) -> None:
        """Ends the shim and the child. Where a pid namespace holds all of it, SIGKILL for the shim is enough."""
        self._cut = True
        if self._alone and self._handle is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._status.shutdown(socket.SHUT_WR)

    def drop(self) -> None:
        """There is no process, or none to hear from any more."""
        self.cut()
        self._held = True
        if self._handle is None:
            self._hang_up()

    def _read(self) -> None:
        try:
            data, fds = control.receive(self._status)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        for message, descriptors in self._assembler.feed(data, fds):
            if message["event"] == "ended":
                self.report = message
                self.over = True
            else:
                self._alone = bool(message.get("alone"))
                self._on_ready(message, descriptors)
                if self._cut:
                    self.cut()
        if not data:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._hung_up:
            return
        self._hung_up = True
        self._loop.remove_reader(self._status)
        self._settle()

    def _gone(self) -> None:
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None
        self._settle()

    def _settle(self) -> None:
        if self._hung_up and self._held and self._handle is None and self._status.fileno() >= 0:
            self.over = True
            self._status.close()
            self._assembler.close()
            self._on_closed()


def _pid_of_pidfd(handle: int) -> int | None:
    """The process number of a pidfd, as this process counts."""
    try:
        with open(f"/proc/self/fdinfo/{handle}", encoding="ascii") as file:  # noqa: PTH123 - no pathlib gain here
            lines = dict(line.split(":", 1) for line in file if ":" in line)
        number = int(lines["Pid"])
    except (OSError, KeyError, ValueError):
        return None
    return number if number > 0 else None
