"""Any surface as an MCP server: its tools, its instructions, its calls. It has no prompts and no resources."""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw, Struct

from toolfold import __version__
from toolfold.errors import ToolNotFound
from toolfold.faces.surface.base import Surface, SurfaceCall
from toolfold.types import EMPTY_OBJECT, Caller
from toolfold.wire.jsonrpc import DECODE_ERRORS, INVALID_PARAMS, METHOD_NOT_FOUND
from toolfold.wire.serving import About, Client, Exchange, NotificationHub, RpcError
from toolfold.wire.types import TOOLS_CHANGED

# --- The answers of a client, for whoever asks from below.


class ClientInput:
    """Brings a question to the client of an exchange."""

    __slots__ = ("_exchange", "_who")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._who = (exchange.caller.name, exchange.caller.session, exchange.client.era)

    async def __call__(self, method: str, params: Raw) -> Raw:
        return await self._exchange.ask(method, params)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientInput) and other._who == self._who

    def __hash__(self) -> int:
        return hash(self._who)


TTL_MS = 300_000


OnLeft = Callable[[Caller], Awaitable[None]]
"""Told of a caller whose session is over."""


class CallParams(Struct):
    """The parameters of `tools/call`."""

    name: str
    arguments: Raw = EMPTY_OBJECT


_call_params = msgspec.json.Decoder(CallParams)


def parse_call_params(params: Raw) -> CallParams:
    try:
        found = _call_params.decode(params)
    except DECODE_ERRORS as error:
        raise RpcError(INVALID_PARAMS, f"the parameters of tools/call cannot be read: {error}") from error
    if bytes(found.arguments) == b"null":
        found.arguments = EMPTY_OBJECT
    return found


class SurfaceApp:
    """Serves one surface."""

    def __init__(self, surface: Surface, *, name: str = "toolfold", left: OnLeft | None = None) -> None:
        self.hub = NotificationHub()
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
        raise RpcError(METHOD_NOT_FOUND, f"there is no method {exchange.method[:100]} here")

    async def _call(self, exchange: Exchange) -> Raw:
        called = parse_call_params(exchange.params)
        ask = SurfaceCall(
            name=called.name,
            arguments=called.arguments,
            caller=exchange.caller,
            meta=exchange.raw_meta,
            capabilities=exchange.client.capabilities,
            on_progress=exchange.progress if exchange.wants_progress else None,
            on_input=ClientInput(exchange),
        )
        try:
            return await self._surface.call(ask)
        except ToolNotFound as error:
            raise RpcError(INVALID_PARAMS, error.message, error.as_dict()) from error

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        """Nothing that a client tells changes what is shown to it."""

    async def left(self, caller: Caller) -> None:
        if self._left is not None:
            await self._left(caller)

    async def watch_resource(self, uri: str) -> None:
        raise RpcError(METHOD_NOT_FOUND, "there are no resources here")

    async def unwatch_resource(self, uri: str) -> None:
        """There is nothing to end."""
