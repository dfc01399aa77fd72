"""The other gateways on the same store: messages to them, sealed, through the store alone.

What one gateway holds (a handler that waits for an answer, a stream, a live session) stays where it is; a gateway that
gets a request for it passes the request on and brings back what is answered. A message is taken by its receiver or
withdrawn by its sender, never both: a sender that hears nothing knows that nothing was begun. Whether a gateway lives,
the store's leases say. Without a store there are no others. Above: `server.py`, `http_session.py`, the live sessions.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
from msgspec import Struct

from toolfold.containers import TaskSet
from toolfold.errors import StoreError
from toolfold.storage.base import Store
from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import Parts
from toolfold.wire.serving.exchange import MessageSink, RpcError
from toolfold.wire.serving.seal import Seals

log = logging.getLogger("toolfold.wire.serving")

__all__ = ["Peers", "_PeerGone", "_RemoteSink"]

_GATEWAYS = "serving.gateways"
# How often the store is asked for messages: while an answer is awaited, and else.
_FAST_S, _SLOW_S = 0.03, 1.0
# A gateway that did not prolong its lease for so long is gone; so often it does.
_LEASE_S, _RENEW_S = 30.0, 8.0
# Within this time a gateway that lives takes a message.
_TAKEN_S = 4.0
_LOOK_S = 2.0
_CHORES_S = 600.0
_MAX_WAITING = 2048
# What is brought from one gateway to another at once: the store keeps it for a moment.
_MAX_BYTES = 8 << 20

Handler = Callable[[bytes, "_RemoteSink"], Awaitable[None]]


class _PeerGone(Exception):
    """The gateway that holds something is gone, or did not take the message: nothing was begun there."""


class _Entry(Struct, array_like=True):
    kind: str
    sender: int
    # Names a call that awaits an answer; empty for a notice.
    ticket: str = ""
    body: bytes = b""
    # Of an error: its number, and whether the message itself was malformed. Of a message in a stream: its number.
    code: int = 0
    refused: bool = False


class _Call(Struct, eq=False):
    gateway: int
    sink: MessageSink
    taken: asyncio.Future[None]
    put: Callable[[int, bytes], None] | None


class _RemoteSink:
    """Where the answer to a request goes that another gateway passed on."""

    def __init__(self, peers: "Peers", gateway: int, ticket: str) -> None:
        self._peers = peers
        self.gateway = gateway
        self._ticket = ticket
        self.on_cancelled: Callable[[], object] | None = None
        """Called where the client there no longer waits."""

    def push(self, message: bytes, number: int = 0) -> None:
        """`number`: what the message has in a stream that is taken up again."""
        self._send("push", message, number)

    def finish(self, message: bytes, fault: RpcError | None) -> None:
        self._peers.answered(self._ticket)
        refused = fault is not None and fault.refused
        self._send("finish", message, 0 if fault is None else fault.code, refused=refused)

    def finish_long(self, parts: Parts) -> None:
        self.finish(b"".join(parts), None)

    def _send(self, kind: str, body: bytes, code: int, refused: bool = False) -> None:
        if len(body) > _MAX_BYTES:
            problem = f"the answer has {len(body)} bytes, and at most {_MAX_BYTES} pass from one gateway to another"
            body = RpcError(jsonrpc.INTERNAL_ERROR, f"{problem}: ask for less of it").response(_identifier(body))
        if self._ticket:
            self._peers.post(self.gateway, kind, body, self._ticket, code=code, refused=refused)


class Peers:
    """This gateway among others. `number` is its own; 0 where there are no others."""

    def __init__(self, store: Store | None = None, seals: Seals | None = None) -> None:
        self.store = store
        self.seals = seals if seals is not None else Seals(store)
        self.number = secrets.randbits(30) + 1 if store is not None else 0
        # How many answers are awaited here that may come in elsewhere.
        self.expected = 0
        self.chores: dict[str, Callable[[Store], Awaitable[None]]] = {}
        self._handlers: dict[str, Handler] = {}
        self._calls: dict[str, _Call] = {}
        self._serving: dict[str, _RemoteSink] = {}
        self._outbox: deque[tuple[int, _Entry]] = deque()
        self._sent = 0
        self._tasks = TaskSet(log)
        self._running: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._chores_at = 0.0

    async def open(self) -> None:
        """Joins the others. Raises `StoreError`."""
        await self.seals.open()
        if self.store is not None:
            await self._renew(self.store)
            self._running = asyncio.ensure_future(self._run(self.store))

    async def aclose(self) -> None:
        """Leaves the others. Whoever waits for something here is told so by the lease that is gone."""
        if self._running is None or self.store is None:
            return
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        if self._sending is not None:
            await asyncio.gather(self._sending, return_exceptions=True)
        try:
            await self.store.release_lease(*_lease(self.number, self.number))
            await self._clear(self.store, self.number)
        except StoreError as error:
            log.warning("this gateway could not tell the others that it ends: %s", error.message)

    def on(self, kind: str, handler: Handler) -> None:
        self._handlers[kind] = handler

    async def alive(self, gateway: int) -> bool:
        """Whether another gateway still prolongs its lease."""
        # Taken for no time: where it can be had at all, nobody holds it.
        return self.store is not None and not await self.store.take_lease(*_lease(gateway, self.number), for_s=0.001)

    def post(
        self, gateway: int, kind: str, body: bytes, ticket: str = "", *, code: int = 0, refused: bool = False
    ) -> None:
        """Sends a message to another gateway, after those before it. One that is gone does not get it."""
        if kind == "push" and len(self._outbox) > _MAX_WAITING:
            return  # as a stream drops what a client does not read in time
        self._outbox.append((gateway, _Entry(kind, self.number, ticket, body, code, refused)))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send_all())

    async def call(
        self,
        gateway: int,
        kind: str,
        body: bytes,
        sink: MessageSink,
        put: Callable[[int, bytes], None] | None = None,
    ) -> Callable[[], None]:
        """Passes a request on; what is answered goes to the sink, and to `put` what has a number. Returns how to
        cancel it once it was taken. Raises `_PeerGone` where it was not."""
        store, ticket = self.store, secrets.token_hex(8)
        if store is None or len(body) > _MAX_BYTES:
            raise _PeerGone
        call = self._calls[ticket] = _Call(gateway, sink, asyncio.get_running_loop().create_future(), put)
        self._wake.set()
        taken = False
        try:
            entry = _Entry(kind, self.number, ticket, body)
            taken = await self.alive(gateway) and await self._hand_over(store, gateway, entry, call)
        except StoreError as error:
            raise _PeerGone from error
        except asyncio.CancelledError:
            self.post(gateway, "cancel", b"", ticket)
            raise
        finally:
            if not taken:
                del self._calls[ticket]
        if not taken:
            raise _PeerGone

        def cancel() -> None:
            if self._calls.pop(ticket, None) is not None:
                self.post(gateway, "cancel", b"", ticket)

        return cancel

    async def _hand_over(self, store: Store, gateway: int, entry: _Entry, call: _Call) -> bool:
        place, sealed = await self._put(store, gateway, [entry])
        await asyncio.wait({call.taken}, timeout=_TAKEN_S)
        return call.taken.done() or not await store.swap(*place, sealed, b"")

    def answered(self, ticket: str) -> None:
        self._serving.pop(ticket, None)

    # --- what goes out

    async def _send_all(self) -> None:
        while self._outbox and self.store is not None:
            gateway = self._outbox[0][0]
            entries: list[_Entry] = []
            size = 0
            while self._outbox and self._outbox[0][0] == gateway and (not entries or size < _MAX_BYTES):
                entries.append(self._outbox.popleft()[1])
                size += len(entries[-1].body)
            try:
                await self._put(self.store, gateway, entries)
            except StoreError as error:
                log.warning("a message to another gateway was lost: %s", error.message)

    async def _put(self, store: Store, gateway: int, entries: list[_Entry]) -> tuple[tuple[str, str], bytes]:
        self._sent += 1
        place = _mail(gateway), f"{self._sent:012d}.{self.number:x}"
        sealed = self.seals.seal(place[0], msgspec.msgpack.encode(entries))
        await store.put(*place, sealed)
        return place, sealed

    # --- what comes in

    async def _run(self, store: Store) -> None:
        renew_at = look_at = 0.0
        while True:
            try:
                if time.monotonic() >= renew_at:
                    await self._renew(store)
                    renew_at = time.monotonic() + _RENEW_S
                if self._calls and time.monotonic() >= look_at:
                    await self._look_after_calls()
                    look_at = time.monotonic() + _LOOK_S
                await self._collect(store)
            except StoreError as error:
                log.debug("messages of other gateways cannot be read: %s", error.message)
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_FAST_S if self._calls or self.expected or self._serving else _SLOW_S):
                    await self._wake.wait()

    async def _renew(self, store: Store) -> None:
        await store.take_lease(*_lease(self.number, self.number), for_s=_LEASE_S)
        await store.put(_GATEWAYS, f"{self.number:x}", b"")
        if self.seals.is_due:
            await self.seals.open()
        if time.monotonic() >= self._chores_at:
            self._chores_at = time.monotonic() + _CHORES_S
            for name in await store.items(_GATEWAYS):
                gateway = int(name, 16)
                if gateway != self.number and not await self.alive(gateway):
                    await self._clear(store, gateway)
            for chore in self.chores.values():
                await chore(store)

    async def _clear(self, store: Store, gateway: int) -> None:
        """Removes what a gateway that is gone left behind."""
        for key in await store.items(_mail(gateway)):
            await store.delete(_mail(gateway), key)
        await store.delete(_GATEWAYS, f"{gateway:x}")

    async def _look_after_calls(self) -> None:
        for gateway in {call.gateway for call in self._calls.values()}:
            if await self.alive(gateway):
                continue
            fault = RpcError(
                jsonrpc.INTERNAL_ERROR,
                "the gateway that held this request has ended: check whether it had an effect before you make it anew",
            )
            for ticket in [ticket for ticket, call in self._calls.items() if call.gateway == gateway]:
                self._calls.pop(ticket).sink.finish(fault.response(None), fault)

    async def _collect(self, store: Store) -> None:
        place = _mail(self.number)
        found = await store.items(place)
        for key in sorted(found):
            # Emptied by whoever is first: by us, who take it, or by the sender, who withdraws it.
            taken = bool(found[key]) and await store.swap(place, key, found[key], b"")
            await store.delete(place, key)
            if not taken:
                continue
            await self.seals.find_key(found[key])
            opened = self.seals.unseal(place, found[key])
            for entry in msgspec.msgpack.decode(opened, type=list[_Entry]) if opened is not None else ():
                self._take(entry)

    def _take(self, entry: _Entry) -> None:
        if entry.kind == "cancel":
            sink = self._serving.pop(entry.ticket, None)
            if sink is not None and sink.on_cancelled is not None:
                sink.on_cancelled()
            return
        if entry.kind in {"taken", "push", "finish"}:
            self._take_answer(entry)
            return
        sink = _RemoteSink(self, entry.sender, entry.ticket)
        if entry.ticket:
            self._serving[entry.ticket] = sink
            self.post(entry.sender, "taken", b"", entry.ticket)
        self._tasks.start(_handle(self._handlers.get(entry.kind, _nobody), entry.body, sink))

    def _take_answer(self, entry: _Entry) -> None:
        call = self._calls.get(entry.ticket)
        if call is None:
            return
        if not call.taken.done():
            call.taken.set_result(None)
        if entry.kind == "push" and entry.code and call.put is not None:
            call.put(entry.code, entry.body)
        elif entry.kind == "push":
            call.sink.push(entry.body)
        elif entry.kind == "finish":
            del self._calls[entry.ticket]
            call.sink.finish(entry.body, RpcError(entry.code, "", refused=entry.refused) if entry.code else None)


async def _nobody(body: bytes, sink: _RemoteSink) -> None:
    fault = RpcError(jsonrpc.INTERNAL_ERROR, "the gateway that was asked does not know what is meant: is it older?")
    sink.finish(fault.response(None), fault)


async def _handle(handler: Handler, body: bytes, sink: _RemoteSink) -> None:
    try:
        await handler(body, sink)
    except Exception:
        log.exception("a message of another gateway could not be answered")
        fault = RpcError(jsonrpc.INTERNAL_ERROR, "the gateway that holds this failed at it; its log says more")
        sink.finish(fault.response(None), fault)


def _lease(gateway: int, holder: int) -> tuple[str, str]:
    return f"serving.gateway.{gateway:x}", f"{holder:x}"


def _mail(gateway: int) -> str:
    return f"serving.mail.{gateway:x}"


def _identifier(message: bytes) -> object:
    return jsonrpc.parse_envelope(message).id
