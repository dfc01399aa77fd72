"""The audit log: every step of finding and using a tool, tied into selections, kept in the store.

search → choose → expand → call. A step costs a small value in memory; redaction and writing happen in batches, in a
task of their own, half a second later at most, or when the gateway closes. A process that is killed loses what was not
written yet, and nothing else. A store that cannot be written is logged and never breaks a step: what could not be
written waits for the next time, so many steps at most.

Which steps belong to one selection is derived from the steps alone: nobody has to pass an id along. The first time a
tool that a search showed is expanded after it, it was selected: a selection starts, tied to the newest search that
showed it; so does the first call of one that the search itself expanded. Further steps with that tool belong to it
until it is selected from a newer search. A call by an id that was not expanded since is tied to no search: whoever
knows the id may have it from anywhere. A search is over with the first call that worked of a tool from it, and after
half an hour.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from toolfold.audit.activity import _Activity
from toolfold.audit.record import ADMIN, REFUSED, A, Step, StepName, StepResult, decode_step, encode_step
from toolfold.audit.redaction import MAX_ARGUMENT_BYTES, Redactor
from toolfold.audit.selections import _is_search, _SessionSelections
from toolfold.calls import CallEnd
from toolfold.config import Settings
from toolfold.containers import BoundedDict
from toolfold.errors import StoreError, ToolfoldError
from toolfold.storage.base import AuditRow, Store
from toolfold.text import replace_surrogates, replace_surrogates_all
from toolfold.types import Caller, Outcome, Tool

if TYPE_CHECKING:
    from toolfold.wire.serving.http_guard import HttpError

# Sessions of all callers; the oldest is forgotten, and taken up again from the store.
_MAX_SESSIONS = 10_000
_FLUSH_S = 0.5
# So many pending steps are written at once, before the time is up.
_BATCH = 512
# Where the store cannot keep up, the oldest tenth of the pending steps is dropped, and that is logged.
_MAX_PENDING = 20_000
# A longer record is kept without its arguments and results.
_MAX_RECORD = 16_384
_RESTORED_STEPS = 200
# Sessions that did something within this time count as active.
_ACTIVE_S = 300.0
_DAY_S = 86_400.0
_TEXT_CHARS = 1_000
_REFUSED_S = 60.0
_MAX_ADDRESSES = 1024
# How much of a text is searched for secrets before it is cut to `_TEXT_CHARS`: one that the cut would halve, and so
# hide from the search, is whole here.
_SCANNED_CHARS = 16_384

log = logging.getLogger("toolfold.audit")

# Learns that a tool served a query: the last argument is the one that it was selected by.
Learn = Callable[[str, str, str], Awaitable[object]]


class _PendingStep(Struct):
    """A step on its way to the store. Its `result` is measured when it is written."""

    step: Step
    result: StepResult[Any] | None = None


class _PendingCall(Struct):
    """A call on its way to the store: its step is made when it is written, in a thread, where no call waits for it.

    It holds no result and no large arguments: thousands may be pending.
    """

    number: int
    caller: Caller
    tool: Tool
    selection: str
    search: str
    arguments: Raw | None
    argument_bytes: int
    result_bytes: int | None
    is_error: bool
    stored: str
    stored_bytes: int | None
    to_program: bool
    at: float
    seconds: float
    code: str
    message: str


_Pending = _PendingStep | _PendingCall


class AuditLog:
    """The log of one gateway.

    `learn` hears of selections that worked, where the configuration wants it. `settle` delivers calls that ended and
    are not recorded yet: it runs before a step is recorded, which comes after them, and before the log is read.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        redactor: Callable[[], Redactor],
        learn: Learn | None = None,
        *,
        settle: Callable[[], None],
    ) -> None:
        self._store = store
        self._settings = settings.audit
        self._learn = learn if settings.audit.learns else None
        # Ids of several processes on one store must differ.
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._pending: list[_Pending] = []
        self._lessons: list[tuple[str, str, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._redactor = redactor
        self._settle = settle
        self._writing = asyncio.Lock()
        self._sessions: BoundedDict[tuple[str, str], _SessionSelections] = BoundedDict(_MAX_SESSIONS)
        # By address, caller and reason: when such a request was last recorded, and how many came since.
        self._refused: BoundedDict[tuple[str, str, str], tuple[float, int]] = BoundedDict(_MAX_ADDRESSES)
        # What the store did not take, and waits for it to be back.
        self._unwritten: list[AuditRow] = []
        self._why_unwritten = ""
        self._closing = False
        self.dropped = 0
        self._activity = _Activity(store)
        # What those who send the log elsewhere tell of it.
        self.more_gauges: dict[str, float] = {}

    async def record(
        self,
        name: StepName,
        caller: Caller,
        operation: Callable[[], Awaitable[StepResult[A]]],
        *,
        tool_id: str = "",
        query: str = "",
        path: Sequence[str] = (),
    ) -> StepResult[A]:
        """Runs a step of finding a tool, and records what was asked and shown, or why it failed."""
        if not self._settings.enabled:
            return await operation()
        self._settle()
        session = await self.restore(caller)
        started, at = time.perf_counter(), time.time()
        result: StepResult[A] | None = None
        code = message = ""
        try:
            result = await operation()
        except ToolfoldError as error:
            code, message = error.code, error.message
            raise
        finally:
            seconds = time.perf_counter() - started
            if name == "expand" and result is not None:
                session.expand(tool_id, at)
            selection = self._select(session, caller, tool_id, at) if tool_id and result is not None else ("", "")
            step = self._step(
                name,
                caller,
                at,
                selection=selection[0],
                search=selection[1],
                tool_id=tool_id[:200],
                query=query,
                path=tuple(path),
                seconds=round(seconds, 6),
                code=code,
                message=message,
            )
            self._add_step(session, step, result)
        return result

    def record_call(self, end: CallEnd) -> None:
        """Records a call that is over."""
        if not self._settings.enabled:
            return
        caller, tool, arguments = end.context.caller, end.call.tool, end.call.arguments
        session = self._session(caller)
        session.last_at = end.at
        selection, search = self._select(session, caller, tool.tool_id, end.at)
        size = len(memoryview(arguments))
        result_bytes, is_error, stored, stored_bytes = _measure_outcome(end.outcome)
        self._count += 1
        self._add(
            _PendingCall(
                self._count,
                caller,
                tool,
                selection,
                search,
                arguments if size <= MAX_ARGUMENT_BYTES else None,
                size,
                result_bytes,
                is_error,
                stored,
                stored_bytes,
                end.context.whole,
                end.at,
                end.seconds,
                end.code,
                end.message,
            )
        )
        worked = end.outcome is not None and not end.outcome.is_error
        queries = session.use(tool.tool_id, end.at) if worked else []
        if self._learn is not None:
            self._lessons += [(query, tool.tool_id, queries[-1]) for query in queries]

    def record_rejection(self, caller: Caller, tool_id: str, error: ToolfoldError) -> None:
        """Records a call that was refused before it was one: there is no such tool, or none for this caller."""
        if not self._settings.enabled:
            return
        self._settle()
        step = self._step("call", caller, time.time(), tool_id=tool_id[:200], code=error.code, message=error.message)
        self._add_step(self._session(caller), step)

    def record_change(self, caller: Caller, what: str, error: ToolfoldError | None = None) -> None:
        """Records that somebody changed the gateway itself, or was not let."""
        if self._settings.enabled:
            said = {} if error is None else {"code": error.as_dict()["code"], "message": error.message}
            step = Step(id=self._next_id(), step=ADMIN, at=time.time(), caller=caller.name, query=what[:500], **said)
            self._add(_PendingStep(step))

    def record_refused_key(self, address: str, error: "HttpError") -> None:
        """Records a request that was not let in. Anybody can send those: of one address and for one reason, one a
        minute, with a count."""
        now, key = time.monotonic(), (address, error.caller, error.message)
        at, more = self._refused.get(key, (-_REFUSED_S, 0))
        if not self._settings.enabled or now < at + _REFUSED_S:
            self._refused[key] = (at, more + 1)
            return
        self._refused.renew(key, (now, 0))
        said = f"{error.message} (and {more} times between the last such line and this one)" if more else error.message
        step = Step(
            id=self._next_id(),
            step=REFUSED,
            at=time.time(),
            caller=error.caller,
            query=address,
            code=error.code,
            message=said,
        )
        self._add(_PendingStep(step))

    def _session(self, caller: Caller) -> _SessionSelections:
        key = (caller.name, caller.session)
        known = self._sessions.get(key)
        if known is None:
            known = self._sessions[key] = _SessionSelections()
        return known

    def needs_restoring(self, caller: Caller) -> bool:
        """Whether nothing of this caller is known yet in this process."""
        return self._settings.enabled and (caller.name, caller.session) not in self._sessions

    async def restore(self, caller: Caller) -> _SessionSelections:
        """Takes up what this caller did in earlier processes, once, so that a call is tied to a search of then."""
        known = self._sessions.get((caller.name, caller.session))
        if known is not None:
            return known
        rows: list[AuditRow] = []
        try:
            rows = await self._store.audit_rows(caller=caller.name, session=caller.session, last=_RESTORED_STEPS)
        except StoreError as error:
            log.warning("the audit log could not be read: %s", error.message)
        known = self._sessions.get((caller.name, caller.session))
        if known is not None:  # another step of the same caller was quicker
            return known
        session = self._session(caller)
        for row in rows:
            session.restore(decode_step(row.record))
        return session

    def _select(self, session: _SessionSelections, caller: Caller, tool_id: str, at: float) -> tuple[str, str]:
        """The selection that a step with this tool belongs to, and the search it came from; records a new one."""
        current = session.current(tool_id, at)
        if current is not None:
            return current.id, current.result.step if current.result else ""
        selection = session.start(self._next_id(), tool_id, at)
        if selection.result is None:
            return selection.id, ""
        choice = self._step(
            "choose",
            caller,
            at,
            selection=selection.id,
            search=selection.result.step,
            tool_id=tool_id,
            query=selection.result.query,
            rank=selection.rank(tool_id),
        )
        self._add_step(session, choice)
        return selection.id, selection.result.step

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count:x}"

    def _step(self, name: StepName, caller: Caller, at: float, **fields: Any) -> Step:
        return Step(id=self._next_id(), step=name, at=at, caller=caller.name, session=caller.session, **fields)

    def _add_step(self, session: _SessionSelections, step: Step, result: StepResult[Any] | None = None) -> None:
        session.last_at = step.at
        if _is_search(step):
            shown = result or StepResult(answer={})
            session.add_result(step.id, step.query, step.at, shown.tool_ids, shown.twins)
            session.expand(shown.expanded, step.at)
        self._add(_PendingStep(step, result))

    def _add(self, pending: _Pending) -> None:
        self._pending.append(pending)
        if self._timer is None and self._flushing is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self._start_flush)
        elif len(self._pending) >= _BATCH:
            self._relieve()

    def _relieve(self) -> None:
        """More is pending than one batch: drops the oldest where the store cannot keep up, else writes now."""
        if len(self._pending) > _MAX_PENDING:
            dropped = len(self._pending) // 10
            del self._pending[:dropped]
            self._drop(dropped, "more are coming than the store takes")
        elif self._flushing is None:
            self._start_flush()

    def _drop(self, steps: int, why: str) -> None:
        self.dropped += steps
        log.warning("%d step%s could not be written to the audit log: %s", steps, "s" * (steps != 1), why)

    def _start_flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self.flush())
            self._flushing.add_done_callback(self._flushed)

    def _flushed(self, task: "asyncio.Task[None]") -> None:
        self._flushing = None
        if (self._pending or self._unwritten) and not task.cancelled():
            self._timer = task.get_loop().call_later(_FLUSH_S, self._start_flush)
        if not task.cancelled() and task.exception() is not None:
            log.error("writing the audit log failed", exc_info=task.exception())

    async def flush(self) -> None:
        """Writes what is pending, after what is being written right now. What comes meanwhile waits for the next time:
        else a busy gateway would write all the time, a few steps each, and fight for the interpreter lock."""
        self._settle()
        async with self._writing:
            batch, self._pending = self._pending, []
            if batch or self._unwritten:
                await self._write(batch)
            lessons, self._lessons = self._lessons, []
            for lesson in lessons:
                try:
                    await self._learn(*lesson) if self._learn is not None else None
                except ToolfoldError as error:
                    log.warning("search could not learn from a choice: %s", error.message)

    async def _flush_to_read(self) -> None:
        # Shielded: a reader who goes away in the middle must not take along what is on its way to the store.
        await asyncio.shield(asyncio.ensure_future(self.flush()))

    async def _write(self, batch: Sequence[_Pending]) -> None:
        rows, waited = await asyncio.to_thread(self._rows, batch), len(self._unwritten)
        rows, self._unwritten = [*self._unwritten, *rows], []
        oldest = time.time() - self._settings.keep_days * _DAY_S
        try:
            await self._store.append_audit(rows, keep=self._settings.max_entries, oldest=oldest)
        except StoreError as error:
            self._unwritten, self._why_unwritten = rows[-_MAX_PENDING:], error.message
            if not waited and not self._closing:
                log.warning("the audit log cannot be written, and waits: %s", error.message)
            if len(rows) > _MAX_PENDING:
                self._drop(len(rows) - _MAX_PENDING, error.message)
        except BaseException:  # cancelled: whether it was written is not known, and twice is better than never
            self._unwritten = rows
            raise

    async def aclose(self) -> None:
        await self._activity.aclose()
        self._settle()
        if self._flushing is not None:
            await asyncio.wait((self._flushing,))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._closing = True  # what cannot be written now is said once, with how much it is
        await self.flush()
        if self._unwritten:
            self._drop(len(self._unwritten), self._why_unwritten)

    def gauges(self) -> dict[str, float]:
        """What `/metrics` shows of the log; nothing where it is off."""
        if not self._settings.enabled:
            return {}
        since = time.time() - _ACTIVE_S
        active = sum(session.last_at >= since for session in self._sessions.values())
        counts = {"sessions": active, "audit_dropped": self.dropped, "audit_waiting": len(self._unwritten)}
        return {**counts, **self.more_gauges}

    async def steps(
        self, *, caller: str | None = None, session: str | None = None, after: int = 0, last: int | None = None
    ) -> list[Step]:
        """What is recorded, oldest first; what is pending is written before."""
        await self._flush_to_read()
        rows = await self._store.audit_rows(caller=caller, session=session, after=after, last=last)
        return [decode_step(row.record) for row in rows]

    async def page(
        self, caller: str | None, session: str | None, *, after: int = 0, first: int = 200
    ) -> list[tuple[int, Step]]:
        """The steps after a number, at most so many, each with its own."""
        await self._flush_to_read()
        rows = await self._store.audit_rows(caller=caller, session=session, after=after, first=first)
        return [(row.number, decode_step(row.record)) for row in rows]

    async def activity(self) -> _Activity:
        """What is recorded, added up, as it is now."""
        await self._flush_to_read()
        await self._activity.refresh()
        return self._activity

    def _rows(self, batch: Sequence[_Pending]) -> list[AuditRow]:
        """The steps as they are stored. Runs in a thread."""
        redactor = self._redactor()
        rows: list[AuditRow] = []
        for pending in batch:
            try:
                rows.append(self._row(pending, redactor))
            except (ValueError, TypeError, RecursionError) as error:  # one odd step must not take the others with it
                self._drop(1, str(error))
        return rows

    def _row(self, pending: _Pending, redactor: Redactor) -> AuditRow:
        step = pending.step if isinstance(pending, _PendingStep) else self._call_step(pending, redactor)
        texts = {"query": step.query, "message": step.message}
        changes: dict[str, Any] = {name: _redacted_text(text, redactor) for name, text in texts.items() if text}
        if isinstance(pending, _PendingStep):
            changes.update(tool_id=replace_surrogates(step.tool_id), path=replace_surrogates_all(step.path))
            if pending.result is not None:
                changes.update(pending.result.fields())
        step = msgspec.structs.replace(step, **changes) if changes else step
        record = encode_step(step)
        if len(record) > _MAX_RECORD:
            record = encode_step(msgspec.structs.replace(step, arguments=None, results=(), confidence=()))
        return AuditRow(at=step.at, caller=step.caller, session=step.session, selection=step.selection, record=record)

    def _call_step(self, call: _PendingCall, redactor: Redactor) -> Step:
        arguments = None
        if call.arguments is not None:
            arguments = redactor.recorded_arguments(call.tool, call.arguments, self._settings.values)
        return Step(
            id=f"{self._prefix}{call.number:x}",
            step="call",
            at=call.at,
            caller=call.caller.name,
            session=call.caller.session,
            selection=call.selection,
            search=call.search,
            tool_id=call.tool.tool_id,
            sent_as=call.tool.definition.sent_name if call.tool.definition.original is not None else "",
            version=call.tool.version,
            seconds=round(call.seconds, 6),
            code=call.code,
            message=call.message,
            arguments=arguments,
            argument_bytes=call.argument_bytes,
            result_bytes=call.result_bytes,
            is_error=call.is_error,
            stored=call.stored,
            stored_bytes=call.stored_bytes,
            to_program=call.to_program,
        )


def _measure_outcome(outcome: Outcome | None) -> tuple[int | None, bool, str, int | None]:
    """What a step holds of the outcome of a call: its size, whether it is an error, what is stored of it and how much;
    never a value."""
    if outcome is None:
        return None, False, "", None
    stored = outcome.stored
    handle, size = ("", None) if stored is None else (stored.handle, stored.bytes)
    return len(memoryview(outcome.raw)), outcome.is_error, handle, size


def _redacted_text(text: str, redactor: Redactor) -> str:
    return redactor.text(replace_surrogates(text[:_SCANNED_CHARS]))[:_TEXT_CHARS]
