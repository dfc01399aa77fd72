"""A server at which each caller has a credential of its own: a connection for each, and the union of what they list.

The pool sees one upstream. Behind it stands a supervisor for each caller, made when it first calls. A connection is
never shared between callers; those that nobody uses are ended, and there are only so many. What each caller's own list
holds is kept in the store: the catalogue has the union, and a caller sees its own part (`policy.view`). Above: the
manager of the servers. Below: the supervisor, and the upstream of one caller.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from msgspec.structs import replace

from toolfold.containers import TaskSet
from toolfold.errors import ServerTimeout, ServerUnavailable, SignInRequired, UpstreamError
from toolfold.events import Events
from toolfold.types import LOCAL, CallContext, Listing, Outcome, ServerInfo, ServerSpec, ToolCall
from toolfold.upstream.base import Hooks, Upstream, UpstreamFactory
from toolfold.upstream.caller_tools import CallerTools
from toolfold.upstream.supervisor import PoolLimits, Supervisor, log

# Of one server: connections that are open at once, and how many are opened at the same moment.
_MAX_CONNECTIONS = 256
_OPEN_AT_ONCE = 16
# A connection that nobody used for so long is ended, where the configuration names no time.
_IDLE_S = 300.0
# A build asks so many callers' connections, one after the other, until one answers.
_TRIED = 3
_FRESH_S = 30.0


class PerCallerUpstream:
    """One such server. `make` gives the upstream of one caller, `signed_in` who has a credential."""

    def __init__(
        self,
        spec: ServerSpec,
        hooks: Hooks,
        *,
        make: UpstreamFactory,
        tools: CallerTools,
        signed_in: Callable[[str], Awaitable[Sequence[str]]],
        limits: PoolLimits | None = None,
        max_connections: int = _MAX_CONNECTIONS,
    ) -> None:
        self.spec = spec
        self.pid = None
        self._own_spec = replace(spec, credentials="shared")  # of one connection: it has one credential
        self._hooks = hooks
        self._make = make
        self._tools = tools
        self._signed_in = signed_in
        limits = limits if limits is not None else PoolLimits()
        self._limits = replace(limits, idle_s=limits.idle_s or _IDLE_S)
        self._max = max_connections
        self._gate = asyncio.Semaphore(_OPEN_AT_ONCE)
        # The one that was used last stands last.
        self._connections: dict[str, tuple[Supervisor, asyncio.Task[None]]] = {}
        # Of which connection of a caller the list was read, and when.
        self._read: dict[str, tuple[int, float]] = {}
        self._owners = TaskSet(log)
        self._tasks = TaskSet(log)

    async def open(self) -> ServerInfo:
        """Opens no connection: that is for each caller who calls."""
        return (await self._tools.of(self.spec.name)).info

    async def listing(self) -> Listing:
        """The union of what callers list. Those that are connected are asked again, else one who has signed in."""
        open_now = [caller for caller, (own, _) in self._connections.items() if own.ready is not None]
        await self._read_some(open_now, at_least=0) if open_now else await self._read_some(await self._first())
        return await self._tools.listing(self.spec.name)

    async def _first(self) -> list[str]:
        callers = await self._signed_in(self.spec.name)
        if not callers:
            raise SignInRequired(
                f"{self.spec.name} {SignInRequired.phrase}: each caller signs in with an account of its own, and "
                "nobody has yet",
                server=self.spec.name,
                next_action=f"run `toolfold login {self.spec.name} --as CALLER`",
            )
        return sorted(callers, key=lambda name: name != LOCAL.name)[:_TRIED]

    async def _read_some(self, callers: Sequence[str], at_least: int = 1) -> None:
        """Reads the lists of callers, one after the other; with `at_least` until so many were read."""
        failure: UpstreamError | None = None
        done = 0
        for caller in callers:
            try:
                await self._upstream(caller, within_s=_FRESH_S)
            except UpstreamError as error:
                failure = error
            else:
                done += 1
                if done == at_least:
                    return
        if failure is not None and not done:
            raise failure

    def call(self, call: ToolCall, context: CallContext) -> Coroutine[Any, Any, Outcome]:
        return self._call(call, context)

    async def _call(self, call: ToolCall, context: CallContext) -> Outcome:
        own = self._supervisor(context.caller.name)
        with own.usage:
            upstream = own.ready or await self._upstream(context.caller.name)
            return await upstream.call(call, context)

    async def _upstream(self, caller: str, *, within_s: float = float("inf")) -> Upstream:
        """The open upstream of a caller, whose list was read, at most so long ago."""
        own = self._supervisor(caller)
        with own.usage.reading():
            upstream = await own.ensure()
            connection, at = self._read.get(caller, (0, 0.0))
            if connection != own.connections or time.monotonic() - at > within_s:
                await self._read_list(caller, own, upstream)
            return upstream

    async def _read_list(self, caller: str, own: Supervisor, upstream: Upstream) -> None:
        self._read[caller] = (own.connections, time.monotonic())
        try:
            async with asyncio.timeout(self.spec.start_timeout_s):
                listing = await upstream.listing()
        except TimeoutError:
            raise ServerTimeout(
                f"{self.spec.name} did not list its tools within {self.spec.start_timeout_s:g} s",
                server=self.spec.name,
                next_action="Try again, or raise `start_timeout_s`.",
            ) from None
        if await self._tools.record(self.spec.name, caller, listing) and self._hooks.on_changed is not None:
            self._hooks.on_changed(self.spec.name)

    def _supervisor(self, caller: str) -> Supervisor:
        held = self._connections.pop(caller, None)
        if held is None:
            self._make_room()
            own = Supervisor(self._own_spec, lambda: self._make_own(caller, own), Events(), self._limits)
            own.keep_alive, own.vault, own.caller = False, self._hooks.vault, caller
            held = own, self._owners.start(own.run(self._gate), name=f"toolfold-own-{self.spec.name}-{caller}")
        self._connections[caller] = held
        return held[0]

    def _make_room(self) -> None:
        if len(self._connections) < self._max:
            return
        unused = next((caller for caller, (own, _) in self._connections.items() if not own.usage.running), None)
        if unused is None:
            raise ServerUnavailable(
                f"{self.spec.name} answers {self._max} callers at this moment, and there are no more connections",
                server=self.spec.name,
                next_action="try again in a moment",
            )
        self.drop(unused)

    def drop(self, caller: str) -> None:
        """Ends the connection of a caller, whatever it is doing: the credential is gone, or the place is needed."""
        self._read.pop(caller, None)
        if caller in self._connections:
            self._connections.pop(caller)[1].cancel()

    async def check(self, caller: str = "") -> UpstreamError | None:
        """Credentials changed: whoever has none any more loses the connection and the list. The list of this caller,
        who may have signed in, is read; gives why it was not."""
        signed_in = set(await self._signed_in(self.spec.name))
        # One that is being opened now has no credential, and its caller is about to hear that.
        for gone in [name for name, (own, _) in self._connections.items() if own.ready is not None]:
            if gone not in signed_in:
                self.drop(gone)
        known = (await self._tools.of(self.spec.name)).callers
        changed = [await self._tools.record(self.spec.name, gone, None) for gone in known.keys() - signed_in]
        if any(changed) and self._hooks.on_changed is not None:
            self._hooks.on_changed(self.spec.name)
        return await self._read_again(caller) if caller in signed_in else None

    def _make_own(self, caller: str, own: Supervisor) -> Upstream:
        return self._make(
            self._own_spec,
            replace(
                self._hooks,
                caller=caller,
                on_changed=lambda _: self._on_changed(caller),
                on_closed=lambda _, reason: own.connection_ended(reason),
            ),
        )

    def _on_changed(self, caller: str) -> None:
        self._read.pop(caller, None)
        self._tasks.start(self._read_again(caller), name=f"reading {self.spec.name} again")

    async def _read_again(self, caller: str) -> UpstreamError | None:
        try:
            await self._upstream(caller)
        except UpstreamError as error:
            return error  # the caller's next call says it
        return None

    async def aclose(self) -> None:
        self._connections.clear()
        await self._tasks.cancel()
        await self._owners.cancel()
