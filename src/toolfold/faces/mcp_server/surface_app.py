"""Any surface as an MCP server: its tools, its instructions, its calls. It has no prompts and no resources."""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw, Struct

from toolfold import __version__
from toolfold.errors import ToolNotFound
from toolfold.faces.mcp_server.asking import ClientAnswers
from toolfold.faces.surface.base import Ask, Surface
from toolfold.types import EMPTY_OBJECT, Caller
from toolfold.wire.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, UNREADABLE
from toolfold.wire.serving import About, Client, Exchange, Fault, Hub
from toolfold.wire.values import TOOLS_CHANGED

TTL_MS = 300_000


Left = Callable[[Caller], Awaitable[None]]
"""Told of a caller whose session is over."""


class Called(Struct):
    """The parameters of `tools/call`."""

    name: str
    arguments: Raw = EMPTY_OBJECT


_called = msgspec.json.Decoder(Called)


def read_call(params: Raw) -> Called:
    try:
        found = _called.decode(params)
    except UNREADABLE as error:
        raise Fault(INVALID_PARAMS, f"the parameters of tools/call cannot be read: {error}") from error
    if bytes(found.arguments) == b"null":
        found.arguments = EMPTY_OBJECT
    return found


class SurfaceApp:
    """Serves one surface."""

    def __init__(self, surface: Surface, *, name: str = "toolfold", left: Left | None = None) -> None:
        self.hub = Hub()
        self._left = left
        self._surface = surface
        self._name = name
        self._stop: Callable[[], None] = surface.watch(self._changed)

    def aclose(self) -> None:
        self._stop()

    def _changed(self, caller: Caller | None) -> None:
        self.hub.publish(TOOLS_CHANGED, caller=None if caller is None else caller.name)

    async def about(self, caller: Caller) -> About:
        return About(
            info={"name": self._name, "version": __version__, "title": "toolfold"},
            capabilities={"tools": {"listChanged": True}},
            instructions=await self._surface.instructions(caller),
            ttl_ms=TTL_MS,
        )

    async def handle(self, exchange: Exchange) -> Raw:
        if exchange.method == "tools/call":
            return await self._call(exchange)
        if exchange.method == "tools/list":
            listens = self.hub.listens(exchange.caller.name, TOOLS_CHANGED) if exchange.modern else False
            tools = await self._surface.tools(exchange.caller, listens=listens)
            return Raw(b'{"tools":[' + b",".join(bytes(tool) for tool in tools) + b'],"ttlMs":%d}' % TTL_MS)
        raise Fault(METHOD_NOT_FOUND, f"there is no method {exchange.method[:100]} here")

    async def _call(self, exchange: Exchange) -> Raw:
        called = read_call(exchange.params)
        ask = Ask(
            name=called.name,
            arguments=called.arguments,
            caller=exchange.caller,
            meta=exchange.raw_meta,
            capabilities=exchange.client.capabilities,
            on_progress=exchange.progress if exchange.wants_progress else None,
            on_input=ClientAnswers(exchange),
        )
        try:
            return await self._surface.call(ask)
        except ToolNotFound as error:
            raise Fault(INVALID_PARAMS, error.message, error.as_dict()) from error

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        """Nothing that a client tells changes what is shown to it."""

    async def left(self, caller: Caller) -> None:
        if self._left is not None:
            await self._left(caller)

    async def watch_resource(self, uri: str) -> None:
        raise Fault(METHOD_NOT_FOUND, "there are no resources here")

    async def unwatch_resource(self, uri: str) -> None:
        """There is nothing to end."""
