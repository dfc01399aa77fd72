"""A `tools/call` of a client as the gateway takes it: its parameters, and for whom it is made.

Above: the MCP server's apps. Below: `wire.serving`.
"""

import msgspec
from msgspec import Raw, Struct

from toolfold.calls.tasks import BackgroundTask
from toolfold.types import EMPTY_OBJECT, CallContext
from toolfold.wire.dispatcher import input_unavailable
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, INVALID_PARAMS
from toolfold.wire.serving import Exchange, RpcError

__all__ = ["CallParams", "ClientInput", "call_context", "parse_call_params"]


class CallParams(Struct):
    """The parameters of `tools/call`."""

    name: str
    arguments: Raw = EMPTY_OBJECT
    task: Raw = ABSENT
    """What a client of 2025-11-25 says of the task that it wants."""


_call_decoder = msgspec.json.Decoder(CallParams)


def parse_call_params(params: Raw) -> CallParams:
    try:
        call = _call_decoder.decode(params)
    except DECODE_ERRORS as error:
        raise RpcError(INVALID_PARAMS, f"the parameters of tools/call cannot be read: {error}") from error
    if bytes(call.arguments) == b"null":
        call.arguments = EMPTY_OBJECT
    if bytes(call.task) == b"null":
        call.task = ABSENT
    return call


class ClientInput:
    """Asks the client of an exchange, on behalf of a server; once its call is a task, through that.

    On a pipe a legacy server does not say which of its calls a question belongs to. Two requests of one caller may then
    answer for each other, those of two callers never: that is what it means that two of these are equal.
    """

    __slots__ = ("_exchange", "_identity", "era", "task")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.era = exchange.client.era
        self.task: BackgroundTask | None = None
        self._identity = (exchange.caller.name, exchange.caller.session, exchange.client.era)

    async def __call__(self, method: str, params: Raw) -> Raw:
        if self.task is None:
            return await self._exchange.ask(method, params)
        if not self._exchange.client.may_be_asked(method, params):
            raise input_unavailable(method)
        return await self.task.ask(method, params)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientInput) and other._identity == self._identity

    def __hash__(self) -> int:
        return hash(self._identity)


def call_context(exchange: Exchange) -> CallContext:
    """For whom and under which conditions a request is answered."""
    return CallContext(
        caller=exchange.caller,
        meta=exchange.raw_meta,
        capabilities=exchange.client.capabilities,
        on_progress=exchange.progress if exchange.wants_progress else None,
        on_input=ClientInput(exchange),
    )
