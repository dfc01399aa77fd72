"""What an arriving request means, whatever transport it came on: the protocol's own methods are answered here, all
others by the application.

One task answers one request, from its arrival to its end, also where a modern client comes back in between. Above: the
transports. Below: `exchange.py`, `asking.py`, `session.py`, `hub.py`.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, field

from toolfold.errors import RemoteError, ToolfoldError
from toolfold.types import EMPTY_OBJECT, Caller
from toolfold.wire import input_required as inputs
from toolfold.wire import jsonrpc, results
from toolfold.wire.dispatcher import REQUIRED_CAPABILITY
from toolfold.wire.jsonrpc import ABSENT, CACHEABLE_BYTES, DECODE_ERRORS, Envelope, Parts, parse_string
from toolfold.wire.meta import META_PREFIX, SERVER_INFO_KEY
from toolfold.wire.results import is_complete
from toolfold.wire.serving import notifications as hubs
from toolfold.wire.serving.exchange import (
    App,
    Client,
    Exchange,
    InputRequester,
    MessageSink,
    RequestMeta,
    RequestOutcome,
    RequestParams,
    parse_params,
)
from toolfold.wire.serving.input_requests import ModernInputRequester
from toolfold.wire.serving.request_state import StateSigner, request_digest
from toolfold.wire.serving.session import InitializeParams, Session, parse_initialize
from toolfold.wire.serving.types import About, RpcError, ServeOptions
from toolfold.wire.types import LEGACY_VERSIONS, MODERN_VERSION, PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED

# --- What is refused, and how that is said: the checks every request goes through, and errors as messages.

_VERSIONS = (MODERN_VERSION, *LEGACY_VERSIONS)


def check_meta(meta: RequestMeta) -> None:
    """Raises the `Fault` for a request that does not say what every modern request says."""
    version = parse_string(meta.version)
    if version is None:
        raise RpcError(
            jsonrpc.INVALID_PARAMS,
            "the request lacks io.modelcontextprotocol/protocolVersion in params._meta; clients of an earlier version "
            "begin with initialize",
            refused=True,
        )
    if version != MODERN_VERSION:
        data = {"supported": list(_VERSIONS), "requested": version}
        raise RpcError(jsonrpc.UNSUPPORTED_VERSION, f"version {version[:40]} is not served", data, refused=True)
    if bytes(meta.capabilities).lstrip()[:1] != b"{":
        raise RpcError(
            jsonrpc.INVALID_PARAMS,
            "the request lacks io.modelcontextprotocol/clientCapabilities in params._meta",
            refused=True,
        )


def _check_id(message: Envelope) -> None:
    """Raises the `Fault` for a request that cannot be answered under its id."""
    if message.id is None or isinstance(message.id, float) or message.method is UNSET:
        raise RpcError(
            jsonrpc.INVALID_REQUEST, "a request has a method, and a string or a whole number as its id", refused=True
        )


def _missing_capability(method: str) -> RpcError:
    needed: dict[str, Any] = {"requiredCapabilities": {REQUIRED_CAPABILITY.get(method, method): {}}}
    return RpcError(jsonrpc.MISSING_CAPABILITY, f"this needs a client that answers {method}", needed)


def _cancelled_error() -> RpcError:
    return RpcError(jsonrpc.INTERNAL_ERROR, "the request was cancelled; check whether it had an effect")


def _unknown_method(method: str) -> RpcError:
    return RpcError(jsonrpc.METHOD_NOT_FOUND, f"there is no method {method[:100]} here")


def error_response(identifier: object, fault: RpcError) -> bytes:
    error: dict[str, Any] = {"code": fault.code, "message": fault.message}
    if fault.data is not None:
        error["data"] = fault.data
    return jsonrpc.error_message_of(identifier, jsonrpc.encode(error))


log = logging.getLogger("toolfold.wire.serving")

_T = TypeVar("_T")

MODERN_METHODS = frozenset({"server/discover", "subscriptions/listen"})
_LEGACY_METHODS = frozenset({"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
_INPUT_REQUIRED = b"input_required"
"""Stands in every result that asks for input; what has it is looked at more closely."""
_SUBSCRIPTION_KEY = META_PREFIX + "subscriptionId"
_END_GRACE_S = 2.0

_LISTS = {
    "toolsListChanged": TOOLS_CHANGED,
    "promptsListChanged": PROMPTS_CHANGED,
    "resourcesListChanged": RESOURCES_CHANGED,
}

_MAX_CLIENTS = 1024
"""Modern clients that are remembered by what they say of themselves."""

_LARGE_BYTES = 1 << 16
"""Answers over this size are not copied together."""


class _Level(Struct):
    level: str


class _Uri(Struct):
    uri: str


class _Filter(Struct):
    toolsListChanged: bool = False  # noqa: N815 - the protocol's spelling
    promptsListChanged: bool = False  # noqa: N815 - as above
    resourcesListChanged: bool = False  # noqa: N815 - as above
    resourceSubscriptions: list[str] = field(default_factory=list)  # noqa: N815 - as above


class _Listen(Struct):
    notifications: _Filter


class _InputRequired(Struct):
    resultType: str = ""  # noqa: N815 - the protocol's spelling
    inputRequests: dict[str, dict[str, Raw]] = field(default_factory=dict)  # noqa: N815 - as above
    requestState: Raw = ABSENT  # noqa: N815 - as above


class Server:
    """Serves one application to any number of clients on any number of transports."""

    def __init__(self, app: App, options: ServeOptions | None = None) -> None:
        self.app = app
        self.options = options if options is not None else ServeOptions()
        self._sealer = StateSigner(self.options.held_s)
        self._asker = ModernInputRequester(self._sealer, self.options)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._clients: dict[tuple[Caller, bytes], Client] = {}

    # --- requests

    def modern(
        self,
        message: Envelope,
        read: tuple[RequestParams, RequestMeta],
        caller: Caller,
        outlet: MessageSink,
        headers: Mapping[str, str] | None = None,
    ) -> Exchange:
        """Starts to answer a request of the modern era. Raises a `Fault` for one that is not proper."""
        params = read[0]
        _check_id(message)
        exchange = self._exchange(message, self._client(caller, read), outlet, read, self._asker)
        exchange.headers = headers
        if exchange.method in _LEGACY_METHODS:
            raise _unknown_method(exchange.method)
        if exchange.method in inputs.INPUT_METHODS:
            held = self._with_inputs(exchange, params)
            if held is not None:
                return held
        return self._start(exchange)

    def _client(self, caller: Caller, read: tuple[RequestParams, RequestMeta]) -> Client:
        """Who asks, as the request says. A client says the same of itself each time: what is short is read once."""
        said, meta = read
        key = (caller, b"" if said.meta is UNSET else bytes(said.meta))
        known = self._clients.get(key)
        if known is not None:
            return known
        check_meta(meta)
        client = Client(
            caller=caller,
            version=MODERN_VERSION,
            capabilities=meta.capabilities.copy(),  # else what is remembered would hold the whole message
            info=meta.info.copy() if meta.info is not ABSENT else EMPTY_OBJECT,
            log_level=parse_string(meta.log_level),
        )
        if len(key[1]) <= CACHEABLE_BYTES and meta.progress_token is ABSENT:  # each token is used once
            while len(self._clients) >= _MAX_CLIENTS:
                self._clients.pop(next(iter(self._clients)))
            self._clients[key] = client
        return client

    def legacy(self, message: Envelope, session: Session, outlet: MessageSink) -> Exchange:
        """Starts to answer a request within a session. Raises a `Fault` for one that is not proper."""
        _check_id(message)
        read = parse_params(message.params)
        exchange = self._exchange(message, session.client, outlet, read, session.asker)
        if exchange.method in MODERN_METHODS or exchange.method == "initialize":
            raise _unknown_method(exchange.method)
        started = self._start(exchange, session)
        session.running.add(started)
        return started

    def _exchange(
        self,
        message: Envelope,
        client: Client,
        outlet: MessageSink,
        read: tuple[RequestParams, RequestMeta],
        asker: InputRequester,
    ) -> Exchange:
        return Exchange(message.id, str(message.method), message.params, client, outlet, read=read, asker=asker)

    def _with_inputs(self, exchange: Exchange, params: RequestParams) -> Exchange | None:
        """Reads what the client brings from an earlier round. Gives back the exchange that was held for it."""
        passed = {}
        if params.request_state is not ABSENT and bytes(params.request_state) != b"null":
            digest = request_digest(exchange.method, exchange.params)
            found = self._sealer.open(params.request_state, exchange.caller.name, digest)
            if found.kind == "held":
                held = self._asker.resume(found.value, params.input_responses, exchange)
                if held.ending is not None:
                    _finish(held, held.ending)
                return held
            passed["requestState"] = Raw(jsonrpc.encode(found.value))
        if params.input_responses is not ABSENT:
            passed["inputResponses"] = params.input_responses
        exchange.inputs = Raw(jsonrpc.encode(passed)) if passed else EMPTY_OBJECT
        return None

    def _start(self, exchange: Exchange, session: Session | None = None) -> Exchange:
        task = asyncio.get_running_loop().create_task(self._run(exchange, session))
        exchange.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return exchange

    async def _run(self, exchange: Exchange, session: Session | None) -> None:
        result: Parts = ()
        fault = None
        try:
            result = await self._answer(exchange, session)
        except asyncio.CancelledError:
            fault = None if exchange.outlet is not None else _cancelled_error()
        except RpcError as error:
            fault = error
        except RemoteError as error:
            fault = RpcError(error.rpc_code, error.message, error.data)
        except ToolfoldError as error:
            fault = RpcError(jsonrpc.INTERNAL_ERROR, error.message, error.as_dict())
        except Exception:
            log.exception("answering %s failed", exchange.method)
            fault = RpcError(jsonrpc.INTERNAL_ERROR, "the server failed at this; its log says more")
        _finish(exchange, (result, fault))

    async def _answer(self, exchange: Exchange, session: Session | None) -> Parts:
        method = exchange.method
        if session is not None:
            own = await self._legacy_own(exchange, session) if method in _LEGACY_METHODS else None
            return (own if own is not None else jsonrpc.single_line(await self.app.handle(exchange)),)
        if method == "server/discover":
            return (_discover_result(await self.app.about(exchange.caller)),)
        if method == "subscriptions/listen":
            return (await self._listen(exchange),)
        found = jsonrpc.single_line(await self.app.handle(exchange))
        complete = is_complete(found)
        if not complete and method in inputs.INPUT_METHODS and _INPUT_REQUIRED in found:
            found = self._passed_on(exchange, found)
        return results.add_modern_members(method, found, complete=complete)

    def _passed_on(self, exchange: Exchange, result: bytes) -> bytes:
        """A wish for input of a server below: nothing the client did not declare, and its state under our seal."""
        try:
            required = msgspec.json.decode(result, type=_InputRequired)
        except DECODE_ERRORS:
            return result
        if required.resultType != "input_required":
            return result
        for wanted in required.inputRequests.values():
            method = parse_string(wanted.get("method", ABSENT)) or ""
            if not exchange.client.may_be_asked(method, wanted.get("params", EMPTY_OBJECT)):
                raise _missing_capability(method)
        if required.requestState is ABSENT:
            return result
        members = msgspec.json.decode(result, type=dict[str, Raw])
        digest = request_digest(exchange.method, exchange.params)
        state = self._sealer.seal("passed", parse_string(required.requestState) or "", exchange.caller.name, digest)
        members["requestState"] = Raw(jsonrpc.encode(state))
        return jsonrpc.encode(members)

    # --- legacy

    async def hello(self, message: Envelope, caller: Caller, tell: hubs.SendNotification) -> tuple[Session, bytes]:
        """Opens a session: it, and the answer to `initialize`."""
        _check_id(message)
        said: InitializeParams = parse_initialize(message.params)
        about = await self.app.about(caller)
        session = Session(said, caller, hubs.supported_lists(about.capabilities, _LISTS.values()), tell)
        self.app.hub.add(session.listener)
        result: dict[str, Any] = {
            "protocolVersion": said.version,
            "capabilities": about.capabilities,
            "serverInfo": about.info,
        }
        if about.instructions:
            result["instructions"] = about.instructions
        return session, jsonrpc.result_message(message.id, jsonrpc.encode(result))

    async def goodbye(self, session: Session) -> None:
        """The client is gone: what it asked for is cancelled, and nobody watches for it."""
        self.app.hub.discard(session.listener)
        session.asker.close()
        for exchange in session.running.all():
            exchange.outlet = None
            if exchange.task is not None:
                exchange.task.cancel()
        watched, session.listener.resources = session.listener.resources, frozenset()
        for uri in watched:
            await self.app.unwatch_resource(uri)
        await self.app.left(session.client.caller)

    async def notified(self, message: Envelope, session: Session) -> None:
        """A notification of a legacy client."""
        params = message.params if message.params is not ABSENT else EMPTY_OBJECT
        if message.method == "notifications/cancelled":
            session.running.cancel(params)
        elif message.method != "notifications/initialized":
            await self.app.notified(session.client, str(message.method), params)

    async def _legacy_own(self, exchange: Exchange, session: Session) -> bytes:
        if exchange.method == "ping":
            return b"{}"
        about = await self.app.about(exchange.caller)
        if exchange.method == "logging/setLevel":
            if "logging" not in about.capabilities:
                raise _unknown_method(exchange.method)
            session.set_level(_parse(exchange.params, _Level).level)
            return b"{}"
        if not _subscribes(about):
            raise _unknown_method(exchange.method)
        await self._subscribe(session, _parse(exchange.params, _Uri).uri, exchange.method == "resources/subscribe")
        return b"{}"

    async def _subscribe(self, session: Session, uri: str, wanted: bool) -> None:
        listener = session.listener
        if wanted and uri not in listener.resources:
            await self.app.watch_resource(uri)
            listener.resources |= {uri}
        elif not wanted and uri in listener.resources:
            listener.resources -= {uri}
            await self.app.unwatch_resource(uri)

    # --- modern

    async def _listen(self, exchange: Exchange) -> bytes:
        wanted = _parse(exchange.params, _Listen).notifications
        if len(self.app.hub) >= self.options.max_listeners:
            raise RpcError(jsonrpc.INTERNAL_ERROR, "too many clients listen: try again later")
        about = await self.app.about(exchange.caller)
        lists = hubs.supported_lists(about.capabilities, (_LISTS[name] for name in _LISTS if getattr(wanted, name)))
        uris = frozenset(wanted.resourceSubscriptions) if _subscribes(about) else frozenset()
        meta = {_SUBSCRIPTION_KEY: exchange.identifier}

        def tell(method: str, params: bytes) -> None:
            members: dict[str, Any] = msgspec.json.decode(params)
            members["_meta"] = {**members.get("_meta", {}), **meta}
            exchange.notify(method, jsonrpc.encode(members))

        if exchange.task is not None:
            self._listening.add(exchange.task)
            exchange.task.add_done_callback(self._listening.discard)
        listener = hubs.Subscriber(exchange.caller.name, tell, lists, uris)
        watched = []
        try:
            for uri in uris:
                await self.app.watch_resource(uri)
                watched.append(uri)
            exchange.notify("notifications/subscriptions/acknowledged", _acknowledgement(lists, uris, meta))
            self.app.hub.add(listener)
            await self._closing.wait()
        finally:
            self.app.hub.discard(listener)
            for uri in watched:
                await self.app.unwatch_resource(uri)
        return jsonrpc.encode({"_meta": meta, "resultType": "complete"})

    # --- the end

    async def end_subscriptions(self) -> None:
        """Tells those who listen that no more will come."""
        self._closing.set()
        if self._listening:
            await asyncio.wait(set(self._listening), timeout=_END_GRACE_S)

    async def aclose(self) -> None:
        """Ends what is open: subscriptions say so, all else is cancelled."""
        await self.end_subscriptions()
        self._asker.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_END_GRACE_S)


def _finish(exchange: Exchange, ending: RequestOutcome) -> None:
    """Sends the ending, or keeps it for a client that is away with a question."""
    outlet, exchange.outlet = exchange.outlet, None
    result, fault = ending
    if outlet is None:
        exchange.ending = ending
    elif fault is not None:
        outlet.finish(error_response(exchange.identifier, fault), fault)
    elif sum(map(len, result)) > _LARGE_BYTES:
        outlet.finish_long(jsonrpc.result_parts(exchange.identifier, result))
    else:
        outlet.finish(jsonrpc.result_message(exchange.identifier, b"".join(result)) if result else b"", None)


def _discover_result(about: About) -> bytes:
    result: dict[str, Any] = {
        "resultType": "complete",
        "supportedVersions": list(_VERSIONS),
        "capabilities": about.capabilities,
        "ttlMs": about.ttl_ms,
        "cacheScope": about.cache_scope,
        "_meta": {SERVER_INFO_KEY: about.info},
    }
    if about.instructions:
        result["instructions"] = about.instructions
    return jsonrpc.encode(result)


def _acknowledgement(lists: frozenset[str], uris: frozenset[str], meta: dict[str, Any]) -> bytes:
    granted: dict[str, Any] = {name: True for name, method in _LISTS.items() if method in lists}
    if uris:
        granted["resourceSubscriptions"] = sorted(uris)
    return jsonrpc.encode({"_meta": meta, "notifications": granted})


def _subscribes(about: About) -> bool:
    resources = about.capabilities.get("resources")
    return isinstance(resources, dict) and bool(resources.get("subscribe"))


def _parse(params: Raw, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(params, type=kind)
    except DECODE_ERRORS as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"the parameters cannot be read: {error}", refused=True) from error
