"""A legacy session, from its handshake to its end: the client, its running requests, questions and subscriptions.

It knows no transport: one gives it a way to send. Above: `server.py`, which opens it.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from msgspec import UNSET, Raw, Struct

from toolfold.types import EMPTY_OBJECT, Caller
from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Envelope, parse_number
from toolfold.wire.serving.exchange import Client, Exchange, RpcError
from toolfold.wire.serving.input_requests import _client_gone
from toolfold.wire.serving.notifications import SendNotification, Subscriber
from toolfold.wire.serving.peers import Peers
from toolfold.wire.types import ELICITATION_COMPLETE, LEGACY_VERSIONS

# The one version that knows several messages in one.
_BATCH_VERSION = "2025-03-26"

_BY_ADDRESS = Raw(b'{"mode":"url"}')

# Of the number of a question: how many of its lowest bits count questions. The others are the gateway's own number.
# Together they have fewer bits than the whole numbers that every client can write.
_QUESTION_BITS = 21

# A client that named no level gets whatever its server sends.
_DEFAULT_LEVEL = "debug"


class _InitializeParams(Struct, frozen=True):
    """What `initialize` says."""

    protocolVersion: str  # noqa: N815 - the protocol's spelling
    capabilities: dict[str, Raw] = {}
    clientInfo: Raw = EMPTY_OBJECT  # noqa: N815 - as above

    @property
    def version(self) -> str:
        """The version to speak: the one it asks for, else the newest of its era."""
        return self.protocolVersion if self.protocolVersion in LEGACY_VERSIONS else LEGACY_VERSIONS[0]


def _parse_initialize(params: Raw) -> _InitializeParams:
    try:
        return msgspec.json.decode(params, type=_InitializeParams)
    except DECODE_ERRORS as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"`initialize` cannot be read: {error}", refused=True) from error


def _asking_gateway(message: Envelope) -> int:
    """The gateway that asked what this message answers; 0 for one that answers nothing of another."""
    return (parse_number(message.id) or 0) >> _QUESTION_BITS if message.method is UNSET else 0


def _parse_batch(body: bytes) -> list[Envelope] | None:
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
        # A client may use an id again while the first request still runs.
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


class _InputRequester:
    """Asks the client of a legacy session: with a request of our own."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        # An answer may come in at another gateway, which reads from its number whom it is for.
        self._numbers = itertools.count((peers.number << _QUESTION_BITS) + 1)
        self._waiting: dict[int, asyncio.Future[Raw]] = {}

    async def ask(self, exchange: Exchange, method: str, params: Raw) -> Raw:
        sink = exchange.sink
        if sink is None:
            raise _client_gone()
        number = next(self._numbers)
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        sink.push(jsonrpc.request_message(number, method, jsonrpc.single_line(params)))
        self._peers.expected += 1
        try:
            return await answer
        except asyncio.CancelledError:
            sink.push(jsonrpc.cancelled_message(number, "it is no longer needed"))
            raise
        finally:
            self._peers.expected -= 1
            self._waiting.pop(number, None)

    def on_answer(self, message: Envelope) -> None:
        """An answer of the client. One that nobody waits for is dropped."""
        number = parse_number(message.id)
        answer = self._waiting.get(number) if number is not None else None
        if answer is None or answer.done():
            return
        if message.error is not ABSENT:
            answer.set_exception(jsonrpc.remote_error(message.error))
        else:
            answer.set_result(message.result)

    def close(self) -> None:
        """The client is gone."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_client_gone())


class Session:
    """One legacy client, by what its `initialize` says. Raises `RpcError` where that cannot be read."""

    def __init__(
        self, initialize: Raw, caller: Caller, lists: frozenset[str], send: SendNotification, peers: Peers
    ) -> None:
        params = _parse_initialize(initialize)
        capabilities = Raw(jsonrpc.encode(params.capabilities))
        self.client = Client(
            caller=caller, era="legacy", version=params.version, capabilities=capabilities, info=params.clientInfo
        )
        if self.client.may_be_asked("elicitation/create", _BY_ADDRESS):
            lists |= {ELICITATION_COMPLETE}
        self.requester = _InputRequester(peers)
        self.subscriber = Subscriber(caller.name, send, lists, log_level=_DEFAULT_LEVEL, client=self.client)
        self.running = RunningRequests()
        self.on_changed: Callable[[], Awaitable[None]] | None = None
        """Called when the client set its log level or its subscriptions."""

    @property
    def batches(self) -> bool:
        return self.client.version == _BATCH_VERSION

    def on_answer(self, message: Envelope) -> None:
        """The client answers something that it was asked."""
        if message.result is not ABSENT or message.error is not ABSENT:
            self.requester.on_answer(message)

    def set_level(self, level: str) -> None:
        self.client.log_level = level
        self.subscriber.log_level = level
