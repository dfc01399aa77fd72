"""One request while it is answered: what it says, who asks, its notices, its questions to the client, and its end.

An application sees this and nothing of the transport. Its answer goes out through an outlet; a modern question ends the
outlet and the exchange goes on with the next one, when the client comes back with answers. Above: `server.py`. Below:
`asking.py`.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from toolfold.types import EMPTY_OBJECT, LOCAL, Caller, Era
from toolfold.wire import jsonrpc
from toolfold.wire.dispatcher import REQUIRED_CAPABILITY, input_unavailable
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Parts
from toolfold.wire.meta import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, META_PREFIX, PROTOCOL_VERSION_KEY
from toolfold.wire.serving.notifications import NotificationHub
from toolfold.wire.serving.types import About, RpcError

LOG_LEVEL_KEY = META_PREFIX + "logLevel"

RequestOutcome = tuple[Parts, RpcError | None]
"""A result, or what is said instead. Neither: it was cancelled, and nobody waits."""


class MessageSink(Protocol):
    """Where the messages of one request go."""

    def push(self, message: bytes) -> None:
        """Sends a notice or a question before the answer."""

    def finish(self, message: bytes, fault: RpcError | None) -> None:
        """Sends the answer, which ends it."""

    def finish_long(self, parts: Parts) -> None:
        """The same for an answer that is too large to be copied together without need."""


class InputRequester(Protocol):
    """Brings a question to the client of an exchange and its answer back."""

    async def ask(self, exchange: "Exchange", method: str, params: Raw) -> Raw: ...


class RequestMeta(Struct):
    """The part of `_meta` that this layer reads."""

    version: Raw = field(name=PROTOCOL_VERSION_KEY, default=ABSENT)
    capabilities: Raw = field(name=CLIENT_CAPABILITIES_KEY, default=ABSENT)
    info: Raw = field(name=CLIENT_INFO_KEY, default=ABSENT)
    log_level: Raw = field(name=LOG_LEVEL_KEY, default=ABSENT)
    progress_token: Raw = field(name="progressToken", default=ABSENT)


class RequestParams(Struct):
    """The part of the parameters of any request that this layer reads."""

    meta: Raw | UnsetType = field(name="_meta", default=UNSET)
    name: Raw = ABSENT
    uri: Raw = ABSENT
    input_responses: Raw = field(name="inputResponses", default=ABSENT)
    request_state: Raw = field(name="requestState", default=ABSENT)


_meta = msgspec.json.Decoder(RequestMeta)
_params = msgspec.json.Decoder(RequestParams)
_no_meta = RequestMeta()
_names = msgspec.json.Decoder(dict[str, Raw])


def parse_params(params: Raw) -> tuple[RequestParams, RequestMeta]:
    try:
        found = _params.decode(params) if params is not ABSENT else RequestParams()
        return found, _no_meta if found.meta is UNSET else _meta.decode(found.meta)
    except DECODE_ERRORS as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"the parameters cannot be read: {error}", refused=True) from error


class Client:
    """Who is at the other end: the caller it stands for, and what it says of itself. A legacy one lives as long as its
    session; a modern one is remembered for the next request that says the same."""

    __slots__ = ("able", "caller", "capabilities", "era", "info", "log_level", "version")

    def __init__(
        self,
        *,
        caller: Caller = LOCAL,
        era: Era = "modern",
        version: str = "",
        capabilities: Raw = EMPTY_OBJECT,
        info: Raw = EMPTY_OBJECT,
        log_level: str | None = None,
    ) -> None:
        self.caller = caller
        self.era: Era = era
        self.version = version
        self.capabilities = capabilities
        self.info = info
        self.log_level = log_level
        self.able = _parse_names(capabilities)

    def may_be_asked(self, method: str, params: Raw) -> bool:
        """Whether it declared that it answers this."""
        capability = self.able.get(REQUIRED_CAPABILITY.get(method, ""))
        if capability is None:
            return False
        if method != "elicitation/create" or b'"url"' not in bytes(params):
            return True
        mode = _parse_names(params).get("mode")
        return mode is None or bytes(mode) != b'"url"' or "url" in _parse_names(capability)


def _parse_names(declared: Raw) -> dict[str, Raw]:
    try:
        return _names.decode(declared)
    except DECODE_ERRORS:
        return {}


class Exchange:
    """One request on its way."""

    __slots__ = (
        "_asker",
        "client",
        "ending",
        "headers",
        "identifier",
        "inputs",
        "meta",
        "method",
        "name",
        "outlet",
        "params",
        "raw_meta",
        "task",
    )

    def __init__(
        self,
        identifier: object,
        method: str,
        params: Raw,
        client: Client,
        outlet: MessageSink,
        *,
        read: tuple[RequestParams, RequestMeta],
        asker: InputRequester,
    ) -> None:
        self.identifier = identifier
        self.method = method
        self.params = params if params is not ABSENT else EMPTY_OBJECT
        self.client = client
        self.outlet: MessageSink | None = outlet
        self.meta = read[1]
        self.raw_meta: Raw | None = read[0].meta if read[0].meta is not UNSET else None
        self.name = read[0].name
        self.inputs: Raw | None = None
        """For a modern client: the members with which it answers what a server below asked, or `{}`."""
        self.headers: Mapping[str, str] | None = None
        """For a modern request over HTTP: its headers, which may repeat parameters of a tool."""
        self.task: asyncio.Task[None] | None = None
        self.ending: RequestOutcome | None = None
        """How it ended while its client was away with a question; whoever comes back is told."""
        self._asker = asker

    @property
    def caller(self) -> Caller:
        return self.client.caller

    @property
    def modern(self) -> bool:
        return self.client.era == "modern"

    def notify(self, method: str, params: bytes) -> None:
        """Tells the client something about this request. Nothing is told between two rounds."""
        if self.outlet is not None:
            self.outlet.push(jsonrpc.notification_message(method, params))

    @property
    def wants_progress(self) -> bool:
        return self.meta.progress_token is not ABSENT

    def progress(self, params: Raw) -> None:
        """Passes progress on under the token that the client gave."""
        if not self.wants_progress:
            return
        try:
            members = _names.decode(params)
        except DECODE_ERRORS:
            return
        members["progressToken"] = self.meta.progress_token
        self.notify("notifications/progress", jsonrpc.encode(members))

    async def ask(self, method: str, params: Raw) -> Raw:
        """What the client answers. Raises `InputUnavailable` where it did not declare that it can."""
        if not self.client.may_be_asked(method, params):
            raise input_unavailable(method)
        return await self._asker.ask(self, method, params)


# --- What an application looks like to the wire that serves it. Above: `server.py`, which drives it.


class App(Protocol):
    """What is served. It is asked for results and never sees a transport."""

    @property
    def hub(self) -> NotificationHub: ...

    async def about(self, caller: Caller) -> About: ...

    async def handle(self, exchange: Exchange) -> Raw:
        """The `result` of a request. Raises a `ToolfoldError` or a `Fault`. Cancelling it cancels the request."""

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        """A notification of a client that is not about the protocol itself."""

    async def left(self, caller: Caller) -> None:
        """A client of the legacy era is gone, and its session with it: nothing of that session is needed any more."""

    async def watch_resource(self, uri: str) -> None:
        """Somebody wants to be told of changes of a resource; as often as it is asked, `unwatch_resource` follows."""

    async def unwatch_resource(self, uri: str) -> None: ...
