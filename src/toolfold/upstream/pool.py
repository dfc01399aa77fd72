"""All upstreams of a configuration: opened side by side, each by its own task, restarted when they die.

A server is opened when somebody needs it: `listing` and `call` do it by themselves. A bad one costs nobody else
anything. What a server was doing when it died is lost and never repeated. On leaving, everything is closed.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing
from functools import partial
from typing import TYPE_CHECKING, Self

from msgspec import Raw

from toolfold.containers import Listeners
from toolfold.errors import ConfigError, ServerTimeout, ServerUnavailable, UpstreamError
from toolfold.events import Events
from toolfold.types import CallContext, Era, Listing, Outcome, ServerSpec, ServerState, ToolCall
from toolfold.upstream.base import Hooks, OnChanged, Upstream, UpstreamFactory
from toolfold.upstream.factory import make_upstream
from toolfold.upstream.supervisor import PoolLimits, Supervisor, log
from toolfold.wire.types import WireOptions

if TYPE_CHECKING:
    from toolfold.auth.vault import Vault

__all__ = ["ListingResult", "Pool", "PoolLimits"]

# A server's name with its listing, or with the reason why there is none.
ListingResult = tuple[str, Listing | UpstreamError]


class Pool:
    """The servers of one configuration. Use it as `async with Pool(specs) as pool`.

    `ready_made` are upstreams that exist already, such as a program's own functions; they come after `specs`.
    """

    def __init__(
        self,
        specs: Iterable[ServerSpec],
        *,
        ready_made: Iterable[Upstream] = (),
        events: Events | None = None,
        limits: PoolLimits | None = None,
        make: UpstreamFactory = make_upstream,
        known_eras: Mapping[str, Era] | None = None,
        remember_era: Callable[[str, Era], None] | None = None,
        on_log: Callable[[str, str], None] | None = None,
        wire: WireOptions | None = None,
        vault: "Vault | None" = None,
    ) -> None:
        self._events = events if events is not None else Events()
        self._limits = limits if limits is not None else PoolLimits()
        self._make = make
        self._eras: dict[str, Era] = dict(known_eras or {})
        self._remember_era = remember_era
        self._on_log = on_log
        self._vault = vault
        self._wire = wire if wire is not None else WireOptions()
        self._gate = asyncio.Semaphore(self._limits.open_at_once)
        self._changed: set[str] = set()
        self._on_changed_listeners: Listeners[OnChanged] = Listeners(log)
        self._notification_listeners: Listeners[Callable[[str, str, Raw], None]] = Listeners(log)
        self._owners: dict[str, asyncio.Task[None]] = {}
        # Of servers that were taken out or changed: they end when what they are doing is done.
        self._retired: dict[asyncio.Task[None], Supervisor] = {}
        self._kept_alive: set[str] = set()
        self._closed = False
        self._supervisors: dict[str, Supervisor] = {}
        for spec in specs:
            self._add(spec)
        for upstream in ready_made:
            self._add(upstream.spec, upstream)

    def _add(self, spec: ServerSpec, ready_made: Upstream | None = None) -> None:
        if spec.name in self._supervisors:
            raise ConfigError(f"two servers are named {spec.name!r}", next_action="Give each server a name of its own.")

        def make() -> Upstream:
            return self._make_upstream(supervisor) if ready_made is None else ready_made

        supervisor = self._supervisors[spec.name] = Supervisor(spec, make, self._events, self._limits)
        supervisor.ready_made = ready_made is not None
        supervisor.vault = self._vault
        supervisor.keep_alive |= supervisor.ready_made or spec.name in self._kept_alive

    def _make_upstream(self, supervisor: Supervisor) -> Upstream:
        spec = supervisor.spec
        hooks = Hooks(
            on_changed=self._on_changed,
            on_closed=partial(self._on_closed, supervisor),
            on_log=self._on_log,
            known_era=self._eras.get(spec.name),
            remember_era=self._on_era,
            on_notification=self._notification_listeners.notify,
            wire=self._wire,
            vault=self._vault,
        )
        return self._make(spec, hooks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def reconfigure(self, specs: Iterable[ServerSpec], limits: PoolLimits | None = None) -> None:
        """Takes over another list of servers. One that is gone or changed is ended once its calls are over, and its
        next call goes to the new one; all others stay as they are. Of other limits, how many are opened at once is as
        it was."""
        before, self._supervisors = self._supervisors, {}
        self._limits = limits or self._limits
        for spec in specs:
            earlier = before.get(spec.name)
            if earlier is not None and (earlier.ready_made or earlier.spec.is_same_as(spec)):
                self._supervisors[spec.name] = before.pop(spec.name)
                if not earlier.ready_made:
                    earlier.adjust(spec, self._limits, keep_alive=spec.name in self._kept_alive)
                continue
            self._add(spec)
            if earlier is not None:
                self._supervisors[spec.name].replace(earlier)
        for name, supervisor in before.items():
            if supervisor.ready_made:
                self._supervisors[name] = supervisor
            else:
                self._retire(name, supervisor)

    def _retire(self, name: str, supervisor: Supervisor) -> None:
        owner = self._owners.pop(name, None)
        self._changed.discard(name)
        if owner is None:
            return
        self._retired[owner] = supervisor
        owner.add_done_callback(self._retired.pop)
        if not supervisor.usage.running:
            owner.cancel()
            return
        supervisor.usage.on_unused = owner.cancel
        timer = asyncio.get_running_loop().call_later(self._limits.drain_s, owner.cancel)
        owner.add_done_callback(lambda _: timer.cancel())

    def keep_alive(self, name: str) -> None:
        """Somebody listens to this server: it is not ended for want of calls."""
        self._kept_alive.add(name)
        if name in self._supervisors:
            self._supervisors[name].keep_alive = True

    def reopen(self, name: str, reason: str) -> None:
        """Ends the connection to a server, where there is one, and opens another."""
        supervisor = self._supervisors.get(name)
        if supervisor is not None and supervisor.ready is not None:
            supervisor.reopened += 1
            supervisor.connection_ended(reason)

    def rests(self, name: str) -> bool:
        """Whether a server was ended because nobody called it."""
        supervisor = self._supervisors.get(name)
        return supervisor is not None and supervisor.rests

    def use(self, name: str) -> AbstractContextManager[None]:
        """While this is open, the server is neither ended for want of calls nor by a new configuration."""
        return self._supervisor(name).usage

    @property
    def names(self) -> tuple[str, ...]:
        """The servers, in configured order, the disabled ones too."""
        return tuple(self._supervisors)

    def states(self) -> list[ServerState]:
        """The state of each server now, in configured order."""
        return [supervisor.state() for supervisor in self._supervisors.values()]

    def state(self, name: str) -> ServerState:
        return self._supervisor(name).state()

    def watch(self, listener: OnChanged) -> Callable[[], None]:
        """Calls `listener` with a server's name whenever its list of tools changed; the returned function ends that."""
        return self._on_changed_listeners.add(listener)

    def listen(self, listener: Callable[[str, str, Raw], None]) -> Callable[[], None]:
        """Calls `listener` with `(server, method, params)` for each notification of an MCP server; the returned
        function ends that."""
        return self._notification_listeners.add(listener)

    def due(self) -> list[str]:
        """The servers whose tools should be read again: they said so, the time they gave has passed, or their file was
        edited."""
        now = time.monotonic()
        return [
            name
            for name, supervisor in self._supervisors.items()
            if name in self._changed
            or (supervisor.list_due_at is not None and supervisor.list_due_at <= now)
            or supervisor.is_outdated
            or supervisor.has_new_sign_in
        ]

    def lasts_s(self, name: str) -> float | None:
        """How long the list of a server lasts, where nothing but its age may make it due."""
        supervisor = self._supervisor(name)
        told = name in self._changed or supervisor.is_outdated or supervisor.has_new_sign_in
        return None if told else supervisor.list_lasts_s

    def postpone(self, name: str) -> None:
        """Looks at a list that is due a while later."""
        self._supervisor(name).postpone_listing()

    def connection(self, name: str) -> int:
        """The number of the connection to a server that is open now; 0 where none is, and where it is to a file that
        was edited since."""
        supervisor = self._supervisors.get(name)
        if supervisor is None or supervisor.ready is None or supervisor.is_outdated:
            return 0
        return supervisor.connections

    async def ensure(self, name: str) -> Upstream:
        """The open upstream of that name, opened now if need be. Raises an `UpstreamError`."""
        supervisor = self._supervisor(name)
        if self._closed:
            raise ServerUnavailable("the pool is closed", server=name, next_action="Open a new one.")
        if supervisor.status != "disabled" and name not in self._owners:
            self._owners[name] = asyncio.create_task(supervisor.run(self._gate), name=f"toolfold-own-{name}")
        return await supervisor.ensure()

    async def call(self, call: ToolCall, context: CallContext) -> Outcome:
        """Calls a tool of a server. Never repeats one: a server that dies meanwhile raises `ServerClosed`."""
        supervisor = self._supervisor(call.tool.server)
        usage = supervisor.usage
        usage.running += 1
        try:
            upstream = None if self._closed else supervisor.ready
            if upstream is None:
                upstream = await self.ensure(call.tool.server)
            return await upstream.call(call, context)
        finally:
            usage.end_call()

    async def listing(self, name: str) -> Listing:
        """Reads the tools of one server, within the time it has to start. Raises an `UpstreamError`."""
        supervisor = self._supervisor(name)
        reopened = supervisor.reopened
        try:
            return await self._read_listing(name, supervisor)
        except UpstreamError:
            if supervisor.reopened == reopened:
                raise
        # Somebody signed in meanwhile, and the connection was ended for that.
        return await self._read_listing(name, supervisor)

    async def _read_listing(self, name: str, supervisor: Supervisor) -> Listing:
        seconds = supervisor.spec.start_timeout_s
        # Cleared first: a change that is reported while the list is being read makes it due again.
        self._changed.discard(name)
        try:
            upstream = await self.ensure(name)
        except UpstreamError:
            supervisor.postpone_listing()
            raise
        try:
            with supervisor.usage.reading():
                async with asyncio.timeout(seconds):
                    listing = await upstream.listing()
        except UpstreamError as error:
            supervisor.record_listing_failure(error)
            raise
        except TimeoutError:
            late = ServerTimeout(
                f"{name} did not list its tools within {seconds:g} s",
                server=name,
                next_action="Look at what it waits for with `toolfold doctor --connect`, or raise `start_timeout_s`.",
            )
            supervisor.record_listing_failure(late)
            raise late from None
        supervisor.record_listing(listing)
        self._events.emit("upstream.listed", server=name, tools=listing.tool_count)
        return listing

    async def read_all(
        self,
        names: Iterable[str] | None,
        on_server: Callable[[str, Listing | UpstreamError], None] | None = None,
        patience_s: float | None = None,
    ) -> tuple[list[Listing], dict[str, str]]:
        """The listings of many servers, and why there is none of the others; `on_server` gets each as it is done. Once
        there is one of them, the others are waited for at most so long; they go on starting."""
        listings: list[Listing] = []
        failures: dict[str, str] = {}
        waiting = set(self._enabled() if names is None else names)
        while waiting:
            try:
                async with asyncio.timeout(patience_s), aclosing(self.listings(tuple(waiting))) as results:
                    async for name, listing in results:
                        waiting.discard(name)
                        if isinstance(listing, UpstreamError):
                            failures[name] = listing.message
                        else:
                            listings.append(listing)
                        if on_server is not None:
                            on_server(name, listing)
            except TimeoutError:
                if listings:
                    break
        return listings, failures | dict.fromkeys(waiting, f"it did not answer within {patience_s or 0:g} s")

    def _enabled(self) -> list[str]:
        return [name for name, supervisor in self._supervisors.items() if supervisor.status != "disabled"]

    async def listings(self, names: Iterable[str] | None = None) -> AsyncGenerator[ListingResult, None]:
        """Reads many servers side by side, and yields each as it is done: its listing, or why there is none.

        Without `names`, all that are enabled. Leave the loop early only inside `contextlib.aclosing`.
        """
        wanted = self._enabled() if names is None else names
        tasks = {asyncio.create_task(self._try_listing(name)) for name in wanted}
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _try_listing(self, name: str) -> ListingResult:
        try:
            return name, await self.listing(name)
        except UpstreamError as error:
            return name, error

    async def aclose(self) -> None:
        """Closes all at once, within a bounded time. Safe to call twice."""
        self._closed = True
        owners = [*self._owners.values(), *self._retired]
        for owner in owners:
            owner.cancel()
        if owners:
            await asyncio.wait(owners, timeout=self._limits.close_timeout_s)
        self._owners.clear()
        for supervisor in (*self._supervisors.values(), *self._retired.values()):
            supervisor.stopped()

    def _supervisor(self, name: str) -> Supervisor:
        supervisor = self._supervisors.get(name)
        if supervisor is not None:
            return supervisor
        from difflib import get_close_matches

        near = get_close_matches(name, self._supervisors, n=3) or sorted(self._supervisors)[:10]
        raise ServerUnavailable(
            f"there is no server {name!r}",
            server=name,
            hints=near,
            next_action=f"Use one of: {', '.join(near)}." if near else "Add a server to the configuration.",
        )

    def _on_changed(self, name: str) -> None:
        self._changed.add(name)
        self._events.emit("upstream.changed", server=name)
        self._on_changed_listeners.notify(name)

    def _on_closed(self, supervisor: Supervisor, name: str, reason: str) -> None:
        if self._supervisors.get(name) is supervisor:  # and not the one that came in its place
            supervisor.connection_ended(reason)

    def _on_era(self, name: str, era: Era) -> None:
        if self._eras.get(name) != era:
            self._eras[name] = era
            if self._remember_era is not None:
                self._remember_era(name, era)
