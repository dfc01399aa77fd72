"""Small containers that every stage needs: a bounded dictionary, a set of background tasks, a list of listeners; and
how callers share what there is only so much of.

Nothing here knows tools or servers; it imports only the standard library, and asyncio not
before a task is started: commands that run no event loop load this module, too.
"""

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio

# Between two attempts at work that must go on.
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.5, 60.0

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """A dictionary that drops its oldest entry when one more would exceed `max_size`.

    "Oldest" is the order of insertion: reading an entry does not renew it, setting it again through `renew` does.
    """

    __slots__ = ("_max_size",)

    def __init__(self, max_size: int) -> None:
        super().__init__()
        self._max_size = max_size

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self:
            while len(self) >= self._max_size:
                del self[next(iter(self))]
        super().__setitem__(key, value)

    def renew(self, key: K, value: V) -> None:
        """Sets an entry and makes it the newest one."""
        self.pop(key, None)
        self[key] = value


class TaskSet:
    """Background tasks that nobody awaits: held so that they are not collected, logged when they fail."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> "Iterator[asyncio.Task[Any]]":
        return iter(tuple(self._tasks))

    def start(self, work: Coroutine[Any, Any, Any], *, name: str | None = None) -> "asyncio.Task[Any]":
        import asyncio

        task = asyncio.get_running_loop().create_task(work, name=name)
        # The event loop holds tasks weakly: without this set a task may vanish while it waits.
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> "asyncio.Task[Any]":
        """As `start`, for work that goes on as long as the program: a fault is logged, and the work begins anew after a
        pause that grows while it keeps failing."""
        return self.start(self._keep(work, name), name=name)

    async def _keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        import asyncio

        pause_s, clock = _FIRST_PAUSE_S, asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                return await work()
            except Exception:  # noqa: BLE001 - logged; work may fail in any way
                pause_s = _FIRST_PAUSE_S if clock() - began > _MAX_PAUSE_S else pause_s
                self._log.exception("%s failed, and is not done until it begins anew in %g s", name, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    def _finished(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("%s failed", task.get_name(), exc_info=task.exception())

    async def wait(self) -> None:
        """Waits until every task is done, including those started meanwhile."""
        import asyncio

        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def cancel(self) -> None:
        """Cancels every task and waits for its end."""
        for task in tuple(self._tasks):
            task.cancel()
        await self.wait()


Listener = TypeVar("Listener", bound=Callable[..., object])


class Listeners(Generic[Listener]):
    """Callbacks in the order they were added. One that raises is logged and removed: it never breaks the work."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._listeners: list[Listener] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Adds a listener; the returned function removes it and may be called more than once."""
        self._listeners.append(listener)
        return lambda: self._remove(listener)

    def _remove(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def notify(self, *arguments: Any) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(*arguments)
            except Exception:  # noqa: BLE001 - logged; a listener may raise anything
                self._log.exception("a listener failed and was removed")
                self._remove(listener)


def nesting(value: Any, limit: int) -> int:
    """How many lists and dictionaries are nested inside each other, counted up to `limit`."""
    level, depth = [value] if isinstance(value, (dict, list)) else [], 0
    while level and depth < limit:
        depth += 1
        inner = [item.values() if isinstance(item, dict) else item for item in level]
        level = [item for items in inner for item in items if isinstance(item, (dict, list))]
    return depth


def who_yields(held: Mapping[str, int], asking: str, limit: int) -> str | None:
    """Who gives one up so that `asking` gets one, where all `limit` are held: whoever has most, and never one who has
    no more than an equal share. `None`: nobody, and the one who asks gets none."""
    share = max(1, limit // len({*held, asking}))
    if held.get(asking, 0) >= share:
        return asking
    most = max(held, key=lambda name: held[name])
    return most if held[most] > share else None
