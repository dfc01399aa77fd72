"""Resources, templates, prompts and skills of all servers over MCP, by addresses that name them, and stored outputs.

What a server sent goes on as it is, but for the addresses in it: those of its resources become ours, so that a client
reads here whatever it is pointed to. Above: the MCP server's app. Below: `gateway.leaves`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import BadCursor, SignInRequired, ToolNotFound
from toolfold.events import Event
from toolfold.faces.mcp_server.resource_subscriptions import ResourceSubscriptions
from toolfold.faces.surface.direct import CATALOGUE_CHANGED
from toolfold.faces.surface.output_resources import OutputResources
from toolfold.faces.surface.resource_links import listed_entry, own_addresses, own_contents
from toolfold.gateway import Gateway
from toolfold.skill_entry import EXTENSION
from toolfold.types import EMPTY_OBJECT, CallContext, Caller, Kind
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, INVALID_PARAMS, METHOD_NOT_FOUND, encode
from toolfold.wire.serving import Exchange, NotificationHub, RpcError
from toolfold.wire.types import PROMPTS_CHANGED, RESOURCES_CHANGED

__all__ = ["CAPABILITIES", "LeafRequests"]

CAPABILITIES: Mapping[str, Any] = {
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "extensions": {EXTENSION: {}},
}
# What the legacy era says of a resource that is not there; later it is a wrong parameter.
_RESOURCE_NOT_FOUND = -32002

_Found = TypeVar("_Found")

_LISTS_OF = {RESOURCES_CHANGED: frozenset({"resource", "template"}), PROMPTS_CHANGED: frozenset({"prompt"})}
_ALL_KINDS = frozenset({"resource", "template", "prompt"})


class _List(Struct):
    cursor: str | None = None


class _Read(Struct):
    uri: str


class _Get(Struct):
    name: str
    arguments: dict[str, Any] | None = None


class _Ref(Struct):
    type: str
    name: str = ""
    uri: str = ""


class _Complete(Struct):
    ref: _Ref
    argument: Raw
    context: Raw = ABSENT


class LeafRequests:
    """The requests about leaves of one gateway that are no tools."""

    watched: ResourceSubscriptions
    """The subscriptions of its clients, once it is open."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._outputs = OutputResources(gateway)
        self._by_method: Mapping[str, Callable[[Exchange, CallContext], Awaitable[Raw]]] = {
            "resources/list": self._resources,
            "resources/templates/list": self._templates,
            "resources/read": self._read,
            "prompts/list": self._prompts,
            "prompts/get": self._get,
            "completion/complete": self._complete,
            "skills/list": self._skills,
            "skills/get": self._skill,
        }

    def open(self, hub: NotificationHub) -> Callable[[], None]:
        """Tells the subscribers of a hub when a list changed, as far as it is known which; the result ends that."""
        self.watched = ResourceSubscriptions(self._gateway, hub)

        def on_event(event: Event) -> None:
            changed = event.data.get("kinds", _ALL_KINDS)
            for method, kinds in _LISTS_OF.items():
                if not kinds.isdisjoint(changed):
                    hub.publish(method)

        stops = ExitStack()
        for name in CATALOGUE_CHANGED:
            stops.callback(self._gateway.events.subscribe(on_event, only=name))
        return stops.close

    async def handle(self, exchange: Exchange, context: CallContext) -> Raw:
        """The result of a request. Raises `RpcError`, or what its server refused with."""
        method = self._by_method.get(exchange.method)
        if method is None:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {exchange.method[:100]} here")
        try:
            return await method(exchange, context)
        except BadCursor as error:
            raise RpcError(INVALID_PARAMS, error.message, error.as_dict()) from error
        except ToolNotFound as error:
            about = exchange.method.startswith("resources/") and not exchange.modern
            raise RpcError(_RESOURCE_NOT_FOUND if about else INVALID_PARAMS, error.message, error.as_dict()) from error

    async def _found(self, find: Callable[[str, Caller], Awaitable[_Found]], name: str, context: CallContext) -> _Found:
        """What a request is about; where its caller has to sign in before that is known, after it was asked to."""
        try:
            return await find(name, context.caller)
        except SignInRequired as error:
            from toolfold.calls.sign_in import SignInRequester

            await SignInRequester(self._gateway.upstreams).ask(error.server, context, error)
            return await find(name, context.caller)

    async def _resources(self, exchange: Exchange, context: CallContext) -> Raw:
        listed, cursor = await self._page("resource", exchange)
        stored = [] if cursor else await self._outputs.listed(context.caller)
        return _listing("resources", [*listed, *stored], cursor)

    async def _templates(self, exchange: Exchange, context: CallContext) -> Raw:
        listed, cursor = await self._page("template", exchange)
        return _listing("resourceTemplates", [*listed, *(() if cursor else (self._outputs.template,))], cursor)

    async def _prompts(self, exchange: Exchange, context: CallContext) -> Raw:
        return _listing("prompts", *await self._page("prompt", exchange))

    async def _skills(self, exchange: Exchange, context: CallContext) -> Raw:
        listed, cursor = await self._page("skill", exchange)
        return _listing("skills", listed, cursor, cacheScope="private", resultType="complete")

    async def _skill(self, exchange: Exchange, context: CallContext) -> Raw:
        uri = _parse(exchange, _Read).uri
        tool = await self._found(self._gateway.leaves.find_skill, uri, context)
        return Raw(encode({"skill": listed_entry(tool), "ttlMs": 0, "cacheScope": "private"}))

    async def _page(self, kind: Kind, exchange: Exchange) -> tuple[list[Any], str | None]:
        cursor = _parse(exchange, _List).cursor
        page = await self._gateway.leaves.page(kind, cursor=cursor, caller=exchange.caller)
        return [listed_entry(leaf) for leaf in page.leaves], page.next_cursor

    async def _read(self, exchange: Exchange, context: CallContext) -> Raw:
        uri = _parse(exchange, _Read).uri
        if self._outputs.owns(exchange.params):
            return await self._outputs.read(exchange.params, context.caller)
        tool, sent = await self._found(self._gateway.leaves.find, uri, context)
        outcome = await self._gateway.leaves.request(tool, "resources/read", {"uri": sent}, context)
        return own_contents(tool.server, outcome.raw, {sent: uri})

    async def _get(self, exchange: Exchange, context: CallContext) -> Raw:
        asked = _parse(exchange, _Get)
        tool = await self._found(self._gateway.leaves.find_prompt, asked.name, context)
        params = {"name": tool.definition.address, "arguments": asked.arguments or {}}
        outcome = await self._gateway.leaves.request(tool, "prompts/get", params, context)
        return own_addresses(tool.server, outcome.raw)

    async def _complete(self, exchange: Exchange, context: CallContext) -> Raw:
        asked = _parse(exchange, _Complete)
        leaves = self._gateway.leaves
        find = leaves.find_prompt if asked.ref.type == "ref/prompt" else leaves.find_template
        tool = await self._found(find, asked.ref.name or asked.ref.uri, context)
        more = {"context": asked.context} if asked.context is not ABSENT else {}
        return (await leaves.complete(tool, {"argument": asked.argument, **more}, context)).raw


def _parse(exchange: Exchange, kind: Any) -> Any:
    try:
        return msgspec.json.decode(exchange.params or EMPTY_OBJECT, type=kind)
    except DECODE_ERRORS as error:
        raise RpcError(INVALID_PARAMS, f"the parameters of {exchange.method} cannot be read: {error}") from error


def _listing(member: str, entries: list[Any], cursor: str | None, **more: str) -> Raw:
    # To be asked for each time, like the tools: servers and policies change while we serve.
    return Raw(encode({member: entries, **({"nextCursor": cursor} if cursor else {}), "ttlMs": 0, **more}))
