"""One server passed through as it is: any request, its notifications, its resources and prompts beside its tools.

For the transparent profile. Calls of tools go through the same stack as all others, so that policies, records and
stored outputs hold for them; what is no call goes straight to the server, and needs no catalogue. A server that speaks
no MCP has its tools and nothing else. Above: `faces.mcp_server`. Below: the pool.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from toolfold.calls import CallRequest
from toolfold.errors import NotBuilt, RemoteError, ToolNotFound
from toolfold.events import Event
from toolfold.types import LOCAL, Caller, Outcome, ServerInfo, Tool, ToolDefinition
from toolfold.upstream.base import PassthroughRequest, PassthroughUpstream, as_passthrough
from toolfold.wire.jsonrpc import METHOD_NOT_FOUND
from toolfold.wire.types import PROMPTS_CHANGED, RESOURCES_CHANGED

if TYPE_CHECKING:
    from toolfold.gateway import Gateway
    from toolfold.wire.types import OnInput, OnProgress

_CATALOGUE_CHANGED = frozenset({"catalogue.built", "catalogue.updated"})
_EXCLUDED_CAPABILITIES = frozenset({"tasks"})
"""Capabilities of a server that are not passed on: a task outlives the request it belongs to."""

OnNotification = Callable[[str, Raw], None]


class Passthrough:
    """One server of a gateway. `told` hears every notification of it that belongs to no request."""

    def __init__(self, gateway: "Gateway", server: str, told: OnNotification) -> None:
        self._gateway = gateway
        self.server = server
        self._told = told
        self._tools: dict[str, Tool] = {}
        self._watched: Counter[str] = Counter()
        self._stop_watching: Callable[[], None] | None = None
        self._stops: list[Callable[[], None]] = []
        self._subscribed: PassthroughUpstream | None = None
        self._work: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Starts to listen. The server itself is opened by the first request."""
        pool = await self._gateway.pool()
        events = self._gateway.events
        names = (*_CATALOGUE_CHANGED, "upstream.restarted")
        self._stops = [pool.listen(self._heard), *(events.subscribe(self._happened, only=name) for name in names)]

    async def aclose(self) -> None:
        for stop in self._stops:
            stop()
        if self._stop_watching is not None:
            self._stop_watching()
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    # --- what the server is

    async def _upstream(self) -> PassthroughUpstream | None:
        pool = await self._gateway.pool()
        upstream = as_passthrough(await pool.ensure(self.server))
        if upstream is not self._subscribed:
            self._subscribed = upstream
            if upstream is not None:
                self._subscribe(upstream)
        return upstream

    def _subscribe(self, upstream: PassthroughUpstream) -> None:
        """Asks a modern server to tell of its other lists; of its tools it is asked by whoever opened it."""
        able = _decode_capabilities(upstream.capabilities)
        wanted = {
            kind: method
            for kind, method in (("prompts", PROMPTS_CHANGED), ("resources", RESOURCES_CHANGED))
            if isinstance(able.get(kind), dict) and able[kind].get("listChanged")
        }
        if wanted:
            notifications = msgspec.json.encode({f"{kind}ListChanged": True for kind in wanted})
            upstream.subscribe(notifications, tuple(wanted.values()))

    async def about(self) -> tuple[ServerInfo, dict[str, Any]]:
        """Who the server says it is, and what it can do."""
        upstream = await self._upstream()
        if upstream is None:
            return ServerInfo(name=self.server), {"tools": {"listChanged": True}}
        able = _decode_capabilities(upstream.capabilities)
        return upstream.info, {key: value for key, value in able.items() if key not in _EXCLUDED_CAPABILITIES}

    # --- requests

    async def request(
        self,
        method: str,
        params: Raw | None = None,
        *,
        capabilities: Raw | None = None,
        inputs: Raw | None = None,
        on_progress: "OnProgress | None" = None,
        on_input: "OnInput | None" = None,
    ) -> Raw:
        """Passes any request on. Calls of tools belong to `call`."""
        upstream = await self._upstream()
        if upstream is not None:
            question = PassthroughRequest(method=method, params=params, capabilities=capabilities, inputs=inputs)
            return await upstream.request(question, on_progress=on_progress, on_input=on_input)
        if method == "tools/list":
            listing = await (await self._gateway.pool()).listing(self.server)
            return Raw(msgspec.json.encode({"tools": [tool.raw for tool in listing.tools]}))
        raise RemoteError(f"{self.server} has tools and no {method}", rpc_code=METHOD_NOT_FOUND)

    async def call(
        self,
        name: str,
        arguments: Raw,
        *,
        caller: Caller = LOCAL,
        meta: Raw | None = None,
        capabilities: Raw | None = None,
        inputs: Raw | None = None,
        on_progress: "OnProgress | None" = None,
        on_input: "OnInput | None" = None,
        whole: bool = False,
    ) -> Outcome:
        """Calls a tool by the name its server gave it, through the stack that every call goes through."""
        request = CallRequest(
            tool=self._tools.get(name) or await self.tool(name),
            arguments=arguments,
            meta=meta,
            on_progress=on_progress,
            on_input=on_input,
            caller=self._gateway.governor.standing(caller),
            capabilities=capabilities,
            inputs=inputs,
            whole=whole,
        )
        return await self._gateway.calls(request)

    async def tool(self, name: str) -> Tool:
        """The catalogue's entry for a tool. One that is not there is as unknown to policies as its name: it gets an
        entry without a schema, and its server judges the arguments."""
        known = self._tools.get(name)
        if known is not None:
            return known
        from toolfold.catalogue.ids import natural_id

        tool_id = natural_id(self.server, name)
        try:
            found = await self._gateway.catalogue.tool(tool_id)
        except (ToolNotFound, NotBuilt):
            found = None
        if found is None or found.server != self.server or found.name != name:
            found = await self._by_name(name) or self._unlisted(tool_id, name)
        self._tools[name] = found
        return found

    async def _by_name(self, name: str) -> Tool | None:
        try:
            tools = await self._gateway.tools_below(())
        except NotBuilt:
            return None
        return next((tool for tool in tools if tool.server == self.server and tool.name == name), None)

    def _unlisted(self, tool_id: str, name: str) -> Tool:
        definition = ToolDefinition(name=name, raw=Raw(msgspec.json.encode({"name": name})))
        return Tool(tool_id=tool_id, server=self.server, definition=definition, fingerprint="")

    async def names_for(self, caller: Caller) -> frozenset[str] | None:
        """The tools that a caller may see, by the server's own names; `None`: whatever there is."""
        scene = self._gateway.governor.scene(caller)
        if scene is self._gateway:
            return None
        try:
            async with scene.catalogue.snapshot() as view:
                return frozenset(tool.name for tool in await view.tools() if tool.server == self.server)
        except NotBuilt:
            return frozenset()

    async def notify(self, method: str, params: Raw) -> None:
        upstream = await self._upstream()
        if upstream is not None and upstream.info.era == "legacy":
            await upstream.notify(method, params)

    @property
    def is_modern(self) -> bool:
        return self._subscribed is not None and self._subscribed.info.era == "modern"

    # --- notifications

    async def watch(self, uri: str) -> None:
        """Wants to be told of changes of a resource; each has its `unwatch`."""
        self._watched[uri] += 1
        if self._watched[uri] == 1:
            await self._rewatch(uri, "resources/subscribe")

    async def unwatch(self, uri: str) -> None:
        self._watched[uri] -= 1
        if self._watched[uri] <= 0:
            del self._watched[uri]
            await self._rewatch(uri, "resources/unsubscribe")

    async def _rewatch(self, uri: str, method: str) -> None:
        upstream = await self._upstream()
        if upstream is None:
            return
        if upstream.info.era == "legacy":
            await upstream.request(PassthroughRequest(method=method, params=Raw(msgspec.json.encode({"uri": uri}))))
            return
        before = self._stop_watching
        wanted = msgspec.json.encode({"resourceSubscriptions": sorted(self._watched)})
        self._stop_watching = upstream.subscribe(wanted, ()) if self._watched else None
        if before is not None:
            before()

    def _heard(self, server: str, method: str, params: Raw) -> None:
        if server == self.server:
            self._told(method, params)

    def _happened(self, event: Event) -> None:
        if event.name in _CATALOGUE_CHANGED:
            self._tools.clear()
        elif event.name == "upstream.restarted" and event.data.get("server") == self.server:
            self._keep(self._again())

    async def _again(self) -> None:
        """The server was started anew and knows nothing of earlier subscriptions."""
        self._stop_watching = None
        await self._upstream()
        for uri in tuple(self._watched):
            await self._rewatch(uri, "resources/subscribe")

    def _keep(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


def _decode_capabilities(raw: Raw) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
