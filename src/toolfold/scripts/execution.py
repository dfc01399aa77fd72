"""The host's side of one run: starts a script in a confined child and answers its calls.

Everything of value stays here. A child may ask for the tools that its script declared and for nothing else; each call
then goes through the gateway's own checks and limits. Above: `runner.py`, which gives the child, the tools and the
function that calls. Below: `protocol.py` for what the child says, the sandbox.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from toolfold.config.sections import Scripts
from toolfold.errors import CallLimit, NotAuthorized, NotDeclared, SandboxError, ToolfoldError, UnknownHandle
from toolfold.events import Events
from toolfold.sandbox.base import Child, Exit
from toolfold.scripts.protocol import BadFrame, Frame, clean_text, parse_last_line
from toolfold.scripts.values import CallRecord, RunOutcome, ScriptResult, StartFrame
from toolfold.types import OnInput, Outcome

_PIECE_BYTES = 1 << 20
# What is longer is decoded in a thread.
_LARGE_BYTES = 64 * 1024
# How many frames a script may send over two for each call that it may make: one that asks for far too much at once
# reads its refusals, and one that goes on is killed.
_EXTRA_FRAMES = 100_000
# How long a child may take to exit once it said that it is done.
_EXIT_GRACE_S = 2.0
_MAX_TOOL_ID = 200

log = logging.getLogger("toolfold.scripts")

_encode = msgspec.json.encode
_CHILD_OUTCOMES: frozenset[RunOutcome] = frozenset(
    {"finished", "failed", "exited", "interrupted", "input_refused", "out_of_memory"}
)

# Called with the id of a tool, and why it was not called.
_OnRefused = Callable[[str, ToolfoldError], None]


class _CallTool(Protocol):
    """Calls a tool of the catalogue, with a way to ask the person behind the script."""

    def __call__(self, tool_id: str, args: Raw, *, on_input: OnInput | None) -> Awaitable[Outcome]: ...


class Execution:
    """One run of one script."""

    def __init__(
        self,
        run: str,
        child: Child,
        start: StartFrame,
        *,
        call: _CallTool,
        events: Events,
        settings: Scripts,
        on_refused: _OnRefused,
        open_output: Callable[[str], Awaitable[Path]],
        allowed: Callable[[str], bool] | None = None,
        on_input: OnInput | None = None,
    ) -> None:
        self._run = run
        self._child = child
        self._start = start
        self._call = call
        self._events = events
        self._settings = settings
        self._on_refused = on_refused
        self._open_output = open_output
        self._allowed = allowed
        self._on_input = self._pausing(on_input) if on_input is not None else None
        self._granted = {spec.tool_id for spec in start.tools}
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[asyncio.Task[None]] = set()
        self._queue: deque[Frame] = deque()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._records: list[CallRecord] = []
        # Results too large to send, until the script reads them piece by piece.
        self._results: dict[int, bytes] = {}
        self._result_bytes = 0
        # Stored outputs that the script opened, by the number under which it did.
        self._files: dict[int, Path] = {}
        self._summary: list[str] = []
        self._summary_bytes = 0
        self._calls = 0
        self._frames = 0
        self._last_id = 0
        self._done: Frame | None = None
        self._clock: asyncio.Timeout | None = None
        self._paused = 0
        self._left_s = 0.0

    async def run(self) -> ScriptResult:
        """Runs the script to its end, within its time. Cancelling this ends the script and its calls."""
        started = time.perf_counter()
        try:
            try:
                async with asyncio.timeout(self._settings.wall_s) as clock:
                    self._clock = clock
                    await self._child.send(_encode(self._start))
                    self._child.listen(self._on_frame)
                    await self._over
                    self._clock = None  # a person who answers from here on has no clock to restart
                    grace, deadline = self._loop.time() + _EXIT_GRACE_S, clock.when()
                    clock.reschedule(grace if deadline is None else min(grace, deadline))
                    end = await self._child.wait()
            except TimeoutError:
                self._child.kill("timed_out")
                end = await self._child.wait()
        finally:
            self._clock = None
            self._child.kill()
            await self._stop_calls()
        seconds = time.perf_counter() - started
        answer_bytes = len(memoryview(self._done.answer)) if self._done is not None else 0
        if len(end.stdout) + len(end.stderr) + answer_bytes > _LARGE_BYTES:
            return await asyncio.to_thread(self._result, end, seconds)
        return self._result(end, seconds)

    def _on_frame(self, data: bytes | SandboxError | None) -> None:
        if self._over.done():
            return
        if data is None:
            self._over.set_result(None)
            return
        try:
            frame = self._read(data)
            if frame.op in {"call", "load", "open"}:
                self._accept(frame)
            elif frame.op == "cancel":
                self._cancel(frame.id)
            elif frame.op == "summary":
                self._add_summary(frame.piece)
            else:
                self._done = frame
                self._over.set_result(None)
        except (BadFrame, SandboxError) as error:
            text = str(error)[:200]
            self._events.emit("script.violation", run=self._run, error=text)
            violation = SandboxError(
                f"a script's process wrote nonsense on its channel: {text}",
                next_action="use the functions that use_tools gives, and leave descriptor 3 alone",
            )
            self._on_refused("", violation)
            self._child.kill("protocol_violation")
            self._over.set_result(None)

    def _read(self, data: bytes | SandboxError) -> Frame:
        if isinstance(data, SandboxError):
            raise data
        self._frames += 1
        if self._frames > 2 * self._settings.calls + _EXTRA_FRAMES:
            raise BadFrame("far more frames than a script may send")
        return Frame.parse(data)

    @property
    def large_summary(self) -> str:
        """The summary of a script that ended, as JSON, where it is too large for an answer."""
        return "".join(self._summary) if self._done is not None else ""

    def _add_summary(self, piece: str) -> None:
        self._summary_bytes += len(piece.encode())
        if self._summary_bytes > self._settings.kept_bytes:
            raise BadFrame("a longer summary than a script may send")
        self._summary.append(piece)

    def _accept(self, frame: Frame) -> None:
        # Ids only grow, or a second request with a running one's id would hide it from `cancel` and from the end.
        if frame.id <= self._last_id:
            raise BadFrame("a number that was used before")
        self._last_id = frame.id
        if self._has_room():
            self._start_task(frame)
        else:
            # While so many run, nothing more is read: a child that asks for more has to wait.
            self._queue.append(frame)
            self._child.hold(True)

    def _has_room(self) -> bool:
        return len(self._tasks) + len(self._cancelled) < self._settings.calls_at_once

    def _start_task(self, frame: Frame) -> None:
        work = self._answer(frame) if frame.op == "call" else self._load(frame)
        self._tasks[frame.id] = asyncio.Task(work, loop=self._loop)

    def _cancel(self, number: int) -> None:
        task = self._tasks.pop(number, None)
        if task is not None:
            self._cancelled.add(task)
            task.add_done_callback(self._on_cancelled)
            task.cancel()

    def _on_cancelled(self, task: asyncio.Task[None]) -> None:
        self._cancelled.discard(task)
        self._start_queued()

    def _start_queued(self) -> None:
        while self._queue and self._has_room():
            self._start_task(self._queue.popleft())
        if not self._queue:
            self._child.hold(False)

    def _finish(self, frame: Frame) -> None:
        self._tasks.pop(frame.id, None)
        if self._queue:
            self._start_queued()

    async def _answer(self, frame: Frame) -> None:
        started = time.perf_counter()
        code, size = "CANCELLED", 0
        self._calls += 1
        over = self._calls - self._settings.calls
        try:
            try:
                arguments = await self._admit(frame, over)
                outcome = await self._call(frame.tool, arguments, on_input=self._on_input)
                size = len(memoryview(outcome.raw))
                reply = self._reply(frame.id, outcome, size)
                code = "TOOL_FAILED" if outcome.is_error else ""
            except ToolfoldError as error:
                code, reply = error.code, _encode({"id": frame.id, "error": error.as_dict()}, enc_hook=str)
            except Exception:
                # A bug of ours: the script must not wait for it for ever, and nobody else may suffer.
                log.exception("a call of %s inside a script failed", frame.tool[:_MAX_TOOL_ID])
                code = "INTERNAL"
                reply = _encode({"id": frame.id, "error": {"code": code, "message": "the host failed"}})
            finally:
                # Of the calls over the limit only the first is recorded: a script may make any number of them.
                if over <= 1:
                    self._record(frame, started, code, size)
            await self._send(reply)
        finally:
            self._finish(frame)

    async def _admit(self, frame: Frame, over: int) -> Raw:
        """Returns the arguments of a call that may be made."""
        try:
            self._check(frame, over)
            if len(memoryview(frame.args)) > _LARGE_BYTES:
                return await asyncio.to_thread(frame.canonical_arguments)
            return frame.canonical_arguments()
        except ToolfoldError as error:
            if over <= 1:
                self._on_refused(frame.tool[:_MAX_TOOL_ID], error)
            raise

    def _check(self, frame: Frame, over: int) -> None:
        if over > 0:
            raise CallLimit(
                f"a script may make {self._settings.calls:,} calls, and this one made them",
                next_action="ask for more at once, or raise scripts.calls",
            )
        if frame.tool not in self._granted:
            raise NotDeclared(
                f"this script did not declare {frame.tool[:_MAX_TOOL_ID]!r}",
                hints=sorted(self._granted),
                next_action="declare it with use_tools, and call the function that this gives",
            )
        if self._allowed is not None and not self._allowed(frame.tool):
            raise NotAuthorized(
                f"this script may not use {frame.tool}", next_action="declare a tool that may be used here"
            )

    def _reply(self, number: int, outcome: Outcome, size: int) -> bytes:
        if size <= self._settings.inline_bytes:
            return b'{"id":%d,"result":%b}' % (number, outcome.raw)
        self._result_bytes += size
        if self._result_bytes > self._settings.kept_bytes:
            raise CallLimit(
                f"the results of this script are over {self._settings.kept_bytes:,} bytes",
                next_action="ask the tools for less, or do the work in several scripts",
            ).after_work()
        self._results[number] = bytes(outcome.raw)
        return _encode({"id": number, "ref": number, "size": size})

    async def _load(self, frame: Frame) -> None:
        try:
            try:
                reply = await (self._open(frame) if frame.op == "open" else self._read_piece(frame))
            except ToolfoldError as error:
                reply = {"error": error.as_dict()}
            await self._send(_encode({"id": frame.id, **reply}))
        finally:
            self._finish(frame)

    async def _open(self, frame: Frame) -> dict[str, Any]:
        path = await self._open_output(frame.handle)
        self._files[frame.id] = path
        return {"ref": frame.id, "size": (await asyncio.to_thread(path.stat)).st_size}

    async def _read_piece(self, frame: Frame) -> dict[str, Any]:
        if frame.ref in self._files:
            try:
                data = await asyncio.to_thread(_read_file, self._files[frame.ref], frame.offset)
            except OSError as error:
                raise UnknownHandle(
                    f"the stored output cannot be read any more: {error.strerror}", next_action="call the tool again"
                ) from None
            # JSON has no bytes: one character stands for each.
            return {"piece": data.decode("latin-1"), "after": frame.offset + len(data)}
        if frame.ref not in self._results:
            raise NotDeclared("there is no such result", next_action="call the tool again")
        piece, after = _piece(self._results[frame.ref], frame.offset)
        return {"piece": piece, "after": after}

    async def _send(self, frame: bytes) -> None:
        try:
            await self._child.send(frame)
        except SandboxError:
            return  # the child is gone; its exit says how

    def _record(self, frame: Frame, started: float, code: str, size: int) -> None:
        tool_id = frame.tool[:_MAX_TOOL_ID]
        if code == "CANCELLED":
            self._events.emit("script.call_cancelled", run=self._run, tool_id=tool_id)
        seconds = round(time.perf_counter() - started, 6)
        self._records.append(CallRecord(tool_id=tool_id, ok=not code, seconds=seconds, code=code, result_bytes=size))
        self._events.emit("script.call", run=self._run, tool_id=tool_id, ok=not code, code=code, seconds=seconds)

    async def _stop_calls(self) -> None:
        self._over.cancel()
        self._queue.clear()
        tasks = [*self._tasks.values(), *self._cancelled]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._results.clear()

    def _pausing(self, on_input: OnInput) -> OnInput:
        """Stops the clock while a person is asked: thinking is not the script's time."""

        async def ask(*arguments: Any) -> Any:
            self._paused += 1
            if self._paused == 1 and self._clock is not None:
                deadline = self._clock.when()
                self._left_s = max(0.0, deadline - self._loop.time()) if deadline is not None else 0.0
                self._clock.reschedule(None)
            try:
                return await on_input(*arguments)
            finally:
                self._paused -= 1
                if self._paused == 0 and self._clock is not None and not self._clock.expired():
                    self._clock.reschedule(self._loop.time() + self._left_s)

        return ask

    def _result(self, end: Exit, seconds: float) -> ScriptResult:
        done = self._done
        warnings = done.read_warnings() if done is not None else ()
        if self._calls > self._settings.calls:
            over = self._calls - self._settings.calls
            warnings += (f"calls over the limit of {self._settings.calls:,}, which were refused: {over:,}",)
        stdout = clean_text(end.stdout)
        answer = done.read_answer(self._settings.output_bytes) if done is not None else None
        return ScriptResult(
            run=self._run,
            outcome=_outcome(done, end),
            answer=answer if answer is not None or self._summary else parse_last_line(stdout),
            stdout=stdout,
            stderr=clean_text(end.stderr),
            output_dropped=end.output_dropped,
            code=done.code if done is not None else end.code,
            error=done.read_error() if done is not None else None,
            needs=self._start.needs,
            calls=tuple(self._records),
            warnings=warnings,
            seconds=round(seconds, 6),
            layers=self._child.layers,
            unsafe=not self._child.layers,
        )


def _read_file(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(_PIECE_BYTES)


def _piece(result: bytes, offset: int) -> tuple[str, int]:
    """Returns the text from there on, whole characters only, and where the next piece begins."""
    end = min(offset + _PIECE_BYTES, len(result))
    # A UTF-8 character has at most three continuation bytes.
    for _ in range(3):
        if end < len(result) and result[end] & 0xC0 == 0x80:
            end -= 1
    return result[offset:end].decode("utf-8", "replace"), end


def _outcome(done: Frame | None, end: Exit) -> RunOutcome:
    if done is not None:
        return next((name for name in _CHILD_OUTCOMES if name == done.outcome), "protocol_violation")
    if end.ending == "exited":
        return "left"
    return "protocol_violation" if end.ending == "finished" else end.ending
