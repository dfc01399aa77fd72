"""The servers of one gateway: a pool that is opened when it is first needed, and lists that stay fresh by themselves.

The catalogue follows its servers. Whenever a connection to one opens, when it says that its tools changed, and when its
list has outlived its time, the list is read, and what differs is written into the catalogue; a list that is the same
writes nothing. Of several gateways on one store, one reads a list whose time is over, and all take up what it writes.
The first build runs in the background: a gateway that serves answers at once. Above: the gateway, which brings the
catalogue. Below: the pool and the store.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

from msgspec import Raw

from toolfold.config import MetadataRule, Settings
from toolfold.containers import TaskSet
from toolfold.errors import ServerTimeout, SignInRequired, StoreError, ToolfoldError, UpstreamError
from toolfold.events import Event, Events
from toolfold.storage.base import ServerRecord, Store, _put_hint
from toolfold.types import RENDERS_APPS, Era, Listing, ServerSpec, ServerState, Status
from toolfold.upstream.arrivals import _Arrivals
from toolfold.upstream.caller_tools import CallerTools
from toolfold.upstream.credentials import Credentials

if TYPE_CHECKING:
    from toolfold.upstream.base import Hooks, Upstream, _Catalogue
    from toolfold.upstream.function_tool import Function
    from toolfold.upstream.per_caller import PerCallerUpstream
    from toolfold.upstream.pool import Pool, PoolLimits


# The namespaces of the store that remember which protocol era each server speaks, and how it was configured when it was
# last read.
ERAS_NAMESPACE = "eras"
_CONFIGURED_NAMESPACE = "configured"

# What servers of the legacy era are told that clients can answer. They are told once, before it is known who will call,
# and list their tools by it: every command and every program says the same, or each would take tools from the catalogue
# that another put there. Whoever calls later answers, if its client declared that it can.
_BRIDGED = Raw(b'{"elicitation":{"form":{},"url":{}},"sampling":{},' + bytes(RENDERS_APPS)[1:])

# The pause before a list is read again that became stale while it was read: each time twice as long, up to the last.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0

# How often an open gateway looks whether a list has outlived its time, or a file was edited. Looking reads nothing from
# a server.
FRESHNESS_CHECK_S = 2.0

# How long whoever only looks at a tool waits for its server, counted from when the server was first asked.
_ASK_S = 10.0
# A server that could not be read is not asked again sooner than this for somebody who only looks.
_ASK_AGAIN_S = 30.0
# How often a list is read for calls that fail as if their tool had changed, and how long such a call waits for it.
_LOOK_AGAIN_S = 5.0
_LOOK_S = 3.0
# A gateway whose turn it is to read a list keeps it so much longer than the list lasts.
_TURN_S = 30.0
# News of other gateways that come within this time are taken up together.
_GATHER_S = 0.1

log = logging.getLogger("toolfold.gateway")


class UpstreamManager:
    """All sources of tools of one gateway. `ready_made` are those that a program brings itself."""

    def __init__(
        self,
        settings: Settings,
        ready_made: "Sequence[Upstream]",
        store: Store,
        catalogue: "_Catalogue",
        events: Events,
        *,
        check_s: float = FRESHNESS_CHECK_S,
    ) -> None:
        self._ready_made = tuple(ready_made)
        self._use_settings(settings)
        self._store = store
        self._catalogue = catalogue
        self._events = events
        self._check_s = check_s
        # Set before the first is opened, for one server whose client is known. It may list more to it than to others
        # who share the catalogue: it is taken in only where it must be known to be restricted.
        self.handshake = _BRIDGED
        # Gets each line that a server writes beside the protocol, with its name. Set before the first is opened.
        self.on_log: Callable[[str, str], None] | None = None
        self.caller_tools = CallerTools(store)
        self.credentials = Credentials(self.specs, settings.home, self.sign_in_changed, settings, store)
        self._own: dict[str, PerCallerUpstream] = {}
        # What was looked up for servers that were opened: never to be shown.
        self.secrets: set[str] = set()
        self._pool: Pool | None = None
        self._closed = False
        self._opening = asyncio.Lock()
        # Of each server the connection whose list the catalogue has.
        self._followed: dict[str, int] = {}
        self._remembered: dict[str, bytes] = {}
        # Of each server that could not be read: when, and why.
        self._failures: dict[str, tuple[float, UpstreamError]] = {}
        # Of each server when its list was last read for a call that failed.
        self._looked: dict[str, float] = {}
        self._reads: dict[str, tuple[float, asyncio.Task[None]]] = {}
        # Who this is to other gateways, and the servers whose lists it is its turn to read.
        self._holder, self._turns = token_hex(8), set[str]()
        self._rereads: dict[str, asyncio.Task[None]] = {}
        self._stop_listening: list[Callable[[], None]] = []
        self.tasks = TaskSet(log)
        self.arrivals = _Arrivals(self._join, lambda: self.per_caller, self.credentials, self.caller_tools, self.tasks)
        self._writes = TaskSet(log)
        self._builds = 0
        # How long a build waits for servers once another one answered; the very first one has somebody waiting for it.
        self.patience_s: float | None = None
        self._no_build = asyncio.Event()
        self._no_build.set()

    def _use_settings(self, settings: Settings) -> None:
        self._settings = settings
        self._call_timeouts = {
            spec.name: spec.call_timeout_s for spec in self.specs() if spec.call_timeout_s is not None
        }
        self.names = frozenset(spec.name for spec in self.specs() if spec.enabled)
        self.per_caller = self.names.intersection(spec.name for spec in self.specs() if spec.credentials == "caller")

    async def reconfigure(self, settings: Settings) -> None:
        """Takes over the servers of other settings: what is gone leaves the catalogue, what is new or changed is read;
        all others stay as they are, and what is being called ends by itself. Those that other rules are about are read
        as well: what was hidden is nowhere but there."""
        earlier, before = self._settings.rules, _enabled(self._settings)
        self._use_settings(settings)
        after = _enabled(settings)
        changed = [name for name, spec in after.items() if name not in before or not before[name].is_same_as(spec)]
        gone = sorted(before.keys() - after.keys())
        for name in (*gone, *changed):
            self._followed.pop(name, None)
            self._failures.pop(name, None)
        if self._pool is not None:
            self._pool.reconfigure(settings.servers, _pool_limits(settings))
        concerned = self._use_rules(earlier, settings.rules)
        for name in changed:
            self._events.emit("upstream.configured", server=name, new=name not in before)
        for name in concerned.union(changed):
            self._start_reread(name)
        await self._remove(gone)  # last: where the store fails, all else has taken effect
        self._events.emit("config.changed")

    def _use_rules(self, earlier: Sequence[MetadataRule], now: Sequence[MetadataRule]) -> set[str]:
        """Takes over other rules; gives the servers that they may be about."""
        if earlier == now:
            return set()
        self._catalogue.use_rules(now)
        # Where only their order is another one, all of them count.
        differing = [rule for rule in (*earlier, *now) if not (rule in earlier and rule in now)] or now
        return {name for name in self.names if any(rule.may_be_about(name) for rule in differing)}

    async def _remove(self, servers: Sequence[str]) -> None:
        await self._no_build.wait()
        if known := {record.name for record in await self._catalogue.servers()}.intersection(servers):
            await self._catalogue.remove_servers(known)
        for name in servers:
            self._events.emit("catalogue.updated", server=name, changes=0)
            self._events.emit("upstream.removed", server=name, disabled=any(spec.name == name for spec in self.specs()))

    async def aclose(self) -> None:
        """Ends every server, and lets nobody start another. Safe to call twice."""
        self._closed = True
        for stop in self._stop_listening:
            stop()
        await self.tasks.cancel()
        if self._pool is not None:
            await self._pool.aclose()
            self._pool = None
        await self.credentials.aclose()  # after the pool: a renewal that runs is stored when it is done
        await self._writes.wait()  # after the pool: until then a server may open, and its era is written
        with contextlib.suppress(StoreError):  # a turn that cannot be given back ends by itself
            for server in self._turns:
                await self._store.release_lease(f"refresh {server}", self._holder)

    async def pool(self) -> "Pool":
        """The servers, each opened when it is first needed."""
        if self._pool is None:
            async with self._opening:
                if self._pool is None:
                    self._pool = await self._open_pool()
        return self._pool

    async def _open_pool(self) -> "Pool":
        # Imported here: commands that only read the catalogue load nothing of the connecting side.
        from toolfold.upstream.pool import Pool
        from toolfold.wire import WireOptions

        limits = self._settings.limits
        eras, vault = await self._store.items(ERAS_NAMESPACE), await self.credentials.followed_vault()
        # Looked at after the wait: a pool that is made once `aclose` has run would be closed by nobody.
        if self._closed:
            raise StoreError(
                "the gateway was closed before this was done", next_action="close it when nobody asks any more"
            )
        pool = Pool(
            self._settings.servers,
            ready_made=self._ready_made,
            events=self._events,
            limits=_pool_limits(self._settings),
            make=self._make,
            known_eras={name: _decode_era(era) for name, era in eras.items()},
            remember_era=self._remember_era,
            on_log=self.on_log,
            wire=WireOptions(
                max_frame_bytes=limits.max_frame_bytes,
                spill_directory=self._settings.outputs.directory,
                max_output_bytes=limits.max_output_bytes,
                request_timeout_s=limits.call_timeout_s,
                handshake=self.handshake,
            ),
            vault=vault,
        )
        self.arrivals.open = True
        pool.watch(self._start_reread)
        self._stop_listening = [
            self._events.subscribe(self._on_ready, only="upstream.ready"),
            self._events.subscribe(self._on_failed, only="upstream.failed"),
        ]
        self.tasks.keep(self._stay_fresh, name="keeping lists fresh")
        return pool

    def _make(self, spec: ServerSpec, hooks: "Hooks") -> "Upstream":
        from toolfold.upstream.factory import UpstreamWithSecrets
        from toolfold.upstream.per_caller import PerCallerUpstream

        make = partial(UpstreamWithSecrets, on_secrets=self.secrets.update)
        if spec.credentials == "shared":
            return make(spec, hooks)
        own = self._own[spec.name] = PerCallerUpstream(
            spec,
            hooks,
            make=make,
            tools=self.caller_tools,
            signed_in=self.credentials.callers,
            limits=_pool_limits(self._settings),
        )
        return own

    def sign_in_changed(self, server: str, caller: str = "") -> None:
        """Somebody signed in or out: what was opened before is opened anew, and its list is read."""
        if caller and server in self._own:
            self._own[server].drop(caller)
        elif self._pool is not None:
            self._pool.reopen(server, "somebody signed in or out")
        self._failures.pop(server, None)
        self.arrivals.start(server, caller)

    async def _join(self, server: str, caller: str) -> None:
        """Takes in what a server lists to who signed in or out. Raises the `UpstreamError` that stops it."""
        failure: UpstreamError | None = None
        if caller:
            await (await self.pool()).ensure(server)
            failure = await self._own[server].check(caller)
        if server in self._reads:  # it may have begun before
            await asyncio.wait([self._reads[server][1]])
        await asyncio.shield(self._start_read(server))
        self._events.emit("sign_in.changed", server=server, caller=caller)
        if failure is not None:
            raise failure

    async def _look_for_sign_ins(self) -> None:
        """Takes up what another process changed, such as `toolfold login`."""
        changes = await self.credentials.look()
        if changes is None or not self.per_caller:
            return
        await self.caller_tools.load(anew=True)
        for name, own in self._own.items():
            await own.check()
            self._start_reread(name)
        for name, caller in changes:
            self._events.emit("sign_in.changed", server=name, caller=caller)

    async def states(self, *, connect: bool = False) -> Sequence[ServerState]:
        """Each configured server: with `connect`, as it is now; else as the last build left it."""
        if connect:
            pool = await self.pool()
            await self.follow_all()
            return pool.states()
        if self._pool is not None:
            return self._pool.states()
        records = {record.name: record for record in await self._catalogue.servers()}
        recorded = [_recorded_state(spec, records.get(spec.name)) for spec in self.specs()]
        return await self.credentials.with_remedies(recorded)

    async def outdated(self) -> Mapping[str, str]:
        """The servers of which the catalogue is older than the configuration: what became of each since."""
        now, on = {spec.name: spec.mark() for spec in self.specs()}, self.names
        read = {record.name for record in await self._catalogue.servers()}
        # Of a server that was read before such marks were kept nobody knows.
        marks = {**now, **await self._store.items(_CONFIGURED_NAMESPACE)}
        changed = {name for name in on & read if marks[name] != now[name]}
        found = {"new": on - read, "changed": changed, "gone": read - now.keys(), "disabled": read & now.keys() - on}
        return {name: became for became, names in found.items() for name in names} if read else {}

    def _remember_configured(self, servers: Iterable[str]) -> None:
        specs = {spec.name: spec for spec in self.specs()}
        for name in specs.keys() & set(servers):
            if self._remembered.get(name) != (digest := specs[name].mark()):
                self._remembered[name] = digest
                self._writes.start(_put_hint(self._store, _CONFIGURED_NAMESPACE, name, digest))

    def specs(self) -> tuple[ServerSpec, ...]:
        return (*self._settings.servers, *(upstream.spec for upstream in self._ready_made))

    def call_timeout_s(self, server: str, requested: float | None = None) -> float:
        """How long a call to this server may take: what the request says, up to the server's own limit, which may lie
        above the global one, or up to that."""
        longest = self._call_timeouts.get(server, self._settings.limits.call_timeout_s)
        return longest if requested is None else min(requested, longest)

    def limited_by(self, server: str) -> str:
        """The setting that says how long a call to this server may take."""
        own = (getattr(upstream, "limited_by", "") for upstream in self._ready_made if upstream.spec.name == server)
        return next(own, "") or f"call_timeout_s of {server}"

    def is_current(self, server: str) -> bool:
        """Whether the catalogue has what a server listed over the connection that is open now. Every call asks."""
        if server not in self.names:
            return True  # nothing to follow: the toolbox, or a server that was taken out of the configuration
        connection = self._pool.connection(server) if self._pool is not None else 0
        return connection > 0 and connection == self._followed.get(server)

    async def follow(self, server: str, timeout_s: float | None = None) -> None:
        """Connects to a server where need be, and takes in what it lists. Raises the `UpstreamError` that stops it."""
        if self.is_current(server):
            return
        done, _ = await asyncio.wait([self._start_read(server)], timeout=timeout_s)
        if not done:
            raise ServerTimeout(
                f"{server} did not start and list its tools within {timeout_s:g} s",
                server=server,
                next_action="call it again: it goes on starting; or raise call_timeout_s",
            )
        if server in self._failures and not self.is_current(server):
            raise self._failures[server][1].with_traceback(None)  # it would grow with each call

    async def ask(self, servers: Iterable[str] | None = None, caller: str = "") -> Mapping[str, UpstreamError]:
        """Takes in what these servers list now, or all of them, for somebody who waits and calls nothing yet.

        Gives those that could not be asked in time, with the reason; who failed a moment ago is not asked again. Of
        servers where this caller has an account of its own, it is asked with that.
        """
        names = list(self.awake() if servers is None else servers)
        failed = await self.arrivals.ask(names, caller)
        wanted = [name for name in names if name not in failed and not self.is_current(name)]
        await self._wait_for_reads(wanted)
        late = {name: UpstreamError("it has not answered yet", server=name) for name in wanted}
        known = {name: error for name, (_, error) in self._failures.items()}
        found = {name: known.get(name, late[name]) for name in wanted if name in known or not self.is_current(name)}
        return {**self.arrivals.concerning(caller, found), **failed}

    def awake(self) -> list[str]:
        """The servers, but for those that were ended for want of calls: what they listed last still holds."""
        return [name for name in self.names if self._pool is None or not self._pool.rests(name)]

    async def _wait_for_reads(self, servers: Sequence[str]) -> None:
        now, due = time.monotonic(), () if self._pool is None else self._pool.due()
        failed = {name for name, (at, _) in self._failures.items() if now - at < _ASK_AGAIN_S and name not in due}
        running = {self._start_read(name): name for name in servers if name not in failed}
        if running:
            started = min(self._reads[name][0] for name in running.values())
            await asyncio.wait(running, timeout=max(0.0, started + _ASK_S - now))

    async def look_again(self, server: str) -> None:
        """Reads the list of a server that may have changed without a word, for a call that failed as if it had."""
        now = time.monotonic()
        if server in self.names and now - self._looked.get(server, -_LOOK_AGAIN_S) >= _LOOK_AGAIN_S:
            self._looked[server] = now
            await asyncio.wait([self._start_read(server)], timeout=_LOOK_S)

    async def follow_all(self) -> None:
        """Takes in what every server lists now, however long that takes."""
        if reads := [self._start_read(name) for name in self.names if not self.is_current(name)]:
            await asyncio.wait(reads)

    def _start_read(self, server: str) -> "asyncio.Task[None]":
        """Reads a server's list once, for everybody who wants it now."""
        if server not in self._reads:
            task = self.tasks.start(self._read(server), name=server)
            self._reads[server] = (time.monotonic(), task)
            task.add_done_callback(lambda _: self._reads.pop(server, None))
        return self._reads[server][1]

    async def _read(self, server: str) -> None:
        """Takes in what a server lists; a failure is recorded and its earlier tools stay."""
        pool = await self.pool()
        try:
            listing = await pool.listing(server)
        except UpstreamError as error:
            connection = pool.connection(server)
            await self._no_build.wait()
            if server not in self.names:  # it was taken out meanwhile
                return
            self._failures[server] = (time.monotonic(), error)
            if await self._catalogue.generations():
                await self._catalogue.mark_failed(server, error.message)
            self._events.emit("catalogue.stale", server=server, error=error.message, next_action=error.next_action)
        else:
            connection = pool.connection(server)
            self._failures.pop(server, None)
            if not await self._catalogue.holds(listing):
                # A build that runs would write its older list over this one.
                await self._no_build.wait()
                if server not in self.names:
                    return
                await self._take_in(listing)
        self._remember_configured([server])
        # Also where the list of a live server could not be read: its tools are those of before, and it is read again.
        self._followed[server] = connection

    async def _take_in(self, listing: Listing) -> None:
        if not await self._catalogue.generations():
            return  # nothing was built yet, and a build takes in all servers or none
        if self.handshake != _BRIDGED and not self._settings.restricts:
            return
        written = await self._catalogue.update_server(listing)
        if written.changes:
            if await asyncio.to_thread(self._settings.registry_path.exists):
                await self._catalogue.write_registry(self._settings.registry_path)
            kinds = frozenset(change.tool_id.rpartition(":")[0] or "tool" for change in written.changes)
            self._events.emit("catalogue.updated", server=listing.server, changes=len(written.changes), kinds=kinds)

    async def reread(self, server: str) -> None:
        """Reads one server again and takes its tools in; a failure is recorded and its earlier tools stay."""
        pool = await self.pool()
        pause = _FIRST_PAUSE_S
        if server in self._reads:  # it may have begun before what this is asked for
            await asyncio.wait([self._reads[server][1]])
        # Shielded: who waits for this read may be others, too.
        await asyncio.shield(self._start_read(server))
        while server not in self._failures and server in pool.due():
            # A server that reports a change with every listing would otherwise be read without a pause.
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            await asyncio.shield(self._start_read(server))

    @asynccontextmanager
    async def reading(
        self, servers: Iterable[str] | None, on_server: "Callable[[str, Listing | UpstreamError], None] | None" = None
    ) -> AsyncIterator[tuple[list[Listing], dict[str, str]]]:
        """What a build reads: the lists of many servers, or of all, and why there is none of the others.

        While the build writes them, single servers are not written: it would write older lists over theirs, and a
        first build would find a catalogue of some servers.
        """
        pool = await self.pool()
        self._builds += 1
        self._no_build.clear()
        try:
            listings, failures = await pool.read_all(servers, on_server, self.patience_s)
            for state in filter(lambda state: state.status == "needs sign-in", map(pool.state, failures)):
                known = {"error": state.error, "next_action": state.next_action}
                self._events.emit("catalogue.stale", server=state.name, **known)
            yield listings, failures
            self._remember_configured((*failures, *(listing.server for listing in listings)))
            for server in {listing.server for listing in listings}.difference(pool.due()):
                self._followed[server] = pool.connection(server)
                self._failures.pop(server, None)
        finally:
            self._builds -= 1
            if not self._builds:
                self._no_build.set()

    async def refresh(self) -> Sequence[str]:
        """Reads again every server whose list is no longer fresh, and returns their names."""
        return await self._reread((await self.pool()).due())

    async def _reread(self, due: Sequence[str]) -> Sequence[str]:
        for name in due:
            self._start_reread(name)
        await asyncio.gather(*(self._rereads[name] for name in due if name in self._rereads))
        return due

    async def _has_turn(self, pool: "Pool", server: str) -> bool:
        """Whether it is this gateway that reads a list which is due. Of those that share the store one reads what is
        due for its age alone, and the others hear of what it finds; one that is gone loses its turn."""
        lasts_s = pool.lasts_s(server)
        if lasts_s is None or server in self._failures:
            return True
        if await self._store.take_lease(f"refresh {server}", self._holder, for_s=lasts_s + _TURN_S):
            self._turns.add(server)
            return True
        self._turns.discard(server)
        pool.postpone(server)
        return False

    async def follow_others(self) -> None:
        """Takes up what other gateways and commands write, for as long as the gateway is open."""
        while True:
            await self._store.wait_changed()
            try:
                self._events.emit("store.changed")
                if self._own:
                    await self.caller_tools.load(anew=True)
                await self._tell_news(await self._catalogue.news())
            except ToolfoldError as error:  # a store that cannot be read now tells again when it can
                log.warning("what others wrote could not be read: %s", error.message)
            await asyncio.sleep(_GATHER_S)

    async def _tell_news(self, changes: Mapping[str, int]) -> None:
        registry = self._settings.registry_path
        kept: bool = await asyncio.to_thread(registry.exists)
        if changes and kept:
            await self._catalogue.write_registry(registry)
        for server, count in changes.items():
            self._events.emit("catalogue.updated", server=server, changes=count)

    async def _stay_fresh(self) -> None:
        """Refreshes for as long as the gateway is open."""
        while True:
            await asyncio.sleep(self._check_s)
            try:
                await self._look_for_sign_ins()
                pool = await self.pool()
                await self._reread([name for name in pool.due() if await self._has_turn(pool, name)])
            except ToolfoldError as error:  # a store that cannot be read now may be there again the next time
                log.warning("lists could not be kept fresh: %s", error.message)

    def _on_ready(self, event: Event) -> None:
        """A connection opened: its list is read, unless whoever opened it does that."""
        server = event.data["server"]
        if server not in self._reads and not self._builds:
            self._start_reread(server)

    def _on_failed(self, event: Event) -> None:
        """A server could not be started again: what is shown of it is old from now on, whoever reads the catalogue."""
        if not self._builds:
            self._start_read(event.data["server"])

    def _remember_era(self, server: str, era: Era) -> None:
        self._writes.start(_put_hint(self._store, ERAS_NAMESPACE, server, era.encode()))

    def _start_reread(self, server: str) -> None:
        """Starts one reread of a server, however often it says meanwhile that its tools changed."""
        if server not in self._rereads:
            task = self._rereads[server] = self.tasks.start(self.reread(server), name=server)
            task.add_done_callback(lambda _: self._rereads.pop(server, None))


def _recorded_state(spec: ServerSpec, record: ServerRecord | None) -> ServerState:
    """A server's state by the catalogue alone."""
    tools = record.tools if record is not None else None
    record = record or ServerRecord(name=spec.name)
    waits = SignInRequired.phrase in record.error
    failed: Status = "needs sign-in" if waits else "failed"
    rests: Status = failed if record.error else "not read" if tools is None else "idle"
    own = "CALLER" if spec.credentials == "caller" else ""  # whoever is at this machine is one caller of many
    # By its words: of a failure nothing else is kept.
    key = re.search(r"refused access \(HTTP 401\)|its key in (\S+) was removed", record.error)
    command = SignInRequired.command(spec.name, own, header=(key[1] or "HEADER") if key else "")
    fix = command if waits or key else "run `toolfold doctor --connect`"
    return ServerState(
        name=spec.name,
        transport=spec.transport,
        status=rests if spec.enabled else "disabled",
        shown=spec.shown(),
        info=record.info,
        tools=tools,
        error=record.error,
        next_action=fix if record.error else "",
        warnings=record.warnings,
        note="that is how it was last read, by this toolfold or another; a call tries it again" if record.error else "",
    )


def _enabled(settings: Settings) -> dict[str, ServerSpec]:
    return {spec.name: spec for spec in settings.servers if spec.enabled}


def _pool_limits(settings: Settings) -> "PoolLimits":
    from toolfold.upstream.pool import PoolLimits

    limits = settings.limits
    return PoolLimits(open_at_once=limits.parallel_starts, idle_s=limits.idle_s, drain_s=limits.call_timeout_s)


def _decode_era(stored: bytes) -> Era:
    return "modern" if stored == b"modern" else "legacy"


def upstream_of(functions: "Iterable[Function]") -> "Iterable[Upstream]":
    """The server `functions` of a program's own, where it has any."""
    if functions := tuple(functions):
        from toolfold.upstream.functions import FunctionsUpstream

        yield FunctionsUpstream.of("functions", functions)
