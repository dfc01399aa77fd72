"""The host's side of a run: starts a script in a confined child and answers its calls.

Everything of worth stays here. A child may ask for the tools that its script declared and for nothing else; each call
then takes the gateway's own way, with its checks and limits. What the child says is never trusted, only bounded. Above:
the gateway, which gives the child, the tools and the way to call. Below: the sandbox.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from toolfold.errors import CallLimit, NotDeclared, SandboxError, ToolfoldError
from toolfold.events import Events
from toolfold.sandbox.base import Child, Exit
from toolfold.scripts import output, protocol
from toolfold.scripts.protocol import BadFrame, Frame
from toolfold.scripts.values import CallRecord, Limits, OutcomeName, ScriptResult, Start
from toolfold.types import Outcome
from toolfold.wire.values import OnInput

PIECE_CHARS = 1 << 20
LAST_WORDS_S = 2.0
"""How long a child may take to leave once it said that it is done."""


class Call(Protocol):
    """Calls a tool of the catalogue, whole, with a way to ask the person behind the script."""

    def __call__(self, tool_id: str, args: Raw, *, on_input: OnInput | None) -> Awaitable[Outcome]: ...


log = logging.getLogger("toolfold.scripts")

_encode = msgspec.json.encode
_TOLD: frozenset[OutcomeName] = frozenset(
    {"finished", "failed", "exited", "interrupted", "input_refused", "out_of_memory"}
)


class Harness:
    """One run of one script."""

    def __init__(
        self,
        run: str,
        child: Child,
        start: Start,
        *,
        call: Call,
        events: Events,
        limits: Limits,
        on_input: OnInput | None = None,
    ) -> None:
        self._run = run
        self._child = child
        self._start = start
        self._call = call
        self._events = events
        self._limits = limits
        self._on_input = self._pausing(on_input) if on_input is not None else None
        self._granted = {spec.tool_id for spec in start.tools}
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._queue: deque[Frame] = deque()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._records: list[CallRecord] = []
        self._kept: dict[int, str] = {}
        self._kept_bytes = 0
        self._calls = 0
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
                async with asyncio.timeout(self._limits.wall_s) as self._clock:
                    await self._child.send(_encode(self._start))
                    self._child.listen(self._heard)
                    await self._over
                    self._clock.reschedule(_soon(self._clock, LAST_WORDS_S))
                    ended = await self._child.wait()
            except TimeoutError:
                self._child.kill("timed_out")
                ended = await self._child.wait()
        finally:
            self._child.kill()
            await self._stop_calls()
        return self._result(ended, time.perf_counter() - started)

    def _heard(self, data: bytes | SandboxError | None) -> None:
        """What the child says, as it comes."""
        if self._over.done():
            return
        if data is None:
            self._over.set_result(None)
            return
        try:
            if isinstance(data, SandboxError):
                raise data
            frame = protocol.read(data)
            if frame.op in {"call", "load"}:
                self._take(frame)
            elif frame.op == "cancel":
                self._cancel(frame.id)
            else:
                self._done = frame
                self._over.set_result(None)
        except (BadFrame, SandboxError) as error:
            self._events.emit("script.violation", run=self._run, error=str(error)[:200])
            self._child.kill("protocol_violation")
            self._over.set_result(None)

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
        try:
            try:
                self._check(frame)
                arguments = protocol.arguments(frame.tool, frame.args)
                outcome = await self._call(frame.tool, arguments, on_input=self._on_input)
                size = len(memoryview(outcome.result))
                reply = self._reply(frame.id, outcome, size)
                code = "TOOL_FAILED" if outcome.is_error else ""
            except ToolfoldError as error:
                code, reply = error.code, _encode({"id": frame.id, "error": error.as_dict()}, enc_hook=str)
            except Exception:
                # A bug of ours: the script must not wait for it for ever, and nobody else may suffer.
                log.exception("a call of %s inside a script failed", frame.tool[:200])
                code = "INTERNAL"
                reply = _encode({"id": frame.id, "error": {"code": code, "message": "the host failed"}})
            finally:
                self._record(frame, started, code, size)
            await self._send(reply)
        finally:
            self._finished(frame)

    def _check(self, frame: Frame) -> None:
        self._calls += 1
        if self._calls > self._limits.calls:
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

    def _reply(self, number: int, outcome: Outcome, size: int) -> bytes:
        if size <= self._limits.inline_bytes:
            return b'{"id":%d,"result":%b}' % (number, outcome.result)
        self._kept_bytes += size
        if self._kept_bytes > self._limits.kept_bytes:
            raise CallLimit(
                f"the results of this script are over {self._limits.kept_bytes:,} bytes",
                next_action="ask the tools for less, or do the work in several scripts",
            )
        self._kept[number] = bytes(outcome.result).decode("utf-8", "replace")
        return _encode({"id": number, "ref": number, "size": size})

    async def _load(self, frame: Frame) -> None:
        try:
            text = self._kept.get(frame.ref)
            if text is None:
                error = NotDeclared("there is no such result", next_action="call the tool again")
                await self._send(_encode({"id": frame.id, "error": error.as_dict()}))
            else:
                await self._send(_encode({"id": frame.id, "piece": text[frame.offset : frame.offset + PIECE_CHARS]}))
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
        stdout = output.shown(ended.stdout)
        answer: Any = None
        if done is not None and len(memoryview(done.answer)) <= self._limits.answer_bytes:
            answer = _plain(done.answer)
        return ScriptResult(
            run=self._run,
            outcome=_outcome(done, ended),
            answer=answer if answer is not None else output.last_json(stdout),
            stdout=stdout,
            stderr=output.shown(ended.stderr),
            output_dropped=ended.output_dropped,
            code=done.code if done is not None else ended.code,
            error=protocol.problem(done.error) if done is not None else None,
            needs=self._start.needs,
            calls=tuple(self._records),
            warnings=tuple(output.shown(text)[:500] for text in done.warnings[: protocol.MAX_WARNINGS]) if done else (),
            seconds=round(seconds, 6),
            layers=self._child.layers,
            unsafe=not self._child.layers,
        )


def _soon(clock: asyncio.Timeout, seconds: float) -> float:
    soon = asyncio.get_running_loop().time() + seconds
    until = clock.when()
    return soon if until is None else min(soon, until)


def _outcome(done: Frame | None, ended: Exit) -> OutcomeName:
    if done is not None:
        return next((name for name in _TOLD if name == done.outcome), "protocol_violation")
    if ended.ending == "exited":
        return "left"
    return "protocol_violation" if ended.ending == "finished" else ended.ending


def _plain(answer: Raw) -> Any:
    try:
        return msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError):
        return None
