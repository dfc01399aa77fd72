"""All upstreams of a configuration: opened side by side, each by its own task, restarted when they die.

A server is opened when somebody needs it: `listing` and `call` do it by themselves. A bad one costs nobody else
anything. What a server was doing when it died is lost and never repeated. On leaving, everything is closed.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from msgspec import Raw

from toolfold.errors import ConfigError, ServerTimeout, ServerUnavailable, UpstreamError
from toolfold.events import Events
from toolfold.types import Call, Era, Listing, Outcome, ServerSpec, ServerState
from toolfold.upstream.base import Hooks, OnChanged, OnInput, OnProgress, Upstream, UpstreamFactory
from toolfold.upstream.factory import make_upstream
from toolfold.upstream.supervisor import PoolLimits, Supervisor
from toolfold.wire.types import WireOptions

__all__ = ["ListingResult", "Pool", "PoolLimits"]


ListingResult = tuple[str, Listing | UpstreamError]
"""A server's name with its listing, or with the reason why there is none."""


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
    ) -> None:
        self._events = events if events is not None else Events()
        self._limits = limits if limits is not None else PoolLimits()
        self._make = make
        self._eras: dict[str, Era] = dict(known_eras or {})
        self._remember_era = remember_era
        self._on_log = on_log
        self._wire = wire if wire is not None else WireOptions()
        self._gate = asyncio.Semaphore(self._limits.open_at_once)
        self._hooks: list[OnChanged] = []
        self._listeners: list[Callable[[str, str, Raw], None]] = []
        self._changed: set[str] = set()
        self._owners: dict[str, asyncio.Task[None]] = {}
        self._closed = False
        self._slots: dict[str, Supervisor] = {}
        for spec in specs:
            self._add(spec, partial(self._made, spec))
        for upstream in ready_made:
            self._add(upstream.spec, partial(_identity, upstream))

    def _add(self, spec: ServerSpec, make: Callable[[], Upstream]) -> None:
        if spec.name in self._slots:
            raise ConfigError(f"two servers are named {spec.name!r}", next_action="Give each server a name of its own.")
        self._slots[spec.name] = Supervisor(spec, make, self._events, self._limits)

    def _made(self, spec: ServerSpec) -> Upstream:
        hooks = Hooks(
            on_changed=self._told_changed,
            on_closed=self._told_closed,
            on_log=self._on_log,
            known_era=self._eras.get(spec.name),
            remember_era=self._told_era,
            on_notification=self._told_notification,
            wire=self._wire,
        )
        return self._make(spec, hooks)

    async def __aenter__(self) -> "Pool":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def names(self) -> tuple[str, ...]:
        """The servers, in configured order, the disabled ones too."""
        return tuple(self._slots)

    def states(self) -> list[ServerState]:
        """How each server does now, in configured order."""
        return [slot.state() for slot in self._slots.values()]

    def state(self, name: str) -> ServerState:
        return self._slot(name).state()

    def watch(self, hook: OnChanged) -> Callable[[], None]:
        """Tells `hook` a server's name each time its list of tools changed; the returned function ends that."""
        self._hooks.append(hook)

        def stop() -> None:
            if hook in self._hooks:
                self._hooks.remove(hook)

        return stop

    def listen(self, listener: Callable[[str, str, Raw], None]) -> Callable[[], None]:
        """Tells `(server, method, params)` for each notification of an MCP server; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _told_notification(self, server: str, method: str, params: Raw) -> None:
        for listener in tuple(self._listeners):
            listener(server, method, params)

    def due(self) -> list[str]:
        """The servers whose tools should be read again: they said so, or the time they gave has passed."""
        now = time.monotonic()
        return [
            name
            for name, slot in self._slots.items()
            if name in self._changed or (slot.list_due_at is not None and slot.list_due_at <= now)
        ]

    async def ensure(self, name: str) -> Upstream:
        """The open upstream of that name, opened now if need be. Raises an `UpstreamError`."""
        slot = self._slot(name)
        if self._closed:
            raise ServerUnavailable("the pool is closed", server=name, next_action="Open a new one.")
        if slot.status != "disabled" and name not in self._owners:
            self._owners[name] = asyncio.create_task(slot.own(self._gate), name=f"toolfold-own-{name}")
        return await slot.ensure()

    def call(
        self, name: str, call: Call, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Coroutine[Any, Any, Outcome]:
        """Calls a tool of a server. Never repeats one: a server that dies meanwhile raises `ServerClosed`."""
        slot = self._slots.get(name)
        upstream = slot.ready if slot is not None and not self._closed else None
        if upstream is None:
            return self._opened_call(name, call, on_progress, on_input)
        return upstream.call(call, on_progress=on_progress, on_input=on_input)

    async def _opened_call(
        self, name: str, call: Call, on_progress: OnProgress | None, on_input: OnInput | None
    ) -> Outcome:
        upstream = await self.ensure(name)
        return await upstream.call(call, on_progress=on_progress, on_input=on_input)

    async def listing(self, name: str) -> Listing:
        """Reads the tools of one server, within its time. Raises an `UpstreamError`."""
        slot = self._slot(name)
        seconds = max(slot.spec.start_timeout_s, slot.spec.call_timeout_s)
        # Cleared first: a change that is told while the list is being read makes it due again.
        self._changed.discard(name)
        try:
            upstream = await self.ensure(name)
        except UpstreamError:
            slot.postpone()
            raise
        try:
            async with asyncio.timeout(seconds):
                listing = await upstream.listing()
        except UpstreamError as error:
            slot.list_failed(error)
            raise
        except TimeoutError:
            late = ServerTimeout(
                f"{name} did not list its tools within {seconds:g} s",
                server=name,
                next_action="Raise `call_timeout_s` for this server.",
            )
            slot.list_failed(late)
            raise late from None
        slot.listed(listing)
        return listing

    async def listings(self, names: Iterable[str] | None = None) -> AsyncGenerator[ListingResult, None]:
        """Reads many servers side by side, and gives each as it is done: its listing, or why there is none.

        Without `names`, all that are enabled. Leave the loop early only inside `contextlib.aclosing`.
        """
        wanted = [name for name, slot in self._slots.items() if slot.status != "disabled"]
        done: asyncio.Queue[tuple[str, Listing | UpstreamError | None]] = asyncio.Queue()

        async def read(name: str) -> None:
            result: Listing | UpstreamError | None = None
            try:
                result = await self.listing(name)
            except UpstreamError as error:
                result = error
            finally:
                done.put_nowait((name, result))

        tasks = [asyncio.create_task(read(name)) for name in (wanted if names is None else list(names))]
        try:
            for _ in tasks:
                name, result = await done.get()
                if result is None:
                    # Nothing of ours: the task that failed says what happened.
                    break
                yield name, result
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Closes all at once, within a bounded time. Safe to call twice."""
        self._closed = True
        owners = list(self._owners.values())
        for owner in owners:
            owner.cancel()
        if owners:
            await asyncio.wait(owners, timeout=self._limits.close_timeout_s)
        self._owners.clear()
        for slot in self._slots.values():
            slot.shut()

    def _slot(self, name: str) -> Supervisor:
        slot = self._slots.get(name)
        if slot is not None:
            return slot
        from difflib import get_close_matches

        near = get_close_matches(name, self._slots, n=3) or sorted(self._slots)[:10]
        raise ServerUnavailable(
            f"there is no server {name!r}",
            server=name,
            hints=near,
            next_action=f"Use one of: {', '.join(near)}." if near else "Add a server to the configuration.",
        )

    def _told_changed(self, name: str) -> None:
        self._changed.add(name)
        self._events.emit("upstream.changed", server=name)
        for hook in tuple(self._hooks):
            hook(name)

    def _told_closed(self, name: str, reason: str) -> None:
        self._slots[name].gone(reason)

    def _told_era(self, name: str, era: Era) -> None:
        if self._eras.get(name) != era:
            self._eras[name] = era
            if self._remember_era is not None:
                self._remember_era(name, era)


def _identity(upstream: Upstream) -> Upstream:
    return upstream
