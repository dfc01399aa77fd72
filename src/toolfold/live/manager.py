"""The live sessions of one gateway: a shared zygote, stored outputs by handle, and the assistant beside a prompt.

`ClientSessions` holds a session for each caller and client session, for faces whose clients come and go. Above: the
gateway, which passes itself in; faces import from here what they show of live sessions.
"""

import asyncio
import logging
import os
import time
from collections import Counter, OrderedDict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec
from msgspec import Raw

from toolfold.calls.toolbox import LIVE_PYTHON
from toolfold.config import Settings
from toolfold.containers import BoundedDict, TaskSet, who_yields
from toolfold.errors import LiveError
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


class LiveManager:
    """Opens live sessions. Closed with `resources`."""

    def __init__(self, gateway: _Gateway) -> None:
        self._gateway = gateway
        self._zygote: Zygote | None = None
        self.programs = gateway.programs
        self.sessions = _ClientSessions(self)

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

    def __init__(self, manager: LiveManager, *, limit: int = _SESSIONS_MAX, idle_s: float = _IDLE_S) -> None:
        self._manager = manager
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
        return None if entry is None else self._closing.start(_close_when_opened(entry[0]))


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
