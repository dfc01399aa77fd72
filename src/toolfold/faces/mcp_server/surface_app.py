"""Any surface as an MCP server: its tools, its instructions, its calls; with a gateway, the resources and prompts of
all servers beside them."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold import __version__
from toolfold.errors import ToolNotFound
from toolfold.faces.mcp_server.call_request import CallParams, call_context, parse_call_params
from toolfold.faces.mcp_server.leaf_requests import CAPABILITIES, LeafRequests
from toolfold.faces.mcp_server.task_requests import TaskRequests, as_task_tools
from toolfold.faces.surface.apps import renders_apps
from toolfold.faces.surface.base import Surface
from toolfold.faces.surface.definitions import RUN_SCRIPT, TOOL_OUTPUT
from toolfold.types import CallContext, Caller
from toolfold.wire.jsonrpc import DECODE_ERRORS, INVALID_PARAMS, METHOD_NOT_FOUND
from toolfold.wire.serving import About, Client, Exchange, NotificationHub, RpcError
from toolfold.wire.types import TOOLS_CHANGED

# Operations of our own that may take their time: they become tasks, for clients that take one.
_SLOW = frozenset({RUN_SCRIPT.name, TOOL_OUTPUT.name})

OnLeft = Callable[[Caller], Awaitable[None]]


class _ListParams(Struct):
    """The parameters of `tools/list`."""

    cursor: str | None = None


_list_decoder = msgspec.json.Decoder(_ListParams)


def _check_cursor(params: Raw) -> None:
    """The list has one page: whoever names another has its cursor from somewhere else."""
    try:
        held = _list_decoder.decode(params).cursor if bytes(params) else None
    except DECODE_ERRORS as error:
        raise RpcError(INVALID_PARAMS, f"the parameters of tools/list cannot be read: {error}") from error
    if held is not None:
        raise RpcError(INVALID_PARAMS, "the cursor is none of this server: the list has one page")


class SurfaceApp:
    """Serves one surface."""

    def __init__(
        self,
        surface: Surface,
        *,
        name: str = "toolfold",
        on_left: OnLeft | None = None,
        leaves: LeafRequests | None = None,
        experimental: Mapping[str, Any] | None = None,
        tasks: TaskRequests | None = None,
    ) -> None:
        """`experimental`: the extensions that the surface speaks, with what each says of itself."""
        self._capabilities = {
            "tools": {"listChanged": True},
            **(CAPABILITIES if leaves else {}),
            **({"experimental": experimental} if experimental else {}),
        }
        self.hub = NotificationHub()
        self._on_left = on_left
        self._leaves = leaves
        self._tasks = tasks
        self._surface = surface
        self._name = name
        self._stops = [surface.watch(self._publish_change)]
        if leaves is not None:
            self._stops.append(leaves.open(self.hub))
        if tasks is not None:
            tasks.open(self.hub)

    def aclose(self) -> None:
        for stop in self._stops:
            stop()

    def _publish_change(self, caller: Caller | None) -> None:
        self.hub.publish(TOOLS_CHANGED, caller=None if caller is None else caller.name)

    async def about(self, caller: Caller) -> About:
        return About(
            info={"name": self._name, "version": __version__, "title": "toolfold"},
            capabilities=self._capabilities,
            instructions=await self._surface.instructions(caller),
            tasks=self._tasks.state if self._tasks is not None else None,
            ttl_ms=0,
        )

    async def handle(self, exchange: Exchange) -> Raw:
        if exchange.method == "tools/call":
            return await self._call(exchange)
        if exchange.method == "tools/list":
            _check_cursor(exchange.params)
            # A legacy client has no way to listen, so its list must be whole from the start.
            listens = exchange.modern and self.hub.listens(exchange.caller.name, TOOLS_CHANGED)
            apps = renders_apps(exchange.client.capabilities)
            tools = await self._surface.tools(exchange.caller, listens=listens, apps=apps)
            tools = tools if self._tasks is None else as_task_tools(exchange, tools)
            # To be asked for each time, as all else is (`ttlMs` 0): servers, policies and pinned tools change while we
            # serve, and a client that keeps the list and does not listen would not hear of it.
            return Raw(b'{"tools":[' + b",".join(bytes(tool) for tool in tools) + b'],"ttlMs":0}')
        if self._tasks is not None and exchange.method.startswith("tasks/"):
            return await self._tasks.handle(exchange)
        if self._leaves is not None:
            return await self._leaves.handle(exchange, call_context(exchange))
        raise RpcError(METHOD_NOT_FOUND, f"there is no method {exchange.method[:100]} here")

    async def _call(self, exchange: Exchange) -> Raw:
        call = parse_call_params(exchange.params)
        context, work = call_context(exchange), partial(self._work, call)
        if self._tasks is None:
            return await work(context)
        slow = call.name in _SLOW
        return await self._tasks.call(exchange, context, work, wanted=call.task, slow=slow)

    async def _work(self, call: CallParams, context: CallContext) -> Raw:
        try:
            return await self._surface.call(call.name, call.arguments, context)
        except ToolNotFound as error:
            raise RpcError(INVALID_PARAMS, error.message, error.as_dict()) from error

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        """No notification of a client changes what it sees."""

    async def left(self, caller: Caller) -> None:
        if self._on_left is not None:
            await self._on_left(caller)

    async def watch_resource(self, uri: str, caller: Caller) -> None:
        if self._leaves is None:
            raise RpcError(METHOD_NOT_FOUND, "these resources do not change")
        await self._leaves.watched.watch(uri, caller)

    async def unwatch_resource(self, uri: str, caller: Caller) -> None:
        if self._leaves is not None:
            await self._leaves.watched.unwatch(uri, caller)
