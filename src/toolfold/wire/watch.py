"""Listening for changes of a modern server's tools: one long request, asked again when it ends.

Above: `connection.py`, which starts and stops it.
"""

import asyncio
from typing import Protocol

from msgspec import Raw

from toolfold.errors import RemoteError, UpstreamError
from toolfold.wire.channel import Head
from toolfold.wire.values import NO_LIMIT, TOOLS_CHANGED

METHOD = "subscriptions/listen"
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Listened(Protocol):
    """What the watch needs of a connection."""

    @property
    def closed(self) -> bool: ...
    def next_number(self) -> int: ...
    def modern_params(self, rest: bytes) -> bytes: ...
    def told(self, method: str, params: Raw) -> None: ...
    def noise(self, text: str) -> None: ...
    async def exchange(
        self, number: int, method: str, params: bytes, head: Head, *, timeout_s: float | None = None
    ) -> Raw: ...


class Watch:
    """Runs in a task of its own. A subscription that was lost may have missed a change, so one is told."""

    def __init__(
        self,
        connection: Listened,
        notifications: bytes = b'{"toolsListChanged":true}',
        changed: tuple[str, ...] = (TOOLS_CHANGED,),
    ) -> None:
        self._connection = connection
        self._params = b'{"notifications":%b}' % notifications
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self.refused = ""
        """What the server said when it refused."""

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def stopped(self) -> bool:
        return self._task is not None and self._task.done()

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while not self._connection.closed:
            began = loop.time()
            if not await self._listen():
                return
            pause = FIRST_PAUSE_S if loop.time() - began > LONGEST_PAUSE_S else min(pause * 2, LONGEST_PAUSE_S)
            await asyncio.sleep(pause)
            for method in self._changed:
                self._connection.told(method, Raw(b"{}"))

    async def _listen(self) -> bool:
        """One subscription to its end. False: another would end the same way."""
        params = self._connection.modern_params(self._params)
        try:
            await self._connection.exchange(
                self._connection.next_number(), METHOD, params, Head(METHOD), timeout_s=NO_LIMIT
            )
        except RemoteError as error:
            self.refused = error.message
            self._connection.noise(f"it refuses to tell of changes: {error.message}")
            return False
        except UpstreamError:
            return not self._connection.closed
        return True
