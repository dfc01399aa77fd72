"""Live Python sessions of one gateway: a shared zygote, stored outputs by handle, and the assistant beside a prompt.

`Sessions` keeps one session for each caller and client session, for faces whose clients come and go: bounded in number
and in idle time.
"""

import asyncio
import os
import time
from collections import OrderedDict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from toolfold.config import Settings
from toolfold.events import Event, Events
from toolfold.live.assistant import Assistant, AssistantListener, format_tool_call
from toolfold.live.prompts import GUIDANCE, OFFERS
from toolfold.live.session import (
    TOOLS,
    WORKER_ENTRY,
    Envelope,
    LiveLimits,
    LiveSession,
    child_limits,
    wait_unless_closed,
)
from toolfold.model import Model
from toolfold.storage.journal import Journal
from toolfold.types import LOCAL, Caller

if TYPE_CHECKING:
    from toolfold.outputs.service import OutputService
    from toolfold.sandbox.zygote import Zygote

__all__ = [
    "GUIDANCE",
    "OFFERS",
    "TOOLS",
    "Assistant",
    "AssistantListener",
    "ClientSessions",
    "Envelope",
    "LiveLimits",
    "LiveManager",
    "LiveSession",
    "Model",
    "Trace",
    "format_tool_call",
]


# --- A live session on record: one JSON line an event, whole, in a file that only its owner may read.

_TRACES_MAX = 50


class Trace:
    """Writes every event of a session to `folder/<time>-<pid>.jsonl`; old traces are removed."""

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


_SESSIONS_MAX = 16
_IDLE_S = 900.0


class GatewayServices(Protocol):
    """What live sessions need of a gateway."""

    @property
    def settings(self) -> Settings: ...

    @property
    def outputs(self) -> "OutputService": ...


class LiveManager:
    """What a gateway lends its live sessions. Closed with `resources`."""

    def __init__(self, gateway: GatewayServices, resources: AsyncExitStack) -> None:
        self._gateway = gateway
        self._zygote: Zygote | None = None
        self.sessions = ClientSessions(self)
        """Those of clients that come and go."""
        resources.push_async_callback(self.aclose)

    def session(
        self,
        *,
        caller: Caller = LOCAL,
        trusted: bool = False,
        terminal: bool = False,
        limits: LiveLimits | None = None,
        cwd: Path | None = None,
    ) -> LiveSession:
        """A session to be used as `async with`. By default it runs in the sandbox and reads the caller's outputs."""

        async def open_output(handle: str) -> Path:
            return await self._output(handle, caller)

        chosen = limits if limits is not None else LiveLimits()
        return LiveSession(
            trusted=trusted,
            terminal=terminal,
            limits=chosen,
            children=None if trusted or terminal else self._children(chosen),
            open_output=open_output,
            cwd=cwd,
        )

    def assistant(
        self, session: LiveSession, watcher: AssistantListener, model: "Model | str | None" = None
    ) -> Assistant:
        """With a model, or the name of one, or the configured one. Raises `ConfigError` where there is none."""
        if model is None or isinstance(model, str):
            from toolfold.models.factory import create_model

            model = create_model(self._gateway.settings.model, model or "")
        return Assistant(model, session, watcher)

    async def aclose(self) -> None:
        """Ends the sessions of clients and the zygote; whoever opened a session itself closes it itself."""
        await self.sessions.aclose()
        if self._zygote is not None:
            zygote, self._zygote = self._zygote, None
            await zygote.aclose()

    def _children(self, limits: LiveLimits) -> "Zygote | None":
        """The gateway's own zygote for sessions with the usual limits; others bring theirs."""
        if child_limits(limits) != child_limits(LiveLimits()):
            return None
        if self._zygote is None:
            from toolfold.sandbox.zygote import Zygote

            self._zygote = Zygote(WORKER_ENTRY, limits=child_limits(limits), ready=1)
        return self._zygote

    async def _output(self, handle: str, caller: Caller) -> Path:
        """The file of a stored output of this caller. Raises `UnknownHandle`."""
        return await self._gateway.outputs.file(handle, caller)


_Key = tuple[str, str]
_Opening = asyncio.Future[LiveSession]


class ClientSessions:
    """One live session for each caller and client session, opened with its first request.

    A session that opens or closes keeps nobody waiting but those who use it.
    """

    def __init__(self, living: "LiveManager", *, most: int = _SESSIONS_MAX, idle_s: float = _IDLE_S) -> None:
        self._living = living
        self._most = most
        self._idle_s = idle_s
        self._open: OrderedDict[_Key, tuple[_Opening, float]] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def dispatch(self, caller: Caller, name: str, arguments: dict[str, Any]) -> Envelope:
        """A model's call of one of the three tools, in the caller's session: see `LiveSession.dispatch`."""
        return await (await self.of(caller)).dispatch(name, arguments)

    async def of(self, caller: Caller) -> LiveSession:
        """The caller's session. The one that was idle longest goes where there are too many."""
        key, now = (caller.name, caller.session), time.monotonic()
        for other, (_, used) in tuple(self._open.items()):
            if used < now - self._idle_s:
                self._close(other)
        held = self._open.pop(key, None)
        opening = held[0] if held is not None else asyncio.ensure_future(self._opened(key, caller))
        while len(self._open) >= self._most:
            self._close(next(iter(self._open)))
        self._open[key] = (opening, now)
        return await wait_unless_closed(opening)

    async def end(self, caller: Caller) -> None:
        """The caller's client is gone, and its session with it."""
        closing = self._close((caller.name, caller.session))
        if closing is not None:
            await asyncio.shield(closing)

    async def aclose(self) -> None:
        for key in tuple(self._open):
            self._close(key)
        await asyncio.gather(*self._closing)

    async def _opened(self, key: _Key, caller: Caller) -> LiveSession:
        try:
            return await self._living.session(caller=caller).__aenter__()
        except BaseException:
            held = self._open.get(key)
            if held is not None and held[0] is asyncio.current_task():
                del self._open[key]  # the next request tries again
            raise

    def _close(self, key: _Key) -> "asyncio.Task[None] | None":
        held = self._open.pop(key, None)
        if held is None:
            return None
        closing = asyncio.ensure_future(_close_when_opened(held[0]))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing


async def _close_when_opened(opening: _Opening) -> None:
    opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().aclose()
