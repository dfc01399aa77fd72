"""Tasks of an MCP server: a call that its server answered with a task is followed to its end, and ends with its result.

In both forms: the extension of the modern era, and the core of 2025-11-25. Whatever ends the call before (its time
limit, its client, a state that cannot be), the server is told to cancel its task. A server's word on how often to ask
counts within bounds. Above: `mcp.py`. Below: the wire.
"""

import asyncio
import logging
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, field
from msgspec.json import encode

from toolfold.containers import TaskSet
from toolfold.errors import ProtocolViolation, RemoteError, ServerTimeout, UpstreamError
from toolfold.text import NOTE_KEY, printable, truncate
from toolfold.types import EMPTY_OBJECT, CallContext, Era, OnInput, ToolCall
from toolfold.upstream.redaction import mask
from toolfold.wire import Connection
from toolfold.wire.connection import InputRequest
from toolfold.wire.dispatcher import capability_names, input_unavailable
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, remote_error
from toolfold.wire.types import LEGACY_TASKS_VERSION, NO_TIMEOUT, RELATED_TASK, TASKS

__all__ = ["ServerTasks"]

# How often a task is asked for at most and at least, and where its server does not say.
MIN_PAUSE_S, MAX_PAUSE_S, PAUSE_S = 0.1, 10.0, 1.0
# How long a server may take to say how a task is, or that it was cancelled.
ASK_TIMEOUT_S = 30.0
CANCEL_TIMEOUT_S = 5.0
_CLOSE_GRACE_S = 1.0
MAX_QUESTIONS = 64
_MAX_ID = 1024
_MAX_MESSAGE = 500
_OUR_META = NOTE_KEY.partition("/")[0] + "/"

log = logging.getLogger("toolfold.upstream")

_Support = Literal["forbidden", "optional", "required"]


class _State(Struct):
    """A task as its server tells of it, in either form."""

    task_id: str = field(name="taskId", default="")
    status: str = ""
    message: Any = field(name="statusMessage", default=None)
    pause: Any = field(name="pollInterval", default=None)
    pause_ms: Any = field(name="pollIntervalMs", default=None)
    result: Raw = ABSENT
    error: Raw = ABSENT
    questions: dict[str, InputRequest] = field(name="inputRequests", default_factory=dict)

    @property
    def pause_s(self) -> float:
        said = self.pause_ms if self.pause_ms is not None else self.pause
        if isinstance(said, bool) or not isinstance(said, (int, float)):
            return PAUSE_S
        return min(max(said, MIN_PAUSE_S * 1000), MAX_PAUSE_S * 1000) / 1000  # an integer may be too large for a float


class _Created(Struct):
    result_type: Any = field(name="resultType", default="")
    task: Raw = ABSENT


class _Requests(Struct, frozen=True):
    tools: dict[str, Raw] = {}


class _Tasks(Struct, frozen=True):
    requests: _Requests = _Requests()


class _Capabilities(Struct):
    tasks: _Tasks = _Tasks()
    extensions: dict[str, Raw] = {}


class _Execution(Struct, frozen=True):
    support: _Support = field(name="taskSupport", default="forbidden")


class _Tool(Struct):
    execution: _Execution = _Execution()


def _tasks_era(connection: Connection) -> Era | None:
    """Which form of tasks a server has; `None`: none."""
    try:
        declared = msgspec.json.decode(connection.capabilities, type=_Capabilities)
    except DECODE_ERRORS:
        return None
    if connection.info.era == "modern":
        return "modern" if TASKS in declared.extensions else None
    has = connection.info.protocol_version == LEGACY_TASKS_VERSION and "call" in declared.tasks.requests.tools
    return "legacy" if has else None


@lru_cache(maxsize=64)
def _with_tasks(capabilities: bytes) -> Raw:
    members = msgspec.json.decode(capabilities, type=dict[str, Raw])
    extensions = msgspec.json.decode(members.get("extensions", EMPTY_OBJECT), type=dict[str, Raw])
    return Raw(encode({**members, "extensions": {**extensions, TASKS: EMPTY_OBJECT}}))


class ServerTasks:
    """The tasks that calls became at the server of one connection, if it has any."""

    def __init__(self, connection: Connection, timeout_s: float, secrets: tuple[str, ...]) -> None:
        self._connection = connection
        self._era = _tasks_era(connection)
        self._timeout_s = timeout_s
        self._secrets = secrets
        self._cancelling = TaskSet(log)
        self._waiting: dict[str, asyncio.Event] = {}

    def asked(self, call: ToolCall, context: CallContext) -> Raw | None:
        """What asks a legacy server to make a task of a call: where it must, or may and somebody takes one."""
        if self._era != "legacy" or b"taskSupport" not in bytes(call.tool.definition.sent):
            return None
        try:
            support = msgspec.json.decode(call.tool.definition.sent, type=_Tool).execution.support
        except DECODE_ERRORS:
            return None
        if support == "required" or (support == "optional" and context.task is not None):
            limit_s = context.timeout_s or self._timeout_s if context.task is None else context.task.limit_s
            return Raw(encode({"ttl": int(limit_s * 1000) + 60_000}))
        return None

    def declared(self, capabilities: Raw | None) -> Raw | None:
        """The capabilities of a caller, and ours to take a task from a modern server and to follow it."""
        if self._era != "modern":
            return capabilities
        try:
            return _with_tasks(bytes(capabilities) if capabilities is not None else b"{}")
        except DECODE_ERRORS:
            return capabilities

    def created(self, result: Raw) -> _State | None:
        """The task that a server made of a call; `None`: this is the result."""
        if self._era is None or b'"task' not in bytes(result):
            return None
        try:
            found = msgspec.json.decode(result, type=_Created)
        except DECODE_ERRORS:
            return None  # whoever reads it as a result says what is wrong with it
        if self._era == "modern":
            told = result if found.result_type == "task" else ABSENT
        else:
            told = found.task if bytes(found.task)[:1] == b"{" else ABSENT
        try:
            return self._read(told, "tools/call") if told is not ABSENT else None
        except DECODE_ERRORS as error:
            raise _impossible(f"the call became a task that cannot be read: {error}", told=False) from error

    def on_late(self, result: Raw) -> None:
        """A call was given up, and its server made a task of it all the same."""
        with suppress(ProtocolViolation):
            if (task := self.created(result)) is not None:
                self._cancelling.start(self._cancel(task.task_id), name="cancelling a server's task")

    async def follow(self, task: _State, context: CallContext) -> Raw:
        """The result of a task, once there is one. Raises what it failed with."""
        if context.task is not None:
            context.task.begin()
        following = _Following(self, self._connection, self._era == "modern", context, task)
        try:
            async with asyncio.timeout(None if context.timeout_s is not None else self._timeout_s):
                return _own_result(await following.run())
        except TimeoutError:
            raise ServerTimeout(
                f"the server's task did not end within {self._timeout_s:g} s: it was told to cancel it",
                next_action="ask it for less, or allow more time for this server",
            ) from None
        finally:
            if not following.ended:
                self._cancelling.start(self._cancel(task.task_id), name="cancelling a server's task")

    def _read(self, told: Raw, doing: str) -> _State:
        state = msgspec.json.decode(told, type=_State)
        if not state.task_id or len(state.task_id) > _MAX_ID:
            what = f"the answer to {doing} names no task, or one with over {_MAX_ID} characters"
            raise _impossible(what, told=doing != "tools/call")
        return state

    async def state(self, task_id: str, context: CallContext) -> _State:
        """How a task is now, as its server says."""
        params = Raw(encode({"taskId": task_id}))
        try:
            told = await self.ask("tasks/get", params, context.capabilities)
            state = self._read(told, "tasks/get")
        except RemoteError as error:
            raise UpstreamError(
                f"the server made a task of this call and does not know it now: {error.message}",
                next_action="check whether it had its effect before you call again",
            ) from error
        except DECODE_ERRORS as error:
            raise _impossible(f"the state of its task cannot be read: {error}") from error
        if state.task_id != task_id:
            raise _impossible("asked for one task, it told of another")
        return state

    async def ask(
        self, method: str, params: Raw, capabilities: Raw | None = None, timeout_s: float = ASK_TIMEOUT_S
    ) -> Raw:
        """A request about a task. In the modern era each has to declare that we take one."""
        return await self._connection.request(
            method, params, timeout_s=timeout_s, capabilities=self.declared(capabilities)
        )

    def wakes(self, task_id: str) -> asyncio.Event:
        """Set when the server says of itself that this task changed. To be given back with `forget`."""
        return self._waiting.setdefault(task_id, asyncio.Event())

    def forget(self, task_id: str) -> None:
        self._waiting.pop(task_id, None)

    def on_status(self, params: Raw) -> None:
        with suppress(*DECODE_ERRORS):
            waiting = self._waiting.get(msgspec.json.decode(params, type=_State).task_id)
            if waiting is not None:
                waiting.set()

    def printable(self, message: object) -> str:
        """A server's word on its task, for people to read."""
        text = message if isinstance(message, str) else ""
        return truncate(mask(printable(text, _MAX_MESSAGE), self._secrets), _MAX_MESSAGE)

    async def _cancel(self, task_id: str) -> None:
        # Nobody waits for it. A server that cannot be told keeps its task for as long as it said itself.
        with suppress(UpstreamError):
            await self.ask("tasks/cancel", Raw(encode({"taskId": task_id})), timeout_s=CANCEL_TIMEOUT_S)

    async def aclose(self) -> None:
        """Gives the server a moment to hear of what was cancelled."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_GRACE_S):
                await self._cancelling.wait()
        await self._cancelling.cancel()


class _Following:
    """One task on its way to its end."""

    def __init__(
        self, tasks: ServerTasks, connection: Connection, modern: bool, context: CallContext, created: _State
    ) -> None:
        self._tasks = tasks
        self._connection = connection
        self._modern = modern
        self._context = context
        self._state = created
        self._task_id = created.task_id
        self._told = 0
        # Whether the server said that it ended: there is nothing to cancel then.
        self.ended = False
        # What is under way beside the asking: answers to questions, and the result of a legacy server.
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._fetching: asyncio.Task[Raw] | None = None
        self._asks = _Questions(context.on_input, tasks.wakes(created.task_id))

    async def run(self) -> Raw:
        changed = self._tasks.wakes(self._task_id)
        try:
            while True:
                self._tell()
                if (result := await self._look()) is not None:
                    return result
                changed.clear()
                await self._pause(changed)
                if self._fetching is None or not self._fetching.done():
                    self._state = await self._tasks.state(self._task_id, self._context)
        finally:
            self._tasks.forget(self._task_id)
            running = [task for task in (*self._questions.values(), self._fetching) if task is not None]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _look(self) -> Raw | None:
        """What the state that was told means: the result, or nothing yet. Raises what the task failed with."""
        if self._fetching is not None and self._fetching.done():
            result, self.ended = self._fetching.result(), True
            return result
        state = self._state
        if state.status == "working":
            return None
        if state.status == "input_required":
            self._ask() if self._modern else self._fetch()
            return None
        if state.status not in {"completed", "failed", "cancelled"}:
            raise _impossible(f"it says that its task is {printable(state.status, 40)!r}")
        self.ended = True
        if state.status == "cancelled":
            what = self._named("the server cancelled its task", state)
            raise UpstreamError(what, next_action="look into that server's log, or call again")
        if not self._modern:
            return await self._fetch()
        return self._inlined(state)

    def _inlined(self, state: _State) -> Raw:
        """What a modern server sent with the end of its task."""
        if state.status == "failed":
            if state.error is ABSENT:
                raise _impossible(self._named("it says that its task failed, and not with what", state))
            raise remote_error(state.error)
        if state.result is ABSENT:
            raise _impossible("it says that its task is completed, and sends no result")
        return state.result

    def _fetch(self) -> "asyncio.Task[Raw]":
        """Asks a legacy server for the result, which also lets it ask for input meanwhile."""
        if self._fetching is None:
            context = self._context
            self._fetching = asyncio.ensure_future(
                self._connection.request(
                    "tasks/result",
                    Raw(encode({"taskId": self._task_id})),
                    timeout_s=NO_TIMEOUT,  # the call's own limit ends it
                    on_input=self._asks if context.on_input is not None else None,
                    capabilities=context.capabilities,
                    task=self._task_id,
                )
            )
        return self._fetching

    def _ask(self) -> None:
        """Begins to ask the caller what a modern server asks, each question once."""
        for key, question in self._state.questions.items():
            if key not in self._questions:
                if len(self._questions) >= MAX_QUESTIONS:
                    raise _asks_on()
                self._questions[key] = asyncio.ensure_future(self._answer(key, question))

    async def _answer(self, key: str, question: InputRequest) -> None:
        context = self._context
        declared = None if context.capabilities is None else capability_names(context.capabilities)
        answer = await self._connection.answer_input(question, context.on_input, declared)
        params = Raw(encode({"taskId": self._task_id, "inputResponses": {key: answer}}))
        await self._tasks.ask("tasks/update", params, context.capabilities)

    async def _pause(self, changed: asyncio.Event) -> None:
        """Until it is time to ask again, the server says something, or a question fails."""
        waker: asyncio.Task[Any] = asyncio.ensure_future(changed.wait())
        asking: set[asyncio.Task[Any]] = {task for task in self._questions.values() if not task.done()}
        fetching: set[asyncio.Task[Any]] = {self._fetching} if self._fetching is not None else set()
        try:
            pause_s = self._state.pause_s
            await asyncio.wait({waker, *asking, *fetching}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waker.cancel()
        for question in self._questions.values():
            if question.done():
                question.result()
        self._asks.check()

    def _named(self, what: str, state: _State) -> str:
        said = self._tasks.printable(state.message)
        return f"{what}: {said}" if said else what

    def _tell(self) -> None:
        """Tells whoever waits how far it is."""
        said = self._tasks.printable(self._state.message)
        if self._context.task is not None:
            self._context.task.tell(said)
        if self._context.on_progress is not None:
            self._told += 1
            progress: dict[str, Any] = {"progressToken": 0, "progress": self._told}
            self._context.on_progress(Raw(encode({**progress, **({"message": said} if said else {})})))


class _Questions:
    """Asks the caller what a legacy server asks during one task, up to a number. Those of one caller are equal, as it
    is for the caller's own way to be asked."""

    def __init__(self, on_input: OnInput | None, changed: asyncio.Event) -> None:
        self._on_input = on_input
        self._changed = changed
        self._count = 0

    async def __call__(self, method: str, params: Raw) -> Raw:
        self._count += 1
        if self._on_input is None or self._count > MAX_QUESTIONS:
            self._changed.set()
            raise input_unavailable(method)
        return await self._on_input(method, params)

    def check(self) -> None:
        """Raises `ProtocolViolation` where there were too many."""
        if self._count > MAX_QUESTIONS:
            raise _asks_on()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Questions) and other._on_input == self._on_input

    def __hash__(self) -> int:
        return hash(self._on_input)


def _asks_on() -> ProtocolViolation:
    return _impossible(f"its task asks for input more than {MAX_QUESTIONS} times")


def _own_result(result: Raw) -> Raw:
    """A result without what names the server's own task, or speaks in our name."""
    text = bytes(result)
    if RELATED_TASK.encode() not in text and _OUR_META.encode() not in text:
        return result
    try:
        members = msgspec.json.decode(result, type=dict[str, Raw])
        meta = msgspec.json.decode(members.get("_meta", EMPTY_OBJECT), type=dict[str, Raw])
    except DECODE_ERRORS:
        return result
    kept = {key: value for key, value in meta.items() if key != RELATED_TASK and not key.startswith(_OUR_META)}
    rest = {key: value for key, value in members.items() if key != "_meta"}
    return Raw(encode({**rest, "_meta": kept} if kept else rest))


def _impossible(what: str, *, told: bool = True) -> ProtocolViolation:
    """`told`: there is an id by which the task is cancelled."""
    rest = "its task was told to end" if told else "its task could not be told to end, and may have its effect"
    return ProtocolViolation(what, next_action=f"Report this to the server's authors: {rest}.")
