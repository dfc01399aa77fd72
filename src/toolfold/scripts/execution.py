"""The host's side of a run: starts a script in a confined child and answers its calls.

Everything of worth stays here. A child may ask for the tools that its script declared and for nothing else; each call
then takes the gateway's own way, with its checks and limits. What the child says is never trusted, only bounded. Above:
the gateway, which gives the child, the tools and the way to call. Below: the sandbox.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from toolfold.errors import CallLimit, NotAuthorized, NotDeclared, SandboxError, ToolfoldError
from toolfold.events import Events
from toolfold.sandbox.base import Child, Exit
from toolfold.scripts import protocol
from toolfold.scripts import protocol as output
from toolfold.scripts.protocol import BadFrame, Frame
from toolfold.scripts.values import CallRecord, RunLimits, RunOutcome, ScriptResult, StartFrame
from toolfold.types import Outcome
from toolfold.wire.types import OnInput

_PIECE_BYTES = 1 << 20
_LARGE_BYTES = 64 * 1024
"""What is longer is read in a thread."""
_EXTRA_FRAMES = 100_000
"""How many frames a script may send over two for each call that it may make: one that asks for far too much at once
reads its refusals, and one that goes on is ended."""
_EXIT_GRACE_S = 2.0
"""How long a child may take to leave once it said that it is done."""


class _CallTool(Protocol):
    """Calls a tool of the catalogue, whole, with a way to ask the person behind the script."""

    def __call__(self, tool_id: str, args: Raw, *, on_input: OnInput | None) -> Awaitable[Outcome]: ...


_OnRefused = Callable[[str, ToolfoldError], None]
"""Told the id of the tool, and why it was not called."""

_log = logging.getLogger("toolfold.scripts")

_encode = msgspec.json.encode
_CHILD_OUTCOMES: frozenset[RunOutcome] = frozenset(
    {"finished", "failed", "exited", "interrupted", "input_refused", "out_of_memory"}
)


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
        limits: RunLimits,
        refused: _OnRefused,
        allowed: Callable[[str], bool] | None = None,
        on_input: OnInput | None = None,
    ) -> None:
        self._run = run
        self._child = child
        self._start = start
        self._call = call
        self._events = events
        self._limits = limits
        self._refused = refused
        self._allowed = allowed
        self._on_input = self._pausing(on_input) if on_input is not None else None
        self._granted = {spec.tool_id for spec in start.tools}
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._queue: deque[Frame] = deque()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._records: list[CallRecord] = []
        self._kept: dict[int, bytes] = {}
        self._kept_bytes = 0
        self._calls = 0
        self._frames = 0
        self._last_id = 0
        self._done: Frame | None = None
        self._clock: asyncio.Timeout | None = None
        self._paused = 0
        self._left_s = 0.0

    async def run(self) -> ScriptResult:
        """Runs the script to its end, within its time. Cancelling this ends the script and what it asked for."""
        started = time.perf_counter()
        try:
            try:
                async with asyncio.timeout(self._limits.wall_s) as clock:
                    self._clock = clock
                    await self._child.send(_encode(self._start))
                    self._child.listen(self._heard)
                    await self._over
                    self._clock = None  # a person who answers from here on has nothing to set going
                    clock.reschedule(_deadline(clock, _EXIT_GRACE_S))
                    ended = await self._child.wait()
            except TimeoutError:
                self._child.kill("timed_out")
                ended = await self._child.wait()
        finally:
            self._clock = None
            self._child.kill()
            await self._stop_calls()
        seconds = time.perf_counter() - started
        said = len(memoryview(self._done.answer)) if self._done is not None else 0
        if len(ended.stdout) + len(ended.stderr) + said > _LARGE_BYTES:
            return await asyncio.to_thread(self._result, ended, seconds)
        return self._result(ended, seconds)

    def _heard(self, data: bytes | SandboxError | None) -> None:
        """What the child says, as it comes."""
        if self._over.done():
            return
        if data is None:
            self._over.set_result(None)
            return
        try:
            frame = self._read(data)
            if frame.op in {"call", "load"}:
                self._take(frame)
            elif frame.op == "cancel":
                self._cancel(frame.id)
            else:
                self._done = frame
                self._over.set_result(None)
        except (BadFrame, SandboxError) as error:
            self._events.emit("script.violation", run=self._run, error=str(error)[:200])
            self._refused("", _violation(error))
            self._child.kill("protocol_violation")
            self._over.set_result(None)

    def _read(self, data: bytes | SandboxError) -> Frame:
        if isinstance(data, SandboxError):
            raise data
        self._frames += 1
        if self._frames > 2 * self._limits.calls + _EXTRA_FRAMES:
            raise BadFrame("far more frames than a script may send")
        return protocol.decode_frame(data)

    def _take(self, frame: Frame) -> None:
        if frame.id <= self._last_id:
            raise BadFrame("a number that was used before")
        self._last_id = frame.id
        if len(self._tasks) + len(self._leaving) >= self._limits.calls_at_once:
            # While so many run, nothing more is read: a child that asks for more has to wait.
            self._queue.append(frame)
            self._child.hold(True)
        else:
            self._start_task(frame)

    def _start_task(self, frame: Frame) -> None:
        work = self._answer(frame) if frame.op == "call" else self._load(frame)
        self._tasks[frame.id] = asyncio.Task(work, loop=self._loop)

    def _cancel(self, number: int) -> None:
        task = self._tasks.pop(number, None)
        if task is not None:
            self._leaving.add(task)
            task.add_done_callback(self._left)
            task.cancel()

    def _left(self, task: asyncio.Task[None]) -> None:
        self._leaving.discard(task)
        self._next()

    def _next(self) -> None:
        """There is room again, for what waits or for what was not read."""
        while self._queue and len(self._tasks) + len(self._leaving) < self._limits.calls_at_once:
            self._start_task(self._queue.popleft())
        if not self._queue:
            self._child.hold(False)

    def _finished(self, frame: Frame) -> None:
        self._tasks.pop(frame.id, None)
        if self._queue:
            self._next()

    async def _answer(self, frame: Frame) -> None:
        started = time.perf_counter()
        code, size = "CANCELLED", 0
        self._calls += 1
        over = self._calls - self._limits.calls
        try:
            try:
                arguments = await self._admitted(frame, over)
                outcome = await self._call(frame.tool, arguments, on_input=self._on_input)
                size = len(memoryview(outcome.result))
                reply = self._reply(frame.id, outcome, size)
                code = "TOOL_FAILED" if outcome.is_error else ""
            except ToolfoldError as error:
                code, reply = error.code, _encode({"id": frame.id, "error": error.as_dict()}, enc_hook=str)
            except Exception:
                # A bug of ours: the script must not wait for it for ever, and nobody else may suffer.
                _log.exception("a call of %s inside a script failed", frame.tool[:200])
                code = "INTERNAL"
                reply = _encode({"id": frame.id, "error": {"code": code, "message": "the host failed"}})
            finally:
                if over <= 1:
                    self._record(frame, started, code, size)
            await self._send(reply)
        finally:
            self._finished(frame)

    async def _admitted(self, frame: Frame, over: int) -> Raw:
        """The arguments of a call that may be made. Of those over the limit only the first is kept."""
        try:
            self._check(frame, over)
            if len(memoryview(frame.args)) > _LARGE_BYTES:
                return await asyncio.to_thread(protocol.canonical_arguments, frame.tool, frame.args)
            return protocol.canonical_arguments(frame.tool, frame.args)
        except ToolfoldError as error:
            if over <= 1:
                self._refused(frame.tool[:200], error)
            raise

    def _check(self, frame: Frame, over: int) -> None:
        if over > 0:
            raise CallLimit(
                f"a script may make {self._limits.calls:,} calls, and this one made them",
                next_action="ask for more at once, or raise scripts.calls",
            )
        if frame.tool not in self._granted:
            raise NotDeclared(
                f"this script did not declare {frame.tool[:200]!r}",
                hints=sorted(self._granted),
                next_action="declare it with use_tools, and call the function that this gives",
            )
        if self._allowed is not None and not self._allowed(frame.tool):
            raise NotAuthorized(
                f"this script may not use {frame.tool}", next_action="declare a tool that may be used here"
            )

    def _reply(self, number: int, outcome: Outcome, size: int) -> bytes:
        if size <= self._limits.inline_bytes:
            return b'{"id":%d,"result":%b}' % (number, outcome.result)
        self._kept_bytes += size
        if self._kept_bytes > self._limits.kept_bytes:
            raise CallLimit(
                f"the results of this script are over {self._limits.kept_bytes:,} bytes",
                next_action="ask the tools for less, or do the work in several scripts",
            )
        self._kept[number] = bytes(outcome.result)
        return _encode({"id": number, "ref": number, "size": size})

    async def _load(self, frame: Frame) -> None:
        try:
            kept = self._kept.get(frame.ref)
            if kept is None:
                error = NotDeclared("there is no such result", next_action="call the tool again")
                await self._send(_encode({"id": frame.id, "error": error.as_dict()}))
            else:
                piece, after = _piece(kept, frame.offset)
                await self._send(_encode({"id": frame.id, "piece": piece, "after": after}))
        finally:
            self._finished(frame)

    async def _send(self, frame: bytes) -> None:
        try:
            await self._child.send(frame)
        except SandboxError:
            return  # It is gone: how it went is told by its end.

    def _record(self, frame: Frame, started: float, code: str, size: int) -> None:
        if code == "CANCELLED":
            self._events.emit("script.call_cancelled", run=self._run, tool_id=frame.tool[:200])
        seconds = round(time.perf_counter() - started, 6)
        tool_id = frame.tool[:200]
        self._records.append(CallRecord(tool_id=tool_id, ok=not code, seconds=seconds, code=code, result_bytes=size))
        self._events.emit("script.call", run=self._run, tool_id=tool_id, ok=not code, code=code, seconds=seconds)

    async def _stop_calls(self) -> None:
        self._over.cancel()
        self._queue.clear()
        tasks = [*self._tasks.values(), *self._leaving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._kept.clear()

    def _pausing(self, on_input: OnInput) -> OnInput:
        """Asks a person with the clock stopped: thinking is not the script's time."""

        async def asked(*given: Any) -> Any:
            self._pause()
            try:
                return await on_input(*given)
            finally:
                self._resume()

        return asked

    def _pause(self) -> None:
        self._paused += 1
        if self._paused == 1 and self._clock is not None:
            until = self._clock.when()
            self._left_s = max(0.0, until - asyncio.get_running_loop().time()) if until is not None else 0.0
            self._clock.reschedule(None)

    def _resume(self) -> None:
        self._paused -= 1
        if self._paused == 0 and self._clock is not None and not self._clock.expired():
            self._clock.reschedule(asyncio.get_running_loop().time() + self._left_s)

    def _result(self, ended: Exit, seconds: float) -> ScriptResult:
        done = self._done
        warnings = protocol.decode_warnings(done.warnings) if done is not None else ()
        if self._calls > self._limits.calls:
            over = self._calls - self._limits.calls
            warnings += (f"calls over the limit of {self._limits.calls:,}, which were refused: {over:,}",)
        stdout = output.clean_text(ended.stdout)
        answer: Any = None
        if done is not None and len(memoryview(done.answer)) <= self._limits.answer_bytes:
            answer = _decode_answer(done.answer)
        return ScriptResult(
            run=self._run,
            outcome=_outcome(done, ended),
            answer=answer if answer is not None else output.parse_last_line(stdout),
            stdout=stdout,
            stderr=output.clean_text(ended.stderr),
            output_dropped=ended.output_dropped,
            code=done.code if done is not None else ended.code,
            error=protocol.decode_problem(done.error) if done is not None else None,
            needs=self._start.needs,
            calls=tuple(self._records),
            warnings=warnings,
            seconds=round(seconds, 6),
            layers=self._child.layers,
            unsafe=not self._child.layers,
        )


def _deadline(clock: asyncio.Timeout, seconds: float) -> float:
    soon = asyncio.get_running_loop().time() + seconds
    until = clock.when()
    return soon if until is None else min(soon, until)


def _violation(error: Exception) -> SandboxError:
    return SandboxError(
        f"a script's process wrote nonsense on its channel: {str(error)[:200]}",
        next_action="use the functions that use_tools gives, and leave descriptor 3 alone",
    )


def _piece(kept: bytes, offset: int) -> tuple[str, int]:
    """The text from there on, whole characters only, and where the next piece begins."""
    end = min(offset + _PIECE_BYTES, len(kept))
    for _ in range(3):
        if end < len(kept) and kept[end] & 0xC0 == 0x80:
            end -= 1
    return kept[offset:end].decode("utf-8", "replace"), end


def _outcome(done: Frame | None, ended: Exit) -> RunOutcome:
    if done is not None:
        return next((name for name in _CHILD_OUTCOMES if name == done.outcome), "protocol_violation")
    if ended.ending == "exited":
        return "left"
    return "protocol_violation" if ended.ending == "finished" else ended.ending


def _decode_answer(answer: Raw) -> Any:
    try:
        return msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError):
        return None
