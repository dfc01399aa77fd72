"""An open connection to one server: requests, notifications, tools, and the end.

It speaks both eras and any transport, and gives results back as the raw bytes the server sent. It restarts nothing:
that is for whoever holds it. Any task may call it, and any other may close it. Above: `toolfold.upstream`. Below:
`peer.py`, `meta.py` and a channel; `eras.py` opens it.
"""

import asyncio
import itertools
from collections.abc import Awaitable

from msgspec import Raw

from toolfold.errors import RemoteError, ServerClosed, ServerTimeout, UpstreamError
from toolfold.types import Era, ServerInfo
from toolfold.wire import inputs as asking
from toolfold.wire import jsonrpc, listing
from toolfold.wire.channel import NO_HEADERS, Channel, Head
from toolfold.wire.deadlines import Deadlines
from toolfold.wire.headers import NAMED, ParameterHeaders
from toolfold.wire.meta import MetaWriter, members, split_meta, with_meta
from toolfold.wire.peer import Peer, Pending, capability_names
from toolfold.wire.values import NO_LIMIT, OnInput, OnProgress, OnSpilled, ToolList, WireOptions
from toolfold.wire.watch import Watch

LATE_ANSWERS = 1000
"""How many abandoned requests are remembered, so that a late answer is not taken for noise."""


class Connection:
    """Made by `connect`. `info` and `capabilities` are the server's."""

    def __init__(self, channel: Channel, peer: Peer, options: WireOptions) -> None:
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
        self._watch = Watch(self)
        self._watches: list[Watch] = []

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
        head = Head(method, self._name(method, params))
        able = None if capabilities is None else capability_names(capabilities)

        def once(answered: Raw | None) -> Awaitable[Raw]:
            number = next(self._numbers)
            meta = self._meta.write(self._modern, number if on_progress else None, extra, capabilities)
            body = with_meta(asking.joined(rest, answered), meta)
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
        fixed = b'{"name":%b,"arguments":%b' % (jsonrpc.quoted(name), jsonrpc.one_line(arguments))
        able = None if capabilities is None else capability_names(capabilities)

        def once(answered: Raw | None) -> Awaitable[Raw]:
            number = next(self._numbers)
            written = self._meta.write(self._modern, number if on_progress else None, meta, capabilities)
            body = fixed + (b',"_meta":' + written if written else b"") + asking.appended(answered) + b"}"
            head = Head("tools/call", name, self._mirrored(name, arguments))
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
        self._channel.post(jsonrpc.notification_message(method, None if params is None else jsonrpc.one_line(params)))
        await self._channel.drain()

    async def exchange(
        self,
        number: int,
        method: str,
        params: bytes,
        head: Head,
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
        pending = Pending(number, method, self._loop.create_future(), on_progress, on_input, able=able)
        pending.on_spilled = on_spilled
        peer.pending[number] = pending
        deadline = self._deadlines.start(limit, pending.expire) if limit != NO_LIMIT else None
        try:
            if channel.congested:
                await _room(channel, pending.future)
            channel.start(pending, jsonrpc.request_message(number, method, params), head)
            return await pending.future
        except asyncio.CancelledError:
            self._abandon(pending, "the caller cancelled it", quiet)
            raise
        except ServerTimeout:
            self._abandon(pending, "it took too long", quiet)
            raise _too_late(method, limit) from None
        finally:
            if deadline is not None:
                deadline.stop()
            peer.pending.pop(number, None)
            channel.finish(pending)

    def _abandon(self, pending: Pending, reason: str, quiet: bool) -> None:
        if self.closed:
            return
        if len(self._peer.abandoned) >= LATE_ANSWERS:
            self._peer.abandoned.clear()
        self._peer.abandoned.add(pending.number)
        if not quiet:
            self._channel.abandon(pending, reason)

    def _brought(self, inputs: Raw | None) -> Raw | None:
        """What goes with the first message of a request."""
        return inputs if self._modern and inputs is not None and bytes(inputs) != b"{}" else None

    def _asks(self, method: str, result: Raw, inputs: Raw | None) -> bool:
        """Whether a modern server may ask for input with this result, and that is not passed on."""
        if inputs is not None or not self._modern or method not in asking.METHODS:
            return False
        return asking.may_be_required(result)

    async def _rounds(
        self, method: str, result: Raw, once: asking.Once, on_input: OnInput | None, able: frozenset[str] | None
    ) -> Raw:
        """Repeats a modern request with the answers to what the server asked for."""

        def who(wanted: str) -> OnInput | None:
            if not self._peer.may_ask(wanted, able):
                return None
            return on_input or self._peer.handlers.on_request

        return await asking.rounds(method, result, once, who, self._options.max_input_rounds)

    def _name(self, method: str, params: Raw | None) -> str | None:
        key = NAMED.get(method)
        if key is None or params is None or not self._mirrors:
            return None
        value = members(params).get(key)
        return jsonrpc.text_of(value) if value is not None else None

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
        if self._modern and listing.tells_changes(self.capabilities):
            self._watch.start()

    def subscribe(self, notifications: bytes, changed: tuple[str, ...] = ()) -> Watch:
        """Asks a modern server for these notifications until `stop`. `changed` is told when some may be missing."""
        watch = Watch(self, notifications, changed)
        self._watches = [one for one in self._watches if not one.stopped]
        self._watches.append(watch)
        watch.start()
        return watch

    def next_number(self) -> int:
        return next(self._numbers)

    def modern_params(self, rest: bytes) -> bytes:
        """Parameters of a request of the handshake itself or of a subscription, with the modern `_meta`."""
        return with_meta(Raw(rest), self._meta.write(True, None, None, None))

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


async def _room(channel: Channel, answer: "asyncio.Future[Raw]") -> None:
    """Waits for room to send, but no longer than somebody waits for the answer."""
    room = asyncio.ensure_future(channel.drain())
    try:
        both: set[asyncio.Future[None] | asyncio.Future[Raw]] = {room, answer}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        room.cancel()
    if answer.done():
        answer.result()


def _too_late(method: str, limit: float) -> ServerTimeout:
    return ServerTimeout(
        f"the server did not answer {method} within {limit:g} seconds",
        next_action="ask for less, try again, or allow more time for this server",
    )


def _closed_on_purpose(doing: str) -> UpstreamError:
    return ServerClosed(f"the connection was closed, so {doing} cannot go on", next_action="connect again")
