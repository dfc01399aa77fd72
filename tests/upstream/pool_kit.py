"""What the tests of the pool share: a watch over its events, and pools of servers in memory. Not a test itself."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from toolfold.events import Event, Events
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import ServerSpec
from toolfold.upstream.base import Hooks, Upstream
from toolfold.upstream.pool import Pool, PoolLimits

TOOL = {"name": "look", "inputSchema": {"type": "object"}}
QUICK = PoolLimits(first_pause_s=0.001, longest_pause_s=0.01, max_restarts=3)


class Watch:
    """Collects events and waits for them."""

    def __init__(self) -> None:
        self.events = Events()
        self.seen: list[Event] = []
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.events.subscribe(self._heard)

    def _heard(self, event: Event) -> None:
        self.seen.append(event)
        task = asyncio.create_task(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    def count(self, name: str) -> int:
        return sum(event.name == f"upstream.{name}" for event in self.seen)

    async def until(self, name: str, times: int = 1) -> None:
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: self.count(name) >= times)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not [task for task in left if "toolfold" in task.get_name()]

    asyncio.run(bounded())


def pool_of(*servers: MemoryUpstream, watch: Watch | None = None, limits: PoolLimits = QUICK, **more: Any) -> Pool:
    by_name = {server.spec.name: server for server in servers}

    def make(spec: ServerSpec, hooks: Hooks) -> Upstream:
        return by_name[spec.name].make(spec, hooks)

    specs = [server.spec for server in servers]
    return Pool(specs, events=watch.events if watch else None, limits=limits, make=make, **more)
