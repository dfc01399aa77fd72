"""The servers of one gateway: a pool that is opened when it is first needed, and lists that stay fresh by themselves.

A server that says its tools changed, or whose list has outlived its time, is read again and its tools are written into
the catalogue. The first build runs in the background: a gateway that serves answers at once. Above: the gateway, which
brings the catalogue. Below: the pool and the store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from toolfold.config import Settings
from toolfold.containers import TaskSet
from toolfold.errors import StoreError, ToolfoldError, UpstreamError
from toolfold.events import Events
from toolfold.storage.base import ServerRecord, Store
from toolfold.types import Era, Listing, ServerSpec, ServerState, Status

if TYPE_CHECKING:
    from toolfold.upstream.base import Upstream
    from toolfold.upstream.pool import Pool


# The namespace of the store that remembers which protocol era each server speaks.
ERAS_NAMESPACE = "eras"

# The pause before a list is read again that became stale while it was read: each time twice as long, up to the last.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0

# How often an open gateway looks whether a list has outlived its time. Looking reads nothing from a server.
FRESHNESS_CHECK_S = 10.0

log = logging.getLogger("toolfold.gateway")


class _Catalogue(Protocol):
    """What a refresh needs of the catalogue."""

    async def servers(self) -> Sequence[ServerRecord]:
        """Each server as it was last read."""

    async def update_server(self, listing: Listing) -> object:
        """Takes in the tools of one server."""

    async def mark_failed(self, server: str, reason: str) -> object:
        """Records that a server could not be read; its tools stay, marked as stale."""


class UpstreamManager:
    """All sources of tools of one gateway. `ready_made` are those that a program brings itself."""

    def __init__(
        self,
        settings: Settings,
        ready_made: "Sequence[Upstream]",
        store: Store,
        catalogue: _Catalogue,
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
        # What servers of the legacy era are told that clients can answer, set before the first is opened. They ask for
        # it once, so whether the client of a call really can is decided when its server asks.
        self.handshake: Raw | None = None
        # What was looked up for servers that were opened: never to be shown.
        self.secrets: set[str] = set()
        self._pool: Pool | None = None
        self._closed = False
        self._opening = asyncio.Lock()
        self._call_timeouts = {
            spec.name: spec.call_timeout_s for spec in self.specs() if spec.call_timeout_s is not None
        }
        self._rereads: dict[str, asyncio.Task[None]] = {}
        self._tasks = TaskSet(log)
        self._writes = TaskSet(log)
        self._builds = 0
        self._no_build = asyncio.Event()
        self._no_build.set()

    async def aclose(self) -> None:
        """Ends every server, and lets nobody start another. Safe to call twice."""
        self._closed = True
        await self._tasks.cancel()
        if self._pool is not None:
            await self._pool.aclose()
            self._pool = None
        await self._writes.wait()  # after the pool: until then a server may open, and its era is written

    async def pool(self) -> "Pool":
        """The servers, each opened when it is first needed."""
        if self._pool is None:
            async with self._opening:
                if self._pool is None:
                    self._pool = await self._open_pool()
        return self._pool

    async def _open_pool(self) -> "Pool":
        # Imported here: commands that only read the catalogue load nothing of the connecting side.
        from toolfold.upstream.factory import UpstreamWithSecrets
        from toolfold.upstream.pool import Pool, PoolLimits
        from toolfold.wire import WireOptions

        limits = self._settings.limits
        eras = await self._store.items(ERAS_NAMESPACE)
        # Looked at after the wait: a pool that is made once `aclose` has run would be closed by nobody.
        if self._closed:
            raise StoreError(
                "the gateway was closed before this was done", next_action="close it when nobody asks any more"
            )
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
                request_timeout_s=limits.call_timeout_s,
                handshake=self.handshake,
            ),
        )
        pool.watch(self._start_reread)
        self._tasks.start(self._stay_fresh(), name="keeping lists fresh")
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
        return [_recorded_state(spec, records.get(spec.name)) for spec in self.specs()]

    def specs(self) -> tuple[ServerSpec, ...]:
        return (*self._settings.servers, *(upstream.spec for upstream in self._ready_made))

    def call_timeout_s(self, server: str) -> float:
        """How long a call to this server may take: its own limit, which may lie above the global one, or that."""
        return self._call_timeouts.get(server, self._settings.limits.call_timeout_s)

    async def reread(self, server: str) -> None:
        """Reads one server again and takes its tools in; a failure is recorded and its earlier tools stay."""
        await self._no_build.wait()
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
            # A server that reports a change with every listing would otherwise be read without a pause.
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    @contextmanager
    def building(self) -> Iterator[None]:
        """Holds rereads back while a build reads the servers: it would write older lists over what they bring, and a
        first build would find a catalogue of some servers."""
        self._builds += 1
        self._no_build.clear()
        try:
            yield
        finally:
            self._builds -= 1
            if not self._builds:
                self._no_build.set()

    async def refresh(self) -> Sequence[str]:
        """Reads again every server whose list is no longer fresh, and returns their names."""
        due = (await self.pool()).due()
        for name in due:
            self._start_reread(name)
        await asyncio.gather(*(self._rereads[name] for name in due if name in self._rereads))
        return due

    async def _stay_fresh(self) -> None:
        """Refreshes for as long as the gateway is open."""
        while True:
            await asyncio.sleep(self._check_s)
            try:
                await self.refresh()
            except ToolfoldError as error:  # a store that cannot be read now may be there again the next time
                log.warning("lists could not be kept fresh: %s", error.message)

    def _remember_era(self, server: str, era: Era) -> None:
        self._writes.start(self._store.put(ERAS_NAMESPACE, server, era.encode()), name=f"remembering {server}")

    def _start_reread(self, server: str) -> None:
        """Starts one reread of a server, however often it says meanwhile that its tools changed."""
        if server not in self._rereads:
            task = self._rereads[server] = self._tasks.start(self.reread(server), name=server)
            task.add_done_callback(lambda _: self._rereads.pop(server, None))


def _recorded_state(spec: ServerSpec, record: ServerRecord | None) -> ServerState:
    """A server's state by the catalogue alone."""
    tools = record.tools if record is not None else None
    record = record or ServerRecord(name=spec.name)
    status: Status = "disabled" if not spec.enabled else "failed" if record.error else "idle"
    return ServerState(
        name=spec.name,
        transport=spec.transport,
        status=status,
        shown=spec.shown(),
        info=record.info,
        tools=tools,
        error=record.error,
        next_action="run `toolfold doctor --connect`" if record.error else "",
        warnings=record.warnings,
    )


def _decode_era(stored: bytes) -> Era:
    return "modern" if stored == b"modern" else "legacy"


class InitialBuild:
    """Builds where the catalogue is missing, or is not of the servers that `specs` gives."""

    def __init__(
        self, store: Store, specs: Callable[[], Iterable[ServerSpec]], build: Callable[[], Awaitable[object]]
    ) -> None:
        self._store = store
        self._specs = specs
        self._build = build
        self._ready: asyncio.Event | None = None

    @property
    def pending(self) -> bool:
        """Whether it was started and there is no catalogue to serve from yet."""
        return self._ready is not None and not self._ready.is_set()

    async def wait(self) -> None:
        """Waits while it is pending. It ends without an error: an empty catalogue then says what is wrong."""
        if self._ready is not None:
            await self._ready.wait()

    def start(self) -> "asyncio.Task[None]":
        self._ready = ready = asyncio.Event()
        return asyncio.ensure_future(self._run(ready))

    async def _run(self, ready: asyncio.Event) -> None:
        try:
            async with self._store.snapshot() as snapshot:
                built = {record.name for record in await snapshot.servers()} if snapshot.generation else None
            if built is not None:
                ready.set()
            if built != {spec.name for spec in self._specs() if spec.enabled}:
                await self._build()
        except ToolfoldError as error:
            log.warning("the catalogue could not be read: %s", error.message)
        finally:
            ready.set()
