"""The first catalogue of a gateway that serves, built in the background; whoever asks before it is there waits for it.

With it begins what lasts as long as the gateway: taking up what other gateways write. Above: the gateway. Below: the
servers and the store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from toolfold.errors import ToolfoldError
from toolfold.storage.base import Store
from toolfold.upstream.refresh import UpstreamManager

log = logging.getLogger("toolfold.gateway")

# How long the first client of all waits for a server that does not answer, where another one did.
_FIRST_BUILD_S = 10.0


class InitialBuild:
    """Builds where the catalogue is missing, or is not of the servers; else takes in what they list now. It begins with
    `start`, or `when_asked` with whoever first waits for it."""

    def __init__(
        self,
        store: Store,
        servers: UpstreamManager,
        build: Callable[[], Awaitable[object]],
        *,
        when_asked: bool = False,
    ) -> None:
        self._store = store
        self._servers = servers
        self._build = build
        self._when_asked = when_asked
        self._ready: asyncio.Event | None = None

    @property
    def pending(self) -> bool:
        """Whether it was started, or still will be, and there is no catalogue to serve from yet."""
        return self._when_asked if self._ready is None else not self._ready.is_set()

    async def wait(self) -> None:
        """Waits while it is pending. It ends without an error: an empty catalogue then says what is wrong."""
        if self._ready is None and self._when_asked:
            self.start()
        if self._ready is not None:
            await self._ready.wait()

    def start(self) -> "asyncio.Task[None]":
        self._ready = ready = asyncio.Event()
        self._servers.tasks.keep(self._servers.follow_others, name="following other gateways")
        return self._servers.tasks.start(self._run(ready), name="the first build")

    async def _run(self, ready: asyncio.Event) -> None:
        try:
            async with self._store.snapshot() as snapshot:
                built = {record.name for record in await snapshot.servers()} if snapshot.generation else None
            if built is not None:
                ready.set()
            # Whoever has no server at all, such as a live session, takes away nobody's.
            if built is None or (self._servers.names and built != self._servers.names):
                self._servers.patience_s = _FIRST_BUILD_S if built is None else None
                await self._build()
                self._servers.tasks.start(self._servers.follow_all(), name="servers that were late")
            else:
                await self._servers.follow_all()
        except ToolfoldError as error:
            log.warning("the catalogue could not be read: %s", error.message)
        finally:
            self._servers.patience_s = None
            ready.set()
