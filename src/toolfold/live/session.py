"""`LiveSession`: a Python session in a process of its own, with three tools that look into it.

`async with LiveSession() as session: await session.execute("x = 1"); await session.inspect("x")`. By default it runs
in the sandbox; `trusted=True` is for a person's own prompt. Requests are answered one after the other. Above: the
gateway. Below: `worker/`, in the other process, and the sandbox.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import msgspec
from msgspec import Struct

from toolfold.errors import LiveError, ToolfoldError, UnknownHandle
from toolfold.events import Events
from toolfold.live.trusted_process import TrustedChild
from toolfold.live.worker.envelopes import failure, invalid_arguments, session_lost
from toolfold.sandbox.base import Child, ChildLimits, Children

# Checks what a session's process answered. It runs user code, so nothing it says is trusted.

ANSWER_MAX_BYTES = 256 * 1024
_INSPECT_MAX_CHARS = 32 * 1024  # of an `inspect` or `list_globals` answer, as JSON in its widest form
_Kind = Literal[
    "none", "bool", "number", "string", "bytes", "mapping", "sequence", "set", "iterator", "generator", "coroutine",
    "async_generator", "callable", "class", "module", "exception", "object", "other",
]  # fmt: skip


class _Type(Struct):
    name: str
    module: str
    qualified: str


class _Inspection(Struct):
    type: _Type
    kind: _Kind


class _Global(Struct):
    name: str
    type_name: str


class _Globals(Struct):
    globals: list[_Global]


class _Completions(Struct):
    words: list[str]


class _Evaluation(Struct):
    stdout: str
    stderr: str
    value_repr: str | None = None


class _Error(Struct):
    code: str
    message: str


_RESULTS: dict[str, type[Struct]] = {"list_globals": _Globals, "inspect": _Inspection, "complete": _Completions}


def _validate_answer(operation: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, or an error in its place that says what was wrong with it."""
    problem = _problem(operation, answer)
    if not problem:
        return answer
    return failure(
        "invalid_result_shape",
        f"the session's process answered {operation} with {problem}",
        kind="internal",
        next_action="ask again; if it stays so, start a new session",
    )


def _problem(operation: str, answer: dict[str, Any]) -> str:
    if operation in {"inspect", "list_globals"} and (size := len(json.dumps(answer))) > _INSPECT_MAX_CHARS:
        return f"{size} characters, where {_INSPECT_MAX_CHARS} are allowed"
    ok = answer.get("ok")
    if not isinstance(ok, bool):
        return "no envelope"
    try:
        if ok:
            msgspec.convert(answer.get("result"), _RESULTS.get(operation, _Evaluation))
        else:
            msgspec.convert(answer.get("error"), _Error)
    except msgspec.ValidationError as error:
        return f"a wrong {'result' if ok else 'error'}: {error}"
    return ""


TOOLS = ("list_globals", "inspect", "eval_expr")
WORKER_ENTRY = "toolfold.live.worker.supervisor:main"
_START_S = 30.0
_ANSWER_SLACK_S = 15.0  # the supervisor keeps the deadline; the host only notices that it is gone
_PIECE_BYTES = 512 * 1024
Envelope = dict[str, Any]
# The file of a stored output. Raises `UnknownHandle` for one that the caller may not read.
OpenOutput = Callable[[str], Awaitable[Path]]
T = TypeVar("T")


class LiveLimits(Struct, frozen=True, kw_only=True):
    """Deadlines and bounds of one session."""

    inspect_s: float = 2.0
    eval_s: float = 10.0
    execute_s: float = 60.0
    commit_max_bytes: int = 512 * 1024**2  # a larger session evaluates in place: a copy would cost too much
    memory_bytes: int = 2 * 1024**3
    wall_s: float = 8 * 3600.0  # a sandboxed session ends after this time, whatever it does

    def sandbox_limits(self) -> ChildLimits:
        """What the sandbox grants a session: it forks to inspect, and lives long."""
        return ChildLimits(
            wall_s=self.wall_s,
            cpu_s=int(self.wall_s),
            memory_bytes=self.memory_bytes,
            may_fork=True,
            output_bytes=256 * 1024,
            receive_bytes=2 * ANSWER_MAX_BYTES,
        )


async def _no_outputs(handle: str) -> Path:
    raise UnknownHandle(f"there is no stored output {handle!r} here", next_action="use a handle from a stored result")


class LiveSession:
    """One session. `list_globals`, `inspect` and `eval_expr` answer with the envelope as a dict."""

    def __init__(
        self,
        *,
        trusted: bool = False,
        terminal: bool = False,
        limits: LiveLimits | None = None,
        children: Children | None = None,
        open_output: OpenOutput = _no_outputs,
        events: Events | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.limits = limits if limits is not None else LiveLimits()
        self.events = events if events is not None else Events()
        self._trusted = trusted or terminal
        self._terminal = terminal
        self._children = children
        self._outputs = _OutputReader(open_output, direct=self._trusted)
        self._cwd = cwd
        self._resources = AsyncExitStack()
        self._child: Child | TrustedChild | None = None
        self._turn = asyncio.Lock()
        self._entered = False
        self._unreported: Envelope | None = None
        self._count = 0
        self._running: set[asyncio.Future[Envelope]] = set()
        self._current: object = None

    async def __aenter__(self) -> Self:
        await self._start()
        self._entered = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the session and all it started; open requests raise `LiveError`. Safe to call twice."""
        self._entered = False
        for exchange in tuple(self._running):
            exchange.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._resources.aclose()
        self._child = None

    @property
    def layers(self) -> tuple[str, ...]:
        """What confines the session; empty: nothing does."""
        return self._child.layers if self._child is not None else ()

    async def list_globals(self) -> Envelope:
        """The names of the session with their types."""
        return await self._request("list_globals", self.limits.inspect_s)

    async def inspect(self, expr: str) -> Envelope:
        """What an expression's value is. The session is as it was, whatever the object does."""
        return await self._request("inspect", self.limits.inspect_s, expr=expr)

    async def eval_expr(self, expr: str) -> Envelope:
        """The value of an expression, with what it printed. What a successful evaluation changed stays."""
        return await self._request("eval_expr", self.limits.eval_s, expr=expr)

    async def execute(self, code: str, *, timeout_s: float | None = None) -> Envelope:
        """Runs statements; the value of a last expression is the answer's `value_repr`."""
        return await self._request("execute", timeout_s or self.limits.execute_s, expr=code)

    async def interact(self, code: str) -> Envelope:
        """Runs statements for a person at the terminal that the session shares, for as long as they take."""
        return await self._request("interact", self.limits.wall_s, expr=code)

    async def complete(self, text: str) -> list[str]:
        """Words that may stand for the dotted name at the end of `text`."""
        answer = await self._request("complete", self.limits.inspect_s, text=text)
        return list(answer["result"]["words"]) if answer["ok"] else []

    async def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in what runs now."""
        if self._child is not None:
            await self._child.send(msgspec.json.encode({"op": "interrupt"}))

    async def dispatch(self, name: str, arguments: Mapping[str, Any]) -> Envelope:
        """A model's call of one of the three tools; any other name is `unknown_function`."""
        expr = arguments.get("expr")
        if name not in TOOLS:
            answer = failure(
                "unknown_function",
                f"there is no function {name[:100]!r}",
                hints=list(TOOLS),
                next_action="call one of list_globals, inspect, eval_expr",
            )
        elif name == "list_globals":
            answer = await self.list_globals()
        elif not isinstance(expr, str) or not expr.strip():
            answer = invalid_arguments(f"{name} takes an expression as a string")
        else:
            answer = await (self.inspect if name == "inspect" else self.eval_expr)(expr)
        self.events.emit("live.tool", tool=name, arguments=dict(arguments), answer=answer)
        return answer

    async def _start(self) -> None:
        try:
            child = await self._take_child()
            self._resources.push_async_callback(child.aclose)
            limit, end_forks = self.limits.commit_max_bytes, not self._trusted
            options = {"commit_max_bytes": limit, "in_place": self._terminal, "end_forks": end_forks}
            await child.send(msgspec.json.encode({"op": "open", "options": options}))
            if "opened" not in (await self._receive(child, _START_S) or {}):
                raise await _start_error(child)  # noqa: TRY301 - what was taken is released below
        except BaseException:
            await self._resources.aclose()
            raise
        self._child = child

    async def _take_child(self) -> "Child | TrustedChild":
        if self._trusted:
            return await TrustedChild.start(terminal=self._terminal, cwd=self._cwd)
        if self._children is not None:
            return await self._children.take()
        from toolfold.sandbox.zygote import Zygote

        zygote = Zygote(WORKER_ENTRY, limits=self.limits.sandbox_limits(), ready=0)
        return await (await self._resources.enter_async_context(zygote)).take()

    async def _request(self, operation: str, deadline_s: float, **fields: str) -> Envelope:
        # A request whose caller was cancelled is interrupted and ends in its own time: the next one waits for it.
        exchange = asyncio.ensure_future(self._exchange(operation, deadline_s, fields))
        self._running.add(exchange)
        exchange.add_done_callback(self._running.discard)
        try:
            return await wait_unless_closed(exchange)
        except asyncio.CancelledError:
            if not exchange.done() and self._current is exchange:
                await self.interrupt()
            raise

    async def _exchange(self, operation: str, deadline_s: float, fields: dict[str, str]) -> Envelope:
        async with self._turn:
            if not self._entered:
                raise LiveError("the session is not open", next_action="use it as: async with LiveSession() as session")
            if self._unreported is not None and operation != "complete":
                unreported, self._unreported = self._unreported, None
                return unreported
            raw = None if self._child is None else await self._ask(self._child, operation, deadline_s, fields)
            answer = await self._restart() if raw is None else _validate_answer(operation, raw)
            if operation == "complete" and not answer["ok"] and answer["error"]["code"] == "session_lost":
                self._unreported = answer  # completion shows no errors: the next request does
            return answer

    async def _ask(
        self, child: "Child | TrustedChild", operation: str, deadline_s: float, fields: dict[str, str]
    ) -> Envelope | None:
        """What the process answers; `None` where it is lost."""
        self._current = asyncio.current_task()
        self._count += 1
        # JSON has no lone surrogates: they are sent as escapes.
        texts = {key: text.encode("utf-8", "backslashreplace").decode() for key, text in fields.items()}
        frame = {"id": self._count, "op": operation, "deadline_s": deadline_s, **texts}
        try:
            await child.send(msgspec.json.encode(frame))
            return await self._receive_answer(child, self._count, deadline_s + _ANSWER_SLACK_S)
        except ToolfoldError as error:
            self.events.emit("live.broken", message=error.message)
            return None
        finally:
            self._current = None

    async def _receive_answer(self, child: "Child | TrustedChild", number: int, within_s: float) -> Envelope | None:
        while (frame := await self._receive(child, within_s)) is not None:
            if "ask" in frame:
                answer = {**await self._outputs.answer(frame), "question": frame.get("question")}
                await child.send(msgspec.json.encode({"op": "reply", "answer": answer}))
            elif frame.get("id") == number and isinstance(frame.get("answer"), dict):
                envelope: Envelope = frame["answer"]
                return envelope
        return None

    async def _receive(self, child: "Child | TrustedChild", within_s: float) -> dict[str, Any] | None:
        """A frame from the other side, which is not to be trusted; `None` when it is gone or breaks the protocol."""
        try:
            async with asyncio.timeout(within_s):
                data = await child.receive()
        except TimeoutError:
            child.kill("timed_out")
            return None
        if data is None:
            return None
        try:
            frame = msgspec.json.decode(data) if len(data) <= ANSWER_MAX_BYTES else None
        except (msgspec.DecodeError, RecursionError):
            frame = None
        if frame is None:
            child.kill("protocol_violation")
        return frame if isinstance(frame, dict) else None

    async def _restart(self) -> Envelope:
        """The whole process tree is gone: starts a new one and reports it."""
        ending = "is gone"
        if self._child is not None:
            self._child.kill()
            ended = await self._child.wait()
            ending = f"ended ({ended.ending})"
        await self._resources.aclose()
        self._child = None
        await self._start()
        return session_lost(ending)


async def wait_unless_closed(work: asyncio.Future[T]) -> T:
    """The result of work that continues without the caller. Raises `LiveError` where the session was closed."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if work.cancelled() and not (task and task.cancelling()):
            raise LiveError(
                "the session was ended", next_action="open a new one; a gateway does when it is asked again"
            ) from None
        raise


async def _start_error(child: "Child | TrustedChild") -> LiveError:
    ended = await child.wait()
    stderr = ended.stderr.decode("utf-8", "replace")[-500:]
    return LiveError(
        f"the session's process did not start: {ended.ending} {stderr}", next_action="run `toolfold doctor`"
    )


class _OutputReader:
    """The stored outputs that one session opened, read piece by piece."""

    def __init__(self, open_output: OpenOutput, *, direct: bool) -> None:
        self._open_output = open_output
        self._direct = direct
        self._files: dict[str, Path] = {}

    async def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question of the session, or `error` in words."""
        handle = str(question.get("handle", ""))
        try:
            if question.get("ask") == "open_output":
                path = await self._open_output(handle)
                self._files[handle] = path
                size = (await asyncio.to_thread(path.stat)).st_size
                # A sandboxed session never learns where an output lies.
                return {"bytes": size, "path": str(path)} if self._direct else {"bytes": size}
            if question.get("ask") == "read_output":
                offset, size = max(0, int(question.get("offset", 0))), max(0, int(question.get("size", 0)))
                data = await asyncio.to_thread(_read, self._files[handle], offset, min(size, _PIECE_BYTES))
                return {"data": data.decode("latin-1")}
        except ToolfoldError as error:
            return {"error": f"{error.message}. {error.next_action}"}
        except (KeyError, TypeError, ValueError):
            return {"error": f"the output {handle!r} was not opened in this session"}
        except OSError as error:
            return {"error": f"the output {handle!r} cannot be read: {os.strerror(error.errno or 0)}"}
        return {"error": f"nothing here answers {question.get('ask')!r}"}


def _read(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)
