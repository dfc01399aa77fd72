"""The output service of a gateway: which session holds which outputs, what is extracted from them, how long they live.

It composes the stage: what stores large results, the resolver of references, the extraction behind
`tool_output`. Nothing is created on disk before there is something to store. Above: the gateway.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from toolfold.config import Settings
from toolfold.containers import Listeners
from toolfold.errors import InvalidArguments, OutputError, StoreError
from toolfold.events import Events
from toolfold.outputs.document import open_regular_file
from toolfold.outputs.large_results import LargeResults
from toolfold.outputs.references import ReferenceResolver
from toolfold.outputs.shared import shared_outputs
from toolfold.outputs.split import Origin
from toolfold.outputs.store import OutputStore
from toolfold.outputs.tool_output_definition import MODES, Mode, too_large_message
from toolfold.types import LOCAL, Caller, Stored

if TYPE_CHECKING:
    from toolfold.config.sections import Extraction
    from toolfold.model import Model
    from toolfold.storage.base import Store

log = logging.getLogger("toolfold.outputs")

# The file in the state folder that names the folder of outputs which outlive a command.
SESSION_FILE = "outputs-session"
# The file there that tells of handles which are gone, after the gateway that gave them out.
ISSUED_FILE = "outputs-issued"

# How often an open gateway looks for expired outputs.
PURGE_INTERVAL_S = 60.0


# Called with a caller, and whether its session holds outputs now, each time that changes.
OnChanged = Callable[[Caller, bool], None]


class OutputService:
    """The stored outputs of one gateway. `await outputs(caller)` lists them.

    `keep`: those of the local session outlive the gateway. `model` returns the configured model, if there is one; it is
    called at the first extraction that needs it.
    """

    def __init__(
        self,
        settings: Settings,
        events: Events,
        *,
        keep: bool = False,
        model: "Callable[[], Model | None]" = lambda: None,
        store: "Store | None" = None,
    ) -> None:
        self._settings = settings
        self._events = events
        limits, outputs = settings.limits, settings.outputs
        note = settings.home / SESSION_FILE if keep else None
        issued = settings.home / ISSUED_FILE
        self.store = OutputStore(Path(outputs.directory), lifetime_s=outputs.lifetime_s, note=note, issued=issued)
        self._shared = None if store is None else shared_outputs(settings, store, self.store, events)
        self.large_results = LargeResults(
            self.store,
            limits,
            settings.rules,
            events=events,
            on_stored=self._on_stored,
            share=None if self._shared is None else self._shared.share,
        )
        self.references = ReferenceResolver(
            self.store,
            max_bytes=outputs.reference_max_bytes,
            max_document=limits.max_frame_bytes,
            events=events,
            bring=None if self._shared is None else self._shared.bring,
        )
        self._listeners: Listeners[OnChanged] = Listeners(log)
        self._holders: dict[tuple[str, str], Caller] = {}
        self._model = cache(model)
        self._extracted = False
        self._swept = asyncio.Event()
        self._cleaner = self._start_cleaner()

    def _start_cleaner(self) -> "asyncio.Task[None] | None":
        """Removes in the background what dead processes left, and from then on what expires."""
        try:
            return asyncio.get_running_loop().create_task(self._keep_clean())
        except RuntimeError:
            log.debug("stored outputs are looked at without a running loop, so nothing is cleared away yet")
            return None

    async def _keep_clean(self) -> None:
        work = self._sweep
        while True:
            try:
                await work()
            except (OutputError, StoreError, OSError) as error:  # what fails now may work in the next round
                log.warning("stored outputs could not be cleared away: %s", error)
            finally:
                self._swept.set()
            work = self.purge
            await asyncio.sleep(min(self._settings.outputs.lifetime_s, PURGE_INTERVAL_S))

    async def _sweep(self) -> None:
        folders = await asyncio.to_thread(self.store.sweep)
        if folders:
            log.info("removed %d folders of stored outputs whose owners are gone", len(folders))
            self._events.emit("output.swept", folders=len(folders))

    async def wait_swept(self) -> None:
        """Waits until what dead processes left is gone."""
        if self._cleaner is not None:
            await self._swept.wait()

    async def purge(self) -> None:
        """Removes what expired, in every session."""
        if self._shared is not None:
            await self._shared.purge()
        await asyncio.to_thread(self.store.purge)
        await self._drop_indexes()
        for caller in tuple(self._holders.values()):
            await self(caller)

    async def __call__(self, caller: Caller = LOCAL) -> list[Stored]:
        """The outputs of this caller's session, the oldest first."""
        outputs = await asyncio.to_thread(self.store.all, caller) if self.store.may_hold(caller) else []
        if self._shared is not None:
            outputs = await self._shared.list(caller, outputs)
            if outputs:
                self._holders.setdefault((caller.name, caller.session), caller)
        if not outputs:
            self._on_emptied(caller)
        return outputs

    async def of(self, name: str | None) -> list[Stored]:
        """The outputs of all sessions of a caller, or of everybody, the newest first."""
        callers = {(one.name, one.session): one for one, _ in await asyncio.to_thread(self.store.held)}
        callers |= {**self._holders, (LOCAL.name, LOCAL.session): LOCAL}
        own = [caller for caller in callers.values() if name in (None, caller.name)]
        return sorted([stored for caller in own for stored in await self(caller)], key=lambda one: -one.at)

    async def has_any(self, caller: Caller = LOCAL) -> bool:
        """Whether the session holds outputs."""
        try:
            return bool(await self(caller))
        except StoreError as error:  # what is offered depends on it, and is more than this
            log.warning("whether other gateways stored something is not known: %s", error)
            return self.store.may_hold(caller)

    async def find(self, handle: str, caller: Caller = LOCAL) -> tuple[Stored, Path]:
        """An output and its file here, wherever it was stored. Raises `UnknownHandle`, `OutputError`."""
        if self._shared is not None:
            await self._shared.bring(handle, caller)
        return await asyncio.to_thread(self.store.find, handle, caller)

    async def file(self, handle: str, caller: Caller = LOCAL) -> Path:
        """The file of an output, for stages that read it themselves. Raises `UnknownHandle`."""
        return (await self.find(handle, caller))[1]

    async def read(self, handle: str, caller: Caller = LOCAL) -> tuple[Stored, bytes]:
        """A whole output, up to what one message may hold. Raises `UnknownHandle` and `OutputError`."""
        stored, path = await self.find(handle, caller)
        most = self._settings.limits.max_frame_bytes * 3 // 4  # Base64 takes a third more
        if stored.bytes > most:
            raise OutputError(
                f"the stored output {handle} has {stored.bytes} bytes, over the {most} that are read at once",
                next_action="get a part of it with tool_output, or raise limits.max_frame_bytes",
            )
        try:
            return stored, await asyncio.to_thread(_read_bytes, path)
        except OSError as error:
            raise OutputError(f"the stored output {handle} cannot be read: {error.strerror or error}") from error

    async def store_text(self, text: str, *, tool_id: str, arguments: str = "{}", caller: Caller = LOCAL) -> Stored:
        """Stores a text that no tool returned, such as what a script printed; `tool_id` is the name it goes by."""
        return await self.large_results.store_text(text, Origin(caller, tool_id, arguments))

    async def fit_text(self, text: str, *, tool_id: str, arguments: str = "{}", caller: Caller = LOCAL) -> str:
        """Such a text itself where it is as small as a result may be, else the message about where it is stored."""
        stored = await self.store_large_text(text, tool_id=tool_id, arguments=arguments, caller=caller)
        return text if stored is None else too_large_message(stored)

    async def store_large_text(
        self, text: str, *, tool_id: str, arguments: str = "{}", caller: Caller = LOCAL
    ) -> Stored | None:
        """Stores such a text where it is larger than a result may be."""
        return await self.large_results.store_large_text(text, Origin(caller, tool_id, arguments))

    def on_changed(self, listener: OnChanged) -> Callable[[], None]:
        """Calls the listener when a session gets its first output or loses its last; the result removes it."""
        return self._listeners.add(listener)

    def _on_stored(self, caller: Caller, stored: Sequence[Stored]) -> None:
        key = (caller.name, caller.session)
        if stored and key not in self._holders:
            self._holders[key] = caller
            self._listeners.notify(caller, True)

    def _on_emptied(self, caller: Caller) -> None:
        if self._holders.pop((caller.name, caller.session), None) is not None:
            self._events.emit("output.removed", caller=caller.name, session=caller.session)
            self._listeners.notify(caller, False)

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
        """Answers from one output, as plain text. `model` and `options` replace the configured ones, as an agent's own
        do. Raises `UnknownHandle`."""
        # Imported here: extraction loads numpy, which most gateways never need.
        from toolfold.outputs.extraction import extract_from

        if mode not in MODES:
            raise InvalidArguments(f"there is no mode {mode!r}", hints=MODES, next_action=f"use {' or '.join(MODES)}")
        chosen: Mode = mode
        await self.find(handle, caller)
        document = await asyncio.to_thread(self.store.document, handle, caller)
        self._extracted = True
        answer = await extract_from(
            document,
            request,
            mode=chosen,
            model=model if model is not None else self._model(),
            options=options if options is not None else self._settings.outputs,
            events=self._events,
        )
        return answer.text

    async def end(self, caller: Caller) -> None:
        """Removes the outputs of a session that is over."""
        if self._shared is not None:
            await self._shared.end(caller)
        await asyncio.to_thread(self.store.end, caller)
        await self._drop_indexes()
        self._on_emptied(caller)

    async def aclose(self) -> None:
        """Removes everything but what outlives the gateway. Safe to call twice."""
        if self._cleaner is not None:
            await self.wait_swept()
            self._cleaner.cancel()
            await asyncio.gather(self._cleaner, return_exceptions=True)
            self._cleaner = None
        if self._shared is not None:
            await self._shared.aclose()
        # Shielded: a gateway that is closed by cancellation must leave no files either.
        await asyncio.shield(asyncio.to_thread(self.store.close))
        await self._drop_indexes()

    async def _drop_indexes(self) -> None:
        """What extraction remembers of documents goes with them."""
        if self._extracted:
            from toolfold.outputs.extraction import INDEXES

            await asyncio.to_thread(INDEXES.drop_gone)


def _read_bytes(path: Path) -> bytes:
    with open_regular_file(path) as file:
        return file.read()
