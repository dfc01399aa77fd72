"""One upstream as it is: no prefix, nothing left out, both eras on both sides.

Where client and server are both modern, a wish for input goes through untouched, and so do its answers; only the state
between the rounds is put under our own seal. In the other three combinations the question is brought to the client in
its own era's way. The client's capabilities go with each request: nothing is asked of it that it did not declare.
Calls of tools go through the gateway's stack; `tool_output` joins the server's tools, for results too large to show.
Policies are about tools: a caller whose policy hides something gets the tools it may see, and nothing else.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.errors import RemoteError, ToolfoldError, ToolNotFound
from toolfold.faces.mcp_server.surface_app import CallParams, ClientInput, parse_call_params
from toolfold.faces.surface.base import SurfaceCall, holds_outputs, watch_outputs
from toolfold.faces.surface.definitions import TOOL_OUTPUT, tool_objects
from toolfold.faces.surface.operations import Operations
from toolfold.faces.surface.results import error_result, to_result
from toolfold.gateway import Gateway
from toolfold.types import Caller, ServerInfo
from toolfold.upstream.passthrough import Passthrough
from toolfold.wire.headers import HEADER_KEYWORD, mismatched_header
from toolfold.wire.jsonrpc import DECODE_ERRORS, HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, encode
from toolfold.wire.serving import About, Client, Exchange, NotificationHub, RpcError
from toolfold.wire.serving.exchange import LOG_LEVEL_KEY
from toolfold.wire.serving.notifications import LOG_LEVELS, LOG_MESSAGE, RESOURCE_UPDATED, level_enabled
from toolfold.wire.types import TOOLS_CHANGED

HIDDEN = frozenset({"inputResponses", "requestState"})
UNASKED = "debug"
"""What a legacy client gets that named no level: whatever its server sends."""

_members = msgspec.json.Decoder(dict[str, Raw])


class TransparentApp:
    """Serves one server of a gateway."""

    def __init__(self, gateway: Gateway, server: str) -> None:
        self.hub = NotificationHub()
        self._gateway = gateway
        self._passing = Passthrough(gateway, server, self._told)
        self._operations = Operations(gateway)
        self._running: set[Exchange] = set()
        self._level: str | None = None
        self._stop = watch_outputs(gateway, self._outputs_changed)

    async def open(self) -> None:
        await self._passing.open()

    async def aclose(self) -> None:
        self._stop()
        await self._passing.aclose()

    async def about(self, caller: Caller) -> About:
        info, capabilities = await self._passing.about()
        if await self._passing.names_for(caller) is not None:
            capabilities = {key: value for key, value in capabilities.items() if key == "tools"}
        return About(info=_info_dict(info), capabilities=capabilities, instructions=info.instructions, ttl_ms=0)

    # --- requests

    async def handle(self, exchange: Exchange) -> Raw:
        self._running.add(exchange)
        try:
            if exchange.method == "tools/call":
                return await self._call(exchange)
            seen = await self._passing.names_for(exchange.caller)
            if seen is not None and exchange.method != "tools/list":
                raise RpcError(METHOD_NOT_FOUND, f"there is no method {exchange.method[:100]} here")
            result = await self._pass(exchange)
        finally:
            self._running.discard(exchange)
        return await self._listed(exchange, result, seen) if exchange.method == "tools/list" else result

    async def _pass(self, exchange: Exchange) -> Raw:
        await self._turn_up(exchange)
        params = self._params(exchange)
        return await self._passing.request(
            exchange.method,
            params,
            capabilities=exchange.client.capabilities,
            inputs=exchange.inputs,
            on_progress=exchange.progress if exchange.wants_progress else None,
            on_input=ClientInput(exchange),
        )

    def _params(self, exchange: Exchange) -> Raw:
        """The parameters as the client sent them, without what belongs to a round of its own."""
        meta = self._meta(exchange)
        if exchange.inputs is None and meta is exchange.raw_meta:
            return exchange.params
        members = {key: value for key, value in _members.decode(exchange.params).items() if key not in HIDDEN}
        if meta is not None:
            members["_meta"] = meta
        return Raw(encode(members))

    def _meta(self, exchange: Exchange) -> Raw | None:
        """The client's `_meta`. A legacy client's wish for log messages is added for a modern server."""
        if exchange.modern or exchange.client.log_level is None or not self._passing.is_modern:
            return exchange.raw_meta
        given = _members.decode(exchange.raw_meta) if exchange.raw_meta is not None else {}
        return Raw(encode({**given, LOG_LEVEL_KEY: exchange.client.log_level}))

    async def _call(self, exchange: Exchange) -> Raw:
        called = parse_call_params(exchange.params)
        if called.name == TOOL_OUTPUT.name and self._stores:
            ask = SurfaceCall(name=called.name, arguments=called.arguments, caller=exchange.caller)
            return await to_result(self._operations.run(ask))
        if exchange.client.log_level is not None:
            await self._turn_up(exchange)
        if exchange.headers is not None:
            await self._check_headers(called, exchange.headers)
        try:
            outcome = await self._passing.call(
                called.name,
                called.arguments,
                caller=exchange.caller,
                meta=self._meta(exchange),
                capabilities=exchange.client.capabilities,
                inputs=exchange.inputs,
                on_progress=exchange.progress if exchange.wants_progress else None,
                on_input=ClientInput(exchange),
                whole=not self._stores,
            )
        except RemoteError:
            raise
        except ToolNotFound as error:
            raise RpcError(INVALID_PARAMS, f"there is no tool {called.name[:100]!r} here") from error
        except ToolfoldError as error:
            return error_result(error.as_dict())
        return outcome.result

    async def _check_headers(self, called: CallParams, headers: Mapping[str, str]) -> None:
        """A tool may mark parameters that modern HTTP repeats in headers: they must say the same."""
        definition = (await self._passing.tool(called.name)).definition
        if HEADER_KEYWORD.encode() not in bytes(definition.raw):
            return
        wrong = mismatched_header(definition.input_schema, called.arguments, headers)
        if wrong:
            raise RpcError(HEADER_MISMATCH, f"the header {wrong} does not say what the body says", refused=True)

    async def _turn_up(self, exchange: Exchange) -> None:
        """A legacy server logs for all at one level: the most that anybody asked for. Each then gets what it asked."""
        wanted = exchange.client.log_level
        if wanted not in LOG_LEVELS or (
            self._level in LOG_LEVELS and LOG_LEVELS.index(self._level) <= LOG_LEVELS.index(wanted)
        ):
            return
        _, capabilities = await self._passing.about()
        if "logging" in capabilities and not self._passing.is_modern:
            self._level = wanted
            await self._passing.request("logging/setLevel", Raw(encode({"level": wanted})))

    # --- our own tool among the server's

    @property
    def _stores(self) -> bool:
        return getattr(self._gateway, "outputs", None) is not None

    async def _listed(self, exchange: Exchange, result: Raw, seen: frozenset[str] | None) -> Raw:
        """A page of the server's tools: those the caller may see, and on the last one `tool_output` after them."""
        own = await self._lists_own(exchange)
        if seen is None and not own:
            return result
        members = _members.decode(result)
        tools = msgspec.json.decode(members.get("tools", Raw(b"[]")), type=list[Raw])
        if seen is not None:
            tools = [tool for tool in tools if _text(tool, "name") in seen]
        if own and bytes(members.get("nextCursor", Raw(b"null"))) in {b"null", b'""'}:
            tools.append(tool_objects()[TOOL_OUTPUT.name])
        members["tools"] = Raw(encode(tools))
        return Raw(encode(members))

    async def _lists_own(self, exchange: Exchange) -> bool:
        if not self._stores:
            return False
        listens = exchange.modern and self.hub.listens(exchange.caller.name, TOOLS_CHANGED)
        return not listens or await holds_outputs(self._gateway, exchange.caller)

    def _outputs_changed(self, caller: Caller | None) -> None:
        self.hub.publish(TOOLS_CHANGED, caller=None if caller is None else caller.name)

    # --- notifications

    def _told(self, method: str, params: Raw) -> None:
        if method == LOG_MESSAGE:
            self._logged(params)
            return
        uri = _text(params, "uri") if method == RESOURCE_UPDATED else None
        self.hub.publish(method, _without_subscription(params), uri=uri)

    def _logged(self, params: Raw) -> None:
        """A log message goes to the requests that run, where they are all of one caller; else to its listeners."""
        level = _text(params, "level") or "info"
        running = [one for one in self._running if one.outlet is not None]
        if len({one.caller.name for one in running} | self.hub.callers()) > 1:
            return
        for exchange in running:
            if level_enabled(level, exchange.client.log_level or (None if exchange.modern else UNASKED)):
                exchange.notify(LOG_MESSAGE, bytes(params))
                return
        if not running:
            self.hub.log(level, bytes(params))

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        if method == "notifications/roots/list_changed":
            await self._passing.notify(method, params)

    async def left(self, caller: Caller) -> None:
        await self._gateway.end_session(caller)

    async def watch_resource(self, uri: str) -> None:
        await self._passing.watch(uri)

    async def unwatch_resource(self, uri: str) -> None:
        await self._passing.unwatch(uri)


def _info_dict(info: ServerInfo) -> dict[str, Any]:
    shown = {"name": info.name or "server", "version": info.version or "0"}
    return {**shown, "title": info.title} if info.title else shown


def _text(params: Raw, key: str) -> str | None:
    try:
        return msgspec.json.decode(_members.decode(params)[key], type=str)
    except (*DECODE_ERRORS, KeyError):
        return None


def _without_subscription(params: Raw) -> bytes:
    """A notification's parameters without the number that our own subscription has with the server."""
    if b"subscriptionId" not in bytes(params):
        return bytes(params)
    members = msgspec.json.decode(params)
    members["_meta"] = {key: value for key, value in members["_meta"].items() if not key.endswith("/subscriptionId")}
    if not members["_meta"]:
        del members["_meta"]
    return encode(members)
