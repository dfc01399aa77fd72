"""A legacy client from its handshake to its end: what it declared, what it waits for, what it wants to be told.

It knows no transport: one gives it a way to send. Above: `stdio.py`, `http_legacy.py`. Below: `server.py` makes it.
"""

from functools import partial

import msgspec
from msgspec import Raw, Struct

from toolfold.types import EMPTY_OBJECT, Caller
from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Envelope
from toolfold.wire.serving.exchange import Client, Exchange
from toolfold.wire.serving.input_requests import LegacyInputRequester
from toolfold.wire.serving.notifications import SendNotification, Subscriber
from toolfold.wire.serving.types import RpcError
from toolfold.wire.types import LEGACY_VERSIONS

_BATCH_VERSION = "2025-03-26"
"""The one version that knows several messages in one."""

_DEFAULT_LEVEL = "debug"
"""A client that named no level gets whatever its server sends."""


class InitializeParams(Struct, frozen=True):
    """What `initialize` says."""

    protocolVersion: str  # noqa: N815 - the protocol's spelling
    capabilities: dict[str, Raw] = {}
    clientInfo: Raw = EMPTY_OBJECT  # noqa: N815 - as above

    @property
    def version(self) -> str:
        """The version to speak: the one it asks for, else the newest of its era."""
        return self.protocolVersion if self.protocolVersion in LEGACY_VERSIONS else LEGACY_VERSIONS[0]


_hello = msgspec.json.Decoder(InitializeParams)


def parse_initialize(params: Raw) -> InitializeParams:
    try:
        return _hello.decode(params)
    except DECODE_ERRORS as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"`initialize` cannot be read: {error}", refused=True) from error


def parse_batch(body: bytes) -> list[Envelope] | None:
    """The messages of a batch; nothing where it is none."""
    if body.lstrip()[:1] != b"[":
        return None
    try:
        return [jsonrpc.parse_envelope(part) for part in msgspec.json.decode(body, type=list[Raw])]
    except DECODE_ERRORS:
        return None


class RunningRequests:
    """The requests of one client that are being answered, by their ids."""

    def __init__(self) -> None:
        self._by_id: dict[object, Exchange] = {}

    def add(self, exchange: Exchange) -> None:
        """Keeps it under the id that it has now until it is done. One that was held comes again under another."""
        if exchange.task is not None:
            self._by_id[exchange.identifier] = exchange
            exchange.task.add_done_callback(partial(self._done, exchange.identifier, exchange))

    def _done(self, identifier: object, exchange: Exchange, task: object) -> None:
        if self._by_id.get(identifier) is exchange:
            del self._by_id[identifier]

    def cancel(self, params: Raw) -> None:
        """The client says that it no longer waits for a request."""
        exchange = self._by_id.get(jsonrpc.cancelled_id(params))
        if exchange is not None and exchange.task is not None:
            exchange.task.cancel()

    def all(self) -> list[Exchange]:
        return list(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)


class Session:
    """One legacy client."""

    def __init__(self, hello: InitializeParams, caller: Caller, lists: frozenset[str], tell: SendNotification) -> None:
        capabilities = Raw(jsonrpc.encode(hello.capabilities))
        self.client = Client(
            caller=caller, era="legacy", version=hello.version, capabilities=capabilities, info=hello.clientInfo
        )
        self.asker = LegacyInputRequester()
        self.listener = Subscriber(caller.name, tell, lists, log_level=_DEFAULT_LEVEL)
        self.running = RunningRequests()

    @property
    def batches(self) -> bool:
        return self.client.version == _BATCH_VERSION

    def answered(self, message: Envelope) -> None:
        """The client answers something that it was asked."""
        if message.result is not ABSENT or message.error is not ABSENT:
            self.asker.answered(message)

    def set_level(self, level: str) -> None:
        self.client.log_level = level
        self.listener.log_level = level
