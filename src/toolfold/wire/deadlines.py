"""Many deadlines of few lengths on one timer each: what nearly always ends in time should cost next to nothing.

A timer of the event loop for every request would cost as much as writing the request. Above: `connection.py`, and
`calls.bounding`.
"""

import asyncio
from collections.abc import Callable

_EARLY_S = 0.001
"""Event loops count in milliseconds: a deadline that is nearer than this is there."""


class _Deadline:
    """One that runs. `stop` ends it; whoever does not is told."""

    __slots__ = ("_line", "at", "expire")

    def __init__(self, line: "_Queue", at: float, expire: Callable[[], None]) -> None:
        self._line = line
        self.at = at
        self.expire = expire

    def stop(self) -> None:
        self._line.waiting.pop(self, None)


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self) -> None:
        self._lines: dict[float, _Queue] = {}

    def start(self, seconds: float, expire: Callable[[], None]) -> _Deadline:
        """Calls `expire` once after so many seconds, unless it was stopped before."""
        line = self._lines.get(seconds)
        if line is None:
            line = self._lines[seconds] = _Queue(self._lines, seconds)
        return line.add(expire)


class _Queue:
    """Deadlines of one length: the first one in is the first one due, so that one timer does for all."""

    __slots__ = ("_lines", "_loop", "_seconds", "_timer", "waiting")

    def __init__(self, lines: "dict[float, _Queue]", seconds: float) -> None:
        self._lines = lines
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.waiting: dict[_Deadline, None] = {}
        """In the order of their times."""

    def add(self, expire: Callable[[], None]) -> _Deadline:
        deadline = _Deadline(self, self._loop.time() + self._seconds, expire)
        self.waiting[deadline] = None
        if self._timer is None:
            self._timer = self._loop.call_at(deadline.at, self._due)
        return deadline

    def _due(self) -> None:
        self._timer = None
        now = self._loop.time() + _EARLY_S
        while self.waiting:
            deadline = next(iter(self.waiting))
            if deadline.at > now:
                self._timer = self._loop.call_at(deadline.at, self._due)
                return
            del self.waiting[deadline]
            deadline.expire()
        self._lines.pop(self._seconds, None)
