"""The audit trail: every step of finding and using a tool, tied into selections, kept in the store.

search → choose → expand → call. A step costs a small value in memory; texts are masked, arguments reduced to their
shapes and everything written in a batch by a task of its own, half a second later at most, or when the gateway closes.
A process that is killed loses what was not written yet, and nothing else. A store that cannot be written is logged and
never breaks a step.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from toolfold.audit.record import Step, StepName, answer_fields, decode_step, encode_step, result_ids, sizes
from toolfold.audit.redaction import MAX_ARGUMENT_BYTES, Redactor, recorded_arguments
from toolfold.audit.selections import Selections, SessionSelections
from toolfold.config import Settings
from toolfold.errors import StoreError, ToolfoldError
from toolfold.storage.base import AuditRow, Store
from toolfold.text import replace_surrogates, replace_surrogates_all
from toolfold.types import Caller, Tool

if TYPE_CHECKING:
    from toolfold.audit.middleware import CallEnd

T = TypeVar("T")

_FLUSH_S = 0.5
_BATCH = 512
"""Steps that are waiting to be written before a write is asked for at once."""
_MAX_PENDING = 20_000
"""Where the store cannot keep up, the oldest tenth of them is dropped, and that is logged."""
_MAX_RECORD = 16_384
"""A longer line is kept without its arguments and results."""
_REPLAYED_STEPS = 200
DAY_S = 86_400.0
_TEXT_CHARS = 1_000
_SCANNED_CHARS = 16_384
"""How much of a text is looked through for secrets before it is cut: one that the cut would halve is whole here."""

log = logging.getLogger("toolfold.audit")


class _PendingStep(Struct):
    """A step on its way to the store, with the answer that is still to be looked at."""

    step: Step
    answer: Any = None


class _PendingCall(Struct):
    """A call on its way to the store, as little as can be: the step is made from it when it is written."""

    caller: Caller
    tool: Tool
    selection: str
    search: str
    arguments: Raw | None
    sent: int
    got: tuple[int | None, bool, str]
    said: tuple[int, float, float, str, str]


Learn = Callable[[str, str], Awaitable[object]]
"""Told a request and the tool that served it."""


class AuditLog:
    """The trail of one gateway. `learn` is told choices that worked, where the configuration wants it. `settle` makes
    sure that calls which are over were told: before another step, which comes after them, and before reading."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        masker: Callable[[], Redactor],
        learn: Learn | None = None,
        *,
        settle: Callable[[], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._learn = learn if settings.audit.learn else None
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._waiting: list[_PendingStep | _PendingCall] = []
        self._lessons: list[tuple[str, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._masker = masker
        self._settle = settle
        self._writing = asyncio.Lock()
        self.chains = Selections()
        self.dropped = 0

    async def told(
        self,
        name: StepName,
        caller: Caller,
        work: Callable[[], Awaitable[T]],
        *,
        tool_id: str = "",
        query: str = "",
        path: Any = (),
    ) -> T:
        """Does a step of finding a tool, and keeps what was asked and shown."""
        self._settle()
        chain = self.chains.get(caller.name, caller.session) or await self._recalled(caller)
        started, at = time.perf_counter(), time.time()
        answer: Any = None
        code = message = ""
        try:
            answer = found = await work()
        except ToolfoldError as error:
            code, message = error.code, error.message
            raise
        finally:
            seconds = time.perf_counter() - started
            selection = self._chosen(chain, caller, tool_id, at) if tool_id and answer is not None else ("", "")
            self._note(
                chain,
                Step(
                    id=self._next(),
                    step=name,
                    at=at,
                    caller=caller.name,
                    session=caller.session,
                    selection=selection[0],
                    search=selection[1],
                    tool_id=tool_id[:200],
                    query=query,
                    path=tuple(path),
                    seconds=round(seconds, 6),
                    code=code,
                    message=message,
                ),
                answer=answer,
            )
        return found

    def called(self, ended: "CallEnd") -> None:
        """Keeps a call that is over. It holds on to no result, and to no arguments that are large."""
        request, outcome = ended.request, ended.outcome
        caller, tool, arguments = request.caller, request.tool, request.arguments
        chain = self.chains.of(caller.name, caller.session)
        selection, search = self._chosen(chain, caller, tool.tool_id, ended.at)
        sent = len(memoryview(arguments))
        got: tuple[int | None, bool, str] = (None, False, "")
        if outcome is not None:
            stored = outcome.stored.handle if outcome.stored is not None else ""
            got = (len(memoryview(outcome.result)), outcome.is_error, stored)
        self._count += 1
        said = (self._count, ended.at, ended.seconds, ended.code, ended.message)
        kept = arguments if sent <= MAX_ARGUMENT_BYTES else None
        chain.last_at = ended.at
        self._put(_PendingCall(caller, tool, selection, search, kept, sent, got, said))
        if self._learn is not None and outcome is not None and not outcome.is_error:
            current = chain.current(tool.tool_id)
            if current is not None and current.seen is not None and current.seen.query:
                self._lessons.append((current.seen.query, tool.tool_id))

    def surface(self, caller: Caller, shown: bytes) -> None:
        """Keeps what a face shows a model before anything is asked: its tools and instructions."""
        step = Step(
            id=self._next(), step="surface", at=time.time(), caller=caller.name, session=caller.session, **sizes(shown)
        )
        self._note(self.chains.of(caller.name, caller.session), step)

    def refused(self, caller: Caller, tool_id: str, error: ToolfoldError) -> None:
        """Keeps a call that ended before it was one: there is no such tool, or none for this caller."""
        self._settle()
        step = Step(
            id=self._next(),
            step="call",
            at=time.time(),
            caller=caller.name,
            session=caller.session,
            tool_id=tool_id[:200],
            code=error.code,
            message=error.message,
        )
        self._note(self.chains.of(caller.name, caller.session), step)

    async def recall(self, caller: Caller) -> None:
        """Takes up what this caller did before this process, so that a call is tied to a search of an earlier one."""
        await self._recalled(caller)

    async def flush(self) -> None:
        """Writes what is waiting, after what is being written right now. What comes meanwhile waits for the next time:
        else a busy gateway would write all the time, a few steps each."""
        self._settle()
        async with self._writing:
            batch, self._waiting = self._waiting, []
            if batch:
                await self._write(batch)
            lessons, self._lessons = self._lessons, []
            for query, tool_id in lessons:
                try:
                    await self._learn(query, tool_id) if self._learn is not None else None
                except ToolfoldError as error:
                    log.warning("search could not learn from a choice: %s", error.message)

    async def _write(self, batch: Sequence[_PendingStep | _PendingCall]) -> None:
        rows = await asyncio.to_thread(self._rows, batch)
        audit = self._settings.audit
        oldest = time.time() - audit.keep_days * DAY_S
        try:
            await self._store.append(rows, keep=audit.max_entries, oldest=oldest)
        except StoreError as error:
            self._lost(len(rows), error.message)

    def _lost(self, steps: int, why: str) -> None:
        self.dropped += steps
        log.warning("%d steps could not be written to the audit trail: %s", steps, why)

    async def aclose(self) -> None:
        self._settle()
        if self._flushing is not None:
            await asyncio.wait((self._flushing,))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.flush()

    async def steps(self, *, session: str | None = None, after: int = 0, last: int | None = None) -> list[Step]:
        """What is kept, oldest first; what is waiting is written before."""
        await self.flush()
        rows = await self._store.trail(session=session, after=after, last=last)
        return [decode_step(row.record) for row in rows]

    def _chosen(self, chain: SessionSelections, caller: Caller, tool_id: str, at: float) -> tuple[str, str]:
        """The selection that a step with this tool belongs to, and the step it came from; notes the choice."""
        current = chain.current(tool_id)
        if current is not None:
            return current.id, current.seen.entry if current.seen else ""
        made = chain.begin(self._next(), tool_id)
        if made.seen is None:
            return made.id, ""
        choice = Step(
            id=self._next(),
            step="choose",
            at=at,
            caller=caller.name,
            session=caller.session,
            selection=made.id,
            search=made.seen.entry,
            tool_id=tool_id,
            query=made.seen.query,
            rank=made.rank(tool_id),
        )
        self._note(chain, choice)
        return made.id, made.seen.entry

    def _note(self, chain: SessionSelections, step: Step, *, answer: Any = None) -> None:
        chain.last_at = step.at
        if answer is not None:
            shown = result_ids(answer)
            if shown:
                chain.showed(step.id, step.query, shown)
        self._put(_PendingStep(step, answer))

    def _put(self, waiting: _PendingStep | _PendingCall) -> None:
        self._waiting.append(waiting)
        if self._timer is None and self._flushing is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self._start_flush)
        elif len(self._waiting) >= _BATCH:
            self._crowded()

    def _crowded(self) -> None:
        if len(self._waiting) > _MAX_PENDING:
            gone = len(self._waiting) // 10
            del self._waiting[:gone]
            self._lost(gone, "more are coming than the store takes")
        elif self._flushing is None:
            self._start_flush()

    def _start_flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self.flush())
            self._flushing.add_done_callback(self._flushed)

    def _flushed(self, task: "asyncio.Task[None]") -> None:
        self._flushing = None
        if self._waiting and not task.cancelled():
            self._timer = task.get_loop().call_later(_FLUSH_S, self._start_flush)
        if not task.cancelled() and task.exception() is not None:
            log.error("writing the audit trail failed", exc_info=task.exception())

    def _rows(self, batch: Sequence[_PendingStep | _PendingCall]) -> list[AuditRow]:
        """The steps as they are kept. Runs in a thread."""
        masker = self._masker()
        rows: list[AuditRow] = []
        for one in batch:
            try:
                rows.append(self._row(one, masker))
            except (ValueError, TypeError, RecursionError) as error:  # one odd step must not take the others with it
                self._lost(1, str(error))
        return rows

    def _row(self, waiting: _PendingStep | _PendingCall, masker: Redactor) -> AuditRow:
        step = self._call_step(waiting, masker) if isinstance(waiting, _PendingCall) else waiting.step
        more: dict[str, Any] = {}
        if step.query:
            more["query"] = _redacted_text(step.query, masker)
        if step.message:
            more["message"] = _redacted_text(step.message, masker)
        if isinstance(waiting, _PendingStep):
            more.update(tool_id=replace_surrogates(step.tool_id), path=replace_surrogates_all(step.path))
            if waiting.answer is not None:
                more.update(answer_fields(waiting.answer))
        kept = msgspec.structs.replace(step, **more) if more else step
        record = encode_step(kept)
        if len(record) > _MAX_RECORD:
            record = encode_step(msgspec.structs.replace(kept, arguments=None, results=(), confidence=()))
        return AuditRow(at=step.at, caller=step.caller, session=step.session, selection=step.selection, record=record)

    def _call_step(self, call: _PendingCall, masker: Redactor) -> Step:
        number, at, seconds, code, message = call.said
        result_bytes, is_error, stored = call.got
        values = self._settings.audit.values
        return Step(
            id=f"{self._prefix}{number:x}",
            step="call",
            at=at,
            caller=call.caller.name,
            session=call.caller.session,
            selection=call.selection,
            search=call.search,
            tool_id=call.tool.tool_id,
            version=call.tool.version,
            seconds=round(seconds, 6),
            code=code,
            message=message,
            arguments=None if call.arguments is None else recorded_arguments(call.tool, call.arguments, values, masker),
            argument_bytes=call.sent,
            result_bytes=result_bytes,
            is_error=is_error,
            stored=stored,
        )

    async def _recalled(self, caller: Caller) -> SessionSelections:
        rows: list[AuditRow] = []
        try:
            rows = await self._store.trail(caller=caller.name, session=caller.session, last=_REPLAYED_STEPS)
        except StoreError as error:
            log.warning("the audit trail could not be read: %s", error.message)
        known = self.chains.get(caller.name, caller.session)
        if known is not None:  # another step of the same caller was quicker
            return known
        chain = self.chains.of(caller.name, caller.session)
        for row in rows:
            step = decode_step(row.record)
            if step.results and step.step in {"list", "search"}:
                chain.showed(step.id, step.query, step.results)
            elif step.selection:
                chain.resume(step.selection, step.tool_id, step.search)
        return chain

    def _next(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count:x}"


def _redacted_text(text: str, masker: Redactor) -> str:
    return masker.text(replace_surrogates(text[:_SCANNED_CHARS]))[:_TEXT_CHARS]
