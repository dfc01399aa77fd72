"""Stored outputs of one gateway: what is kept for whom, what is asked of it, and how long it lives.

It composes the stage `outputs`: the handlers that store large results and resolve references, and the extraction behind
`tool_output`. Nothing is made on disk before there is something to store. Above: `Gateway`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolfold.calls import Check, Middleware
from toolfold.config import Settings
from toolfold.errors import InvalidArguments, OutputError
from toolfold.events import Events
from toolfold.outputs import tool_output
from toolfold.outputs.middleware import OutputMiddleware
from toolfold.outputs.references import ReferenceResolver
from toolfold.outputs.split import Origin
from toolfold.outputs.store import OutputStore
from toolfold.outputs.tool_output import MODES, Mode
from toolfold.types import LOCAL, Caller, Stored

if TYPE_CHECKING:
    from toolfold.config.sections import Extraction
    from toolfold.model import Model

__all__ = ["MODES", "SESSION_FILE", "Mode", "OnChanged", "OutputService", "tool_output"]

log = logging.getLogger("toolfold.outputs")

SESSION_FILE = "outputs-session"
"""The file in the state folder that names the folder of outputs which outlive a command."""

PURGE_INTERVAL_S = 60.0
"""How often an open gateway looks for outputs that outlived their time."""


def configured_model(settings: Settings) -> "Model | None":
    """The model of the configuration, where it names one."""
    if not settings.model.name:
        return None
    from toolfold.models.factory import create_model

    return create_model(settings.model)


OnChanged = Callable[[Caller, bool], None]
"""Told a caller, and whether its session holds outputs now, each time that changes."""


class OutputService:
    """`await gateway.outputs(caller)` lists them. `keep`: those of the local session outlive the gateway."""

    def __init__(self, settings: Settings, events: Events, *, keep: bool = False) -> None:
        self._settings = settings
        self._events = events
        limits, outputs = settings.limits, settings.outputs
        note = settings.home / SESSION_FILE if keep else None
        self.store = OutputStore(Path(outputs.directory), lifetime_s=outputs.lifetime_s, note=note)
        self._storing = OutputMiddleware(self.store, limits, settings.rules, events=events, on_stored=self._stored)
        self._references = ReferenceResolver(
            self.store, most=outputs.reference_max_bytes, held=limits.max_frame_bytes, events=events
        )
        self._listeners: list[OnChanged] = []
        self._holding: dict[tuple[str, str], Caller] = {}
        self._model: Model | None = None
        self._asked = False
        self._sweeping: asyncio.Task[None] | None = None
        self._swept = asyncio.Event()

    @property
    def wraps(self) -> tuple[Middleware, Check]:
        """For the stack of calls: the handler that stores results, and the check that resolves references."""
        return self._storing.wrap, self._references.check

    def start(self) -> None:
        """Clears away in the background what dead processes left, and from then on what outlived its time."""
        try:
            self._sweeping = asyncio.get_running_loop().create_task(self._stay_clear())
        except RuntimeError:
            log.debug("stored outputs are looked at without a running loop, so nothing is cleared away yet")

    async def _stay_clear(self) -> None:
        work = self._sweep
        while True:
            try:
                await work()
            except (OutputError, OSError) as error:  # what fails now may work in the next round
                log.warning("stored outputs could not be cleared away: %s", error)
            finally:
                self._swept.set()
            work = self.purge
            await asyncio.sleep(min(self._settings.outputs.lifetime_s, PURGE_INTERVAL_S))

    async def purge(self) -> None:
        """Removes what outlived its time, in every session."""
        await asyncio.to_thread(self.store.purge)
        await self._let_go_of_gone()
        for caller in tuple(self._holding.values()):
            await self(caller)

    async def swept(self) -> None:
        """Waits until what dead processes left is gone."""
        if self._sweeping is not None:
            await self._swept.wait()

    async def _sweep(self) -> None:
        gone = await asyncio.to_thread(self.store.sweep)
        if gone:
            log.info("removed %d folders of stored outputs whose owners are gone", len(gone))
            self._events.emit("output.swept", folders=len(gone))

    # --- who holds what

    async def __call__(self, caller: Caller = LOCAL) -> list[Stored]:
        """What this caller's session holds, the oldest first."""
        found = await asyncio.to_thread(self.store.all, caller) if self.store.knows(caller) else []
        if not found:
            self._emptied(caller)
        return found

    async def held(self, caller: Caller = LOCAL) -> bool:
        """Whether the session holds something."""
        return bool(await self(caller))

    async def file(self, handle: str, caller: Caller = LOCAL) -> Path:
        """The file of an output, for stages that read it by themselves. Raises `UnknownHandle`."""
        return (await asyncio.to_thread(self.store.find, handle, caller))[1]

    async def keep_text(self, text: str, *, tool_id: str, arguments: str = "{}", caller: Caller = LOCAL) -> Stored:
        """Stores a text that no tool returned, such as what a script printed; `tool_id` is the name it goes by."""
        return await self._storing.keep_text(text, Origin(caller, tool_id, arguments))

    async def fitting(self, text: str, *, tool_id: str, arguments: str = "{}", caller: Caller = LOCAL) -> str:
        """Such a text itself where it is as small as a result may be, else the message about where it is kept."""
        return await self._storing.fitting(text, Origin(caller, tool_id, arguments))

    def on_changed(self, listener: OnChanged) -> Callable[[], None]:
        """Tells the listener when a session gets its first output or loses its last; the result ends that."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def _stored(self, caller: Caller, stored: Sequence[Stored]) -> None:
        key = (caller.name, caller.session)
        if stored and key not in self._holding:
            self._holding[key] = caller
            self._tell(caller, True)

    def _emptied(self, caller: Caller) -> None:
        if self._holding.pop((caller.name, caller.session), None) is not None:
            self._events.emit("output.removed", caller=caller.name, session=caller.session)
            self._tell(caller, False)

    def _tell(self, caller: Caller, holds: bool) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(caller, holds)
            except Exception:
                log.exception("a listener for stored outputs failed and was removed")
                self._listeners.remove(listener)

    # --- what is asked of an output

    async def extract(
        self,
        handle: str,
        request: str,
        mode: str,
        caller: Caller,
        *,
        model: "Model | None" = None,
        options: "Extraction | None" = None,
    ) -> str:
        """Answers from one output, as plain text. `model` and `options` stand in for the configured ones, as an agent's
        own do. Raises `UnknownHandle`."""
        from toolfold.outputs.extraction import extract_from

        if mode not in MODES:
            raise InvalidArguments(f"there is no mode {mode!r}", hints=MODES, next_action=f"use {' or '.join(MODES)}")
        chosen: Mode = mode
        document = await asyncio.to_thread(self.store.document, handle, caller)
        self._asked = True
        answer = await extract_from(
            document,
            request,
            mode=chosen,
            model=model if model is not None else self._configured(),
            options=options if options is not None else self._settings.outputs,
            events=self._events,
        )
        return answer.text

    def _configured(self) -> "Model | None":
        if self._model is None:
            self._model = configured_model(self._settings)
        return self._model

    # --- the end

    async def end(self, caller: Caller) -> None:
        """A caller's session is over: what was stored for it is removed."""
        await asyncio.to_thread(self.store.end, caller)
        await self._let_go_of_gone()
        self._emptied(caller)

    async def aclose(self) -> None:
        """Removes everything but what outlives the gateway. Safe to call twice."""
        if self._sweeping is not None:
            await self.swept()
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
            self._sweeping = None
        await asyncio.shield(asyncio.to_thread(self.store.close))
        await self._let_go_of_gone()

    async def _let_go_of_gone(self) -> None:
        """What extraction remembers of documents goes with them."""
        if self._asked:
            from toolfold.outputs.extraction import INDEXES

            await asyncio.to_thread(INDEXES.drop_gone)
