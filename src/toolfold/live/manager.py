"""The live sessions of one gateway: a shared zygote, stored outputs by handle, and the assistant beside a prompt.

`ClientSessions` holds a session for each caller and client session, for faces whose clients come and go. Above: the
gateway, which passes itself in; faces import from here what they show of live sessions.
"""

import asyncio
import hashlib
import logging
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec
from msgspec import Raw, Struct

from toolfold.calls.toolbox import LIVE_PYTHON
from toolfold.config import Settings
from toolfold.containers import BoundedDict, TaskSet, who_yields
from toolfold.errors import LiveError, ToolfoldError
from toolfold.events import Event, Events
from toolfold.live.assistant import Assistant, AssistantListener, format_tool_call
from toolfold.live.prompts import GUIDANCE, OFFERS
from toolfold.live.session import TOOLS, WORKER_ENTRY, Envelope, LiveLimits, LiveSession, wait_unless_closed
from toolfold.live.worker.envelopes import session_lost
from toolfold.model import Model
from toolfold.storage.journal import Journal
from toolfold.types import LOCAL, CallContext, Caller, Outcome

if TYPE_CHECKING:
    from toolfold.calls.toolbox import Programs
    from toolfold.outputs.service import OutputService
    from toolfold.sandbox.zygote import Zygote
    from toolfold.storage.base import Store
    from toolfold.wire.jsonrpc import Parts
    from toolfold.wire.serving.peers import Peers, _RemoteSink

__all__ = [
    "GUIDANCE",
    "OFFERS",
    "TOOLS",
    "Assistant",
    "AssistantListener",
    "Envelope",
    "LiveLimits",
    "LiveManager",
    "LiveSession",
    "Model",
    "Trace",
    "_ClientSessions",
    "format_tool_call",
]

_log = logging.getLogger("toolfold.live")

_SESSIONS_MAX = 16
_IDLE_S = 900.0
_ENDED_MAX = 1024
_TRACES_MAX = 50
_LIVE = "live.sessions"
_TOLD_S = 86400.0
_ASK_AGAIN = "ask again in half a minute: where the gateway that has the session is gone, a new one begins then"
_HOLDER_GONE = "ended with the gateway that it ran at"
_Key = tuple[str, str]
_Opening = asyncio.Future[LiveSession]


class _Gateway(Protocol):
    """What live sessions need of a gateway."""

    @property
    def settings(self) -> Settings: ...

    @property
    def outputs(self) -> "OutputService": ...

    @property
    def programs(self) -> "Programs": ...

    @property
    def store(self) -> "Store": ...

    @property
    def peers(self) -> "Peers | None": ...


class LiveManager:
    """Opens live sessions. Closed with `resources`."""

    def __init__(self, gateway: _Gateway) -> None:
        self._gateway = gateway
        self._zygote: Zygote | None = None
        self.programs = gateway.programs
        others = None if gateway.peers is None else _Elsewhere(gateway.peers, gateway.store)
        self.sessions = _ClientSessions(self, others)

    def session(
        self,
        *,
        caller: Caller = LOCAL,
        trusted: bool = False,
        terminal: bool = False,
        limits: LiveLimits | None = None,
        cwd: Path | None = None,
    ) -> LiveSession:
        """A session to be used as `async with`. By default it runs in the sandbox and reads the caller's outputs.
        Raises `NotAuthorized` where the caller's policy does not allow live Python."""
        self.programs.check(LIVE_PYTHON, caller)

        async def open_output(handle: str) -> Path:
            return await self._gateway.outputs.file(handle, caller)

        limits = limits if limits is not None else LiveLimits()
        return LiveSession(
            trusted=trusted,
            terminal=terminal,
            limits=limits,
            children=None if trusted or terminal else self._shared_zygote(limits),
            open_output=open_output,
            cwd=cwd,
        )

    def assistant(
        self, session: LiveSession, listener: AssistantListener, model: "Model | str | None" = None
    ) -> Assistant:
        """With a model, or the name of one, or the configured one. Raises `ConfigError` where there is none."""
        if model is None or isinstance(model, str):
            from toolfold.models.factory import create_model

            model = create_model(self._gateway.settings.model, model or "")
        return Assistant(model, session, listener)

    async def aclose(self) -> None:
        """Ends the sessions of clients and the zygote; whoever opened a session itself closes it itself."""
        await self.sessions.aclose()
        if self._zygote is not None:
            zygote, self._zygote = self._zygote, None
            await zygote.aclose()

    def _shared_zygote(self, limits: LiveLimits) -> "Zygote | None":
        # A zygote's limits are fixed when it starts: sessions with other limits start their own.
        if limits.sandbox_limits() != LiveLimits().sandbox_limits():
            return None
        if self._zygote is None:
            from toolfold.sandbox.zygote import Zygote

            self._zygote = Zygote(WORKER_ENTRY, limits=limits.sandbox_limits(), ready=1)
        return self._zygote


class _ClientSessions:
    """One live session for each caller and client session, opened with its first request.

    Bounded in number and in idle time; whoever lost one is told with the next request. Only those who use a session
    wait for it to open or close.
    """

    def __init__(
        self,
        manager: LiveManager,
        others: "_Elsewhere | None" = None,
        *,
        limit: int = _SESSIONS_MAX,
        idle_s: float = _IDLE_S,
    ) -> None:
        self._manager = manager
        self._others = others
        if others is not None:
            others.answer_with(self._dispatch_here)
        self._limit = limit
        self._idle_s = idle_s
        self._sessions: OrderedDict[_Key, tuple[_Opening, float]] = OrderedDict()  # the least recently used first
        self._ended: BoundedDict[_Key, str] = BoundedDict(_ENDED_MAX)
        self._closing = TaskSet(_log)

    async def dispatch(self, caller: Caller, name: str, arguments: dict[str, Any]) -> Envelope:
        """A model's call of one of the three tools, in the caller's session: see `LiveSession.dispatch`."""
        said = {"function": name[:100]}
        if isinstance(arguments.get("expr"), str):
            said["expr"] = arguments["expr"]
        work = partial(self._dispatch, caller, name, arguments)
        return await self._manager.programs.run(LIVE_PYTHON, said, CallContext(caller=caller), work, _as_outcome)

    async def _dispatch(self, caller: Caller, name: str, arguments: dict[str, Any]) -> Envelope:
        """In the session of this gateway, or of the one that has it."""
        key = (caller.name, caller.session)
        if self._others is not None and key not in self._sessions:
            holder = await self._others.claim(key)
            if holder is not None:
                self._ended.pop(key, None)  # the one that has it now has told
                return await self._others.dispatch(holder, caller, name, arguments)
        return await self._dispatch_here(caller, name, arguments)

    async def _dispatch_here(self, caller: Caller, name: str, arguments: dict[str, Any]) -> Envelope:
        if self._others is not None and (why := self._others.lost.pop((caller.name, caller.session), "")):
            self._ended.renew((caller.name, caller.session), why)
        session = await self.get(caller)
        ended = self._ended.pop((caller.name, caller.session), None)
        return await session.dispatch(name, arguments) if ended is None else session_lost(ended)

    async def get(self, caller: Caller) -> LiveSession:
        """The caller's session. Raises `LiveError` where all sessions are held by others, none more than its share."""
        key, now = (caller.name, caller.session), time.monotonic()
        for other, (_, used) in tuple(self._sessions.items()):
            if used < now - self._idle_s:
                self._close(other, f"was ended after {self._idle_s / 60:g} minutes without a request")
        entry = self._sessions.pop(key, None)
        if entry is None:
            self._make_room(caller.name)
        opening = entry[0] if entry is not None else asyncio.ensure_future(self._open(key, caller))
        self._sessions[key] = (opening, now)
        return await wait_unless_closed(opening)

    def _make_room(self, asking: str) -> None:
        """Where there are too many, whoever has most loses the one that was idle longest."""
        while len(self._sessions) >= self._limit:
            yields = who_yields(Counter(name for name, _ in self._sessions), asking, self._limit)
            if yields is None:
                raise LiveError(
                    f"all {self._limit} live sessions are in use by other callers",
                    next_action=f"try again later: one that nobody uses ends after {self._idle_s / 60:g} minutes",
                )
            why = "for another of yours" if yields == asking else "for another caller, as you had more than your share"
            self._close(next(key for key in self._sessions if key[0] == yields), f"was ended to make room {why}")

    async def end(self, caller: Caller) -> None:
        """The caller's client has disconnected: closes its session."""
        closing = self._close((caller.name, caller.session))
        if closing is not None:
            await asyncio.shield(closing)

    async def aclose(self) -> None:
        for key in tuple(self._sessions):
            self._close(key)
        await self._closing.wait()

    async def _open(self, key: _Key, caller: Caller) -> LiveSession:
        try:
            return await self._manager.session(caller=caller).__aenter__()
        except BaseException:
            entry = self._sessions.get(key)
            if entry is not None and entry[0] is asyncio.current_task():
                del self._sessions[key]  # the next request tries again
            raise

    def _close(self, key: _Key, why: str = "") -> "asyncio.Task[None] | None":
        """Closes a session. `why` is for its client, who does not know of it."""
        entry = self._sessions.pop(key, None)
        if why:
            self._ended.renew(key, why)
        if entry is not None and self._others is not None:
            self._closing.start(self._others.give_up(key, why))
        return None if entry is None else self._closing.start(_close_when_opened(entry[0]))


class _Elsewhere:
    """Live sessions that other gateways on the same store have: whose they are, and how they are asked."""

    def __init__(self, peers: "Peers", store: "Store") -> None:
        self._peers = peers
        self._store = store
        # Those that ended elsewhere, with what their callers are to be told.
        self.lost: BoundedDict[_Key, str] = BoundedDict(_ENDED_MAX)
        peers.chores["live"] = self._forget

    def answer_with(self, dispatch: Callable[[Caller, str, dict[str, Any]], Awaitable[Envelope]]) -> None:
        """What is asked here by other gateways is answered with this."""

        async def answer(body: bytes, sink: "_RemoteSink") -> None:
            asked = msgspec.msgpack.decode(body, type=_Asked)
            task = asyncio.ensure_future(dispatch(asked.caller, asked.name, asked.arguments))
            sink.on_cancelled = task.cancel
            try:
                sink.finish(msgspec.json.encode(await task), None)
            except ToolfoldError as error:
                sink.finish(msgspec.json.encode({"error": [error.message, error.next_action]}), None)

        self._peers.on("live", answer)

    async def claim(self, key: _Key) -> int | None:
        """The gateway that has this session; nothing where it is this one from now on."""
        place, own = (_LIVE, _key_text(key)), b"%x" % self._peers.number
        while not await self._store.swap(*place, None, own):
            found = await self._store.get(*place)
            if found == own:
                return None
            ended = found is not None and found.startswith(b"{")
            if found is not None and not ended and await self._peers.alive(int(found, 16)):
                return int(found, 16)
            if found is not None and await self._store.swap(*place, found, own):
                self.lost[key] = msgspec.json.decode(found, type=_Ended).why if ended else _HOLDER_GONE
                return None
        return None

    async def give_up(self, key: _Key, why: str) -> None:
        """This gateway has the session no longer. `why`: another that is asked for it tells so."""
        place, own = (_LIVE, _key_text(key)), b"%x" % self._peers.number
        if await self._store.get(*place) == own:
            await self._end(place[1], own, why) if why else await self._store.delete(*place)

    async def _end(self, name: str, holder: bytes, why: str) -> None:
        await self._store.swap(_LIVE, name, holder, msgspec.json.encode(_Ended(why, time.time())))

    async def _forget(self, store: "Store") -> None:
        """Nobody is told for ever of a session that ended."""
        for name, found in (await store.items(_LIVE)).items():
            if not found.startswith(b"{"):
                if not await self._peers.alive(int(found, 16)):
                    await self._end(name, found, _HOLDER_GONE)
            elif abs(time.time() - msgspec.json.decode(found, type=_Ended).at) > _TOLD_S:
                await store.delete(_LIVE, name)

    async def dispatch(self, holder: int, caller: Caller, name: str, arguments: dict[str, Any]) -> Envelope:
        """Asks in the session of another gateway. Raises `LiveError` where that does not answer."""
        from toolfold.wire.serving.peers import _PeerGone  # who uses live Python alone loads nothing of the wire

        reply = _Reply()
        body = msgspec.msgpack.encode(_Asked(caller, name, arguments))
        try:
            cancel = await self._peers.call(holder, "live", body, reply)
        except _PeerGone:
            raise LiveError(
                "this live session runs at another gateway, which did not take the request: nothing was run",
                next_action=_ASK_AGAIN,
            ) from None
        try:
            answer: dict[str, Any] = msgspec.json.decode(await reply.arrived)
        except asyncio.CancelledError:
            cancel()
            raise
        if "error" in answer and isinstance(answer["error"], list):
            raise LiveError(answer["error"][0], next_action=answer["error"][1])
        if "jsonrpc" in answer:
            raise LiveError(str(answer["error"]["message"]), next_action=_ASK_AGAIN)
        return answer


class _Ended(Struct):
    """In the store in place of the gateway that has a session: it ended, and its caller does not know."""

    why: str
    at: float


class _Asked(Struct, array_like=True):
    """A request on its way to the gateway that has the session."""

    caller: Caller
    name: str
    arguments: dict[str, Any]


class _Reply:
    """What another gateway answers, whole."""

    def __init__(self) -> None:
        self.arrived: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def push(self, message: bytes) -> None:
        """Nothing comes before the answer."""

    def finish(self, message: bytes, fault: object) -> None:
        if not self.arrived.done():
            self.arrived.set_result(message)

    def finish_long(self, parts: "Parts") -> None:
        self.finish(b"".join(parts), None)


def _key_text(key: _Key) -> str:
    return hashlib.sha256(msgspec.json.encode(key)).hexdigest()


def _as_outcome(answer: Envelope) -> Outcome:
    return Outcome(raw=Raw(msgspec.json.encode(answer)), is_error=not answer["ok"])


async def _close_when_opened(opening: _Opening) -> None:
    opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().aclose()


class Trace:
    """Writes every event of a session, whole, to `folder/<time>-<pid>.jsonl`; old traces are removed."""

    def __init__(self, folder: Path, events: Events) -> None:
        name = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self._journal = Journal(folder / f"{name}-{os.getpid()}.jsonl", kept=_TRACES_MAX)
        self._unsubscribe = events.subscribe(self._write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._unsubscribe()
        self._journal.close()

    def _write(self, event: Event) -> None:
        line = {"event": event.name, "at": event.at, **event.data}
        self._journal.write(msgspec.json.encode(line, enc_hook=str))
