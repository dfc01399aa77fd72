"""Questions to a client while its request is answered.

Legacy: a request of our own on the request's stream, and the answer comes as a message. Modern: the request is answered
with `input_required`, the handler is held, and the same request comes again with the answers; questions that are asked
in the same moment go together. Above: `exchange.py`, `server.py`. Below: `sealing.py`.
"""

import asyncio
import itertools
import secrets

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import InputUnavailable
from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Envelope, parse_number
from toolfold.wire.serving.exchange import Exchange
from toolfold.wire.serving.request_state import CHECK_EFFECT, StateSigner, invalid_state, request_digest
from toolfold.wire.serving.types import RpcError, ServeOptions

_Answer = asyncio.Future[Raw]


class LegacyInputRequester:
    """The questions of one session."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Answer] = {}

    async def ask(self, exchange: Exchange, method: str, params: Raw) -> Raw:
        outlet = exchange.outlet
        if outlet is None:
            raise _client_gone()
        number = next(self._numbers)
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        outlet.push(jsonrpc.request_message(number, method, jsonrpc.single_line(params)))
        try:
            return await answer
        except asyncio.CancelledError:
            outlet.push(jsonrpc.cancelled_message(number, "it is no longer needed"))
            raise
        finally:
            self._waiting.pop(number, None)

    def answered(self, message: Envelope) -> None:
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


class _Question(Struct):
    method: str
    params: Raw
    answer: _Answer


class _Held(Struct, eq=False):
    """A handler that waits. `sent` are the questions that the client has, `unsent` those of the next round."""

    exchange: Exchange
    name: str = ""
    """Under which the client comes back; nothing where it has no questions now."""
    digest: str = ""
    sent: dict[str, _Question] = msgspec.field(default_factory=dict)
    unsent: dict[str, _Question] = msgspec.field(default_factory=dict)
    asked: int = 0
    timer: asyncio.TimerHandle | None = None


class ModernInputRequester:
    """All handlers that are held."""

    def __init__(self, sealer: StateSigner, options: ServeOptions) -> None:
        self._sealer = sealer
        self._options = options
        self._by_exchange: dict[Exchange, _Held] = {}
        self._by_name: dict[str, _Held] = {}

    async def ask(self, exchange: Exchange, method: str, params: Raw) -> Raw:
        loop = asyncio.get_running_loop()
        held = self._by_exchange.get(exchange)
        if held is None:
            if len(self._by_exchange) >= self._options.max_held:
                raise InputUnavailable("too many requests wait for input", next_action="try again later")
            held = self._by_exchange[exchange] = _Held(exchange)
        held.asked += 1
        question = _Question(method, params, loop.create_future())
        if not held.unsent:
            loop.call_soon(self._send, held)
        held.unsent[f"input-{held.asked}"] = question
        try:
            return await question.answer
        finally:
            self._forget_if_done(held)

    def _forget_if_done(self, held: _Held) -> None:
        """One whose client is away is kept till it comes back, however it ended: it is told so then."""
        questions = (*held.sent.values(), *held.unsent.values())
        if not held.name and all(question.answer.done() for question in questions):
            self._by_exchange.pop(held.exchange, None)

    def _send(self, held: _Held) -> None:
        """Ends the round: the client gets the questions and a state to come back with."""
        exchange, outlet = held.exchange, held.exchange.outlet
        if outlet is None or not held.unsent:
            return  # the client fetches answers to earlier questions; these go with the next round
        held.sent, held.unsent = held.unsent, {}
        held.digest = held.digest or request_digest(exchange.method, exchange.params)
        name = held.name = secrets.token_urlsafe(12)
        state = self._sealer.seal("held", name, exchange.caller.name, held.digest)
        wanted = {key: {"method": one.method, "params": one.params} for key, one in held.sent.items()}
        result = {"resultType": "input_required", "inputRequests": wanted, "requestState": state}
        self._by_name[name] = held
        held.timer = asyncio.get_running_loop().call_later(self._options.held_s, self._expire, name)
        exchange.outlet = None
        outlet.finish(jsonrpc.result_message(exchange.identifier, jsonrpc.encode(result)), None)

    def _expire(self, name: str) -> None:
        held = self._by_name.pop(name, None)
        if held is None:
            return
        for question in (*held.sent.values(), *held.unsent.values()):
            if not question.answer.done():
                question.answer.set_exception(_client_gone())
        held.name = ""
        self._forget_if_done(held)

    def resume(self, name: str, responses: Raw, again: Exchange) -> Exchange:
        """The client came back, as `again`. The held exchange goes on in its place and is given back."""
        held = self._by_name.get(name)
        if held is None:
            raise invalid_state()
        answers = _parse_responses(responses)
        del self._by_name[name]
        held.name = ""
        if held.timer is not None:
            held.timer.cancel()
        exchange = held.exchange
        exchange.identifier, exchange.outlet = again.identifier, again.outlet
        exchange.meta, exchange.client = again.meta, again.client
        questions, held.sent = held.sent, {}
        for key, question in questions.items():
            if question.answer.done():
                continue
            if key in answers:
                question.answer.set_result(answers[key])
            else:
                held.unsent[key] = question
        if held.unsent:
            asyncio.get_running_loop().call_soon(self._send, held)
        self._forget_if_done(held)
        return exchange

    def close(self) -> None:
        for name in tuple(self._by_name):
            self._expire(name)


def _parse_responses(responses: Raw) -> dict[str, Raw]:
    try:
        found = msgspec.json.decode(responses, type=dict[str, Raw]) if responses is not ABSENT else {}
    except DECODE_ERRORS as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"`inputResponses` must be an object: {error}") from error
    for key, value in found.items():
        if bytes(value).lstrip()[:1] != b"{":
            raise RpcError(jsonrpc.INVALID_PARAMS, f"the answer to {key!r} must be an object")
    return found


def _client_gone() -> InputUnavailable:
    return InputUnavailable("the client did not answer in time", next_action=CHECK_EFFECT)
