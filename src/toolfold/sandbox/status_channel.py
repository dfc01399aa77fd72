"""The host's line to a child's shim: status messages one way, a hang-up that kills the other way.

The shim kills its child when the line closes, so a host that dies takes its children along. The channel is over when
the shim is gone, watched by its pidfd where there is one. Above: `child.py`. Below: `control_messages.py`.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from toolfold.sandbox.control_messages import Message, MessageReader


class StatusChannel:
    """Calls `on_message` for all the shim says but its child's end, and `on_closed` once when the shim is gone."""

    def __init__(
        self,
        status: socket.socket,
        on_message: Callable[[Message, list[int]], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._status = status
        self._on_message = on_message
        self._on_closed = on_closed
        self._reader = MessageReader(status)
        self._pidfd: int | None = None
        self._alone = False
        self._cut = False
        # Whether the zygote has answered the request for a fork, and whether the shim closed its end.
        self._answered = False
        self._hung_up = False
        self.pid = 0
        self.child_ended = False
        self.report: Message | None = None
        status.setblocking(False)

    def attach(self, pid: int, descriptors: list[int]) -> None:
        """The zygote forked: from here on the shim can be signalled and watched."""
        self._answered = True
        self.pid = pid
        if descriptors:
            self._pidfd = descriptors[0]
            self.pid = _pid_of_pidfd(self._pidfd) or pid
            self._loop.add_reader(self._pidfd, self._on_shim_exit)
            for spare in descriptors[1:]:
                os.close(spare)
        if self._cut:
            self.cut()
        # Not before: a shim on another core is ready before the zygote has said its number, and who heard of it then
        # would watch, signal and count process 0.
        self._loop.add_reader(self._status, self._read)
        self._close_if_over()

    def cut(self) -> None:
        """Ends the shim and the child. Where a pid namespace holds all of it, SIGKILL for the shim is enough."""
        self._cut = True
        if self._alone and self._pidfd is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._status.shutdown(socket.SHUT_WR)

    def abandon(self) -> None:
        """There is no process, or none to hear from any more."""
        self.cut()
        self._answered = True
        if self._pidfd is None:
            self._hang_up()
            self._close_if_over()  # its end may have been seen before this

    def _read(self) -> None:
        messages = self._reader.read()
        for message, descriptors in messages or ():
            if message["event"] == "ended":
                self.report = message
                self.child_ended = True
            else:
                self._alone = bool(message.get("alone"))
                self._on_message(message, descriptors)
                if self._cut:
                    self.cut()
        if messages is None:
            self._hang_up()

    def _hang_up(self) -> None:
        if not self._hung_up:
            self._hung_up = True
            self._loop.remove_reader(self._status)
            self._close_if_over()

    def _on_shim_exit(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self._hung_up and self._answered and self._pidfd is None and self._status.fileno() >= 0:
            self.child_ended = True
            self._status.close()
            self._reader.close()
            self._on_closed()


def _pid_of_pidfd(pidfd: int) -> int | None:
    """The process number as this process counts; the zygote may count within a namespace of its own."""
    try:
        text = Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii")
        number = int(dict(line.split(":", 1) for line in text.splitlines() if ":" in line)["Pid"])
    except (OSError, KeyError, ValueError):
        return None
    return number if number > 0 else None
