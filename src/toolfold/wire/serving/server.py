"""The protocol's server: answers the protocol's own methods, and gives all others to the application.

It knows no transport. One task answers one request from its arrival to its end, also where a modern client returns with
input in between. Above: `stdio.py` and `http.py`. Below: `exchange.py`, `input_requests.py`, `session.py`,
`notifications.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, field

from toolfold.containers import BoundedDict
from toolfold.errors import RemoteError, ToolfoldError
from toolfold.types import EMPTY_OBJECT, Caller
from toolfold.wire import jsonrpc
from toolfold.wire.connection import INPUT_METHODS
from toolfold.wire.dispatcher import REQUIRED_CAPABILITY
from toolfold.wire.jsonrpc import ABSENT, CACHEABLE_BYTES, DECODE_ERRORS, Envelope, Parts, parse_string
from toolfold.wire.meta import META_PREFIX, SERVER_INFO_KEY
from toolfold.wire.results import add_modern_members, is_complete
from toolfold.wire.serving.exchange import (
    VERSIONS,
    About,
    App,
    Client,
    Exchange,
    MessageSink,
    ParsedParams,
    RequestOutcome,
    RpcError,
    ServeOptions,
    check_takes_tasks,
    parse_params,
)
from toolfold.wire.serving.input_requests import ModernInputRequester, StateSeal, request_digest
from toolfold.wire.serving.notifications import SendNotification, Subscriber
from toolfold.wire.serving.peers import Peers, _PeerGone, _RemoteSink
from toolfold.wire.serving.session import Session
from toolfold.wire.types import (
    LEGACY_TASKS_VERSION,
    MODERN_VERSION,
    PROMPTS_CHANGED,
    RESOURCES_CHANGED,
    TASK_STATUS,
    TASKS,
    TOOLS_CHANGED,
)

log = logging.getLogger("toolfold.wire.serving")

_T = TypeVar("_T")

MODERN_METHODS = frozenset({"server/discover", "subscriptions/listen"})

_LEGACY_METHODS = frozenset({"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
_SUBSCRIPTION_KEY = META_PREFIX + "subscriptionId"
_END_GRACE_S = 2.0
_MAX_SUBSCRIPTIONS = 1024

# Is in every result that asks for input; a result with it is parsed.
_INPUT_REQUIRED = b"input_required"

_LISTS = {
    "toolsListChanged": TOOLS_CHANGED,
    "promptsListChanged": PROMPTS_CHANGED,
    "resourcesListChanged": RESOURCES_CHANGED,
}

# Modern clients that are cached by their `_meta`, which they repeat with every request.
_MAX_CLIENTS = 1024

# Larger results are written in parts: joining them would copy megabytes.
_LARGE_BYTES = 1 << 16


class _Level(Struct):
    level: str


class _Uri(Struct):
    uri: str


class _Filter(Struct):
    toolsListChanged: bool = False  # noqa: N815 - the protocol's spelling
    promptsListChanged: bool = False  # noqa: N815 - as above
    resourcesListChanged: bool = False  # noqa: N815 - as above
    resourceSubscriptions: list[str] = field(default_factory=list)  # noqa: N815 - as above
    taskIds: list[str] = field(default_factory=list)  # noqa: N815 - as above


class _Listen(Struct):
    notifications: _Filter


class _PassedOn(Struct, array_like=True):
    """A request on its way to the gateway that holds what it needs."""

    caller: Caller
    identifier: Any
    method: str
    params: bytes


class _InputRequired(Struct):
    resultType: str = ""  # noqa: N815 - the protocol's spelling
    inputRequests: dict[str, dict[str, Raw]] = field(default_factory=dict)  # noqa: N815 - as above
    requestState: Raw = ABSENT  # noqa: N815 - as above


class Server:
    """Serves one application to any number of clients on any number of transports, alone or among other gateways."""

    def __init__(self, app: App, options: ServeOptions | None = None, peers: Peers | None = None) -> None:
        self.app = app
        self.options = options if options is not None else ServeOptions()
        self.peers = peers if peers is not None else Peers()
        self._states = StateSeal(self.peers, self.options.held_s)
        self._requester = ModernInputRequester(self._states, self.options)
        self.peers.on("request", self._passed_on)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._clients: BoundedDict[tuple[Caller, bytes], Client] = BoundedDict(_MAX_CLIENTS)

    def modern(
        self,
        message: Envelope,
        parsed: ParsedParams,
        caller: Caller,
        sink: MessageSink,
        headers: Mapping[str, str] | None = None,
    ) -> Exchange:
        """Starts to answer a request of the modern era. Raises `RpcError` for a malformed one."""
        _check_id(message)
        exchange = Exchange.of(message, self._client(caller, parsed), sink, parsed, self._requester)
        exchange.headers = headers
        if exchange.method in _LEGACY_METHODS:
            raise _unknown_method(exchange.method)
        if exchange.method in INPUT_METHODS:
            held = self._with_inputs(exchange, parsed)
            if held is not None:
                return held
        return self._start(exchange)

    def refused(self, message: Envelope, fault: RpcError) -> None:
        """Hears of a request that is malformed, and so was not begun: for whoever measures."""

    def _client(self, caller: Caller, parsed: ParsedParams) -> Client:
        """The client as the request describes it. It does so with every request: a short `_meta` is parsed once."""
        params, meta = parsed
        key = (caller, b"" if params.meta is UNSET else bytes(params.meta))
        cached = self._clients.get(key)
        if cached is not None:
            return cached
        meta.check()
        client = Client(
            caller=caller,
            version=MODERN_VERSION,
            capabilities=meta.capabilities.copy(),  # a slice would keep the whole message in memory
            info=meta.info.copy() if meta.info is not ABSENT else EMPTY_OBJECT,
            log_level=parse_string(meta.log_level),
        )
        if len(key[1]) <= CACHEABLE_BYTES and meta.progress_token is ABSENT:  # each token is used once
            self._clients[key] = client
        return client

    def legacy(self, message: Envelope, session: Session, sink: MessageSink) -> Exchange:
        """Starts to answer a request within a session. Raises `RpcError` for a malformed one."""
        _check_id(message)
        exchange = Exchange.of(message, session.client, sink, parse_params(message.params), session.requester)
        if exchange.method in MODERN_METHODS or exchange.method == "initialize":
            raise _unknown_method(exchange.method)
        session.running.add(self._start(exchange, session))
        return exchange

    def _with_inputs(self, exchange: Exchange, parsed: ParsedParams) -> Exchange | None:
        """Reads what the client brings from an earlier round; returns the exchange that was held for it."""
        params, inputs = parsed[0], {}
        if params.request_state is not ABSENT and bytes(params.request_state) != b"null":
            digest = request_digest(exchange.method, exchange.params)
            state = self._states.open(params.request_state, exchange.caller.name, digest)
            if state.kind == "held":
                held = self._requester.resume(state.value, params.input_responses, exchange)
                if held.outcome is not None:
                    _finish(held, held.outcome)
                return held
            inputs["requestState"] = Raw(jsonrpc.encode(state.value))
        if params.input_responses is not ABSENT:
            inputs["inputResponses"] = params.input_responses
        exchange.inputs = Raw(jsonrpc.encode(inputs)) if inputs else EMPTY_OBJECT
        return None

    async def pass_on(
        self, message: Envelope, parsed: ParsedParams, caller: Caller, sink: MessageSink
    ) -> Callable[[], None] | None:
        """Passes a request on whose handler another gateway holds, and returns how to cancel it there; nothing where
        it is to be answered here. Raises `RpcError` where nobody holds the handler any more."""
        state = parsed[0].request_state
        if self.peers.store is None or message.method not in INPUT_METHODS or bytes(state) in {b"", b"null"}:
            return None
        _check_id(message)
        await self._states.find_key(state)
        found = self._states.open(state, caller.name, request_digest(str(message.method), message.params))
        if found.kind != "held" or found.gateway == self.peers.number:
            return None
        request = _PassedOn(caller, message.id, str(message.method), bytes(message.params))
        try:
            return await self.peers.call(found.gateway, "request", msgspec.msgpack.encode(request), sink)
        except _PeerGone:
            raise RpcError(
                jsonrpc.INVALID_PARAMS,
                "the gateway that held this request has ended, or does not answer: check whether the request had an "
                "effect, and make it anew without requestState and inputResponses",
            ) from None

    async def _passed_on(self, body: bytes, sink: _RemoteSink) -> None:
        """Answers a request that came in at another gateway, where its client's caller was checked."""
        request = msgspec.msgpack.decode(body, type=_PassedOn)
        message = Envelope(id=request.identifier, method=request.method, params=Raw(request.params))
        try:
            exchange = self.modern(message, parse_params(message.params), request.caller, sink)
        except RpcError as fault:
            sink.finish(fault.response(message.id), fault)
        else:
            sink.on_cancelled = exchange.canceller(sink)

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
            # Without a sink the client is away with a question: it must learn of the end when it returns.
            if exchange.sink is None:
                cancelled = "the request was cancelled; check whether it had an effect"
                fault = RpcError(jsonrpc.INTERNAL_ERROR, cancelled)
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
            own = await self._answer_legacy(exchange, session) if method in _LEGACY_METHODS else None
            return (own if own is not None else jsonrpc.single_line(await self.app.handle(exchange)),)
        if method == "server/discover":
            return (_discover_result(await self.app.about(exchange.caller)),)
        if method == "subscriptions/listen":
            return (await self._listen(exchange),)
        result = jsonrpc.single_line(await self.app.handle(exchange))
        complete = is_complete(result)
        if not complete and method in INPUT_METHODS and _INPUT_REQUIRED in result:
            result = self._relay_input_required(exchange, result)
        return add_modern_members(method, result, complete=complete)

    def _relay_input_required(self, exchange: Exchange, result: bytes) -> bytes:
        """An `input_required` of an upstream: nothing the client did not declare, and its state under our signature."""
        try:
            required = msgspec.json.decode(result, type=_InputRequired)
        except DECODE_ERRORS:
            return result
        if required.resultType != "input_required":
            return result
        for request in required.inputRequests.values():
            method = parse_string(request.get("method", ABSENT)) or ""
            if not exchange.client.may_be_asked(method, request.get("params", EMPTY_OBJECT)):
                needed: dict[str, Any] = {"requiredCapabilities": {REQUIRED_CAPABILITY.get(method, method): {}}}
                raise RpcError(jsonrpc.MISSING_CAPABILITY, f"this needs a client that answers {method}", needed)
        if required.requestState is ABSENT:
            return result
        members = msgspec.json.decode(result, type=dict[str, Raw])
        digest = request_digest(exchange.method, exchange.params)
        value = parse_string(required.requestState) or ""
        state = self._states.seal("passed", value, exchange.caller.name, digest)
        members["requestState"] = Raw(jsonrpc.encode(state))
        return jsonrpc.encode(members)

    async def initialize(self, message: Envelope, caller: Caller, send: SendNotification) -> tuple[Session, bytes]:
        """Opens a legacy session; returns it with the answer to `initialize`."""
        _check_id(message)
        session, about = await self.open_session(message.params, caller, send)
        version = session.client.version
        capabilities = {**about.capabilities}
        if about.tasks is not None and version == LEGACY_TASKS_VERSION:
            capabilities["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": about.info}
        return session, jsonrpc.result_message(message.id, _encode_about(result, about))

    async def open_session(self, hello: Raw, caller: Caller, send: SendNotification) -> tuple[Session, About]:
        """A legacy session by what its `initialize` said, here or at another gateway."""
        about = await self.app.about(caller)
        session = Session(hello, caller, _supported_lists(about, _LISTS.values()), send, self.peers)
        self.app.hub.add(session.subscriber)
        return session, about

    async def close_session(self, session: Session, *, left: bool = True) -> None:
        """Cancels its requests and ends its subscriptions. `left`: the client is gone, and not only from here."""
        self.app.hub.discard(session.subscriber)
        session.requester.close()
        for exchange in session.running.all():
            exchange.abandon()
        watched, session.subscriber.resources = session.subscriber.resources, frozenset()
        for uri in watched:
            await self.app.unwatch_resource(uri, session.client.caller)
        if left:
            await self.app.left(session.client.caller)

    async def notified(self, message: Envelope, session: Session) -> None:
        """Handles a notification of a legacy client."""
        params = message.params if message.params is not ABSENT else EMPTY_OBJECT
        if message.method == "notifications/cancelled":
            session.running.cancel(params)
        elif message.method != "notifications/initialized":
            await self.app.notified(session.client, str(message.method), params)

    async def _answer_legacy(self, exchange: Exchange, session: Session) -> bytes:
        if exchange.method == "ping":
            return b"{}"
        about = await self.app.about(exchange.caller)
        if exchange.method == "logging/setLevel":
            if "logging" not in about.capabilities:
                raise _unknown_method(exchange.method)
            session.set_level(_parse(exchange.params, _Level).level)
        elif not _declares(about, "resources", "subscribe"):
            raise _unknown_method(exchange.method)
        else:
            uris = {_parse(exchange.params, _Uri).uri}
            watched = session.subscriber.resources
            await self.set_subscriptions(
                session, watched | uris if exchange.method == "resources/subscribe" else watched - uris
            )
        if session.on_changed is not None:
            await session.on_changed()
        return b"{}"

    async def set_subscriptions(self, session: Session, uris: frozenset[str], *, anew: bool = False) -> None:
        """Sets which resources a session hears of. `anew`: it had them at another gateway, and what is gone by now is
        left out."""
        subscriber = session.subscriber
        if len(uris) > _MAX_SUBSCRIPTIONS:
            problem = f"a session may subscribe to {_MAX_SUBSCRIPTIONS} resources: unsubscribe from some"
            raise RpcError(jsonrpc.INVALID_PARAMS, problem)
        for uri in uris - subscriber.resources:
            with suppress(*((RpcError, ToolfoldError) if anew else ())):
                await self.app.watch_resource(uri, session.client.caller)
                subscriber.resources |= {uri}
        for uri in subscriber.resources - uris:
            subscriber.resources -= {uri}
            await self.app.unwatch_resource(uri, session.client.caller)

    async def _listen(self, exchange: Exchange) -> bytes:
        """A modern subscription, until the client cancels it or the server closes."""
        filters = _parse(exchange.params, _Listen).notifications
        if len(self.app.hub) >= self.options.max_listeners:
            raise RpcError(jsonrpc.INTERNAL_ERROR, "too many clients listen: try again later")
        about = await self.app.about(exchange.caller)
        lists = _supported_lists(about, (_LISTS[name] for name in _LISTS if getattr(filters, name)))
        uris = frozenset(filters.resourceSubscriptions) if _declares(about, "resources", "subscribe") else frozenset()
        meta = {_SUBSCRIPTION_KEY: exchange.identifier}

        def send(method: str, params: bytes) -> None:
            members: dict[str, Any] = msgspec.json.decode(params)
            members["_meta"] = {**members.get("_meta", {}), **meta}
            exchange.notify(method, jsonrpc.encode(members))

        if exchange.task is not None:
            self._listening.add(exchange.task)
            exchange.task.add_done_callback(self._listening.discard)
        subscriber = Subscriber(exchange.caller.name, send, lists, task_status=TASK_STATUS["modern"])
        followed = _tasks_to_follow(about, exchange, filters.taskIds)
        subscriber.tasks = frozenset(followed)
        watched: list[str] = []
        try:
            for uri in sorted(uris)[:_MAX_SUBSCRIPTIONS]:
                # What cannot be granted is left out of the acknowledgement, and the rest holds.
                with suppress(RpcError, ToolfoldError):
                    await self.app.watch_resource(uri, exchange.caller)
                    watched.append(uri)
            subscriber.resources = uris = frozenset(watched)
            # The protocol wants the acknowledgement before any notification.
            granted = _acknowledgement(lists, uris, subscriber.tasks, meta)
            exchange.notify("notifications/subscriptions/acknowledged", granted)
            self.app.hub.add(subscriber)
            for state in followed.values():  # one that has ended changes no more
                send(subscriber.task_status, state)
            await self._closing.wait()
        finally:
            self.app.hub.discard(subscriber)
            for uri in watched:
                await self.app.unwatch_resource(uri, exchange.caller)
        return jsonrpc.encode({"_meta": meta, "resultType": "complete"})

    async def end_subscriptions(self) -> None:
        """Ends every subscription with its result."""
        self._closing.set()
        if self._listening:
            await asyncio.wait(set(self._listening), timeout=_END_GRACE_S)

    async def aclose(self) -> None:
        """Ends subscriptions and cancels all else."""
        await self.end_subscriptions()
        self._requester.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_END_GRACE_S)


def _finish(exchange: Exchange, outcome: RequestOutcome) -> None:
    """Sends the outcome, or stores it for a client that is away with a question."""
    sink, exchange.sink = exchange.sink, None
    result, fault = outcome
    if sink is None:
        exchange.outcome = outcome
    elif fault is not None:
        sink.finish(fault.response(exchange.identifier), fault)
    elif sum(map(len, result)) > _LARGE_BYTES:
        sink.finish_long(jsonrpc.result_parts(exchange.identifier, result))
    else:
        sink.finish(jsonrpc.result_message(exchange.identifier, b"".join(result)) if result else b"", None)


def _check_id(message: Envelope) -> None:
    """Raises `RpcError` for a request that cannot be answered under its id."""
    if message.id is None or isinstance(message.id, float) or message.method is UNSET:
        problem = "a request has a method, and a string or a whole number as its id"
        raise RpcError(jsonrpc.INVALID_REQUEST, problem, refused=True)


def _unknown_method(method: str) -> RpcError:
    return RpcError(jsonrpc.METHOD_NOT_FOUND, f"there is no method {method[:100]} here")


def _discover_result(about: About) -> bytes:
    capabilities = {**about.capabilities}
    if about.tasks is not None:
        capabilities["extensions"] = {**capabilities.get("extensions", {}), TASKS: {}}
    result = {
        "resultType": "complete",
        "supportedVersions": list(VERSIONS),
        "capabilities": capabilities,
        "ttlMs": about.ttl_ms,
        "cacheScope": about.cache_scope,
        "_meta": {SERVER_INFO_KEY: about.info},
    }
    return _encode_about(result, about)


def _encode_about(result: dict[str, Any], about: About) -> bytes:
    return jsonrpc.encode(result | ({"instructions": about.instructions} if about.instructions else {}))


def _acknowledgement(lists: frozenset[str], uris: frozenset[str], tasks: frozenset[str], meta: dict[str, Any]) -> bytes:
    granted: dict[str, Any] = {name: True for name, method in _LISTS.items() if method in lists}
    if uris:
        granted["resourceSubscriptions"] = sorted(uris)
    if tasks:
        granted["taskIds"] = sorted(tasks)
    return jsonrpc.encode({"_meta": meta, "notifications": granted})


def _tasks_to_follow(about: About, exchange: Exchange, wanted: list[str]) -> dict[str, bytes]:
    """The state of each of the wanted tasks that the client has. Raises `RpcError` where it did not declare tasks."""
    if about.tasks is None or not wanted:
        return {}
    check_takes_tasks(exchange.client)
    states = ((one, about.tasks(one, exchange.caller)) for one in wanted[:_MAX_SUBSCRIPTIONS])
    return {one: state for one, state in states if state is not None}


def _supported_lists(about: About, wanted: Iterable[str]) -> frozenset[str]:
    """Those of the wanted notifications that the server says it sends."""
    kinds = {TOOLS_CHANGED: "tools", PROMPTS_CHANGED: "prompts", RESOURCES_CHANGED: "resources"}
    return frozenset(method for method in wanted if _declares(about, kinds[method], "listChanged"))


def _declares(about: About, capability: str, member: str) -> bool:
    declared = about.capabilities.get(capability)
    return isinstance(declared, dict) and bool(declared.get(member))


def _parse(params: Raw, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(params, type=kind)
    except DECODE_ERRORS as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"the parameters cannot be read: {error}", refused=True) from error
