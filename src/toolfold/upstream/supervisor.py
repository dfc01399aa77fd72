"""One server's place in the pool: the task that owns its upstream, and what is known of how it does.

The owner task opens the upstream, waits until it is gone, closes it, and opens it again after a pause that grows with
each failure. Everybody else only asks for it with `ensure`. The pool stands above and holds one slot a server.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable

from msgspec import Struct

from toolfold.errors import ServerClosed, ServerTimeout, ServerUnavailable, ToolfoldError, UpstreamError
from toolfold.events import Events
from toolfold.types import Listing, ServerInfo, ServerSpec, ServerState, Status
from toolfold.upstream.base import Upstream

log = logging.getLogger("toolfold.upstream")

_MakeUpstream = Callable[[], Upstream]


class PoolLimits(Struct, frozen=True, kw_only=True):
    """How hard the pool tries. Times are in seconds."""

    open_at_once: int = 32
    turn_s: float = 5.0
    """One that takes longer to open goes on opening, and lets the next one begin."""
    first_pause_s: float = 0.25
    """Before the first restart; each further one waits twice as long, with some chance in it."""
    longest_pause_s: float = 60.0
    max_restarts: int = 5
    """So many failures in a row, and the server counts as failed until somebody calls it again."""
    healthy_after_s: float = 10.0
    """A server that lived so long starts again without a record."""
    wait_for_restart_s: float = 5.0
    """A call waits for a restart that is at most so far away, and fails at once where it is further."""
    close_timeout_s: float = 10.0
    min_ttl_s: float = 30.0
    """A list is not read again more often than this, whatever its server says."""


class Supervisor:
    """The state of one server. `opened` holds `None`, or the error of the attempt that everybody waits for."""

    def __init__(self, spec: ServerSpec, make: _MakeUpstream, events: Events, limits: PoolLimits) -> None:
        self.spec = spec
        self.upstream: Upstream | None = None
        self.status: Status = "idle" if spec.enabled else "disabled"
        self.list_due_at: float | None = None
        self._make = make
        self._events = events
        self._limits = limits
        self._info = ServerInfo()
        self._tools: int | None = None
        self._warnings: tuple[str, ...] = ()
        self._restarts = 0
        self._open_seconds: float | None = None
        self._error: ToolfoldError | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._wanted = asyncio.Event()
        self._gone = asyncio.Event()
        self._reason = ""
        self._opened: asyncio.Future[UpstreamError | None] | None = None

    def state(self) -> ServerState:
        """A picture of this moment."""
        error = self._error
        return ServerState(
            name=self.spec.name,
            transport=self.spec.transport,
            status=self.status,
            shown=self.spec.shown(),
            info=self._info,
            tools=self._tools,
            pid=self.upstream.pid if self.upstream is not None else None,
            restarts=self._restarts,
            open_seconds=self._open_seconds,
            error=error.message if error is not None else "",
            next_action=error.next_action if error is not None else "",
            warnings=self._warnings,
        )

    def listed(self, listing: Listing) -> None:
        """Remembers what a listing said, and when it has to be read again."""
        self._tools = len(listing.tools)
        self._warnings = listing.warnings
        self._error = None
        self.list_due_at = None
        if listing.ttl_ms is not None:
            self.list_due_at = time.monotonic() + max(listing.ttl_ms / 1000, self._limits.min_ttl_s)

    def list_failed(self, error: UpstreamError) -> None:
        """A listing failed. The server may be alive all the same."""
        self._error = error
        self.postpone()

    def postpone(self) -> None:
        """A list that could not be read is not due again at once."""
        if self.list_due_at is not None:
            self.list_due_at = time.monotonic() + self._limits.min_ttl_s

    def gone(self, reason: str) -> None:
        """The upstream says that its connection ended."""
        self._reason = reason
        self._gone.set()

    @property
    def ready(self) -> Upstream | None:
        """The open upstream, where there is one right now."""
        return self.upstream if self.status == "ready" and not self._gone.is_set() else None

    async def ensure(self) -> Upstream:
        """The open upstream, opened now if need be. Raises the `UpstreamError` that keeps it from opening."""
        ready = self.ready
        if ready is not None:
            return ready
        if self.status == "disabled":
            raise ServerUnavailable(
                f"{self.spec.name} is disabled in the configuration",
                server=self.spec.name,
                next_action="Enable it there and try again.",
            )
        wait = self._retry_at - time.monotonic()
        if wait > (0 if self.status == "failed" else self._limits.wait_for_restart_s):
            raise self._not_yet(wait)
        if self._opened is None or self._opened.done():
            self._opened = asyncio.get_running_loop().create_future()
        self._wanted.set()
        error = await asyncio.shield(self._opened)
        if error is not None:
            raise error
        if self.upstream is None:
            raise ServerClosed(
                f"{self.spec.name} ended as soon as it was open: {self._reason or 'no reason known'}",
                server=self.spec.name,
                next_action="It is started again; try once more.",
            )
        return self.upstream

    def _not_yet(self, wait: float) -> ServerUnavailable:
        reason = self._error.message if self._error is not None else "it failed"
        hints = self._error.hints if self._error is not None else ()
        known = self._error.next_action if self._error is not None else ""
        return ServerUnavailable(
            f"{self.spec.name} is not available: {reason}",
            server=self.spec.name,
            hints=hints,
            next_action=f"{known} It can be tried again in {max(wait, 0.1):.1f} s.".strip(),
        )

    async def own(self, gate: asyncio.Semaphore) -> None:
        """The owner task: runs until it is cancelled, and closes what it opened."""
        try:
            while True:
                await self._wanted.wait()
                await self._keep_open(gate)
        finally:
            await self._close()
            self.shut()

    def shut(self) -> None:
        """Nobody opens it any more: who still waits hears so."""
        self._settle(ServerClosed(f"{self.spec.name} was closed", server=self.spec.name))
        if self.status in {"ready", "connecting"}:
            self.status = "idle"

    async def _keep_open(self, gate: asyncio.Semaphore) -> None:
        """Opens it and opens it again after each end, until that fails too often."""
        again = False
        while True:
            self._wanted.clear()
            error = await self._open(gate)
            if error is None:
                if again:
                    self._restarts += 1
                    if self._tools is not None:
                        self.list_due_at = time.monotonic()  # A new process may have other tools.
                    self._events.emit("upstream.restarted", server=self.spec.name, restarts=self._restarts)
                error = await self._until_gone()
            elif not again:
                self._failures += 1
                self._fail(error)
                return
            else:
                # Who waits for this attempt hears of it now, and not after all further ones.
                self._settle(error)
            self._failures += 1
            if self._failures > self._limits.max_restarts:
                self._fail(_gave_up(error, self._failures))
                return
            self.status = "connecting"
            self._error = error
            pause = self._pause()
            self._retry_at = time.monotonic() + pause
            await asyncio.sleep(pause)
            again = True

    async def _open(self, gate: asyncio.Semaphore) -> UpstreamError | None:
        async with _StartPermit(gate, self._limits.turn_s):
            self.status = "connecting"
            self._gone.clear()
            self._events.emit("upstream.opening", server=self.spec.name)
            started = time.monotonic()
            result = await _open_upstream(self._make, self.spec)
        if isinstance(result, UpstreamError):
            return result
        self.upstream, self._info = result
        self._open_seconds = time.monotonic() - started
        self.status = "ready"
        self._error = None
        self._retry_at = 0.0
        self._events.emit(
            "upstream.ready",
            server=self.spec.name,
            seconds=round(self._open_seconds, 3),
            pid=self.upstream.pid,
            era=self._info.era,
            protocol_version=self._info.protocol_version,
        )
        self._settle(None)
        return None

    async def _until_gone(self) -> UpstreamError:
        opened_at = time.monotonic()
        await self._gone.wait()
        self.status = "connecting"
        if time.monotonic() - opened_at >= self._limits.healthy_after_s:
            self._failures = 0
        await self._close()
        self._events.emit("upstream.closed", server=self.spec.name, reason=self._reason)
        return ServerClosed(
            f"{self.spec.name} ended: {self._reason or 'no reason known'}",
            server=self.spec.name,
            next_action="It is started again; repeat the call only if it changes nothing.",
        )

    def _pause(self) -> float:
        """Twice as long after each failure, up to a bound, and never quite the same for two servers."""
        limits = self._limits
        whole = min(limits.first_pause_s * 2.0 ** (max(self._failures, 1) - 1), limits.longest_pause_s)
        return whole * random.uniform(0.5, 1.0)  # noqa: S311 - spreads restarts, guards nothing

    def _fail(self, error: UpstreamError) -> None:
        self.status = "failed"
        self._error = error
        self._retry_at = time.monotonic() + self._pause()
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
        """Answers everybody who waits."""
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(error)

    async def _close(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            await upstream.aclose()


class _StartPermit:
    """A turn at the gate that ends with the block, or before it when the block takes too long."""

    def __init__(self, gate: asyncio.Semaphore, seconds: float) -> None:
        self._gate = gate
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._gate.acquire()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._end)

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._gate.release()


async def _open_upstream(make: _MakeUpstream, spec: ServerSpec) -> tuple[Upstream, ServerInfo] | UpstreamError:
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


def _gave_up(error: UpstreamError, failures: int) -> UpstreamError:
    return ServerUnavailable(
        f"it failed {failures} times in a row; last: {error.message}",
        server=error.server,
        hints=error.hints,
        next_action="Look at what it writes with `toolfold doctor`; the next call to one of its tools tries again.",
    )
