"""Passes one MCP server through as it is: any request, its notifications, its resources and prompts beside its tools.

For the transparent profile. What is no call of a tool goes straight to the server and needs no catalogue; calls of
tools go through the gateway's pipeline and are not made here. A server that speaks no MCP has its tools and nothing
else. Above: `faces.mcp_server`. Below: the pool.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.containers import TaskSet
from toolfold.errors import RemoteError
from toolfold.events import Event, Events
from toolfold.types import OnInput, OnProgress, ServerInfo
from toolfold.upstream.base import PassthroughRequest, PassthroughUpstream, as_passthrough
from toolfold.upstream.pool import Pool
from toolfold.wire.jsonrpc import METHOD_NOT_FOUND

__all__ = ["Passthrough"]

OnNotification = Callable[[str, Raw], None]

log = logging.getLogger("toolfold.upstream")


class Passthrough:
    """One server of a pool. `on_notification` gets every notification of it that belongs to no request."""

    def __init__(
        self, server: str, pool: Callable[[], Awaitable[Pool]], events: Events, on_notification: OnNotification
    ) -> None:
        self.server = server
        self._pool = pool
        self._events = events
        self._on_notification = on_notification
        self._watched: Counter[str] = Counter()
        self._stop_watching: Callable[[], None] | None = None
        self._stops: list[Callable[[], None]] = []
        self._subscribed: PassthroughUpstream | None = None
        self._tasks = TaskSet(log)

    async def open(self) -> None:
        """Starts to listen. The server itself is opened by the first request."""
        pool = await self._pool()
        pool.keep_alive(self.server)  # a client may wait for its notifications
        restarted = self._events.subscribe(self._on_restarted, only="upstream.restarted")
        self._stops = [pool.listen(self._on_server_notification), restarted]

    async def aclose(self) -> None:
        for stop in self._stops:
            stop()
        if self._stop_watching is not None:
            self._stop_watching()
        await self._tasks.cancel()

    async def _upstream(self) -> PassthroughUpstream | None:
        pool = await self._pool()
        upstream = as_passthrough(await pool.ensure(self.server))
        if upstream is not self._subscribed:
            self._subscribed = upstream  # to its lists whoever opened it has subscribed
        return upstream

    async def about(self) -> tuple[ServerInfo, dict[str, Any]]:
        """Who the server says it is, and what it can do."""
        upstream = await self._upstream()
        if upstream is None:
            return ServerInfo(name=self.server), {"tools": {"listChanged": True}}
        return upstream.info, _decode_capabilities(upstream.capabilities)

    async def request(
        self,
        method: str,
        params: Raw | None = None,
        *,
        capabilities: Raw | None = None,
        inputs: Raw | None = None,
        on_progress: OnProgress | None = None,
        on_input: OnInput | None = None,
    ) -> Raw:
        """Passes any request on that is no call of a tool."""
        upstream = await self._upstream()
        if upstream is not None:
            request = PassthroughRequest(method=method, params=params, capabilities=capabilities, inputs=inputs)
            with (await self._pool()).use(self.server):
                return await upstream.request(request, on_progress=on_progress, on_input=on_input)
        if method == "tools/list":
            listing = await (await self._pool()).listing(self.server)
            return Raw(msgspec.json.encode({"tools": [tool.raw for tool in listing.tools if tool.kind == "tool"]}))
        raise RemoteError(f"{self.server} has tools and no {method}", rpc_code=METHOD_NOT_FOUND)

    async def notify(self, method: str, params: Raw) -> None:
        upstream = await self._upstream()
        # Modern servers are stateless: a client's notification has no session there to change.
        if upstream is not None and upstream.info.era == "legacy":
            await upstream.notify(method, params)

    @property
    def is_modern(self) -> bool:
        return self._subscribed is not None and self._subscribed.info.era == "modern"

    async def watch(self, uri: str) -> None:
        """Subscribes to changes of a resource; each call has its `unwatch`."""
        self._watched[uri] += 1
        if self._watched[uri] == 1:
            try:
                await self._update_watch(uri, "resources/subscribe")
            except BaseException:
                del self._watched[uri]  # nobody will end what did not begin
                raise

    async def unwatch(self, uri: str) -> None:
        self._watched[uri] -= 1
        if self._watched[uri] <= 0:
            del self._watched[uri]
            await self._update_watch(uri, "resources/unsubscribe")

    async def _update_watch(self, uri: str, method: str) -> None:
        upstream = await self._upstream()
        if upstream is None:
            return
        if upstream.info.era == "legacy":
            params = Raw(msgspec.json.encode({"uri": uri}))
            await upstream.request(PassthroughRequest(method=method, params=params))
            return
        # The new subscription comes before the end of the old one, so that no change is missed between them.
        before = self._stop_watching
        wanted = msgspec.json.encode({"resourceSubscriptions": sorted(self._watched)})
        self._stop_watching = upstream.subscribe(wanted, ()) if self._watched else None
        if before is not None:
            before()

    def _on_server_notification(self, server: str, method: str, params: Raw) -> None:
        if server == self.server:
            self._on_notification(method, params)

    def _on_restarted(self, event: Event) -> None:
        if event.data.get("server") == self.server:
            self._tasks.start(self._resubscribe(), name=f"subscribing to {self.server} again")

    async def _resubscribe(self) -> None:
        """The server was started anew and knows nothing of earlier subscriptions."""
        self._stop_watching = None
        await self._upstream()
        for uri in tuple(self._watched):
            await self._update_watch(uri, "resources/subscribe")


def _decode_capabilities(raw: Raw) -> dict[str, Any]:
    try:
        capabilities = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return {}
    return capabilities if isinstance(capabilities, dict) else {}
