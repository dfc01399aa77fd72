"""Questions to a modern client while its request is answered, and the state that it carries between two rounds.

The request is answered with `input_required`, the handler is held, and the same request comes again with the answers;
questions that are asked in the same moment go together. A client may change, keep, share or invent the state. So it is
sealed, and bound to the caller, to the request as it was first made and to a moment. Covered: forgery, use by another
caller, use with other arguments, late use. Using one twice is prevented where it names a held handler, which ends with
its use. It says which gateway holds the handler: another passes the request on to it. Above: `server.py`. The legacy
form is in `session.py`.
"""

import asyncio
import hashlib
import secrets
import time
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import InputUnavailable, StoreError
from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, INVALID_PARAMS
from toolfold.wire.serving.exchange import Exchange, RpcError, ServeOptions
from toolfold.wire.serving.peers import Peers

_Kind = Literal["held", "passed"]

_MAX_STATE = 1 << 20
# What to do about a request whose end nobody heard of.
_CHECK_EFFECT = "check whether the request had an effect before you make it anew"
_ROUND_MEMBERS = frozenset({"_meta", "inputResponses", "requestState"})

_Answer = asyncio.Future[Raw]


class _Question(Struct):
    method: str
    params: Raw
    answer: _Answer


class _Held(Struct, eq=False):
    """A handler that waits. `sent` are the questions that the client has, `unsent` those of the next round."""

    exchange: Exchange
    # Under which the client comes back; nothing where it has no questions now.
    name: str = ""
    digest: str = ""
    sent: dict[str, _Question] = msgspec.field(default_factory=dict)
    unsent: dict[str, _Question] = msgspec.field(default_factory=dict)
    count: int = 0
    timer: asyncio.TimerHandle | None = None


class ModernInputRequester:
    """Asks modern clients: holds the handler while the client fetches the answers."""

    def __init__(self, states: "StateSeal", options: ServeOptions) -> None:
        self._states = states
        self._options = options
        self._by_exchange: dict[Exchange, _Held] = {}
        self._by_name: dict[str, _Held] = {}

    async def ask(self, exchange: Exchange, method: str, params: Raw) -> Raw:
        loop = asyncio.get_running_loop()
        held = self._by_exchange.get(exchange)
        if held is None:
            own = sum(other.caller.name == exchange.caller.name for other in self._by_exchange)
            if len(self._by_exchange) >= self._options.max_held or own >= self._options.max_held_each:
                raise InputUnavailable("too many requests wait for input", next_action="try again later")
            held = self._by_exchange[exchange] = _Held(exchange)
        held.count += 1
        question = _Question(method, params, loop.create_future())
        # At the end of this turn of the loop, so that questions asked together go in one round.
        if not held.unsent:
            loop.call_soon(self._send, held)
        held.unsent[f"input-{held.count}"] = question
        self._states.peers.expected += 1
        try:
            return await question.answer
        finally:
            self._states.peers.expected -= 1
            self._forget_if_done(held)

    def _forget_if_done(self, held: _Held) -> None:
        """Forgets a handler that waits for nothing. One whose client is away stays until the client returns."""
        questions = (*held.sent.values(), *held.unsent.values())
        if not held.name and all(question.answer.done() for question in questions):
            self._by_exchange.pop(held.exchange, None)

    def _send(self, held: _Held) -> None:
        """Ends the round: the client gets the questions and a state to come back with."""
        exchange, sink = held.exchange, held.exchange.sink
        if sink is None or not held.unsent:
            return  # the client fetches answers to earlier questions; these go with the next round
        held.sent, held.unsent = held.unsent, {}
        held.digest = held.digest or request_digest(exchange.method, exchange.params)
        # A new name for each round: a state works once.
        name = held.name = secrets.token_urlsafe(12)
        state = self._states.seal("held", name, exchange.caller.name, held.digest)
        requests = {key: {"method": question.method, "params": question.params} for key, question in held.sent.items()}
        result = {"resultType": "input_required", "inputRequests": requests, "requestState": state}
        self._by_name[name] = held
        held.timer = asyncio.get_running_loop().call_later(self._options.held_s, self._expire, name)
        exchange.sink = None
        sink.finish(jsonrpc.result_message(exchange.identifier, jsonrpc.encode(result)), None)

    def _expire(self, name: str) -> None:
        held = self._by_name.pop(name, None)
        if held is None:
            return
        for question in (*held.sent.values(), *held.unsent.values()):
            if not question.answer.done():
                question.answer.set_exception(_client_gone())
        held.name = ""
        self._forget_if_done(held)

    def resume(self, name: str, responses: Raw, returning: Exchange) -> Exchange:
        """The client returned with answers. The held exchange goes on in place of the new one and is returned."""
        held = self._by_name.get(name)
        if held is None:
            raise _invalid_state()
        answers = _parse_responses(responses)
        del self._by_name[name]
        held.name = ""
        if held.timer is not None:
            held.timer.cancel()
        exchange = held.exchange
        exchange.identifier, exchange.sink = returning.identifier, returning.sink
        exchange.meta, exchange.client = returning.meta, returning.client
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


class _State(Struct, frozen=True, array_like=True):
    """What a state says once it is found to be true. `value` names a handler that `gateway` holds, or is a state of a
    server below."""

    kind: _Kind
    value: str
    caller: str
    request: str
    until: float
    gateway: int = 0


class StateSeal:
    """Seals states and opens them, those of other gateways too."""

    def __init__(self, peers: Peers, lifetime_s: float) -> None:
        self.peers = peers
        self._lifetime_s = lifetime_s

    def seal(self, kind: _Kind, value: str, caller: str, request: str) -> str:
        state = _State(kind, value, caller, request, time.time() + self._lifetime_s, self.peers.number)
        return self.peers.seals.seal_text("state", msgspec.msgpack.encode(state))

    def open(self, state: Raw, caller: str, request: str) -> _State:
        """Raises the same `RpcError` for every bad state: which check failed would help a forger."""
        opened = self.peers.seals.unseal_text("state", _parse_state(state))
        found = msgspec.msgpack.decode(opened, type=_State) if opened is not None else None
        if found is None or (found.caller, found.request) != (caller, request) or found.until < time.time():
            raise _invalid_state()
        return found

    async def find_key(self, state: Raw) -> None:
        """Before `open`, where another gateway may have made a key that is not known here yet."""
        try:
            await self.peers.seals.find_key(_parse_state(state))
        except StoreError as error:
            raise RpcError(jsonrpc.INTERNAL_ERROR, f"try the same again later: {error.message}") from error


def _parse_state(state: Raw) -> str:
    try:
        return msgspec.json.decode(state, type=str) if len(bytes(state)) <= _MAX_STATE else ""
    except DECODE_ERRORS as error:
        raise _invalid_state() from error


def request_digest(method: str, params: Raw) -> str:
    """What a state is bound to: the request without what differs between its rounds, whatever its order or spacing."""
    try:
        value = msgspec.json.decode(params)
    except DECODE_ERRORS as error:
        raise RpcError(INVALID_PARAMS, f"the parameters cannot be read: {error}", refused=True) from error
    rest = {key: part for key, part in value.items() if key not in _ROUND_MEMBERS} if isinstance(value, dict) else value
    text = msgspec.json.encode([method, rest], order="deterministic")
    return hashlib.sha256(text).hexdigest()


def _invalid_state() -> RpcError:
    return RpcError(INVALID_PARAMS, f"the requestState is not valid here, or no longer: {_CHECK_EFFECT}")


def _parse_responses(responses: Raw) -> dict[str, Raw]:
    try:
        answers = msgspec.json.decode(responses, type=dict[str, Raw]) if responses is not ABSENT else {}
    except DECODE_ERRORS as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"`inputResponses` must be an object: {error}") from error
    for key, value in answers.items():
        if bytes(value).lstrip()[:1] != b"{":
            raise RpcError(jsonrpc.INVALID_PARAMS, f"the answer to {key!r} must be an object")
    return answers


def _client_gone() -> InputUnavailable:
    return InputUnavailable("the client did not answer in time", next_action=_CHECK_EFFECT)
