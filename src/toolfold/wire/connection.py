"""An open connection to one server: requests, notifications, the list of tools, subscriptions, and the end.

It speaks both eras over any transport and returns results as the raw bytes the server sent. It restarts nothing: its
holder does. Any task may call it, and any other may close it. Above: `toolfold.upstream`. Below: `dispatcher.py`,
`meta.py` and a `Transport`; `connect.py` opens it.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from toolfold.errors import ProtocolViolation, RemoteError, ServerClosed, ServerTimeout, UpstreamError
from toolfold.types import OnInput, OnProgress, ServerInfo
from toolfold.wire import jsonrpc, tool_list
from toolfold.wire.deadlines import Deadlines
from toolfold.wire.dispatcher import Dispatcher, PendingRequest, capability_names, input_unavailable, unreadable_answer
from toolfold.wire.headers import NAME_PARAMETERS, ParameterHeaders
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, encode, single_line
from toolfold.wire.meta import MetaWriter, insert_members, parse_object, split_meta
from toolfold.wire.observer import OBSERVERS, _RequestEnd
from toolfold.wire.results import is_complete
from toolfold.wire.transport import NO_HEADERS, RequestHead, Transport
from toolfold.wire.types import NO_TIMEOUT, TOOLS_CHANGED, OnSpilled, ToolList, WireOptions

# The only requests whose result may ask for input.
INPUT_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})

# Sends the request once, with these further members of `params`.
_SendRequest = Callable[[Raw | None], Awaitable[Raw]]
_MAX_ROUND_PAUSE_S = 1.0
# More questions of one round are asked in turn: they all wait in memory, and for one person.
_MAX_AT_ONCE = 20

# How many abandoned requests are remembered, so that a late answer is not taken for noise.
_MAX_ABANDONED = 1000

_LISTEN = "subscriptions/listen"
_FIRST_PAUSE_S = 1.0
_MAX_PAUSE_S = 60.0


class Connection:
    """Opened by `connect`. `info` and `capabilities` are the server's."""

    def __init__(self, transport: Transport, dispatcher: Dispatcher, options: WireOptions) -> None:
        self.info = ServerInfo()
        self.capabilities = Raw(b"{}")
        self._transport = transport
        self._dispatcher = dispatcher
        self._options = options
        self._meta = MetaWriter(options)
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines()
        self._modern = False
        self._headers = ParameterHeaders()
        self._tools_subscription = _Subscription(self, dispatcher, b'{"toolsListChanged":true}', (TOOLS_CHANGED,))
        self._subscriptions: list[_Subscription] = []
        self._opened_at = 0.0

    @property
    def pid(self) -> int | None:
        """The server's process, where we started one."""
        return self._transport.pid

    @property
    def closed(self) -> bool:
        return self._dispatcher.closed is not None

    def settle(self, info: ServerInfo, capabilities: Raw) -> None:
        """Takes over what the handshake negotiated."""
        self.info = info
        self.capabilities = capabilities.copy()
        self._modern = info.era == "modern"
        self._transport.settle("modern" if self._modern else "legacy", info.protocol_version)

    async def request(
        self,
        method: str,
        params: Raw | None = None,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_input: OnInput | None = None,
        capabilities: Raw | None = None,
        inputs: Raw | None = None,
        task: str = "",
    ) -> Raw:
        """Sends a request and returns its `result`, undecoded.

        `capabilities` are those of the caller it is made for, where that is not this client itself. With `inputs` a
        modern server's `input_required` result is returned as it is, and these members are sent with the request. What
        a legacy server asks for `task` meanwhile belongs to this request.
        """
        rest, extra = split_meta(params)
        head = RequestHead(method, self._name(method, params))
        declared = None if capabilities is None else capability_names(capabilities)

        def send(inputs: Raw | None) -> Awaitable[Raw]:
            number = next(self._numbers)
            meta = self._meta.write(self._modern, number if on_progress else None, extra, capabilities)
            body = insert_members(rest, meta, b"" if inputs is None else bytes(inputs)[1:-1])
            pending = PendingRequest(number, method, self._loop.create_future(), on_progress, on_input, declared)
            pending.task = task
            return self._exchange(pending, body, head, timeout_s)

        result = await send(self._first_inputs(inputs))
        if self._wants_input(method, result, inputs):
            return await self._run_input_rounds(method, result, send, on_input, declared)
        return result

    async def call_tool(
        self,
        name: str,
        arguments: Raw,
        *,
        meta: Raw | None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_input: OnInput | None = None,
        capabilities: Raw | None = None,
        on_spilled: OnSpilled | None = None,
        is_plain: Callable[[Raw], bool] = lambda _: False,
        inputs: Raw | None = None,
        task: Raw | None = None,
        on_late: Callable[[Raw], None] | None = None,
    ) -> Raw:
        """Calls a tool with exactly these arguments and returns the whole `CallToolResult`, undecoded.

        With `on_spilled` a result that is too large for memory is given to it as a file, and `{}` is returned.
        `is_plain` may tell that a result needs no repair, before it is searched for what would. `task` asks a legacy
        server to make a task of it; `on_late` hears of a result that comes after the call was given up.
        """
        # The arguments are spliced in as they came: decoding and encoding them would cost more than the whole call.
        fixed = b'{"name":%b,"arguments":%b' % (jsonrpc.quote(name), jsonrpc.single_line(arguments))
        fixed += b"" if task is None else b',"task":' + bytes(task)
        declared = None if capabilities is None else capability_names(capabilities)

        def send(inputs: Raw | None) -> Awaitable[Raw]:
            number = next(self._numbers)
            written = self._meta.write(self._modern, number if on_progress else None, meta, capabilities)
            further = b"" if inputs is None else b"," + bytes(inputs)[1:-1]
            body = fixed + (b"," + written if written else b"") + further + b"}"
            head = RequestHead("tools/call", name, self._parameter_headers(name, arguments))
            future = self._loop.create_future()
            asked = (on_progress, on_input, declared, on_spilled, is_plain)
            pending = PendingRequest(number, "tools/call", future, *asked)
            pending.on_late = on_late
            return self._exchange(pending, body, head, timeout_s)

        first_inputs = self._first_inputs(inputs)
        try:
            result = await send(first_inputs)
        except RemoteError as error:
            if error.rpc_code != jsonrpc.HEADER_MISMATCH or not self._mirrors or name in self._headers:
                raise
            # The server wants parameters in headers and refused before doing anything; its list says which.
            await self.list_tools()
            result = await send(first_inputs)
        if self._wants_input("tools/call", result, inputs):
            return await self._run_input_rounds("tools/call", result, send, on_input, declared)
        return result

    async def notify(self, method: str, params: Raw | None = None) -> None:
        self._dispatcher.check_open(method)
        body = None if params is None else jsonrpc.single_line(params)
        self._transport.post(jsonrpc.notification_message(method, body))
        await self._transport.drain()

    def wait_for(self, method: str, params: bytes, *, quiet: bool = False) -> Coroutine[Any, Any, Raw]:
        """A request of the handshake itself or of a subscription, which may take as long as it likes."""
        pending = PendingRequest(self.next_number(), method, self._loop.create_future())
        return self._exchange(pending, params, RequestHead(method), NO_TIMEOUT, quiet=quiet)

    async def _exchange(
        self, pending: PendingRequest, params: bytes, head: RequestHead, timeout_s: float | None, *, quiet: bool = False
    ) -> Raw:
        """Sends one message and waits for its answer. `quiet`: no cancellation is sent to the server."""
        dispatcher, transport = self._dispatcher, self._transport
        number, method, future = pending.number, pending.method, pending.future
        dispatcher.check_open(method)
        started = time.perf_counter() if OBSERVERS else 0.0
        limit = self._options.request_timeout_s if timeout_s is None else timeout_s
        dispatcher.pending[number] = pending
        deadline = self._deadlines.start(limit, pending.expire) if limit != NO_TIMEOUT else None
        try:
            if transport.congested:
                await _wait_for_room(transport, future)
            transport.start(pending, jsonrpc.request_message(number, method, params), head)
            return await future
        except asyncio.CancelledError:
            self._abandon(pending, "the caller cancelled it", quiet)
            raise
        except ServerTimeout:
            self._abandon(pending, "it took too long", quiet)
            within = "in time" if limit == NO_TIMEOUT else f"within {limit:g} seconds"
            raise ServerTimeout(
                f"the server did not answer {method} {within}",
                next_action="ask for less, try again, or allow more time for this server",
            ) from None
        finally:
            if deadline is not None:
                deadline.stop()
            dispatcher.pending.pop(number, None)
            transport.finish(pending)
            if OBSERVERS:
                self._tell(method, number, started)

    def _tell(self, method: str, number: int, started: float) -> None:
        """Tells whoever measures that a request ended, with what is being raised; or this connection."""
        seconds = time.perf_counter() - started if started else 0.0
        end = _RequestEnd(method, number, seconds, self.info.protocol_version, *self._transport.peer, sys.exception())
        for observe in OBSERVERS:
            observe(end)

    def _abandon(self, pending: PendingRequest, reason: str, quiet: bool) -> None:
        future = pending.future
        if pending.on_late is not None and future.done() and not (future.cancelled() or future.exception()):
            pending.on_late(future.result())  # it was answered in the moment in which it was given up
        if self.closed:
            return
        abandoned = self._dispatcher.abandoned
        # A server that never answers must not fill the memory: it then costs a line of noise for each late answer.
        if len(abandoned) >= _MAX_ABANDONED:
            abandoned.clear()
        abandoned[pending.number] = pending.on_late
        if not quiet:
            self._transport.abandon(pending, reason)

    def _first_inputs(self, inputs: Raw | None) -> Raw | None:
        """The members that are sent with the first message of a request."""
        return inputs if self._modern and inputs is not None and bytes(inputs) != b"{}" else None

    def _wants_input(self, method: str, result: Raw, inputs: Raw | None) -> bool:
        """Whether a modern server may ask for input with this result, and we answer it ourselves."""
        if inputs is not None or not self._modern or method not in INPUT_METHODS:
            return False
        return _may_require_input(result)

    async def _run_input_rounds(
        self, method: str, result: Raw, send: _SendRequest, on_input: OnInput | None, declared: frozenset[str] | None
    ) -> Raw:
        """Answers what a modern server asks for, and repeats the request until its result is complete."""
        max_rounds = self._options.max_input_rounds
        for round_number in range(max_rounds):
            required = _parse_input_required(method, result)
            if required is None:
                return result
            if not required.inputRequests:
                if required.requestState is ABSENT:
                    raise unreadable_answer(method, "it asks for input without saying which")
                await asyncio.sleep(min(0.05 * 2**round_number, _MAX_ROUND_PAUSE_S) if round_number else 0)
            answers = await self._answer_inputs(required.inputRequests, on_input, declared)
            members = {"inputResponses": Raw(encode(answers))} if answers else {}
            if required.requestState is not ABSENT:
                members["requestState"] = required.requestState
            result = await send(Raw(encode(members)))
        if _parse_input_required(method, result) is None:
            return result
        raise ProtocolViolation(
            f"the server asked for input {max_rounds} times during one {method}",
            next_action="report this to the author of the server",
        )

    async def _answer_inputs(
        self, questions: "Mapping[str, InputRequest]", on_input: OnInput | None, declared: frozenset[str] | None
    ) -> dict[str, Raw]:
        """The answers to one round. A modern client is asked all at once, as the server does; a legacy one in turn,
        as its user answers."""
        for question in questions.values():
            if not self._dispatcher.may_ask(question.method, declared):
                raise input_unavailable(question.method)  # before anybody is asked for nothing
        if getattr(on_input, "era", "") != "modern" or len(questions) > _MAX_AT_ONCE:
            return {key: await self.answer_input(question, on_input, declared) for key, question in questions.items()}
        tasks = [asyncio.ensure_future(self.answer_input(one, on_input, declared)) for one in questions.values()]
        try:
            return dict(zip(questions, await asyncio.gather(*tasks), strict=True))
        finally:
            for task in tasks:
                task.cancel()

    async def answer_input(
        self, question: "InputRequest", on_input: OnInput | None, declared: frozenset[str] | None
    ) -> Raw:
        """The answer to what a modern server asks for. Raises `InputUnavailable` where nobody declared it."""
        answer = on_input or self._dispatcher.handlers.on_request
        if answer is None or not self._dispatcher.may_ask(question.method, declared):
            raise input_unavailable(question.method)
        return Raw(single_line(await answer(question.method, question.params)))

    def _name(self, method: str, params: Raw | None) -> str | None:
        key = NAME_PARAMETERS.get(method)
        if key is None or params is None or not self._mirrors:
            return None
        value = parse_object(params).get(key)
        return jsonrpc.parse_string(value) if value is not None else None

    @property
    def _mirrors(self) -> bool:
        return self._modern and self._transport.mirrors_parameters

    def _parameter_headers(self, name: str, arguments: Raw) -> dict[str, str]:
        return self._headers.for_call(name, arguments) if self._mirrors else NO_HEADERS

    async def list_tools(self) -> ToolList:
        """All tools, every page, each as it was sent."""
        tools = await tool_list.list_tools(
            partial(self.request, capabilities=self._options.lists_to), self._options, self.capabilities
        )
        return self._headers.update(tools) if self._mirrors else tools

    @property
    def unwatched(self) -> str:
        """Why a server that announces changes of its tools refused to; empty where it did not."""
        return self._tools_subscription.refused

    def watch_tools(self) -> None:
        """Asks a modern server to announce changes of its tools. A legacy server does so unasked."""
        if self._modern and tool_list.announces_tool_changes(self.capabilities):
            self._tools_subscription.start()

    def subscribe(self, notifications: bytes, changed: tuple[str, ...] = ()) -> "_Subscription":
        """Asks a modern server for these notifications until `stop`. `changed`: those to emit after a gap."""
        subscription = _Subscription(self, self._dispatcher, notifications, changed)
        self._subscriptions = [other for other in self._subscriptions if not other.stopped]
        self._subscriptions.append(subscription)
        subscription.start()
        return subscription

    def next_number(self) -> int:
        return next(self._numbers)

    def modern_params(self, rest: bytes) -> bytes:
        """Parameters of a request of the handshake itself or of a subscription, with the modern `_meta`."""
        return insert_members(Raw(rest), self._meta.write(True, None, None, None))

    def opened(self) -> None:
        """From now on the handlers are notified when the connection is lost."""
        self._opened_at = time.perf_counter()
        self._dispatcher.announce_loss = True
        self._transport.opened()

    async def abort(self) -> None:
        """Ends it at once, after a handshake that failed or was given up."""
        self._dispatcher.announce_loss = False
        self._transport.kill()
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the connection and every process behind it. Bounded in time, may be called twice, never raises."""
        self._dispatcher.announce_loss = False
        self._dispatcher.lose("it was closed on purpose", _closed_on_purpose)
        for subscription in (self._tools_subscription, *self._subscriptions):
            subscription.stop()
        opened_at, self._opened_at = self._opened_at, 0.0
        if opened_at and OBSERVERS:
            self._tell("", 0, opened_at)
        await self._transport.aclose()


class _Subscription:
    """Listens for notifications of a modern server: one long request, made again when it ends."""

    def __init__(
        self, connection: Connection, dispatcher: Dispatcher, notifications: bytes, changed: tuple[str, ...]
    ) -> None:
        self._connection = connection
        self._dispatcher = dispatcher
        self._params = b'{"notifications":%b}' % notifications
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        # The server's message when it refused.
        self.refused = ""

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def stopped(self) -> bool:
        return self._task is not None and self._task.done()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while not self._connection.closed:
            start = loop.time()
            if not await self._listen():
                return
            pause = _FIRST_PAUSE_S if loop.time() - start > _MAX_PAUSE_S else min(pause * 2, _MAX_PAUSE_S)
            await asyncio.sleep(pause)
            # A change may have happened while nobody listened.
            for method in self._changed:
                self._dispatcher.notify(self._dispatcher.handlers.on_notification, method, Raw(b"{}"))

    async def _listen(self) -> bool:
        """One subscription to its end. False: another would end the same way."""
        connection = self._connection
        try:
            await connection.wait_for(_LISTEN, connection.modern_params(self._params))
        except RemoteError as error:
            self.refused = error.message
            self._dispatcher.noise(f"it refuses to tell of changes: {error.message}")
            return False
        except UpstreamError:
            return not connection.closed
        return True


class InputRequest(Struct):
    """One question of a modern server."""

    method: str
    params: Raw = Raw(b"{}")


class _InputRequired(Struct):
    resultType: str = "complete"  # noqa: N815 - the protocol's spelling
    inputRequests: dict[str, InputRequest] = field(default_factory=dict)  # noqa: N815 - as above
    requestState: Raw = ABSENT  # noqa: N815 - as above


def requires_input(result: Raw) -> bool:
    """Whether a result asks for input in place of an answer."""
    return _parse_input_required("the request", result) is not None


def _may_require_input(result: Raw) -> bool:
    """Whether a result may ask for input, told without decoding it."""
    text = bytes(result)
    return not is_complete(text) and b"input_required" in text


def _parse_input_required(method: str, result: Raw) -> _InputRequired | None:
    if not _may_require_input(result):
        return None
    try:
        required = msgspec.json.decode(result, type=_InputRequired)
    except DECODE_ERRORS as error:
        raise unreadable_answer(method, f"its wish for input is malformed ({error})") from error
    return required if required.resultType == "input_required" else None


async def _wait_for_room(transport: Transport, answer: "asyncio.Future[Raw]") -> None:
    """Waits for room to send, but no longer than somebody waits for the answer."""
    room = asyncio.ensure_future(transport.drain())
    try:
        both: set[asyncio.Future[None] | asyncio.Future[Raw]] = {room, answer}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        room.cancel()
    if answer.done():
        answer.result()


def _closed_on_purpose(doing: str) -> UpstreamError:
    return ServerClosed(f"the connection was closed, so {doing} cannot go on", next_action="connect again")
