"""An open connection to one server: requests, notifications, tools, and the end.

It speaks both eras and any transport, and gives results back as the raw bytes the server sent. It restarts nothing:
that is for whoever holds it. Any task may call it, and any other may close it. Above: `toolfold.upstream`. Below:
`peer.py`, `meta.py` and a channel; `eras.py` opens it.
"""

import asyncio
import itertools
from collections.abc import Awaitable
from typing import Protocol

from msgspec import Raw

from toolfold.errors import RemoteError, ServerClosed, ServerTimeout, UpstreamError
from toolfold.types import Era, ServerInfo
from toolfold.wire import input_required as asking
from toolfold.wire import jsonrpc
from toolfold.wire import tool_list as listing
from toolfold.wire.deadlines import Deadlines
from toolfold.wire.dispatcher import Dispatcher, PendingRequest, capability_names
from toolfold.wire.headers import NAME_PARAMETERS, ParameterHeaders
from toolfold.wire.meta import MetaWriter, insert_meta, parse_object, split_meta
from toolfold.wire.transport import NO_HEADERS, RequestHead, Transport
from toolfold.wire.types import NO_TIMEOUT, TOOLS_CHANGED, OnInput, OnProgress, OnSpilled, ToolList, WireOptions

# --- Listening for changes of a modern server's tools: one long request, asked again when it ends.

_LISTEN = "subscriptions/listen"
_FIRST_PAUSE_S = 1.0
_MAX_PAUSE_S = 60.0


class _Listened(Protocol):
    """What the watch needs of a connection."""

    @property
    def closed(self) -> bool: ...
    def next_number(self) -> int: ...
    def modern_params(self, rest: bytes) -> bytes: ...
    def told(self, method: str, params: Raw) -> None: ...
    def noise(self, text: str) -> None: ...
    async def exchange(
        self, number: int, method: str, params: bytes, head: RequestHead, *, timeout_s: float | None = None
    ) -> Raw: ...


class Subscription:
    """Runs in a task of its own. A subscription that was lost may have missed a change, so one is told."""

    def __init__(
        self,
        connection: _Listened,
        notifications: bytes = b'{"toolsListChanged":true}',
        changed: tuple[str, ...] = (TOOLS_CHANGED,),
    ) -> None:
        self._connection = connection
        self._params = b'{"notifications":%b}' % notifications
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self.refused = ""
        """What the server said when it refused."""

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
            began = loop.time()
            if not await self._listen():
                return
            pause = _FIRST_PAUSE_S if loop.time() - began > _MAX_PAUSE_S else min(pause * 2, _MAX_PAUSE_S)
            await asyncio.sleep(pause)
            for method in self._changed:
                self._connection.told(method, Raw(b"{}"))

    async def _listen(self) -> bool:
        """One subscription to its end. False: another would end the same way."""
        params = self._connection.modern_params(self._params)
        try:
            await self._connection.exchange(
                self._connection.next_number(), _LISTEN, params, RequestHead(_LISTEN), timeout_s=NO_TIMEOUT
            )
        except RemoteError as error:
            self.refused = error.message
            self._connection.noise(f"it refuses to tell of changes: {error.message}")
            return False
        except UpstreamError:
            return not self._connection.closed
        return True


_MAX_ABANDONED = 1000
"""How many abandoned requests are remembered, so that a late answer is not taken for noise."""


class Connection:
    """Made by `connect`. `info` and `capabilities` are the server's."""

    def __init__(self, channel: Transport, peer: Dispatcher, options: WireOptions) -> None:
        self.info = ServerInfo()
        self.capabilities = Raw(b"{}")
        self._channel = channel
        self._peer = peer
        self._options = options
        self._meta = MetaWriter(options)
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines()
        self._modern = False
        self._headers = ParameterHeaders()
        self._watch = Subscription(self)
        self._watches: list[Subscription] = []

    @property
    def pid(self) -> int | None:
        """The process it runs in, where we started one."""
        return self._channel.pid

    @property
    def closed(self) -> bool:
        return self._peer.closed is not None

    def settle(self, info: ServerInfo, capabilities: Raw, era: Era) -> None:
        """The handshake found out what is there."""
        self.info = info
        self.capabilities = capabilities.copy()
        self._modern = era == "modern"
        self._channel.settle(era, info.protocol_version)

    # --- requests

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
    ) -> Raw:
        """Sends a request and gives back its `result`, undecoded.

        `capabilities` are those of the caller it is made for, where it is not this client itself. With `inputs` a
        modern server's wish for input comes back as it is, and these members go with the request: see `Call.inputs`.
        """
        rest, extra = split_meta(params)
        head = RequestHead(method, self._name(method, params))
        able = None if capabilities is None else capability_names(capabilities)

        def once(answered: Raw | None) -> Awaitable[Raw]:
            number = next(self._numbers)
            meta = self._meta.write(self._modern, number if on_progress else None, extra, capabilities)
            body = insert_meta(asking.merge_members(rest, answered), meta)
            return self.exchange(
                number, method, body, head, timeout_s=timeout_s, on_progress=on_progress, on_input=on_input, able=able
            )

        result = await once(self._brought(inputs))
        if self._asks(method, result, inputs):
            return await self._rounds(method, result, once, on_input, able)
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
        inputs: Raw | None = None,
    ) -> Raw:
        """Calls a tool with exactly these arguments; the whole `CallToolResult` comes back undecoded.

        With `on_spilled` an answer that is too large to be held is given to it as a file, and `{}` comes back.
        """
        fixed = b'{"name":%b,"arguments":%b' % (jsonrpc.quote(name), jsonrpc.single_line(arguments))
        able = None if capabilities is None else capability_names(capabilities)

        def once(answered: Raw | None) -> Awaitable[Raw]:
            number = next(self._numbers)
            written = self._meta.write(self._modern, number if on_progress else None, meta, capabilities)
            body = fixed + (b',"_meta":' + written if written else b"") + asking.append_members(answered) + b"}"
            head = RequestHead("tools/call", name, self._mirrored(name, arguments))
            return self.exchange(
                number,
                "tools/call",
                body,
                head,
                timeout_s=timeout_s,
                on_progress=on_progress,
                on_input=on_input,
                on_spilled=on_spilled,
                able=able,
            )

        brought = self._brought(inputs)
        try:
            result = await once(brought)
        except RemoteError as error:
            if error.rpc_code != jsonrpc.HEADER_MISMATCH or not self._mirrors or name in self._headers:
                raise
            # The server wants parameters in headers and refused before doing anything; its list says which.
            await self.list_tools()
            result = await once(brought)
        if self._asks("tools/call", result, inputs):
            return await self._rounds("tools/call", result, once, on_input, able)
        return result

    async def notify(self, method: str, params: Raw | None = None) -> None:
        self._peer.check_open(method)
        self._channel.post(
            jsonrpc.notification_message(method, None if params is None else jsonrpc.single_line(params))
        )
        await self._channel.drain()

    async def exchange(
        self,
        number: int,
        method: str,
        params: bytes,
        head: RequestHead,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_input: OnInput | None = None,
        on_spilled: OnSpilled | None = None,
        able: frozenset[str] | None = None,
        quiet: bool = False,
    ) -> Raw:
        """One message there and its answer back. `quiet`: the server is not told when nobody waits any more."""
        peer, channel = self._peer, self._channel
        peer.check_open(method)
        limit = self._options.request_timeout_s if timeout_s is None else timeout_s
        pending = PendingRequest(number, method, self._loop.create_future(), on_progress, on_input, able=able)
        pending.on_spilled = on_spilled
        peer.pending[number] = pending
        deadline = self._deadlines.start(limit, pending.expire) if limit != NO_TIMEOUT else None
        try:
            if channel.congested:
                await _wait_for_room(channel, pending.future)
            channel.start(pending, jsonrpc.request_message(number, method, params), head)
            return await pending.future
        except asyncio.CancelledError:
            self._abandon(pending, "the caller cancelled it", quiet)
            raise
        except ServerTimeout:
            self._abandon(pending, "it took too long", quiet)
            raise _timed_out(method, limit) from None
        finally:
            if deadline is not None:
                deadline.stop()
            peer.pending.pop(number, None)
            channel.finish(pending)

    def _abandon(self, pending: PendingRequest, reason: str, quiet: bool) -> None:
        if self.closed:
            return
        if len(self._peer.abandoned) >= _MAX_ABANDONED:
            self._peer.abandoned.clear()
        self._peer.abandoned.add(pending.number)
        if not quiet:
            self._channel.abandon(pending, reason)

    def _brought(self, inputs: Raw | None) -> Raw | None:
        """What goes with the first message of a request."""
        return inputs if self._modern and inputs is not None and bytes(inputs) != b"{}" else None

    def _asks(self, method: str, result: Raw, inputs: Raw | None) -> bool:
        """Whether a modern server may ask for input with this result, and that is not passed on."""
        if inputs is not None or not self._modern or method not in asking.INPUT_METHODS:
            return False
        return asking.may_require_input(result)

    async def _rounds(
        self, method: str, result: Raw, once: asking.SendRequest, on_input: OnInput | None, able: frozenset[str] | None
    ) -> Raw:
        """Repeats a modern request with the answers to what the server asked for."""

        def who(wanted: str) -> OnInput | None:
            if not self._peer.may_ask(wanted, able):
                return None
            return on_input or self._peer.handlers.on_request

        return await asking.run_input_rounds(method, result, once, who, self._options.max_input_rounds)

    def _name(self, method: str, params: Raw | None) -> str | None:
        key = NAME_PARAMETERS.get(method)
        if key is None or params is None or not self._mirrors:
            return None
        value = parse_object(params).get(key)
        return jsonrpc.parse_string(value) if value is not None else None

    @property
    def _mirrors(self) -> bool:
        return self._modern and self._channel.mirrors_parameters

    def _mirrored(self, name: str, arguments: Raw) -> dict[str, str]:
        return self._headers.of(name, arguments) if self._mirrors else NO_HEADERS

    # --- tools

    async def list_tools(self) -> ToolList:
        """All tools, every page, each as it was sent."""
        found = await listing.list_tools(self.request, self._options, self.capabilities)
        return self._headers.learn(found) if self._mirrors else found

    @property
    def unwatched(self) -> str:
        """Why a server that offers to tell changes of its tools does not; nothing where it does, or never offered."""
        return self._watch.refused

    def watch_tools(self) -> None:
        """Asks a modern server to tell when its tools change. A legacy server does so unasked."""
        if self._modern and listing.announces_tool_changes(self.capabilities):
            self._watch.start()

    def subscribe(self, notifications: bytes, changed: tuple[str, ...] = ()) -> Subscription:
        """Asks a modern server for these notifications until `stop`. `changed` is told when some may be missing."""
        watch = Subscription(self, notifications, changed)
        self._watches = [one for one in self._watches if not one.stopped]
        self._watches.append(watch)
        watch.start()
        return watch

    def next_number(self) -> int:
        return next(self._numbers)

    def modern_params(self, rest: bytes) -> bytes:
        """Parameters of a request of the handshake itself or of a subscription, with the modern `_meta`."""
        return insert_meta(Raw(rest), self._meta.write(True, None, None, None))

    def told(self, method: str, params: Raw) -> None:
        """Tells the handlers of a notification that we made ourselves."""
        self._peer.tell(self._peer.handlers.on_notification, method, params)

    def noise(self, text: str) -> None:
        self._peer.noise(text)

    # --- the end

    def opened(self) -> None:
        """From now on the loss of the connection is told to the handlers."""
        self._peer.announce_loss = True
        self._channel.opened()

    async def abort(self) -> None:
        """Ends it at once, after a handshake that failed or was given up."""
        self._peer.announce_loss = False
        self._channel.kill()
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the connection and every process behind it. Bounded in time, may be called twice, never raises."""
        self._peer.announce_loss = False
        self._peer.lose("it was closed on purpose", _closed_on_purpose)
        for watch in (self._watch, *self._watches):
            watch.stop()
        await self._channel.aclose()


async def _wait_for_room(channel: Transport, answer: "asyncio.Future[Raw]") -> None:
    """Waits for room to send, but no longer than somebody waits for the answer."""
    room = asyncio.ensure_future(channel.drain())
    try:
        both: set[asyncio.Future[None] | asyncio.Future[Raw]] = {room, answer}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        room.cancel()
    if answer.done():
        answer.result()


def _timed_out(method: str, limit: float) -> ServerTimeout:
    return ServerTimeout(
        f"the server did not answer {method} within {limit:g} seconds",
        next_action="ask for less, try again, or allow more time for this server",
    )


def _closed_on_purpose(doing: str) -> UpstreamError:
    return ServerClosed(f"the connection was closed, so {doing} cannot go on", next_action="connect again")
