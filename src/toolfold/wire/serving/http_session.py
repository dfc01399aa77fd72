"""Legacy sessions over HTTP: their ids, which any gateway opens, their streams, and how many there may be.

An id is a sealed value: whose it is, and what `initialize` said. A gateway that never saw it opens it and goes on with
the session; it has to come from the caller that opened it. In the store stands what a session is beside that: that it
is open at all, its log level, its subscriptions, and which gateways have it. A lease says that it was used. An unused
session ends; where there are too many, whoever holds most gives one up. What happens to a session at one gateway and
concerns another is told to it. Above: `http.py`. Below: `server.py`, `peers.py`, `seal.py`.
"""

import asyncio
import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Raw, Struct

from toolfold.containers import BoundedDict, who_yields
from toolfold.errors import StoreError, ToolfoldError
from toolfold.storage.base import Store
from toolfold.types import Caller
from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import ABSENT, Envelope, parse_number
from toolfold.wire.serving.exchange import RpcError
from toolfold.wire.serving.http_guard import HttpError
from toolfold.wire.serving.http_stream import ResponseStream
from toolfold.wire.serving.peers import _PeerGone, _RemoteSink
from toolfold.wire.serving.server import Server
from toolfold.wire.serving.session import Session, _asking_gateway

__all__ = ["_HttpSession", "_SessionTable"]

log = logging.getLogger("toolfold.wire.serving")

_SWEEP_S = 30.0
_MAX_YIELDED = 4096
# How many finished streams of a session are kept for clients that lost the end of one.
_MAX_FINISHED = 16
# How much they may hold together, beside the last of them.
_LINGER_BYTES = 4 * 1024 * 1024
_SMALL_BYTES = 64 * 1024
# How long one that holds more is kept after all of it was sent: nobody tells whether all of it arrived.
_LINGER_S = 10.0

_RECORDS = "serving.sessions"
# Proxies and clients bound a header, some at 4 KiB: what `initialize` said lies in the store where it is longer.
MAX_ID_CHARS = 2048
_SEALED_HELLO_BYTES = 1200
_MAX_HELLO_BYTES = 64 * 1024
# After this the id opens nothing, however often it was used.
_LIFETIME_S = 30 * 86400.0
_MAX_GATEWAYS = 16
# Notices of one session on their way to the gateway where its client listens.
_TELL_AFTER_S = 0.1
_MAX_TOLD = 64
_SWEPT_AT_ONCE = 200


class _Sealed(Struct, frozen=True, array_like=True):
    """What an id says. Without `hello` that lies in the store."""

    session: str
    caller: str
    subset: str
    until: float
    hello: bytes


class _Record(Struct, frozen=True):
    """What all gateways know of an open session."""

    gateways: tuple[int, ...] = ()
    level: str | None = None
    resources: tuple[str, ...] = ()
    hello: bytes = b""


class _Notice(Struct, array_like=True):
    """What one gateway tells another of a session."""

    session: str
    what: str
    data: bytes = b""


class _HttpSession:
    """A session and its streams at this gateway. `general` is the one that belongs to no request."""

    def __init__(self, identifier: str, caller: Caller, max_events: int, gateway: int) -> None:
        self.identifier = identifier
        self.name = ""
        self.owner = caller.name
        self.used = self.noted = time.monotonic()
        self._session: Session | None = None
        self._mark = f"{gateway:x}." if gateway else ""
        self.general = ResponseStream(f"{self._mark}g", max_events)
        self.listening = False
        # Other gateways that have it, and the one of them where its client listens.
        self.others: set[int] = set()
        self.listens_at = 0
        # Its record, where the store could not take it yet.
        self.unwritten = b""
        self.tell: Callable[[str, bytes], None] | None = None
        self._max_events = max_events
        self._numbers = 0
        self._streams: dict[str, ResponseStream] = {}

    @property
    def legacy(self) -> Session:
        assert self._session is not None  # noqa: S101 - a session in the table is open
        return self._session

    @legacy.setter
    def legacy(self, session: Session) -> None:
        self._session = session

    def renew(self, caller: Caller) -> None:
        """Its next requests have what the caller may do now: another token may say otherwise than the first."""
        self.used = time.monotonic()
        if self.legacy.client.caller.kind != caller.kind:
            own = self.legacy.client.caller.session
            self.legacy.client.caller = msgspec.structs.replace(caller, session=own)

    def notify(self, method: str, params: bytes) -> None:
        if self.listens_at and not self.listening and self.tell is not None:
            self.tell(method, params)
        else:
            self.general.push(jsonrpc.notification_message(method, params))

    def stream(self) -> ResponseStream:
        self._numbers += 1
        name = f"{self._mark}{self._numbers}"
        self._drop_finished()
        self._streams[name] = ResponseStream(name, self._max_events)
        return self._streams[name]

    def release(self, stream: ResponseStream) -> None:
        """All of a stream was sent: a large one is dropped after a while."""
        if stream.size > _SMALL_BYTES:
            asyncio.get_running_loop().call_later(_LINGER_S, self._streams.pop, stream.name, None)

    def _drop_finished(self) -> None:
        """Drops the oldest finished streams."""
        finished = [entry for entry in reversed(self._streams.values()) if entry.done]
        size = 0
        for place, entry in enumerate(finished):
            size += entry.size
            if place >= _MAX_FINISHED or (place and size > _LINGER_BYTES):
                del self._streams[entry.name]

    def resume(self, last: str) -> ResponseStream | None:
        """The stream that an event belongs to, set back to just after it."""
        name, _, number = last.rpartition("_")
        stream, after = self.general if name == self.general.name else self._streams.get(name), parse_number(number)
        if stream is not None and after is not None:
            stream.rewind(after)
        return stream

    @property
    def busy(self) -> bool:
        return self.listening or self._session is None or len(self._session.running) > 0


class _SessionTable:
    """All sessions of one server, or of a subset of its tools, that are used at this gateway."""

    def __init__(self, server: Server, subset: str = "") -> None:
        self._server = server
        self._subset = subset
        self._peers = server.peers
        self._by_name: dict[str, _HttpSession] = {}
        self._by_identifier: dict[str, _HttpSession] = {}
        self._taking_over: dict[tuple[str, str], asyncio.Task[_HttpSession]] = {}
        # Those that made room for others, with their callers: they are told.
        self._yielded: BoundedDict[str, str] = BoundedDict(_MAX_YIELDED)
        self._sweeping: asyncio.Task[None] | None = None
        self._peers.on(f"session:{subset}", self._on_notice)
        self._peers.on(f"follow:{subset}", self._on_follow)
        self._peers.chores["sessions"] = _forget_unused

    def __len__(self) -> int:
        return len(self._by_name)

    # --- opening and finding

    async def open(self, message: Envelope, caller: Caller) -> tuple[_HttpSession, bytes]:
        await self._make_room(caller.name)
        opened = _HttpSession(secrets.token_urlsafe(12), caller, self._server.options.replay_events, self._peers.number)
        hello = bytes(message.params)
        if len(hello) > _MAX_HELLO_BYTES:
            problem = f"what `initialize` says may have at most {_MAX_HELLO_BYTES} bytes"
            raise RpcError(jsonrpc.INVALID_PARAMS, problem, refused=True)
        self._by_identifier[opened.identifier] = opened
        try:
            own = msgspec.structs.replace(caller, session=caller.session or opened.identifier)
            opened.legacy, answer = await self._server.initialize(message, own, opened.notify)
            opened.name = await self._publish(opened, caller, hello)
        except BaseException:
            del self._by_identifier[opened.identifier]
            raise
        self._add(opened)
        return opened, answer

    async def _publish(self, session: _HttpSession, caller: Caller, hello: bytes) -> str:
        """The id of a new session, which any gateway opens."""
        short = len(hello) <= _SEALED_HELLO_BYTES
        record = _Record((self._peers.number,), hello=b"" if short else hello)
        until = time.time() + _LIFETIME_S
        sealed = _Sealed(session.identifier, caller.name, caller.subset, until, hello if short else b"")
        session.unwritten = msgspec.json.encode(record)
        if self._peers.store is not None:
            try:
                await self._write(self._peers.store, session)
            except StoreError as error:  # it goes on here, and elsewhere once the store is back
                log.warning("a new session is known to this gateway alone: %s", error.message)
        return self._peers.seals.seal_text("session", msgspec.msgpack.encode(sealed))

    def _add(self, session: _HttpSession) -> None:
        self._by_name[session.name] = self._by_identifier[session.identifier] = session
        session.tell = _Teller(partial(self._tell, session)).tell
        session.legacy.on_changed = partial(self._share, session)
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def get(self, name: str, caller: Caller) -> _HttpSession:
        """The caller's own session of that name, be it from another gateway."""
        # Another caller's session gets the same answer as none: an id must not be worth guessing.
        session = self._by_name.get(name)
        if not name:
            raise HttpError(400, "an Mcp-Session-Id is needed here; begin with initialize")
        if self._yielded.get(name) == caller.name:
            most = self._server.options.max_sessions
            raise HttpError(404, f"this session was ended: of {most} you held more than your share; initialize again")
        if session is None:
            session = await self._take_over(name, caller)
        if session.owner != caller.name:
            raise _no_such_session()
        session.renew(caller)
        return session

    async def _take_over(self, name: str, caller: Caller) -> _HttpSession:
        if self._peers.store is None or len(name) > MAX_ID_CHARS or not name.isascii():
            raise _no_such_session()
        # A client's first requests here may come together.
        key = (name, caller.name)
        task = self._taking_over.get(key)
        if task is None:
            task = self._taking_over[key] = asyncio.ensure_future(self._reopen(name, caller, self._peers.store))
            task.add_done_callback(lambda _: self._taking_over.pop(key, None))
        try:
            return await asyncio.shield(task)
        except ToolfoldError as error:
            raise HttpError(503, f"this session cannot go on here now, try again: {error.message}") from error

    async def _reopen(self, name: str, caller: Caller, store: Store) -> _HttpSession:
        """Goes on with a session that another gateway opened."""
        record: _Record | None = _Record()
        try:
            await self._peers.seals.find_key(name)
            sealed = self._unseal(name, caller)
            record = await self._join(store, sealed.session)
        except StoreError as error:  # its seal is good; whether it was ended is seen once the store is back
            sealed = self._unseal(name, caller)
            log.warning("a session of another gateway is taken over unasked: %s", error.message)
        hello = sealed.hello or (record.hello if record is not None else b"")
        if record is None or not hello:
            raise _no_such_session()
        await self._make_room(caller.name)
        session = _HttpSession(sealed.session, caller, self._server.options.replay_events, self._peers.number)
        self._by_identifier[session.identifier] = session
        try:
            own = msgspec.structs.replace(caller, session=caller.session or session.identifier)
            session.legacy, _ = await self._server.open_session(Raw(hello), own, session.notify)
        except BaseException:
            del self._by_identifier[session.identifier]
            raise
        session.name, session.others = name, set(record.gateways) - {self._peers.number}
        self._add(session)
        await self._follow_record(session, record)
        self._tell_others(session, "joined")
        return session

    def _unseal(self, name: str, caller: Caller) -> _Sealed:
        opened = self._peers.seals.unseal_text("session", name)
        sealed = msgspec.msgpack.decode(opened, type=_Sealed) if opened is not None else None
        if sealed is None or (sealed.caller, sealed.subset) != (caller.name, caller.subset):
            raise _no_such_session()
        if sealed.until < time.time():
            raise _no_such_session()
        return sealed

    # --- what the store says of a session

    async def _join(self, store: Store, identifier: str) -> _Record | None:
        """The record of an open session, with this gateway in it."""
        if await _is_unused(store, identifier):
            return None
        record = await self._change_record(store, identifier, self._with_this_gateway)
        if record is not None:
            await store.take_lease(_lease(identifier), _USED, for_s=self._kept_s)
        return record

    def _with_this_gateway(self, record: _Record) -> _Record:
        own = self._peers.number
        others = tuple(gateway for gateway in record.gateways if gateway != own)
        return msgspec.structs.replace(record, gateways=(*others, own)[-_MAX_GATEWAYS:])

    async def _change_record(
        self, store: Store, identifier: str, change: Callable[[_Record], _Record]
    ) -> _Record | None:
        while (found := await store.get(_RECORDS, identifier)) is not None:
            record = change(msgspec.json.decode(found, type=_Record))
            if await store.swap(_RECORDS, identifier, found, msgspec.json.encode(record)):
                return record
        return None

    async def _write(self, store: Store, session: _HttpSession) -> None:
        await store.put(_RECORDS, session.identifier, session.unwritten)
        session.unwritten = b""
        await self._note_use(store, session)

    async def _note_use(self, store: Store, session: _HttpSession) -> None:
        session.noted = time.monotonic()
        await store.take_lease(_lease(session.identifier), _USED, for_s=self._kept_s)

    @property
    def _kept_s(self) -> float:
        """How long a session lasts that no gateway notes to be used: they do so at intervals."""
        return self._server.options.session_idle_s * 1.25 + 2 * _SWEEP_S

    async def _follow_record(self, session: _HttpSession, record: _Record) -> None:
        """Takes over what was set at another gateway."""
        legacy = session.legacy
        if record.level is not None:
            legacy.set_level(record.level)
        await self._server.set_subscriptions(legacy, frozenset(record.resources), anew=True)

    async def _share(self, session: _HttpSession) -> None:
        """Its log level or its subscriptions changed here: the others are told."""
        store, legacy = self._peers.store, session.legacy
        if store is None:
            return
        level, resources = legacy.client.log_level, tuple(sorted(legacy.subscriber.resources))
        try:
            await self._change_record(
                store, session.identifier, lambda old: msgspec.structs.replace(old, level=level, resources=resources)
            )
        except StoreError as error:
            log.warning("what a client set is known to this gateway alone: %s", error.message)
        self._tell_others(session, "changed")

    # --- what other gateways are told, and tell

    def _tell_others(self, session: _HttpSession, what: str, data: bytes = b"") -> None:
        body = msgspec.msgpack.encode(_Notice(session.identifier, what, data))
        for gateway in session.others:
            self._peers.post(gateway, f"session:{self._subset}", body)

    def _tell(self, session: _HttpSession, message: bytes) -> None:
        """Brings a notification to the gateway where the client listens."""
        body = msgspec.msgpack.encode(_Notice(session.identifier, "notify", message))
        self._peers.post(session.listens_at, f"session:{self._subset}", body)

    def pass_on(self, session: _HttpSession, message: Envelope) -> bool:
        """Whether a message of the client is for another gateway alone, which gets it. One that a request is
        cancelled with goes to all: which of them answers the request is not known."""
        if message.method == "notifications/cancelled":
            self._tell_others(session, "cancelled", bytes(message.params))
            return False
        gateway = _asking_gateway(message)
        if gateway not in session.others:
            return False
        kind = "result" if message.error is ABSENT else "error"
        answer = {"id": message.id, kind: message.result if message.error is ABSENT else message.error}
        body = msgspec.msgpack.encode(_Notice(session.identifier, "answer", jsonrpc.encode(answer)))
        self._peers.post(gateway, f"session:{self._subset}", body)
        return True

    def listen(self, session: _HttpSession) -> None:
        """The client listens here from now on: what others have for it comes here."""
        session.listening, session.listens_at = True, 0
        self._tell_others(session, "listening")

    async def _on_notice(self, body: bytes, sink: _RemoteSink) -> None:
        notice = msgspec.msgpack.decode(body, type=_Notice)
        session = self._by_identifier.get(notice.session)
        if session is not None and session.name:
            session.others.add(sink.gateway)
            await self._follow(session, notice, sink.gateway)

    async def _follow(self, session: _HttpSession, notice: _Notice, gateway: int) -> None:
        match notice.what:
            case "answer":
                session.legacy.on_answer(jsonrpc.parse_envelope(notice.data))
            case "cancelled":
                session.legacy.running.cancel(Raw(notice.data))
            case "ended":
                await self.end(session, everywhere=False)
            case "listening":
                session.listens_at = gateway
            case "joined" if session.listening:
                self._tell_others(session, "listening")
            case "notify":
                session.general.push(notice.data)
            case "changed" if self._peers.store is not None:
                record = await self._change_record(self._peers.store, session.identifier, self._with_this_gateway)
                await self._follow_record(session, record or _Record())

    # --- taking up a stream again

    async def resume(self, session: _HttpSession, last: str) -> ResponseStream:
        """The stream that an event belongs to, also where another gateway has it."""
        stream = session.resume(last)
        if stream is not None:
            return stream
        name, _, _ = last.rpartition("_")
        mark, _, rest = name.partition(".")
        gateway = next((one for one in session.others if f"{one:x}" == mark), None)
        if gateway is not None and rest == "g":
            return session.general  # what it had for nobody is not repeated; what comes now comes here
        if gateway is not None:
            stream = ResponseStream(name, self._server.options.replay_events)
            body = msgspec.msgpack.encode(_Notice(session.identifier, last))
            try:
                await self._peers.call(gateway, f"follow:{self._subset}", body, stream, stream.put)
            except _PeerGone:
                problem = "the gateway that held this stream has ended: check whether its request had an effect"
                raise HttpError(404, f"{problem}, and make it anew in this session") from None
            return stream
        raise HttpError(404, "that stream cannot be taken up any more: make its request anew in this session")

    async def _on_follow(self, body: bytes, sink: _RemoteSink) -> None:
        """A client takes up a stream of this gateway at another."""
        notice = msgspec.msgpack.decode(body, type=_Notice)
        session = self._by_identifier.get(notice.session)
        stream = session.resume(notice.what) if session is not None else None
        while stream is not None:
            for number, message in stream.take():
                sink.push(message, number)
            if stream.done:
                break
            await stream.wait()
        sink.finish(b"", None)

    # --- ending

    async def end(self, session: _HttpSession, *, everywhere: bool = True) -> None:
        """Ends a session. `everywhere`: at all gateways that have it; else it was ended at another."""
        if not self._remove(session):
            return
        if everywhere:
            self._tell_others(session, "ended")
            if self._peers.store is not None:
                try:
                    await _forget(self._peers.store, session.identifier)
                except StoreError as error:
                    log.warning("other gateways may not know that a session was ended: %s", error.message)
        await self._server.close_session(session.legacy)

    async def _let_go(self, session: _HttpSession) -> None:
        """Closes a session that others still use, or may."""
        if self._remove(session):
            await self._server.close_session(session.legacy, left=False)

    def _remove(self, session: _HttpSession) -> bool:
        self._by_identifier.pop(session.identifier, None)
        session.general.end()
        return self._by_name.pop(session.name, None) is not None

    async def _sweep(self) -> None:
        """Ends sessions that nobody used for long, as long as there are any."""
        idle_s = self._server.options.session_idle_s
        while self._by_name:
            await asyncio.sleep(min(_SWEEP_S, idle_s))
            for session in tuple(self._by_name.values()):
                try:
                    await self._look_after(session, idle_s)
                except StoreError as error:  # it stays as it is until the store is back
                    log.debug("a session cannot be looked after: %s", error.message)

    async def _look_after(self, session: _HttpSession, idle_s: float) -> None:
        store, now = self._peers.store, time.monotonic()
        if not session.busy and session.used < now - idle_s:
            if store is None or await self._used_here_alone(store, session):
                await self.end(session)
            elif session.used < now - 2 * idle_s:
                await self._let_go(session)
        elif store is not None and session.noted < now - idle_s / 4:
            await self._note(store, session)

    async def _note(self, store: Store, session: _HttpSession) -> None:
        """Notes the use of a session, unless it was ended elsewhere unheard."""
        if session.unwritten:
            await self._write(store, session)
        elif await store.get(_RECORDS, session.identifier) is None:
            await self.end(session, everywhere=False)
        elif session.busy or session.used > session.noted:
            await self._note_use(store, session)

    async def _used_here_alone(self, store: Store, session: _HttpSession) -> bool:
        """Whether no other gateway has a session, or none of those that do used it for long."""
        found = await store.get(_RECORDS, session.identifier)
        others = msgspec.json.decode(found, type=_Record).gateways if found is not None else ()
        return set(others) <= {self._peers.number} or await _is_unused(store, session.identifier)

    async def _make_room(self, asking: str) -> None:
        """Where there are too many, ends the longest unused session of whoever has most. Raises `HttpError` where all
        are in use."""
        most = self._server.options.max_sessions
        if len(self._by_identifier) < most:  # those that are being opened count, too
            return
        held = Counter(entry.owner for entry in self._by_identifier.values())
        yields = who_yields(held, asking, most)
        idle = [entry for entry in self._by_name.values() if entry.owner == yields and not entry.busy]
        if not idle:
            raise HttpError(503, "too many sessions are open: end some with DELETE, or try again later")
        ended = min(idle, key=lambda entry: entry.used)
        self._yielded[ended.name] = ended.owner
        await self.end(ended)

    async def aclose(self) -> None:
        """Other gateways go on with the sessions, and so does this one after a restart."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        for session in tuple(self._by_name.values()):
            await (self.end(session) if self._peers.store is None else self._let_go(session))


class _Teller:
    """Gathers what a session is to hear at another gateway: each thing is told once in a moment."""

    def __init__(self, tell: Callable[[bytes], None]) -> None:
        self._tell = tell
        self._waiting: dict[bytes, None] = {}

    def tell(self, method: str, params: bytes) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_later(_TELL_AFTER_S, self._send)
        if len(self._waiting) < _MAX_TOLD:
            self._waiting[jsonrpc.notification_message(method, params)] = None

    def _send(self) -> None:
        messages, self._waiting = self._waiting, {}
        for message in messages:
            self._tell(message)


_USED = "used"


def _lease(identifier: str) -> str:
    return f"serving.session.{identifier}"


async def _is_unused(store: Store, identifier: str) -> bool:
    """Whether no gateway noted for long that a session is used."""
    # Taken for no time: where it can be had at all, nobody prolonged it.
    return await store.take_lease(_lease(identifier), "anybody", for_s=0.001)


async def _forget(store: Store, identifier: str) -> None:
    await store.delete(_RECORDS, identifier)
    await store.release_lease(_lease(identifier), _USED)


async def _forget_unused(store: Store) -> None:
    """Forgets sessions whose gateways are gone and that nobody uses any more."""
    known = list(await store.items(_RECORDS))
    for identifier in random.sample(known, min(len(known), _SWEPT_AT_ONCE)):
        if await _is_unused(store, identifier):
            await _forget(store, identifier)


def _no_such_session() -> HttpError:
    return HttpError(404, "there is no such session, or no longer; begin with initialize")
