"""Whether the script's event loop has nothing to do but wait, and waiting in its place.

A call that is alone need not go through the loop: it waits for its own socket and for everything that could wake the
loop, the next timer included, and gives way to any of it. So a script cannot tell the difference, but in time. It looks
at parts of asyncio's own loop that have no public name; a loop without them is never called idle.
"""

import asyncio
import select
from typing import Any


class Idle:
    """The loop that runs now, as seen from one descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop: Any = None
        self._poll: Any = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        selector: Any = getattr(loop, "_selector", None)
        known = all(hasattr(loop, name) for name in ("_ready", "_scheduled", "_stopping"))
        self._poll = None
        if known and hasattr(selector, "fileno") and hasattr(select, "poll"):
            self._loop = loop
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLIN)
            # An epoll descriptor is readable when something that the loop watches is.
            self._poll.register(selector.fileno(), select.POLLIN)

    def now(self) -> bool:
        """Nothing waits to be run, and the task that asks was not told to end."""
        loop = self._loop
        if self._poll is None or loop._ready or loop._stopping:  # noqa: SLF001 - there is no public way to ask
            return False
        task = asyncio.current_task()
        return task is not None and not task.cancelling()

    def until_readable(self) -> bool:
        """Waits. True: the descriptor is readable; False: the loop has something to do, or may have."""
        loop = self._loop
        timers = loop._scheduled  # noqa: SLF001 - as above
        pause = max(0.0, timers[0].when() - loop.time()) * 1000 if timers else None
        ready = self._poll.poll(pause)
        return len(ready) == 1 and ready[0][0] == self._descriptor
