"""The servers of one gateway: the pool, opened when it is first needed, and lists that stay fresh by themselves.

Above: `Gateway`. Below: `upstream.pool` and the catalogue, which takes in what is read.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Raw

from toolfold.catalogue.catalogue import Catalogue
from toolfold.config import Settings
from toolfold.errors import ToolfoldError, UpstreamError
from toolfold.events import Events
from toolfold.types import Era, ServerInfo, ServerSpec, ServerState, Status

if TYPE_CHECKING:
    from toolfold.storage.base import Store
    from toolfold.upstream.base import Upstream
    from toolfold.upstream.pool import Pool

ERAS_NAMESPACE = "eras"
"""The namespace of the store that remembers which protocol era each server speaks."""

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
"""The pause before a list is read again that grew stale while it was read: each time twice as long, up to the last."""

FRESHNESS_CHECK_S = 10.0
"""How often an open gateway looks whether a list has outlived its time. Looking costs nothing."""

log = logging.getLogger("toolfold.gateway")


class UpstreamManager:
    """All sources of tools of one gateway. `ready_made` are those that a program brings itself."""

    def __init__(
        self,
        settings: Settings,
        ready_made: "Sequence[Upstream]",
        store: "Store",
        catalogue: Catalogue,
        events: Events,
        *,
        check_s: float = FRESHNESS_CHECK_S,
    ) -> None:
        self._settings = settings
        self._ready_made = tuple(ready_made)
        self._store = store
        self._catalogue = catalogue
        self._events = events
        self._check_s = check_s
        self.handshake: Raw | None = None
        """What servers of the legacy era are told that clients can answer, set before the first is opened. Whether the
        client of a call can is then looked at when its server asks."""
        self.secrets: set[str] = set()
        """What was looked up for servers that were opened: never to be shown."""
        self._pool: Pool | None = None
        self._opening = asyncio.Lock()
        self._rereading: dict[str, asyncio.Task[None]] = {}
        self._builds = 0
        self._settled = asyncio.Event()
        self._settled.set()
        self._notes: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Ends every server. Safe to call twice."""
        for task in self._rereading.values():
            task.cancel()
        await asyncio.gather(*self._rereading.values(), *self._notes, return_exceptions=True)
        self._rereading.clear()
        if self._pool is not None:
            await self._pool.aclose()
            self._pool = None

    async def pool(self) -> "Pool":
        """The servers, each opened when it is first needed."""
        if self._pool is None:
            async with self._opening:
                if self._pool is None:
                    self._pool = await self._made()
        return self._pool

    async def _made(self) -> "Pool":
        from toolfold.upstream.pool import Pool, PoolLimits
        from toolfold.upstream.with_secrets import UpstreamWithSecrets
        from toolfold.wire import WireOptions

        limits = self._settings.limits
        eras = await self._store.items(ERAS_NAMESPACE)
        pool = Pool(
            self._settings.servers,
            ready_made=self._ready_made,
            events=self._events,
            limits=PoolLimits(open_at_once=limits.parallel_starts),
            make=partial(UpstreamWithSecrets, on_secrets=self.secrets.update),
            known_eras={name: _decode_era(era) for name, era in eras.items()},
            remember_era=self._remember_era,
            wire=WireOptions(
                max_frame_bytes=limits.max_frame_bytes,
                spill_directory=self._settings.outputs.directory,
                max_output_bytes=limits.max_output_bytes,
                handshake=self.handshake,
            ),
        )
        pool.watch(self._changed)
        self._keep("keeping lists fresh", asyncio.ensure_future(self._stay_fresh()))
        return pool

    async def states(self, *, connect: bool = False) -> Sequence[ServerState]:
        """Each configured server: with `connect`, as it is now; else as the last build left it."""
        if connect:
            pool = await self.pool()
            async for _ in pool.listings():
                pass
            return pool.states()
        if self._pool is not None:
            return self._pool.states()
        records = {record.name: record for record in await self._catalogue.servers()}
        states = []
        for spec in self.specs():
            record = records.get(spec.name)
            status: Status = "disabled" if not spec.enabled else "failed" if record and record.error else "idle"
            states.append(
                ServerState(
                    name=spec.name,
                    transport=spec.transport,
                    status=status,
                    shown=spec.shown(),
                    info=record.info if record else ServerInfo(),
                    tools=record.tools if record else None,
                    error=record.error if record else "",
                    next_action="run `toolfold doctor --connect`" if record and record.error else "",
                    warnings=record.warnings if record else (),
                )
            )
        return states

    def specs(self) -> tuple[ServerSpec, ...]:
        return (*self._settings.servers, *(upstream.spec for upstream in self._ready_made))

    async def reread(self, server: str) -> None:
        """Reads one server again and takes its tools in; a failure is noted and its earlier tools stay."""
        await self._settled.wait()
        pool = await self.pool()
        pause = _FIRST_PAUSE_S
        while True:
            try:
                await self._catalogue.update_server(await pool.listing(server))
            except UpstreamError as error:
                await self._catalogue.mark_failed(server, error.message)
                self._events.emit("catalogue.stale", server=server, error=error.message)
                return
            self._events.emit("catalogue.updated", server=server)
            if server not in pool.due():
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    @contextmanager
    def building(self) -> Iterator[None]:
        """While a build reads the servers, rereads wait: the build would write older lists over what they bring, and
        a first one would find a catalogue of some servers."""
        self._builds += 1
        self._settled.clear()
        try:
            yield
        finally:
            self._builds -= 1
            if not self._builds:
                self._settled.set()

    async def refresh(self) -> Sequence[str]:
        """Reads again every server whose list is no longer fresh, and tells which those were."""
        due = (await self.pool()).due()
        for name in due:
            self._changed(name)
        await asyncio.gather(*(self._rereading[name] for name in due if name in self._rereading))
        return due

    async def _stay_fresh(self) -> None:
        """Reads lists again when the time that their servers gave has passed, as long as the gateway is open."""
        while True:
            await asyncio.sleep(self._check_s)
            try:
                await self.refresh()
            except ToolfoldError as error:  # a store that cannot be read now may be there again the next time
                log.warning("lists could not be kept fresh: %s", error.message)

    def _remember_era(self, server: str, era: Era) -> None:
        task = asyncio.ensure_future(self._store.put(ERAS_NAMESPACE, server, era.encode()))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    def _changed(self, server: str) -> None:
        """A server says that its tools changed: it alone is read again, once, however often it says so meanwhile."""
        if server not in self._rereading:
            self._keep(server, asyncio.ensure_future(self.reread(server)))

    def _keep(self, name: str, task: "asyncio.Task[None]") -> None:
        """Work that nobody waits for: it ends with the gateway, and what goes wrong in it is logged."""
        self._rereading[name] = task

        def done(task: "asyncio.Task[None]") -> None:
            self._rereading.pop(name, None)
            if not task.cancelled() and task.exception() is not None:
                log.error("%s failed", name, exc_info=task.exception())

        task.add_done_callback(done)


def _decode_era(stored: bytes) -> Era:
    return "modern" if stored == b"modern" else "legacy"
