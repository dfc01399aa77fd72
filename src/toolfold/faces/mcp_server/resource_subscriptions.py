"""Subscriptions to resources of all servers: each is asked for once, and every client hears under its own address.

Whether a caller may still see a resource is looked up each time that it changes. Above: the MCP server's app. Below:
one `Passthrough` for each server that somebody subscribed to.
"""

import asyncio
import logging
from collections import Counter

import msgspec
from msgspec import Raw

from toolfold.containers import TaskSet
from toolfold.errors import ToolfoldError, ToolNotFound
from toolfold.gateway import Gateway
from toolfold.types import Caller
from toolfold.upstream.passthrough import Passthrough
from toolfold.wire.jsonrpc import DECODE_ERRORS, INVALID_PARAMS, encode
from toolfold.wire.serving import NotificationHub, RpcError
from toolfold.wire.serving.notifications import RESOURCE_UPDATED

__all__ = ["ResourceSubscriptions"]

log = logging.getLogger("toolfold.gateway")

# A server and a URI as it wrote it.
_Source = tuple[str, str]
# The address that a client subscribed with, and whose client it is.
_Watcher = tuple[str, Caller]


class ResourceSubscriptions:
    """The subscriptions of one application's clients."""

    def __init__(self, gateway: Gateway, hub: NotificationHub) -> None:
        self._gateway = gateway
        self._hub = hub
        self._servers: dict[str, Passthrough] = {}
        self._sources: dict[_Watcher, _Source] = {}
        self._watchers: dict[_Source, Counter[_Watcher]] = {}
        self._opening = asyncio.Lock()
        self._tasks = TaskSet(log)

    async def watch(self, address: str, caller: Caller) -> None:
        """Subscribes a client. Raises `RpcError` where there is no such resource, or nobody tells of its changes."""
        try:
            tool, uri = await self._gateway.leaves.find(address, caller)
        except ToolNotFound as error:
            raise RpcError(INVALID_PARAMS, error.message, error.as_dict()) from error
        if tool.server in self._gateway.upstreams.per_caller:
            problem = f"{tool.server} knows each caller by an account of its own, and tells of changes to none"
            raise RpcError(INVALID_PARAMS, problem)
        passthrough = await self._passthrough(tool.server)
        _, capabilities = await passthrough.about()
        resources = capabilities.get("resources")
        if not isinstance(resources, dict) or not resources.get("subscribe"):
            raise RpcError(INVALID_PARAMS, f"{tool.server} does not tell when its resources change")
        await passthrough.watch(uri)
        source = self._sources[address, caller] = (tool.server, uri)
        self._watchers.setdefault(source, Counter())[address, caller] += 1

    async def unwatch(self, address: str, caller: Caller) -> None:
        """Ends one subscription."""
        watcher = (address, caller)
        source = self._sources.get(watcher)
        if source is None:
            return
        watchers = self._watchers[source]
        watchers[watcher] -= 1
        if not watchers[watcher]:
            del watchers[watcher], self._sources[watcher]
        try:
            await self._servers[source[0]].unwatch(source[1])
        except ToolfoldError as error:  # its server is gone, and tells of nothing any more
            log.info("%s: a subscription could not be ended: %s", source[0], error.message)

    async def aclose(self) -> None:
        await self._tasks.cancel()
        for passthrough in self._servers.values():
            await passthrough.aclose()

    async def _passthrough(self, server: str) -> Passthrough:
        async with self._opening:
            if server not in self._servers:

                def hear(method: str, params: Raw) -> None:
                    if method == RESOURCE_UPDATED:
                        self._updated(server, params)

                passthrough = Passthrough(server, self._gateway.pool, self._gateway.events, hear)
                await passthrough.open()
                self._servers[server] = passthrough
            return self._servers[server]

    def _updated(self, server: str, params: Raw) -> None:
        try:
            told = msgspec.json.decode(params, type=dict[str, Raw])
            source = server, msgspec.json.decode(told["uri"], type=str)
        except (*DECODE_ERRORS, KeyError):
            return
        for address, caller in list(self._watchers.get(source, ())):
            self._tasks.start(self._tell(address, caller), name=f"telling of a resource of {server}")

    async def _tell(self, address: str, caller: Caller) -> None:
        try:
            await self._gateway.leaves.find(address, caller)
        except ToolfoldError:  # it is hidden from this caller by now
            return
        self._hub.publish(RESOURCE_UPDATED, encode({"uri": address}), uri=address, caller=caller.name)
