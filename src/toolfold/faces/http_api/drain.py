"""Whether this gateway takes requests, and how it stops taking them: `/readyz`, and what a signal sets off.

After the first signal `/readyz` says 503 and new sessions are refused; what is under way goes on, for a while that the
configuration bounds, and requests that need no session are still answered, since a balancer may send some before it
notices. Then, or at the second signal, all that is left is told so and ended. Above: `toolfold serve`, whose `stop`
this sets. Below: the gateway.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from toolfold.errors import NotBuilt, StoreError
from toolfold.faces.mcp_server.http import ENDPOINT, Asgi
from toolfold.gateway import Gateway
from toolfold.wire.serving.exchange import CUT_OFF, _stopping
from toolfold.wire.serving.http_stream import Receive, Scope, Send

log = logging.getLogger("toolfold.serve")

# How long the store may take to answer before it counts as not reachable, and how long its answer counts: whoever asks
# every millisecond costs no more.
_STORE_S = 2.0
_FRESH_S = 0.5
# Where pages of the console hear that there is something new.
CHANGES = "/console/changes"
# What the modern protocol calls a request that lasts until somebody ends it.
_LISTEN = b"subscriptions/listen"
_ELSEWHERE = "connect again: behind the same address another gateway answers, or this one does once it is back"
_CLOSE = (b"connection", b"close")


class _Drain:
    """The requests of one port, and its end. `stop` is set once nothing is under way."""

    def __init__(self, gateway: Gateway, stop: asyncio.Event) -> None:
        self._gateway = gateway
        self._stop = stop
        self._under_way: set[asyncio.Task[Any]] = set()
        self._listening: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._missing: tuple[str, str] | None = None
        self._checked = -_FRESH_S
        self._checking = asyncio.Lock()

    # --- signals

    def follow_signals(self) -> None:
        """The first signal begins to drain, the second ends it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.begin)

    def begin(self) -> None:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._drain())
        else:
            self._ending.cancel()

    async def _drain(self) -> None:
        limits = self._gateway.settings.limits
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.drain_s):
                    await asyncio.sleep(limits.drain_notice_s)
                    await self._finished()
        except asyncio.CancelledError:
            log.warning("a second signal: %d requests under way are ended", len(self._under_way))
        else:
            if self._under_way:
                log.warning("%d requests took longer than drain_s: they are ended", len(self._under_way))
        finally:
            for task in (*self._under_way, *self._listening):
                task.cancel()
            self._stop.set()

    async def _finished(self) -> None:
        if self._under_way:
            log.info("stopping once %d requests under way are answered", len(self._under_way))
        while self._under_way:
            self._changed.clear()
            await self._changed.wait()

    # --- requests

    def wrap(self, site: Asgi) -> Asgi:
        """The same application, whose requests are counted, and told where they cannot be answered any more."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            task = asyncio.current_task()
            if scope["type"] != "http" or task is None:
                await site(scope, receive, send)
            elif self._ending is not None and _begins_session(scope):
                await _refuse(scope, send, _ELSEWHERE)
            else:
                await self._watch(task, site, scope, receive, send)

        return watched

    async def _watch(self, task: "asyncio.Task[Any]", site: Asgi, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = self._listening if _is_stream(scope) else self._under_way
        started = False

        async def sent(message: Any) -> None:
            nonlocal started
            started = True
            if self._ending is not None and message["type"] == "http.response.start":
                # A balancer keeps connections for later requests: those must go elsewhere.
                message["headers"] = [*message.get("headers", ()), _CLOSE]
            await send(message)

        tasks.add(task)
        try:
            await site(scope, receive, sent)
        except asyncio.CancelledError:
            if not self._stop.is_set():
                raise
            task.uncancel()
            if not started:
                await _refuse(scope, send, CUT_OFF)
        finally:
            tasks.discard(task)
            self._changed.set()

    # --- whether it is ready

    async def ready(self) -> tuple[int, Mapping[str, Any]]:
        """The status of `/readyz` and what it says: what is missing, in words of ours alone."""
        if self._ending is not None:
            return 503, _not_ready("gateway", "it is being stopped")
        async with self._checking:
            if time.monotonic() >= self._checked + _FRESH_S:
                self._missing = await self._look()
                self._checked = time.monotonic()
        if self._missing is not None:
            return 503, _not_ready(*self._missing)
        return 200, {"status": "ready", "missing": []}

    async def _look(self) -> tuple[str, str] | None:
        try:
            async with asyncio.timeout(_STORE_S), self._gateway.catalogue.snapshot():
                return None
        except NotBuilt:
            return "catalogue", "no tools were read yet; they are being read, or `toolfold build` reads them"
        except (StoreError, TimeoutError) as error:
            # Its text may hold an address with a password.
            log.warning("the store cannot be reached: %s", type(error).__name__)
            return "store", "it cannot be reached, or does not answer in time; the log says more"


def _not_ready(what: str, why: str) -> dict[str, Any]:
    return {"status": "not ready", "missing": [{"what": what, "why": why}]}


def _begins_session(scope: Scope) -> bool:
    """Whether a request opens a session of the legacy era: all others name theirs, or their method."""
    if not scope["path"].startswith(ENDPOINT) or scope["method"] != "POST":
        return False
    return not {name for name, _ in scope["headers"]} & {b"mcp-session-id", b"mcp-method"}


def _is_stream(scope: Scope) -> bool:
    """Whether somebody listens, for as long as there is anything to hear: nothing is lost where that ends."""
    if scope["path"] == CHANGES:
        return True
    if not scope["path"].startswith(ENDPOINT):
        return False
    return scope["method"] == "GET" or (b"mcp-method", _LISTEN) in scope["headers"]


async def _refuse(scope: Scope, send: Send, next_action: str) -> None:
    fault = _stopping(next_action)
    is_rpc = scope["path"].startswith(ENDPOINT)
    body = fault.response(None) if is_rpc else msgspec.json.encode({"error": fault.data})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(b"retry-after", b"1"), (b"cache-control", b"no-store"), _CLOSE]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
