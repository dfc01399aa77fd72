"""Deadlines that are nearly always met: those of one length share one timer of the event loop.

A timer for every request would cost as much as writing the request. Above: `connection.py`, and
`calls.pipeline`.
"""

import asyncio
from collections.abc import Callable

# Event loops count in milliseconds: a deadline that is nearer than this is there.
_EARLY_S = 0.001


class _Deadline:
    """A running deadline. Unless `stop` is called in time, it calls `expire`."""

    __slots__ = ("_queue", "at", "expire")

    def __init__(self, queue: "_Queue", at: float, expire: Callable[[], None]) -> None:
        self._queue = queue
        self.at = at
        self.expire = expire

    def stop(self) -> None:
        self._queue.waiting.pop(self, None)


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self) -> None:
        self._queues: dict[float, _Queue] = {}

    def start(self, seconds: float, expire: Callable[[], None]) -> _Deadline:
        """Calls `expire` once after so many seconds, unless it was stopped before."""
        queue = self._queues.get(seconds)
        if queue is None:
            queue = self._queues[seconds] = _Queue(self._queues, seconds)
        return queue.add(expire)


class _Queue:
    """Deadlines of one length: the first one in is the first one due, so that one timer does for all."""

    __slots__ = ("_loop", "_queues", "_seconds", "_timer", "waiting")

    def __init__(self, queues: "dict[float, _Queue]", seconds: float) -> None:
        self._queues = queues
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # In the order of their times.
        self.waiting: dict[_Deadline, None] = {}

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
        # A timeout may be any float: an empty queue is dropped, or they would pile up.
        self._queues.pop(self._seconds, None)
