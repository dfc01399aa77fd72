"""Our side of the guardian: it is started with the first stdio server, and told of each process group.

One guardian serves the whole process. A fork starts its own with its first server; a guardian that was killed is
replaced. Below: `guardian.py`, the script itself. Above: `process.py`.
"""

import contextlib
import os
import secrets
import sys
import threading
from pathlib import Path

from toolfold.wire import guardian


class Guard:
    """Registers process groups with the guardian of this process."""

    def __init__(self) -> None:
        self.owner = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._pipe: int | None = None
        self._pid: int | None = None
        self._count = 0

    def tag(self) -> str:
        """A value for the tag variable, of which no other server has the like. The guardian stands from here on."""
        with self._lock:
            self._count += 1
            if self._pipe is None:
                self._start()
            return f"{self.owner}.{self._count}."

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            if not self._tell(f"+{group}\n"):
                self._start()

    def remove(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            self._tell(f"-{group}\n")

    def _tell(self, text: str) -> bool:
        if self._pipe is None:
            return False
        try:
            os.write(self._pipe, text.encode())
        except OSError:
            return False
        return True

    def _start(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
        if self._pid is not None:
            with contextlib.suppress(OSError):
                os.waitpid(self._pid, os.WNOHANG)
        reading, self._pipe = os.pipe()
        script = str(Path(guardian.__file__).resolve())
        null = os.devnull
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-B", script, self.owner, str(os.getpid())],
                {"PATH": os.defpath},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reading, 0),
                    (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, null, os.O_WRONLY, 0),
                ],
            )
        finally:
            os.close(reading)
        self._tell("".join(f"+{group}\n" for group in self._groups))


_guards: dict[int, Guard] = {}


def guard() -> Guard:
    """The guard of this process, made on first use; a forked child gets its own."""
    pid = os.getpid()
    found = _guards.get(pid)
    if found is None:
        _guards.clear()
        found = _guards[pid] = Guard()
    return found
