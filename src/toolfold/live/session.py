"""`LiveSession`: a Python session in a process of its own, with three tools that look into it.

`async with LiveSession() as session: await session.execute("x = 1"); await session.inspect("x")`. By default it runs
in the sandbox; `trusted=True` is for a person's own prompt. Requests are answered one after the other. Above: the
gateway. Below: `worker/`, in the other process, and the sandbox.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct

from toolfold.errors import LiveError, ToolfoldError
from toolfold.events import Events
from toolfold.live.output_reader import OpenOutput, OutputReader, no_outputs
from toolfold.live.trusted_process import TrustedChild
from toolfold.live.validation import ANSWER_MAX_BYTES, validate
from toolfold.live.worker.envelopes import failure, session_lost
from toolfold.sandbox.base import Child, ChildLimits, Children

# --- What a live session may take, as values, and the names of its three tools.

TOOLS = ("list_globals", "inspect", "eval_expr")


class LiveLimits(Struct, frozen=True, kw_only=True):
    """Deadlines and bounds of one session."""

    inspect_s: float = 2.0
    eval_s: float = 10.0
    execute_s: float = 60.0
    commit_max_bytes: int = 512 * 1024**2
    """A larger session evaluates in place: a copy of it would cost too much."""
    memory_bytes: int = 2 * 1024**3
    wall_s: float = 8 * 3600.0
    """A sandboxed session ends after this time, whatever it does."""


WORKER_ENTRY = "toolfold.live.worker.supervisor:main"
_ANSWER_SLACK_S = 15.0
Envelope = dict[str, Any]
_T = TypeVar("_T")


def child_limits(limits: LiveLimits) -> ChildLimits:
    """What the sandbox grants a session: it forks to look, and lives long."""
    return ChildLimits(
        wall_s=limits.wall_s,
        cpu_s=int(limits.wall_s),
        memory_bytes=limits.memory_bytes,
        may_fork=True,
        output_bytes=256 * 1024,
        heard_bytes=2 * ANSWER_MAX_BYTES,
    )


class LiveSession:
    """One session. `list_globals`, `inspect` and `eval_expr` answer with the envelope as a dict."""

    def __init__(
        self,
        *,
        trusted: bool = False,
        terminal: bool = False,
        limits: LiveLimits | None = None,
        children: Children | None = None,
        open_output: OpenOutput = no_outputs,
        events: Events | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.limits = limits if limits is not None else LiveLimits()
        self.events = events if events is not None else Events()
        self._trusted = trusted or terminal
        self._terminal = terminal
        self._children = children
        self._outputs = OutputReader(open_output, direct=self._trusted)
        self._cwd = cwd
        self._resources = AsyncExitStack()
        self._child: Child | TrustedChild | None = None
        self._turn = asyncio.Lock()
        self._entered = False
        self._untold: Envelope | None = None
        self._count = 0
        self._running: set[asyncio.Future[Envelope]] = set()
        self._busy_with: object = None

    async def __aenter__(self) -> Self:
        await self._open()
        self._entered = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the session and all it started; whoever waits for an answer is told. Safe to call twice."""
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
        return await self._request("list_globals", deadline_s=self.limits.inspect_s)

    async def inspect(self, expr: str) -> Envelope:
        """What an expression's value is. The session is as it was, whatever the object does."""
        return await self._request("inspect", expr=expr, deadline_s=self.limits.inspect_s)

    async def eval_expr(self, expr: str) -> Envelope:
        """The value of an expression, with what it printed. What a successful evaluation changed stays."""
        return await self._request("eval_expr", expr=expr, deadline_s=self.limits.eval_s)

    async def execute(self, code: str, *, timeout_s: float | None = None) -> Envelope:
        """Runs statements; the value of a last expression comes back as `value_repr`."""
        return await self._request("execute", expr=code, deadline_s=timeout_s or self.limits.execute_s)

    async def interact(self, code: str) -> Envelope:
        """Runs statements for a person at the terminal that the session shares, for as long as they take."""
        return await self._request("interact", expr=code, deadline_s=self.limits.wall_s)

    async def complete(self, text: str) -> list[str]:
        """Words that may stand for the dotted name at the end of `text`."""
        answer = await self._request("complete", text=text, deadline_s=self.limits.inspect_s)
        return list(answer["result"]["words"]) if answer["ok"] else []

    async def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in what runs now."""
        if self._child is not None:
            await self._child.send(msgspec.json.encode({"op": "interrupt"}))

    async def dispatch(self, name: str, arguments: Mapping[str, Any]) -> Envelope:
        """A model's call of one of the three tools; any other name is `unknown_function`."""
        if name not in TOOLS:
            answer = failure(
                "unknown_function",
                f"there is no function {name[:100]!r}",
                hints=list(TOOLS),
                next_action="call one of list_globals, inspect, eval_expr",
            )
        elif name == "list_globals":
            answer = await self.list_globals()
        elif not isinstance(arguments.get("expr"), str) or not arguments["expr"].strip():
            answer = failure(
                "invalid_arguments",
                f"{name} takes an expression as a string",
                next_action='give {"expr": "<a Python expression>"}',
            )
        else:
            answer = await (self.inspect if name == "inspect" else self.eval_expr)(arguments["expr"])
        self.events.emit("live.tool", tool=name, arguments=dict(arguments), answer=answer)
        return answer

    async def _open(self) -> None:
        try:
            self._child = await self._opened()
        except BaseException:
            await self._resources.aclose()
            raise

    async def _opened(self) -> "Child | TrustedChild":
        child = await self._taken()
        self._resources.push_async_callback(child.aclose)
        options = {"commit_max_bytes": self.limits.commit_max_bytes, "in_place": self._terminal}
        await child.send(msgspec.json.encode({"op": "open", "options": options}))
        opened = await self._received(child, 30.0)
        if opened is not None and "opened" in opened:
            return child
        exit_ = await child.wait()
        raise LiveError(
            f"the session's process did not start: {exit_.ending} {exit_.stderr.decode('utf-8', 'replace')[-500:]}",
            next_action="run `toolfold doctor`",
        )

    async def _taken(self) -> "Child | TrustedChild":
        if self._trusted:
            return await TrustedChild.start(terminal=self._terminal, cwd=self._cwd)
        if self._children is None:
            from toolfold.sandbox.zygote import Zygote

            zygote = Zygote(WORKER_ENTRY, limits=child_limits(self.limits), ready=0)
            return await (await self._resources.enter_async_context(zygote)).take()
        return await self._children.take()

    async def _request(self, operation: str, *, deadline_s: float, **fields: str) -> Envelope:
        """One request after the other. One that nobody waits for any longer is interrupted and ends in its own time."""
        exchange = asyncio.ensure_future(self._exchange(operation, deadline_s, fields))
        self._running.add(exchange)
        exchange.add_done_callback(self._running.discard)
        try:
            return await wait_unless_closed(exchange)
        except asyncio.CancelledError:
            if not exchange.done() and self._busy_with is exchange:
                await self.interrupt()
            raise

    async def _exchange(self, operation: str, deadline_s: float, fields: dict[str, str]) -> Envelope:
        async with self._turn:
            if not self._entered:
                raise LiveError("the session is not open", next_action="use it as: async with LiveSession() as session")
            if self._untold is not None and operation != "complete":
                untold, self._untold = self._untold, None
                return untold
            found = None if self._child is None else await self._asked(self._child, operation, deadline_s, fields)
            answer = await self._start_over() if found is None else validate(operation, found)
            if operation == "complete" and not answer["ok"] and answer["error"]["code"] == "session_lost":
                self._untold = answer  # completing shows no errors: the next request does
            return answer

    async def _asked(
        self, child: "Child | TrustedChild", operation: str, deadline_s: float, fields: dict[str, str]
    ) -> Envelope | None:
        """What the process answers; `None` where it is lost."""
        self._busy_with = asyncio.current_task()
        self._count += 1
        frame = {"id": self._count, "op": operation, "deadline_s": deadline_s, **fields}
        try:
            await child.send(msgspec.json.encode(_without_surrogates(frame)))
            return await self._answered(child, self._count, deadline_s + _ANSWER_SLACK_S)
        except ToolfoldError as error:
            self.events.emit("live.broken", message=error.message)
            return None
        finally:
            self._busy_with = None

    async def _answered(self, child: "Child | TrustedChild", number: int, within_s: float) -> Envelope | None:
        while True:
            frame = await self._received(child, within_s)
            if frame is None:
                return None
            if "ask" in frame:
                told = await self._outputs.answer(frame)
                answer = {**told, "asked": frame.get("asked")}
                await child.send(msgspec.json.encode({"op": "told", "answer": answer}))
            elif frame.get("id") == number and isinstance(frame.get("answer"), dict):
                envelope: Envelope = frame["answer"]
                return envelope

    async def _received(self, child: "Child | TrustedChild", within_s: float) -> dict[str, Any] | None:
        """A frame from the other side, which is not to be trusted; `None` when it is gone, or sends what is none."""
        try:
            async with asyncio.timeout(within_s):
                data = await child.receive()
        except TimeoutError:
            child.kill("timed_out")
            return None
        if data is None:
            return None
        try:
            found = msgspec.json.decode(data) if len(data) <= ANSWER_MAX_BYTES else None
        except (msgspec.DecodeError, RecursionError):
            found = None
        if found is None:
            child.kill("protocol_violation")
        return found if isinstance(found, dict) else None

    async def _start_over(self) -> Envelope:
        """The whole process tree is gone: say so, and begin a new one."""
        ending = "is gone"
        if self._child is not None:
            self._child.kill()
            ended = await self._child.wait()
            ending = f"ended ({ended.ending})"
        await self._resources.aclose()
        self._child = None
        await self._open()
        return session_lost(ending)


async def wait_unless_closed(work: asyncio.Future[_T]) -> _T:
    """What comes of work that goes on without us. Raises `LiveError` where somebody ended the session meanwhile."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if work.cancelled() and not (task and task.cancelling()):
            raise LiveError(
                "the session was ended", next_action="open a new one; a gateway does when it is asked again"
            ) from None
        raise


def _without_surrogates(frame: dict[str, Any]) -> dict[str, Any]:
    """Lone surrogates cannot be sent: they are written out."""
    return {
        key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for key, value in frame.items()
    }
