"""One server as it is: no prefix, nothing left out, both eras on both sides.

Where client and server are both modern, a request for input goes through untouched, and so do its answers; only the
state between the rounds is put under our own seal. In the other three combinations the question is brought to the
client in its own era's way. The client's capabilities go with each request: it is asked for nothing else.
Calls of tools go through the gateway's pipeline; `tool_output` joins the server's tools, for results too large to show.
Policies are about tools: a caller whose policy hides something gets the tools it may see, and nothing else. What the
server lists is compared with the catalogue before it is shown: a definition that is held back is not.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolfold.catalogue.ids import natural_id
from toolfold.errors import NotBuilt, RemoteError, ToolfoldError, ToolNotFound
from toolfold.events import Event
from toolfold.faces.mcp_server.call_request import CallParams, call_context, parse_call_params
from toolfold.faces.mcp_server.task_requests import TaskRequests, as_task_tools
from toolfold.faces.surface.definitions import TOOL_OUTPUT, tool_objects
from toolfold.faces.surface.operations import Operations
from toolfold.faces.surface.output_resources import OutputResources
from toolfold.faces.surface.results import _without_operations, error_dict, error_result
from toolfold.fingerprint import fingerprint
from toolfold.gateway import Gateway
from toolfold.types import CallContext, Caller, ServerInfo, Tool, ToolCall, ToolDefinition
from toolfold.upstream.passthrough import Passthrough
from toolfold.wire.headers import HEADER_KEYWORD, mismatched_header
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, encode
from toolfold.wire.serving import About, Client, Exchange, NotificationHub, RpcError
from toolfold.wire.serving.exchange import LOG_LEVEL_KEY
from toolfold.wire.serving.notifications import LOG_LEVELS, RESOURCE_UPDATED, level_enabled
from toolfold.wire.types import LOG_MESSAGE, TASKS, TOOLS_CHANGED

# Parameters of a round of input between the client and us, which the server must not see.
ROUND_PARAMS = frozenset({"inputResponses", "requestState"})
# A legacy client that named no level gets whatever its server sends.
DEFAULT_LOG_LEVEL = "debug"

# Nothing is known of a tool that its server does not list, so that it may do anything.
UNKNOWN_RISKS = ("destructive", "open-world", "unstated")

_members = msgspec.json.Decoder(dict[str, Raw])


class TransparentApp:
    """Serves one server of a gateway."""

    def __init__(self, gateway: Gateway, server: str) -> None:
        self.hub = NotificationHub()
        self._gateway = gateway
        self._passthrough = Passthrough(server, gateway.pool, gateway.events, self._on_notification)
        self._tasks = TaskRequests(gateway)
        self._tasks.open(self.hub)
        self._tools = _ServerTools(gateway, server, lambda: self._publish_change(None))
        self._operations = Operations(gateway)
        self._outputs = OutputResources(gateway)
        self._running: set[Exchange] = set()
        self._log_level: str | None = None
        self._stop_watching = gateway.outputs.on_changed(lambda caller, _: self._publish_change(caller))

    async def open(self) -> None:
        await self._passthrough.open()

    async def aclose(self) -> None:
        self._stop_watching()
        self._tools.close()
        await self._tasks.aclose()
        await self._passthrough.aclose()

    async def about(self, caller: Caller) -> About:
        info, capabilities = await self._passthrough.about()
        tasks = _take_tasks(capabilities)
        if await self._tools.visible_to(caller) is not None:
            capabilities = {key: value for key, value in capabilities.items() if key == "tools"}
        if isinstance(capabilities.get("tools"), dict):
            capabilities["tools"]["listChanged"] = True  # a restart may bring other tools, and that is told here
        return About(
            info=_info_dict(info),
            capabilities=capabilities,
            instructions=info.instructions,
            tasks=self._tasks.state if tasks else None,
            ttl_ms=0,
        )

    async def handle(self, exchange: Exchange) -> Raw:
        self._running.add(exchange)
        try:
            if exchange.method == "tools/call":
                return await self._call(exchange)
            if exchange.method == "resources/read" and self._outputs.owns(exchange.params):
                return await self._outputs.read(exchange.params, exchange.caller)
            if exchange.method.startswith("tasks/") and await self._has_tasks():
                return await self._tasks.handle(exchange)
            if exchange.method != "tools/list" and await self._tools.visible_to(exchange.caller) is not None:
                raise RpcError(METHOD_NOT_FOUND, f"there is no method {exchange.method[:100]} here")
            result = await self._forward(exchange)
        finally:
            self._running.discard(exchange)
        return await self._tool_list(exchange, result) if exchange.method == "tools/list" else result

    async def _forward(self, exchange: Exchange) -> Raw:
        await self._raise_log_level(exchange)
        context, tracing = self._context(exchange), self._gateway.tracing
        about = (exchange.method, exchange.params, context.meta, exchange.caller)
        with tracing.passing_on(*about) if tracing is not None else nullcontext(context.meta) as meta:
            result = await self._passthrough.request(
                exchange.method,
                _forwarded_params(exchange, meta),
                capabilities=context.capabilities,
                inputs=context.inputs,
                on_progress=context.on_progress,
                on_input=context.on_input,
            )
        if not self._gateway.settings.outputs.redact_secrets:
            return result
        return await asyncio.to_thread(self._gateway.redactor.passed_on, result)

    def _context(self, exchange: Exchange) -> CallContext:
        return replace(call_context(exchange), meta=self._meta(exchange), inputs=exchange.inputs)

    def _meta(self, exchange: Exchange) -> Raw | None:
        """The client's `_meta`. A legacy client's log level is added to it for a modern server."""
        if exchange.modern or exchange.client.log_level is None or not self._passthrough.is_modern:
            return exchange.raw_meta
        meta = _members.decode(exchange.raw_meta) if exchange.raw_meta is not None else {}
        return Raw(encode({**meta, LOG_LEVEL_KEY: exchange.client.log_level}))

    async def _call(self, exchange: Exchange) -> Raw:
        call = parse_call_params(exchange.params)
        if call.name == TOOL_OUTPUT.name:
            return await self._operations.result(call.name, call.arguments, call_context(exchange))
        work = partial(self._work, exchange, call)
        if (call.task is not ABSENT or exchange.client.takes_tasks) and await self._has_tasks():
            return await self._tasks.call(exchange, self._context(exchange), work, wanted=call.task)
        return await work(self._context(exchange))

    async def _has_tasks(self) -> bool:
        return _take_tasks((await self._passthrough.about())[1])

    async def _work(self, exchange: Exchange, call: CallParams, context: CallContext) -> Raw:
        if exchange.client.log_level is not None:
            await self._raise_log_level(exchange)
        if exchange.headers is not None:
            await self._check_headers(call, exchange.headers)
        try:
            tool = await self._tools.find(call.name)
            asked = ToolCall(tool=tool, arguments=call.arguments)
            outcome = await self._gateway.calls(asked, replace(context, tool_name=call.name))
        except RemoteError:
            raise
        except ToolNotFound as error:
            raise RpcError(INVALID_PARAMS, f"there is no tool {call.name[:100]!r} here") from error
        except ToolfoldError as error:
            return error_result(_without_operations(error_dict(error)))
        return outcome.raw

    async def _check_headers(self, call: CallParams, headers: Mapping[str, str]) -> None:
        """Refuses a call whose headers contradict its body."""
        # A tool may mark parameters that modern HTTP repeats in headers, for proxies that route by them.
        definition = (await self._tools.find(call.name)).definition
        if HEADER_KEYWORD.encode() not in bytes(definition.raw):
            return
        wrong = mismatched_header(definition.input_schema, call.arguments, headers)
        if wrong:
            raise RpcError(HEADER_MISMATCH, f"the header {wrong} does not say what the body says", refused=True)

    async def _raise_log_level(self, exchange: Exchange) -> None:
        """Asks a legacy server for the most that any client wants; `_forward_log` gives each client its share."""
        level = exchange.client.log_level
        current = self._log_level
        if level not in LOG_LEVELS or (current and LOG_LEVELS.index(current) <= LOG_LEVELS.index(level)):
            return
        _, capabilities = await self._passthrough.about()
        if "logging" in capabilities and not self._passthrough.is_modern:
            self._log_level = level
            await self._passthrough.request("logging/setLevel", Raw(encode({"level": level})))

    async def _tool_list(self, exchange: Exchange, result: Raw) -> Raw:
        """A page of the server's tools: those the caller may see, and on the last one `tool_output` after them."""
        listens = exchange.modern and self.hub.listens(exchange.caller.name, TOOLS_CHANGED)
        adds_output = not listens or await self._gateway.outputs.has_any(exchange.caller)
        has_tasks = not exchange.modern and await self._has_tasks()
        if not (adds_output or self._gateway.settings.restricts or has_tasks):
            return result
        members = _members.decode(result)
        tools = await self._tools.shown(
            msgspec.json.decode(members.get("tools", Raw(b"[]")), type=list[Raw]), exchange.caller
        )
        if adds_output and bytes(members.get("nextCursor", Raw(b"null"))) in {b"null", b'""'}:
            tools.append(tool_objects()[TOOL_OUTPUT.name])
        members["tools"] = Raw(encode(as_task_tools(exchange, tools) if has_tasks else tools))
        return Raw(encode(members))

    def _publish_change(self, caller: Caller | None) -> None:
        self.hub.publish(TOOLS_CHANGED, caller=None if caller is None else caller.name)

    def _on_notification(self, method: str, params: Raw) -> None:
        params = self._gateway.redactor.passed_on(params)
        if method == LOG_MESSAGE:
            self._forward_log(params)
            return
        uri = _text(params, "uri") if method == RESOURCE_UPDATED else None
        self.hub.publish(method, _without_subscription(params), uri=uri)

    def _forward_log(self, params: Raw) -> None:
        """Sends a log message to a request that runs, else to the listeners."""
        level = _text(params, "level") or "info"
        running = [exchange for exchange in self._running if exchange.sink is not None]
        # It does not say whose call it is about: with several callers, it might be another's.
        if len({exchange.caller.name for exchange in running} | self.hub.callers()) > 1:
            return
        for exchange in running:
            if level_enabled(level, _wanted_log_level(exchange)):
                exchange.notify(LOG_MESSAGE, bytes(params))
                return
        if not running:
            self.hub.log(level, bytes(params))

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        if method == "notifications/roots/list_changed":
            await self._passthrough.notify(method, params)

    async def left(self, caller: Caller) -> None:
        await self._gateway.end_session(caller)

    async def watch_resource(self, uri: str, caller: Caller) -> None:
        await self._passthrough.watch(uri)

    async def unwatch_resource(self, uri: str, caller: Caller) -> None:
        await self._passthrough.unwatch(uri)


class _ServerTools:
    """Finds the tools of one server of a gateway, by the names that the server gave them."""

    def __init__(self, gateway: Gateway, server: str, on_changed: Callable[[], None]) -> None:
        self._gateway = gateway
        self._server = server
        self._on_changed = on_changed
        self._tools: dict[str, Tool] | None = None
        names = ("catalogue.built", "catalogue.updated", "config.changed")
        self._stops = [gateway.events.subscribe(self._on_catalogue_changed, only=name) for name in names]

    def close(self) -> None:
        for stop in self._stops:
            stop()

    def _on_catalogue_changed(self, event: Event) -> None:
        self._tools = None
        if event.name == "config.changed" or event.data.get("server") == self._server:
            self._on_changed()

    async def find(self, name: str) -> Tool:
        """The catalogue's entry for a tool. One that its server does not list gets an entry without a schema: its
        server judges the arguments, and to a policy it is as risky as a tool can be."""
        tools = await self._known()
        if name not in tools and self._gateway.settings.restricts:
            tools = await self._read_again()
        if name in tools:
            return tools[name]
        definition = ToolDefinition(name=name, raw=Raw(msgspec.json.encode({"name": name})))
        tool_id = natural_id(self._server, name)
        return Tool(tool_id=tool_id, server=self._server, definition=definition, fingerprint="", risks=UNKNOWN_RISKS)

    async def _known(self) -> dict[str, Tool]:
        tools = self._tools
        if tools is None:
            try:
                listed = await self._gateway.tools_below(())
            except NotBuilt:
                listed = ()
            tools = self._tools = self._own(listed)
        return tools

    def _own(self, listed: Iterable[Tool]) -> dict[str, Tool]:
        own = (tool for tool in listed if tool.server == self._server and tool.kind == "tool")
        return {tool.definition.sent_name: tool for tool in own}

    async def _read_again(self) -> dict[str, Tool]:
        await self._gateway.initial_build.wait()
        await self._gateway.reread(self._server)
        self._tools = None
        return await self._known()

    async def shown(self, sent: Sequence[Raw], caller: Caller) -> list[Raw]:
        """Of the tool objects that the server just sent, those that the caller may see. Where anything may be held
        back, the catalogue takes in what is new to it first."""
        if self._gateway.settings.restricts:
            known = await self._known()
            if not all(_is_definition(known.get(_text(tool, "name") or ""), tool) for tool in sent):
                await self._read_again()
        visible = await self.visible_to(caller)
        if visible is None:
            return list(sent)
        return [tool for tool in sent if _is_definition(visible.get(_text(tool, "name") or ""), tool)]

    async def visible_to(self, caller: Caller) -> dict[str, Tool] | None:
        """The tools that a caller may see, by the server's own names; `None`: whatever there is."""
        view = self._gateway.view(caller)
        if view.unrestricted:
            return None
        try:
            async with view.catalogue.snapshot() as snapshot:
                return self._own(await snapshot.tools(server=self._server))
        except NotBuilt:
            return {}


def _take_tasks(capabilities: dict[str, Any]) -> bool:
    """Takes what a server says of tasks, in either form, out of its capabilities; whether it has them."""
    core, extensions = capabilities.pop("tasks", None), capabilities.get("extensions")
    extended = isinstance(extensions, dict) and extensions.pop(TASKS, None) is not None
    return extended or (isinstance(core, dict) and bool(core.get("requests")))


def _is_definition(tool: Tool | None, sent: Raw) -> bool:
    """Whether a tool object that a server sent is the one that the catalogue has."""
    own = tool.definition.sent if tool is not None else None
    return own is not None and (own == sent or fingerprint(own) == fingerprint(sent))


def _forwarded_params(exchange: Exchange, meta: Raw | None) -> Raw:
    """The parameters as the client sent them, without what belongs to a round of its own."""
    if exchange.inputs is None and meta is exchange.raw_meta:
        return exchange.params
    members = {key: value for key, value in _members.decode(exchange.params).items() if key not in ROUND_PARAMS}
    if meta is not None:
        members["_meta"] = meta
    return Raw(encode(members))


def _wanted_log_level(exchange: Exchange) -> str | None:
    return exchange.client.log_level or (None if exchange.modern else DEFAULT_LOG_LEVEL)


def _info_dict(info: ServerInfo) -> dict[str, Any]:
    about = {"name": info.name or "server", "version": info.version or "0"}
    return {**about, "title": info.title} if info.title else about


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
