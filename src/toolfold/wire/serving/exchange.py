"""One request while it is answered, its client, the application that answers it, and how a server describes itself.

An application sees an `Exchange` and nothing of the transport. Its answer goes to a sink; a modern question finishes
the sink, and the exchange goes on with a new one when the client returns with answers. Above: `server.py`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from toolfold.types import EMPTY_OBJECT, LOCAL, Caller, Era
from toolfold.wire import jsonrpc
from toolfold.wire.dispatcher import REQUIRED_CAPABILITY, input_unavailable
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Envelope, Parts, error_message, parse_string
from toolfold.wire.meta import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, META_PREFIX, PROTOCOL_VERSION_KEY
from toolfold.wire.serving.notifications import NotificationHub
from toolfold.wire.types import LEGACY_VERSIONS, MODERN_VERSION, TASKS

__all__ = ["CUT_OFF", "LOG_LEVEL_KEY", "_stopping", "check_takes_tasks"]

# An error of the server, by JSON-RPC, and what to do about a request that was under way.
_UNAVAILABLE = -32000
CUT_OFF = "ask again, if asking twice does no harm: what was under way may have had its effect"


class RpcError(Exception):
    """A JSON-RPC error to be sent. `refused`: the message itself was malformed, which HTTP shows with its status."""

    def __init__(self, code: int, message: str, data: Any = None, *, refused: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.refused = refused

    def response(self, identifier: object) -> bytes:
        return error_message(identifier, self.code, self.message, self.data)


def _stopping(next_action: str) -> RpcError:
    """What is answered while the gateway stops. Its data is the error as every face shows it."""
    message = "this gateway is being stopped"
    error = {"code": "GATEWAY_STOPPING", "message": message, "hints": [], "next_action": next_action}
    return RpcError(_UNAVAILABLE, f"{message}: {next_action}", {**error, "retry_after_s": 1})


class About(Struct, frozen=True, kw_only=True):
    """How a server describes itself in the handshake."""

    # Name, version and perhaps a title.
    info: dict[str, Any]
    capabilities: dict[str, Any] = field(default_factory=dict)
    instructions: str = ""
    # Where calls can be made as tasks: what is told of a task of a caller, by its id, and nothing of any other.
    tasks: Callable[[str, Caller], bytes | None] | None = None
    ttl_ms: int = 60_000
    cache_scope: str = "private"


class ServeOptions(Struct, frozen=True, kw_only=True):
    """Limits."""

    max_body_bytes: int = 64 * 1024 * 1024
    # How long a handler waits for answers that the client fetches between two modern requests.
    held_s: float = 300.0
    max_held: int = 1000
    # Of one caller, so that others can still be asked.
    max_held_each: int = 250
    max_sessions: int = 1000
    session_idle_s: float = 1800.0
    max_listeners: int = 4096
    # How many messages of a legacy stream are kept, so that a client that lost it can resume.
    replay_events: int = 256
    # Proxies cut a quiet stream: this often it sends a comment.
    keep_alive_s: float = 15.0


VERSIONS = (MODERN_VERSION, *LEGACY_VERSIONS)
LOG_LEVEL_KEY = META_PREFIX + "logLevel"

# A result, or an error. Neither: it was cancelled, and nobody waits.
RequestOutcome = tuple[Parts, RpcError | None]


class MessageSink(Protocol):
    """Where the messages of one request go."""

    def push(self, message: bytes) -> None:
        """Sends a notice or a question before the answer."""

    def finish(self, message: bytes, fault: RpcError | None) -> None:
        """Sends the answer, which ends it."""

    def finish_long(self, parts: Parts) -> None:
        """The same in parts, for an answer that is too large to be joined."""


class _InputRequester(Protocol):
    """Asks the client of an exchange for input."""

    async def ask(self, exchange: "Exchange", method: str, params: Raw) -> Raw: ...


class _RequestMeta(Struct):
    """The part of `_meta` that this layer reads."""

    version: Raw = field(name=PROTOCOL_VERSION_KEY, default=ABSENT)
    capabilities: Raw = field(name=CLIENT_CAPABILITIES_KEY, default=ABSENT)
    info: Raw = field(name=CLIENT_INFO_KEY, default=ABSENT)
    log_level: Raw = field(name=LOG_LEVEL_KEY, default=ABSENT)
    progress_token: Raw = field(name="progressToken", default=ABSENT)

    def check(self) -> None:
        """Raises `RpcError` for a request that lacks what every modern request states."""
        version = parse_string(self.version)
        lacks = "the request lacks io.modelcontextprotocol/{} in params._meta"
        if version is None:
            problem = lacks.format("protocolVersion") + "; clients of an earlier version begin with initialize"
            raise RpcError(jsonrpc.INVALID_PARAMS, problem, refused=True)
        if version != MODERN_VERSION:
            data = {"supported": list(VERSIONS), "requested": version}
            raise RpcError(jsonrpc.UNSUPPORTED_VERSION, f"version {version[:40]} is not served", data, refused=True)
        if bytes(self.capabilities).lstrip()[:1] != b"{":
            raise RpcError(jsonrpc.INVALID_PARAMS, lacks.format("clientCapabilities"), refused=True)


class _RequestParams(Struct):
    """The part of the parameters of any request that this layer reads."""

    meta: Raw | UnsetType = field(name="_meta", default=UNSET)
    name: Raw = ABSENT
    uri: Raw = ABSENT
    task_id: Raw = field(name="taskId", default=ABSENT)
    input_responses: Raw = field(name="inputResponses", default=ABSENT)
    request_state: Raw = field(name="requestState", default=ABSENT)

    def named(self, key: str) -> Raw:
        """The parameter that HTTP repeats as `Mcp-Name`."""
        return {"uri": self.uri, "taskId": self.task_id}.get(key, self.name)


_meta = msgspec.json.Decoder(_RequestMeta)
_params = msgspec.json.Decoder(_RequestParams)
_no_meta = _RequestMeta()
_names = msgspec.json.Decoder(dict[str, Raw])


ParsedParams = tuple[_RequestParams, _RequestMeta]


def parse_params(params: Raw) -> ParsedParams:
    try:
        parsed = _params.decode(params) if params is not ABSENT else _RequestParams()
        return parsed, _no_meta if parsed.meta is UNSET else _meta.decode(parsed.meta)
    except DECODE_ERRORS as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"the parameters cannot be read: {error}", refused=True) from error


class Client(Struct, eq=False, kw_only=True):
    """The client of a request: its caller, and what it declared. A legacy one lives as long as its session; a modern
    one is cached for the next request with the same `_meta`."""

    caller: Caller = LOCAL
    era: Era = "modern"
    version: str = ""
    capabilities: Raw = EMPTY_OBJECT
    info: Raw = EMPTY_OBJECT
    log_level: str | None = None
    declared: dict[str, Raw] = {}
    takes_tasks: bool = False
    """Whether a call of it may be answered with a task, unasked."""

    def __post_init__(self) -> None:
        self.declared = _parse_names(self.capabilities)
        extensions = self.declared.get("extensions") if self.era == "modern" else None
        self.takes_tasks = extensions is not None and TASKS in _parse_names(extensions)

    def may_be_asked(self, method: str, params: Raw) -> bool:
        """Whether it declared that it answers this."""
        capability = self.declared.get(REQUIRED_CAPABILITY.get(method, ""))
        if capability is None:
            return False
        if method != "elicitation/create" or b'"url"' not in bytes(params):
            return True
        mode = _parse_names(params).get("mode")
        return mode is None or bytes(mode) != b'"url"' or "url" in _parse_names(capability)


def check_takes_tasks(client: Client) -> None:
    """Raises `RpcError` for a modern client that did not declare the extension for tasks."""
    if not client.takes_tasks:
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise RpcError(jsonrpc.MISSING_CAPABILITY, f"this needs a client that declares the extension {TASKS}", needed)


def _parse_names(declared: Raw) -> dict[str, Raw]:
    try:
        return _names.decode(declared)
    except DECODE_ERRORS:
        return {}


class Exchange(Struct, eq=False):
    """One request, from its arrival to its answer."""

    identifier: object
    method: str
    params: Raw
    client: Client
    sink: MessageSink | None
    meta: _RequestMeta
    raw_meta: Raw | None
    requester: _InputRequester
    # For a modern client: its answers to what an upstream asked, as members of `params`; `{}` where it has none.
    inputs: Raw | None = None
    # For a modern request over HTTP: its headers, which may repeat parameters of a tool.
    headers: Mapping[str, str] | None = None
    task: asyncio.Task[None] | None = None
    # How it ended while its client was away with a question: sent when the client returns.
    outcome: RequestOutcome | None = None

    @staticmethod
    def of(
        message: Envelope, client: Client, sink: MessageSink, parsed: ParsedParams, requester: _InputRequester
    ) -> "Exchange":
        params = message.params if message.params is not ABSENT else EMPTY_OBJECT
        raw_meta = parsed[0].meta if parsed[0].meta is not UNSET else None
        return Exchange(message.id, str(message.method), params, client, sink, parsed[1], raw_meta, requester)

    @property
    def caller(self) -> Caller:
        return self.client.caller

    @property
    def modern(self) -> bool:
        return self.client.era == "modern"

    def notify(self, method: str, params: bytes) -> None:
        """Sends the client a notification about this request. Between two rounds there is nowhere to send it."""
        if self.sink is not None:
            self.sink.push(jsonrpc.notification_message(method, params))

    def abandon(self) -> None:
        """Cancels it: its client is gone."""
        self.sink = None
        if self.task is not None:
            self.task.cancel()

    def canceller(self, sink: MessageSink) -> Callable[[], None]:
        """What cancels it when whoever reads this sink is gone."""

        def cancel() -> None:
            # Where the sink is another, a question ended this one, and the request goes on with the next round.
            if self.sink is sink and self.task is not None:
                self.task.cancel()

        return cancel

    @property
    def wants_progress(self) -> bool:
        return self.meta.progress_token is not ABSENT

    def progress(self, params: Raw) -> None:
        """Forwards progress under the client's own token."""
        if not self.wants_progress:
            return
        try:
            members = _names.decode(params)
        except DECODE_ERRORS:
            return
        members["progressToken"] = self.meta.progress_token
        self.notify("notifications/progress", jsonrpc.encode(members))

    async def ask(self, method: str, params: Raw) -> Raw:
        """Asks the client. Raises `InputUnavailable` where it did not declare the capability."""
        if not self.client.may_be_asked(method, params):
            raise input_unavailable(method)
        return await self.requester.ask(self, method, params)


class App(Protocol):
    """The application that is served. It returns results and never sees a transport."""

    @property
    def hub(self) -> NotificationHub: ...

    async def about(self, caller: Caller) -> About: ...

    async def handle(self, exchange: Exchange) -> Raw:
        """The `result` of a request. Raises a `ToolfoldError` or an `RpcError`. Cancelling it cancels the request."""

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        """A notification of a client that is not about the protocol itself."""

    async def left(self, caller: Caller) -> None:
        """A client of the legacy era is gone, and its session with it."""

    async def watch_resource(self, uri: str, caller: Caller) -> None:
        """A client subscribes to a resource. `unwatch_resource` follows as often as this is called."""

    async def unwatch_resource(self, uri: str, caller: Caller) -> None: ...
