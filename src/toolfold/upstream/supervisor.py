"""Supervises one server of the pool: the task that owns its upstream, and what is known of its state.

The owner task opens the upstream, waits until its connection ends, closes it, and opens it again after a pause that
grows with each failure. Everybody else only calls `ensure`. The pool stands above and holds one supervisor a server.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from toolfold.errors import ServerClosed, ServerTimeout, ServerUnavailable, SignInRequired, ToolfoldError, UpstreamError
from toolfold.events import Events
from toolfold.types import Listing, ServerInfo, ServerSpec, ServerState, Status
from toolfold.upstream.base import SIGN_IN_ENDED, Upstream

if TYPE_CHECKING:
    from toolfold.auth.vault import Vault

# How often an open server is looked at whether nobody called it.
_LOOK_S = 10.0

log = logging.getLogger("toolfold.upstream")


class PoolLimits(Struct, frozen=True, kw_only=True):
    """How hard the pool tries. Times are in seconds."""

    open_at_once: int = 32
    turn_s: float = 5.0
    """A server that takes longer to open goes on opening, and lets the next one begin."""
    first_pause_s: float = 0.25
    """Before the first restart; each further one waits twice as long, less a random part."""
    longest_pause_s: float = 60.0
    max_restarts: int = 5
    """After so many failures in a row the server counts as failed, until somebody calls it again."""
    healthy_after_s: float = 10.0
    """A server that lived so long has its failures forgotten."""
    wait_for_restart_s: float = 5.0
    """A call waits for a restart that is at most so far away, and fails at once where it is further."""
    close_timeout_s: float = 10.0
    min_ttl_s: float = 30.0
    """A list is not read again more often than this, whatever its server says."""
    idle_s: float = 0.0
    """A process that nobody called for so long is ended; the next call starts it again. 0: never."""
    drain_s: float = 60.0
    """A server that was taken out or changed has so long to finish what it is doing."""
    max_age_s: float = 300.0
    """A list whose server gives it no time is read again after this: not every server tells of its changes."""


class _Usage:
    """How many requests a server is answering, and when the last of them began or ended. Use it as `with`."""

    def __init__(self) -> None:
        self.running = 0
        self.last = time.monotonic()
        # Called when nothing runs any more.
        self.on_unused: Callable[[], object] | None = None

    def __enter__(self) -> None:
        self.running += 1

    def __exit__(self, *exc_info: object) -> None:
        self.end_call()

    def end_call(self) -> None:
        self.last = time.monotonic()
        self._end()

    def _end(self) -> None:
        self.running -= 1
        if not self.running and self.on_unused is not None:
            self.on_unused()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Reading a list is not cut off, and alone keeps no server alive."""
        self.running += 1
        try:
            yield
        finally:
            self._end()


class Supervisor:
    """One server: its upstream, its state, and the attempt to open it that everybody waits for."""

    def __init__(self, spec: ServerSpec, make: Callable[[], Upstream], events: Events, limits: PoolLimits) -> None:
        self.spec = spec
        self.upstream: Upstream | None = None
        self.status: Status = "idle" if spec.enabled else "disabled"
        self.list_due_at: float | None = None
        self.list_lasts_s = limits.max_age_s
        # How many connections were opened: a list belongs to the one that it was read over.
        self.connections = 0
        # How often one was ended on purpose: whatever was under way over it is none of the server's failures.
        self.reopened = 0
        self.usage = _Usage()
        # Its tools stand in a file, which may be edited while it is open. Every call asks, so it is worked out here.
        self._is_file = spec.transport in {"openapi", "functions", "skills"}
        # A program brought it: no configuration takes it out.
        self.ready_made = False
        # Somebody listens to it, or the owner wants it so: it is not ended for want of calls.
        self.keep_alive = False
        self._make = make
        self._events = events
        self.adjust(spec, limits)
        self._info = ServerInfo()
        self._tools: int | None = None
        self._warnings: tuple[str, ...] = ()
        self._note = ""
        self._restarts = 0
        self._is_restart = False
        self._open_seconds: float | None = None
        self._error: ToolfoldError | None = None
        self._failures = 0
        self._retry_at = 0.0
        # Where sign-ins are kept, and what was there at the last attempt.
        self.vault: Vault | None = None
        self.caller = ""
        self._sign_in_stamp: tuple[int, ...] = ()
        self._wanted = asyncio.Event()
        self._ended = asyncio.Event()
        self._reason = ""
        # Holds `None` once it is open, or the error of the attempt.
        self._attempt: asyncio.Future[UpstreamError | None] | None = None

    def adjust(self, spec: ServerSpec, limits: PoolLimits, *, keep_alive: bool = False) -> None:
        """Takes over other limits for the same server; an attempt under way ends by the earlier ones."""
        self.spec, self._limits = spec, limits
        self.keep_alive = keep_alive or spec.keep_alive or spec.transport != "stdio"

    def replace(self, earlier: "Supervisor") -> None:
        """Takes the place of another, whose configuration changed."""
        # Whoever knows the number of its connection must not take the new one for it.
        self.connections = earlier.connections
        self._is_restart = earlier.ready is not None

    def state(self) -> ServerState:
        """The server's state at this moment."""
        error = self._error
        waits = self.status == "ready" and isinstance(error, SignInRequired)
        return ServerState(
            name=self.spec.name,
            transport=self.spec.transport,
            status="needs sign-in" if waits else self.status,
            shown=self.spec.shown(),
            info=self._info,
            tools=self._tools,
            pid=self.upstream.pid if self.upstream is not None else None,
            restarts=self._restarts,
            open_seconds=self._open_seconds,
            error=error.message if error is not None else "",
            next_action=error.next_action if error is not None else "",
            warnings=self._warnings,
            note=self._note,
        )

    def record_listing(self, listing: Listing) -> None:
        """Records what a listing said, and when it has to be read again."""
        self._tools = listing.tool_count
        self._warnings = listing.warnings
        self._error = None
        ttl_s = self._limits.max_age_s if listing.ttl_ms is None else listing.ttl_ms / 1000
        self.list_lasts_s = max(ttl_s, self._limits.min_ttl_s)
        self.list_due_at = time.monotonic() + self.list_lasts_s

    def record_listing_failure(self, error: UpstreamError) -> None:
        """A listing failed. The server may be alive all the same."""
        self._error = error
        self.postpone_listing()

    def postpone_listing(self) -> None:
        """A list that could not be read, or that another gateway reads, is not due again at once."""
        if self.list_due_at is not None:
            self.list_due_at = time.monotonic() + self._limits.min_ttl_s

    def connection_ended(self, reason: str) -> None:
        """The upstream reports that its connection ended."""
        self._reason = reason
        self._ended.set()

    @property
    def rests(self) -> bool:
        """Whether it was ended because nobody called it, and is as it was when the next call comes."""
        return bool(self._note)

    @property
    def is_outdated(self) -> bool:
        """Whether the file that the open upstream read its tools from is another one by now."""
        return self._is_file and getattr(self.ready, "outdated", False)

    @property
    def ready(self) -> Upstream | None:
        """The open upstream, where there is one right now."""
        return self.upstream if self.status == "ready" and not self._ended.is_set() else None

    async def ensure(self) -> Upstream:
        """The open upstream, opened now if need be. Raises the `UpstreamError` that keeps it from opening."""
        ready = self.ready
        if ready is not None:
            return ready
        if self.status == "disabled":
            raise ServerUnavailable.disabled(self.spec.name)
        self._raise_if_too_soon()
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_future()
        self._wanted.set()
        # Shielded: one caller that is cancelled must not cancel the attempt that others wait for.
        error = await asyncio.shield(self._attempt)
        if error is not None:
            raise error
        if self.upstream is None:
            raise ServerClosed(
                f"{self.spec.name} ended as soon as it was open: {self._reason or 'no reason known'}",
                server=self.spec.name,
                next_action="It is started again; try once more.",
            )
        return self.upstream

    def _raise_if_too_soon(self) -> None:
        """Raises what keeps it from opening, where the next attempt is too far away to be waited for."""
        wait = self._retry_at - time.monotonic()
        if self.status == "needs sign-in":
            if wait > 0 and self._error is not None and self._sign_in_stamp == self._stamp_of_sign_in():
                raise self._error.with_traceback(None)  # it would grow with each call
        elif wait > (0 if self.status == "failed" else self._limits.wait_for_restart_s):
            raise self._unavailable(wait)

    def _stamp_of_sign_in(self) -> tuple[int, ...]:
        if self.vault is None:
            return ()
        # Another token of the caller may be exchanged where the last one was refused.
        return (*self.vault.stamp(self.spec.name, self.caller), hash(self.vault.subject(self.caller)))

    @property
    def has_new_sign_in(self) -> bool:
        """Whether it waited for a sign-in, and somebody has signed in or out since."""
        return self.status == "needs sign-in" and self._sign_in_stamp != self._stamp_of_sign_in()

    def _unavailable(self, wait: float) -> ServerUnavailable:
        error = self._error or ServerUnavailable("it failed")
        advice = f"{error.next_action.rstrip('. ')}. " if error.next_action else ""
        return ServerUnavailable(
            f"{self.spec.name} is not available: {error.message}",
            server=self.spec.name,
            hints=error.hints,
            next_action=f"{advice}It can be tried again in {max(wait, 0.1):.1f} s.",
        )

    async def run(self, gate: asyncio.Semaphore) -> None:
        """The owner task: runs until it is cancelled, and closes what it opened."""
        try:
            while True:
                await self._wanted.wait()
                await self._supervise(gate)
        finally:
            await self._close()
            self.stopped()

    def stopped(self) -> None:
        """Nobody opens it any more: whoever still waits gets an error."""
        self._settle(ServerClosed(f"{self.spec.name} was closed", server=self.spec.name))
        if self.status in {"ready", "connecting"}:
            self.status = "idle"

    async def _supervise(self, gate: asyncio.Semaphore) -> None:
        """Opens it, and opens it again after each end, until that fails too often."""
        is_restart = False
        while True:
            self._wanted.clear()
            error = await self._open(gate)
            never_started = error is not None and not is_restart
            if error is None:
                if self._is_restart:
                    self._record_restart()
                error = await self._wait_until_ended()
                if error is None:
                    return
            else:
                # Whoever waits for this attempt hears of it now, and not after all further ones.
                self._settle(error)
            self._failures += 1
            # A server that never started is not started again by itself: its command is probably wrong. One that
            # waits for a person waits.
            if never_started or isinstance(error, SignInRequired):
                self._fail(error)
                return
            if self._failures > self._limits.max_restarts:
                self._fail(_gave_up(error, self._failures))
                return
            self.status = "connecting"
            self._error = error
            pause = self._pause()
            self._retry_at = time.monotonic() + pause
            await asyncio.sleep(pause)
            is_restart = self._is_restart = True

    def _record_restart(self) -> None:
        self._is_restart = False
        self._restarts += 1
        self._events.emit("upstream.restarted", server=self.spec.name, restarts=self._restarts)

    async def _open(self, gate: asyncio.Semaphore) -> UpstreamError | None:
        async with _permit(gate, self._limits.turn_s):
            self.status = "connecting"
            self._ended.clear()
            self._events.emit("upstream.opening", server=self.spec.name)
            started = time.monotonic()
            self._sign_in_stamp = self._stamp_of_sign_in()
            result = await _open_upstream(self._make, self.spec)
        if isinstance(result, UpstreamError):
            return result
        self.upstream, self._info = result
        self.connections += 1
        self.list_due_at = time.monotonic()  # A new process may have other tools.
        self._open_seconds = time.monotonic() - started
        self.status = "ready"
        self._error = None
        self._note = ""
        self.usage.last = time.monotonic()
        self._retry_at = 0.0
        self._events.emit(
            "upstream.ready",
            server=self.spec.name,
            seconds=round(self._open_seconds, 3),
            pid=self.upstream.pid,
            restarted=self._is_restart,
            era=self._info.era,
            protocol_version=self._info.protocol_version,
        )
        self._settle(None)
        return None

    async def _wait_until_ended(self) -> UpstreamError | None:
        """Why it ended; `None` where it was ended here, since nobody called it."""
        opened_at = time.monotonic()
        while not self._ended.is_set():
            left = self._idle_left()
            if left is not None and left <= 0:
                await self._rest()
                return None
            with suppress(TimeoutError):
                # Looked at again after a while: the limit may be another one by then.
                async with asyncio.timeout(_LOOK_S if left is None else min(left, _LOOK_S)):
                    await self._ended.wait()
        self.status = "connecting"
        if time.monotonic() - opened_at >= self._limits.healthy_after_s:
            self._failures = 0
        await self._close()
        self._events.emit("upstream.closed", server=self.spec.name, reason=self._reason)
        if self._reason == SIGN_IN_ENDED:
            self._sign_in_stamp = self._stamp_of_sign_in()  # the session wrote that it ended
            return SignInRequired.of(self.spec.name, self.caller, self._reason)
        return ServerClosed(
            f"{self.spec.name} ended: {self._reason or 'no reason known'}",
            server=self.spec.name,
            next_action="It is started again; repeat the call only if it changes nothing.",
        )

    def _idle_left(self) -> float | None:
        """The seconds until it may be ended for want of calls; `None` where it may not."""
        idle_s = self._limits.idle_s
        if self.keep_alive or not idle_s:
            return None
        return idle_s if self.usage.running else self.usage.last + idle_s - time.monotonic()

    async def _rest(self) -> None:
        self.status = "idle"
        self.list_due_at = None  # It is read when somebody opens it again.
        self._note = f"stopped after {_duration(self._limits.idle_s)} without a call; the next call starts it"
        self._events.emit("upstream.idle", server=self.spec.name, note=self._note)
        await self._close()

    def _pause(self) -> float:
        """Exponential back-off with jitter, so that many servers do not restart in step."""
        limits = self._limits
        whole = min(limits.first_pause_s * 2.0 ** (max(self._failures, 1) - 1), limits.longest_pause_s)
        return whole * random.uniform(0.5, 1.0)  # noqa: S311 - spreads restarts, guards nothing

    def _fail(self, error: UpstreamError) -> None:
        waits = isinstance(error, SignInRequired)
        self.status = "needs sign-in" if waits else "failed"
        self._error = error
        self.list_due_at = None  # It is read when somebody opens it again.
        # One that waits for a person is tried again as soon as somebody signed in.
        self._retry_at = time.monotonic() + (self._limits.longest_pause_s if waits else self._pause())
        self._wanted.clear()
        self._events.emit(
            "upstream.failed",
            server=self.spec.name,
            code=error.code,
            error=error.message,
            next_action=error.next_action,
        )
        self._settle(error)

    def _settle(self, error: UpstreamError | None) -> None:
        """Answers everybody who waits for the attempt."""
        if self._attempt is not None and not self._attempt.done():
            self._attempt.set_result(error)

    async def _close(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            await upstream.aclose()


@asynccontextmanager
async def _permit(gate: asyncio.Semaphore, seconds: float) -> AsyncIterator[None]:
    """A place at the gate that is given up with the block, or before it when the block takes too long."""
    await gate.acquire()
    released = False

    def release() -> None:
        nonlocal released
        if not released:
            released = True
            gate.release()

    # A server that hangs on opening must not keep the others from starting.
    timer = asyncio.get_running_loop().call_later(seconds, release)
    try:
        yield
    finally:
        timer.cancel()
        release()


async def _open_upstream(make: Callable[[], Upstream], spec: ServerSpec) -> tuple[Upstream, ServerInfo] | UpstreamError:
    """Makes and opens it within its time. Whatever happens, a failure leaves nothing open."""
    upstream: Upstream | None = None
    try:
        upstream = make()
        # The upstream keeps its own deadline and says more about it; this one is for those that do not.
        async with asyncio.timeout(spec.start_timeout_s + 5.0):
            return upstream, await upstream.open()
    except UpstreamError as error:
        problem = error
    except TimeoutError:
        problem = ServerTimeout(
            f"{spec.name} did not start within {spec.start_timeout_s:g} s",
            server=spec.name,
            next_action="Check its command, or raise `start_timeout_s`.",
        )
    except Exception as error:
        # A fault in one kind of upstream must not take the others with it.
        log.exception("opening %s failed in an unexpected way", spec.name)
        problem = ServerUnavailable(
            f"{spec.name} cannot be opened: {type(error).__name__}: {error}",
            server=spec.name,
            next_action="This is a fault in toolfold or in the upstream given to it: please report it.",
        )
    except asyncio.CancelledError:
        if upstream is not None:
            await upstream.aclose()
        raise
    if upstream is not None:
        await upstream.aclose()
    return problem


def _duration(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


def _gave_up(error: UpstreamError, failures: int) -> UpstreamError:
    return ServerUnavailable(
        f"it failed {failures} times in a row; last: {error.message}",
        server=error.server,
        hints=error.hints,
        next_action="Look at what it writes with `toolfold doctor`; the next call to one of its tools tries again.",
    )
