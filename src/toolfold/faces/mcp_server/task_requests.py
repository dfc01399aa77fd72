"""Calls as tasks, over MCP of both eras: what makes a task of a call, and the requests about tasks.

A modern client that declares the extension gets a task where the server made one of the call, or where an operation of
our own takes its time; a client of 2025-11-25 where it asks for one. An id is sealed and names the gateway that has the
task: any other on the same store asks that one. Above: the MCP server's apps. Below: `calls.tasks`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.json import encode
from msgspec.structs import replace

from toolfold.calls.tasks import LIMIT_S, MAX_TTL_S, BackgroundTask, Failure, TaskStore
from toolfold.errors import InputUnavailable, QuotaExceeded, RemoteError, StoreError, ToolfoldError
from toolfold.faces.mcp_server.call_request import ClientInput
from toolfold.gateway import Gateway
from toolfold.types import EMPTY_OBJECT, CallContext, Caller
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from toolfold.wire.serving import Exchange, NotificationHub, RpcError
from toolfold.wire.serving.exchange import check_takes_tasks
from toolfold.wire.serving.peers import _PeerGone, _RemoteSink
from toolfold.wire.serving.seal import Seals
from toolfold.wire.types import LEGACY_TASKS_VERSION, RELATED_TASK, TASK_STATUS

__all__ = ["TaskRequests", "as_task_tools"]

log = logging.getLogger("toolfold.mcp")

Work = Callable[[CallContext], Awaitable[Raw]]

# How often a client should ask.
POLL_MS = 1000
# An operation of our own that takes longer becomes a task, for a client that takes one.
PATIENCE_S = 1.0
# What a request of another gateway waits for at most, before it asks again.
_WAIT_S = 20.0
_PAGE = 50
_MAX_ID = 512
_PURPOSE = "task"
_SUPPORT = b'{"execution":{"taskSupport":"optional"},'

_LEGACY = frozenset({"tasks/get", "tasks/result", "tasks/list", "tasks/cancel"})
_MODERN = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})


class _Wanted(Struct):
    ttl: int | float | None = None


class _Params(Struct):
    task_id: str = msgspec.field(name="taskId", default="")
    responses: dict[str, Raw] = msgspec.field(name="inputResponses", default_factory=dict)
    cursor: str | None = None


class _Shown(Struct, array_like=True):
    """A task as another gateway tells of it; each era writes it in its own form."""

    identifier: str
    status: str
    message: str
    created_at: float
    updated_at: float
    ttl_s: float
    changes: int
    result: bytes | None = None
    failure: Failure | None = None
    questions: dict[str, tuple[str, bytes]] = {}

    @staticmethod
    def of(task: BackgroundTask) -> "_Shown":
        questions = {name: (one.method, bytes(one.params)) for name, one in task.open_questions.items()}
        return _Shown(
            identifier=task.identifier,
            # While a question is answered and the next not asked, there is nothing to answer.
            status="working" if task.status == "input_required" and not questions else task.status,
            message=task.message,
            created_at=task.created_at,
            updated_at=task.updated_at,
            ttl_s=task.ttl_s,
            changes=task.changes,
            result=bytes(task.result) if task.result is not None else None,
            failure=task.failure,
            questions=questions,
        )

    @property
    def ended(self) -> bool:
        return self.status not in {"working", "input_required"}

    def legacy(self) -> dict[str, Any]:
        return {**self._common(), "ttl": int(self.ttl_s * 1000), "pollInterval": POLL_MS}

    def modern(self) -> dict[str, Any]:
        return {**self._common(), "ttlMs": int(self.ttl_s * 1000), "pollIntervalMs": POLL_MS}

    def detailed(self) -> dict[str, Any]:
        """The modern form, with what its state brings."""
        shown = self.modern()
        if self.status == "input_required":
            asked = self.questions.items()
            shown["inputRequests"] = {
                name: {"method": method, "params": Raw(params)} for name, (method, params) in asked
            }
        elif self.result is not None:
            shown["result"] = Raw(self.result)
        elif self.failure is not None:
            data = {} if self.failure.data is None else {"data": self.failure.data}
            shown["error"] = {"code": self.failure.code, "message": self.failure.message, **data}
        return shown

    def _common(self) -> dict[str, Any]:
        said = {"statusMessage": self.message} if self.message else {}
        times = {"createdAt": _time(self.created_at), "lastUpdatedAt": _time(self.updated_at)}
        return {"taskId": self.identifier, "status": self.status, **said, **times}


class _Asked(Struct, array_like=True):
    """What is asked of the gateway that has a task. `since`: how often it had changed, for whom a change is awaited."""

    what: str
    owner: str
    key: str
    answers: dict[str, bytes] = {}
    since: int = -1


class _Call:
    """One call that may become a task: what its server tells of it is heard here."""

    def __init__(self, store: TaskStore, name: Callable[[str], str], exchange: Exchange, context: CallContext) -> None:
        self._store = store
        self._name = name
        self._caller = exchange.caller
        self._on_input = context.on_input
        self.limit_s = LIMIT_S
        self.follows = False
        self.task: BackgroundTask | None = None
        self.job: asyncio.Task[Raw] | None = None
        self.begun = asyncio.Event()

    def begin(self) -> None:
        try:
            self.start()
        except QuotaExceeded:
            return  # it goes on within the request
        self.follows = True

    def start(self, ttl_s: float = MAX_TTL_S) -> BackgroundTask:
        """Makes a task of it. Raises `QuotaExceeded`."""
        if self.task is None:
            self.task = self._store.add(self._caller.name, self._caller.session, ttl_s)
            self.task.identifier = self._name(self.task.key)
            if isinstance(self._on_input, ClientInput):
                self._on_input.task = self.task  # its request is over: from now on it asks through the task
            self.limit_s = min(LIMIT_S, self.task.ttl_s)
            self.begun.set()
            if self.job is not None:
                self.take(self.task, self.job)
        return self.task

    def take(self, task: BackgroundTask, job: "asyncio.Task[Raw]") -> None:
        task.job = job
        job.add_done_callback(partial(_end, self._store, task))

    def tell(self, message: str) -> None:
        if self.task is not None:
            self.task.tell(message)


class TaskRequests:
    """The tasks of one gateway's clients."""

    def __init__(self, gateway: Gateway) -> None:
        self._peers = gateway.peers
        self._seals = self._peers.seals if self._peers is not None else Seals()
        self._number = self._peers.number if self._peers is not None else 0
        self._store = TaskStore(self._tell, self._forget)
        self._hub: NotificationHub | None = None
        if self._peers is not None:
            self._peers.on("task", self._asked)

    def open(self, hub: NotificationHub) -> None:
        """Whoever follows a task hears of it over this hub."""
        self._hub = hub

    async def aclose(self) -> None:
        """Cancels what runs."""
        await self._store.aclose()

    def state(self, identifier: str, caller: Caller) -> bytes | None:
        """What a subscriber is told of a task of its own; nothing of one that is not here."""
        try:
            number, key = self._open(identifier)
        except RpcError:
            return None
        task = self._store.find(key, caller.name) if number == self._number else None
        return None if task is None else encode(_Shown.of(task).detailed())

    # --- calls

    async def call(
        self, exchange: Exchange, context: CallContext, work: Work, *, wanted: Raw = ABSENT, slow: bool = False
    ) -> Raw:
        """The result of a call, or the task that it became. `wanted`: what a legacy client says of the task it asks
        for. `slow`: it is one of our own operations, and a task if it takes its time."""
        if wanted is not ABSENT and exchange.client.version == LEGACY_TASKS_VERSION:
            return self._begin(exchange, context, work, wanted)
        if not exchange.client.takes_tasks:
            return await work(context)
        return await self._follow(exchange, context, work, slow=slow)

    async def _follow(self, exchange: Exchange, context: CallContext, work: Work, *, slow: bool) -> Raw:
        """The result of a call, or the task that it became, for a modern client that takes either."""
        call = _Call(self._store, self._name, exchange, context)
        call.job = asyncio.ensure_future(_run(work, _as_task(context, call)))
        begun = asyncio.ensure_future(call.begun.wait())
        try:
            await asyncio.wait({call.job, begun}, timeout=PATIENCE_S if slow else None, return_when="FIRST_COMPLETED")
            if slow and not call.job.done():
                call.begin()
                call.follows = False  # our own operations keep their limits
            await asyncio.wait({call.job, begun}, return_when="FIRST_COMPLETED")
        except asyncio.CancelledError:
            if call.task is not None:
                call.task.cancel()  # nobody was told its id
            call.job.cancel()
            await asyncio.wait({call.job})
            raise
        finally:
            begun.cancel()
        if call.task is None:
            return call.job.result()
        return Raw(encode({"resultType": "task", **_Shown.of(call.task).modern()}))

    def _begin(self, exchange: Exchange, context: CallContext, work: Work, wanted: Raw) -> Raw:
        """A task at once, for the legacy client that asked for it."""
        try:
            ttl_ms = msgspec.json.decode(wanted, type=_Wanted).ttl
        except DECODE_ERRORS as error:
            raise RpcError(INVALID_PARAMS, f"`task` cannot be read: {error}") from error
        call = _Call(self._store, self._name, exchange, context)
        task = call.start(MAX_TTL_S if ttl_ms is None else min(max(ttl_ms, 0), MAX_TTL_S * 1000) / 1000)
        if self._hub is not None:
            self._hub.follow(task.identifier, exchange.client)
        call.take(task, asyncio.ensure_future(_run(work, _as_task(context, call))))
        return Raw(encode({"task": _Shown.of(task).legacy()}))

    # --- requests about tasks

    async def handle(self, exchange: Exchange) -> Raw:
        """Answers a request whose method begins with `tasks/`. Raises `RpcError`."""
        params = _parse(exchange)
        if exchange.method == "tasks/list":
            return self._listed(params.cursor, exchange.caller)
        if exchange.method == "tasks/result":
            return await self._result(params.task_id, exchange)
        what = exchange.method.removeprefix("tasks/")
        answers = {name: bytes(answer) for name, answer in params.responses.items()}
        shown = await self._ask(what, params.task_id, exchange.caller, answers)
        if not exchange.modern:
            return Raw(encode(shown.legacy()))
        return Raw(encode({"resultType": "complete", **(shown.detailed() if what == "get" else {})}))

    def _listed(self, cursor: str | None, caller: Caller) -> Raw:
        """The tasks that this session began here. Others of its caller are known by their ids alone: where callers
        need no keys, all have one name."""
        tasks = self._store.listed(caller.name, caller.session)
        start = 0
        if cursor is not None:
            keys = [task.key for task in tasks]
            if (key := self._open(cursor)[1]) not in keys:
                raise RpcError(INVALID_PARAMS, "the cursor is none of this server, or too old: list from the start")
            start = keys.index(key) + 1
        page = tasks[start : start + _PAGE]
        more = {"nextCursor": page[-1].identifier} if start + _PAGE < len(tasks) else {}
        return Raw(encode({"tasks": [_Shown.of(task).legacy() for task in page], **more}))

    async def _result(self, identifier: str, exchange: Exchange) -> Raw:
        """What a task ended with, once it did; its questions are asked on the way."""
        shown = await self._ask("get", identifier, exchange.caller)
        while not shown.ended:
            for name, (method, params) in shown.questions.items():
                await self._bring(name, method, params, identifier, exchange)
            shown = await self._ask("wait", identifier, exchange.caller, since=shown.changes)
        if shown.failure is not None:
            raise RpcError(shown.failure.code, shown.failure.message, shown.failure.data)
        if shown.result is None:
            raise RpcError(INVALID_PARAMS, "the task was cancelled, so it has no result")
        return _related(Raw(shown.result), identifier)

    async def _bring(self, name: str, method: str, params: bytes, identifier: str, exchange: Exchange) -> None:
        """Asks the client of a request what its task asks, and takes the answer there."""
        try:
            answer = await exchange.ask(method, _related(Raw(params), identifier))
        except ToolfoldError as error:
            refused = {name: error.message.encode()}
            await self._ask("refuse", identifier, exchange.caller, refused)
        else:
            await self._ask("update", identifier, exchange.caller, {name: bytes(answer)})

    async def _ask(
        self, what: str, identifier: str, caller: Caller, answers: dict[str, bytes] | None = None, since: int = -1
    ) -> _Shown:
        """A task after what was asked of it, wherever it is. Raises `RpcError` where it is nowhere."""
        peers = self._peers
        if peers is not None and len(identifier) <= _MAX_ID:
            try:
                await self._seals.find_key(identifier)
            except StoreError as error:
                raise RpcError(INTERNAL_ERROR, f"ask again later: {error.message}") from error
        number, key = self._open(identifier)
        asked = _Asked(what, caller.name, key, answers or {}, since)
        if number == self._number or peers is None:
            return await self._answer(asked)
        reply = _Reply()
        try:
            cancel = await peers.call(number, "task", msgspec.msgpack.encode(asked), reply)
        except _PeerGone:
            raise await self._elsewhere(number) from None
        try:
            return await reply.arrived
        except asyncio.CancelledError:
            cancel()
            raise

    async def _elsewhere(self, number: int) -> RpcError:
        if self._peers is not None and await self._peers.alive(number):
            return RpcError(INTERNAL_ERROR, "the gateway that has this task did not answer: ask again in a moment")
        gone = "the gateway that ran this task has ended, and the task with it"
        return RpcError(INVALID_PARAMS, f"{gone}: check whether it had its effect before you call again")

    async def _asked(self, body: bytes, sink: _RemoteSink) -> None:
        """Another gateway asks, where the client's caller was checked."""
        work = asyncio.ensure_future(self._answer(msgspec.msgpack.decode(body, type=_Asked)))
        sink.on_cancelled = work.cancel
        try:
            sink.finish(msgspec.msgpack.encode(await work), None)
        except RpcError as fault:
            sink.finish(fault.message.encode(), fault)

    async def _answer(self, asked: _Asked) -> _Shown:
        """Does what is asked of a task that is here."""
        task = self._store.find(asked.key, asked.owner)
        if task is None:
            raise _unknown()
        if asked.what == "cancel":
            task.cancel()
        elif asked.what == "update":
            task.answer({name: Raw(answer) for name, answer in asked.answers.items()})
        elif asked.what == "refuse":
            for name, reason in asked.answers.items():
                task.refuse(name, InputUnavailable(f"the client does not answer: {reason.decode()}"))
        elif asked.what == "wait" and not task.ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_S):
                    await task.change(asked.since)
        return _Shown.of(task)

    # --- ids and notifications

    def _name(self, key: str) -> str:
        return self._seals.seal_text(_PURPOSE, msgspec.msgpack.encode((self._number, key)))

    def _open(self, identifier: str) -> tuple[int, str]:
        """The gateway that has a task, and its key there. Raises `RpcError` for what is no id."""
        opened = self._seals.unseal_text(_PURPOSE, identifier) if len(identifier) <= _MAX_ID else None
        if opened is None:
            raise _unknown()
        return msgspec.msgpack.decode(opened, type=tuple[int, str])

    def _tell(self, task: BackgroundTask) -> None:
        if self._hub is None or not self._hub.follows(task.identifier):
            return
        shown = _Shown.of(task)
        self._hub.publish(TASK_STATUS["legacy"], encode(shown.legacy()), uri=task.identifier)
        self._hub.publish(TASK_STATUS["modern"], encode(shown.detailed()), uri=task.identifier)

    def _forget(self, task: BackgroundTask) -> None:
        if self._hub is not None:
            self._hub.follow(task.identifier, None, on=False)


class _Reply:
    """What another gateway answers of a task."""

    def __init__(self) -> None:
        self.arrived: asyncio.Future[_Shown] = asyncio.get_running_loop().create_future()

    def push(self, message: bytes) -> None:
        """There is nothing before the answer."""

    def finish(self, message: bytes, fault: RpcError | None) -> None:
        if self.arrived.done():
            return
        if fault is None:
            self.arrived.set_result(msgspec.msgpack.decode(message, type=_Shown))
        else:
            self.arrived.set_exception(RpcError(fault.code, _said(message)))

    def finish_long(self, parts: tuple[bytes | memoryview, ...]) -> None:
        self.finish(b"".join(parts), None)


def _parse(exchange: Exchange) -> _Params:
    """The parameters of a request about tasks. Raises `RpcError` where its client cannot make it."""
    legacy = _LEGACY if exchange.client.version == LEGACY_TASKS_VERSION else frozenset()
    if exchange.method not in (_MODERN if exchange.modern else legacy):
        raise RpcError(METHOD_NOT_FOUND, f"there is no method {exchange.method[:100]} here")
    if exchange.modern:
        check_takes_tasks(exchange.client)
    try:
        return msgspec.json.decode(exchange.params or EMPTY_OBJECT, type=_Params)
    except DECODE_ERRORS as error:
        raise RpcError(INVALID_PARAMS, f"the parameters of {exchange.method} cannot be read: {error}") from error


def as_task_tools(exchange: Exchange, tools: Iterable[Raw]) -> tuple[Raw, ...]:
    """The tools as a client of 2025-11-25 reads them: each can be called as a task, and none must be."""
    if exchange.modern or exchange.client.version != LEGACY_TASKS_VERSION:
        return tuple(tools)
    return tuple(_as_task_tool(tool) for tool in tools)


def _as_task_tool(tool: Raw) -> Raw:
    text = bytes(tool)
    if b'"execution"' not in text:
        return Raw(_SUPPORT + text.lstrip()[1:])
    members = msgspec.json.decode(tool, type=dict[str, Raw])
    return Raw(encode({**members, "execution": {"taskSupport": "optional"}}))


async def _run(work: Work, context: CallContext) -> Raw:
    return await work(context)


def _as_task(context: CallContext, call: _Call) -> CallContext:
    return replace(context, task=call)


def _end(store: TaskStore, task: BackgroundTask, job: "asyncio.Task[Raw]") -> None:
    """Takes over how a call ended."""
    if job.cancelled():
        task.end("cancelled")
        return
    error = job.exception()
    if error is None:
        store.complete(task, job.result().copy())
    elif isinstance(error, RpcError):
        task.end("failed", failure=Failure(error.code, error.message, error.data))
    elif isinstance(error, RemoteError):
        task.end("failed", failure=Failure(error.rpc_code, error.message, error.data))
    elif isinstance(error, ToolfoldError):
        task.end("failed", failure=Failure(INTERNAL_ERROR, error.message, error.as_dict()))
    else:
        log.error("a task failed", exc_info=error)
        task.end("failed", failure=Failure(INTERNAL_ERROR, "the server failed at this; its log says more"))


def _related(value: Raw, identifier: str) -> Raw:
    """A result, or the parameters of a question, with the task that they are of."""
    try:
        members = msgspec.json.decode(value, type=dict[str, Raw])
        meta = msgspec.json.decode(members.get("_meta", EMPTY_OBJECT), type=dict[str, Raw])
    except DECODE_ERRORS:
        return value
    return Raw(encode({**members, "_meta": {**meta, RELATED_TASK: {"taskId": identifier}}}))


def _unknown() -> RpcError:
    kept = "its id is wrong, its time is over, or the gateway that ran it has ended"
    return RpcError(INVALID_PARAMS, f"there is no such task here: {kept}; check whether it had its effect")


def _said(message: bytes) -> str:
    """The words of another gateway's refusal: our own, or those of its `Peers`."""
    try:
        return str(msgspec.json.decode(message)["error"]["message"])
    except (*DECODE_ERRORS, KeyError, TypeError):
        return message.decode("utf-8", "replace")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
