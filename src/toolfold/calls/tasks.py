"""Calls that outlive their requests: each runs by itself, belongs to its caller, and is found by its id until its time
is over.

A caller has a bounded number of them, and so have all callers together; each ends after its time, and is removed then
with all that it holds. It says nothing of protocols. Above: the MCP server's face. Below: the pipeline, which runs what
they wait for.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Raw, Struct, field

from toolfold.errors import QuotaExceeded

__all__ = ["LIMIT_S", "MAX_TTL_S", "BackgroundTask", "Failure", "TaskStore"]


MAX_TASKS, MAX_TASKS_EACH = 1000, 100
# What the results of one caller's tasks may have together.
MAX_BYTES_EACH = 64 << 20
# How long a server's task may take, and how long whatever became of it is kept then.
LIMIT_S, KEEP_S = 3600.0, 600.0
MIN_TTL_S, MAX_TTL_S = 60.0, LIMIT_S + KEEP_S
MAX_QUESTIONS = 100
_CLOSE_GRACE_S = 3.0

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class Failure(Struct, frozen=True):
    """An error in the protocol's form, in place of a result."""

    code: int
    message: str
    data: Any = None


class _Question(Struct, eq=False):
    """What the call asks of its caller."""

    method: str
    params: Raw
    answer: "asyncio.Future[Raw]"


class BackgroundTask(Struct, eq=False, kw_only=True):
    """One call on its way, or what became of it."""

    key: str
    identifier: str = ""
    """What clients know it by."""
    owner: str
    session: str
    ttl_s: float
    created_at: float
    updated_at: float
    status: Status = "working"
    message: str = ""
    result: Raw | None = None
    failure: Failure | None = None
    questions: dict[str, _Question] = field(default_factory=dict)
    on_changed: Callable[["BackgroundTask"], None] | None = None
    job: "asyncio.Task[Any] | None" = None
    changes: int = 0
    """How often it changed."""
    _asked: int = 0
    _waiting: set["asyncio.Future[None]"] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        return self.status not in {"working", "input_required"}

    def tell(self, message: str) -> None:
        """What is known of how far it is."""
        if message and message != self.message and not self.ended:
            self.message = message
            self._changed()

    async def ask(self, method: str, params: Raw) -> Raw:
        """Asks the caller, and waits for as long as the call itself may."""
        if self._asked >= MAX_QUESTIONS:
            raise QuotaExceeded(
                f"a task may ask its caller {MAX_QUESTIONS} times",
                quota="questions of a task",
                retry_after_s=1,
                next_action="call the tool without a task",
            )
        self._asked += 1
        name = f"input-{self._asked}"
        question = _Question(method, params, asyncio.get_running_loop().create_future())
        self.questions[name] = question
        self._set("input_required")
        try:
            return await question.answer
        finally:
            del self.questions[name]
            if not self.ended and not self.questions:
                self._set("working")

    def answer(self, answers: dict[str, Raw]) -> None:
        """Takes answers to what it asks. Those to nothing that it asks now count for nothing."""
        for name, answer in answers.items():
            question = self.questions.get(name)
            if question is not None and not question.answer.done():
                question.answer.set_result(answer)

    def refuse(self, name: str, error: Exception) -> None:
        """Nobody answers one of the questions."""
        question = self.questions.get(name)
        if question is not None and not question.answer.done():
            question.answer.set_exception(error)

    @property
    def open_questions(self) -> dict[str, _Question]:
        return {name: one for name, one in self.questions.items() if not one.answer.done()}

    def end(self, status: Status, *, result: Raw | None = None, failure: Failure | None = None) -> None:
        """It is over. Whatever is said after the first end counts for nothing."""
        if not self.ended:
            self.result, self.failure = result, failure
            self.message = failure.message if failure is not None else self.message
            self._set(status)

    def cancel(self) -> None:
        self.end("cancelled")
        if self.job is not None:
            self.job.cancel()

    def _set(self, status: Status) -> None:
        self.status = status
        self._changed()

    def _changed(self) -> None:
        self.updated_at = time.time()
        self.changes += 1
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            if not one.done():
                one.set_result(None)
        if self.on_changed is not None:
            self.on_changed(self)

    async def change(self, since: int) -> None:
        """Returns once it changed more often than this."""
        if self.changes != since:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)


class TaskStore:
    """The tasks of all callers of one gateway. `on_changed` hears of each change, `on_removed` of each that is gone."""

    def __init__(
        self, on_changed: Callable[[BackgroundTask], None], on_removed: Callable[[BackgroundTask], None]
    ) -> None:
        self._on_changed = on_changed
        self._on_removed = on_removed
        self._tasks: dict[str, BackgroundTask] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, owner: str, session: str, ttl_s: float = MAX_TTL_S) -> BackgroundTask:
        """A new task, that nothing runs for yet. Raises `QuotaExceeded`."""
        own = [task for task in self._tasks.values() if task.owner == owner]
        if len(own) >= MAX_TASKS_EACH or len(self._tasks) >= MAX_TASKS:
            whose = f"{owner} has {len(own)} tasks" if len(own) >= MAX_TASKS_EACH else "this gateway has too many tasks"
            first = min(task.created_at + task.ttl_s for task in (own or self._tasks.values()))
            raise QuotaExceeded(
                f"{whose}, running and ended ones that are still kept: there is room for no more",
                quota="tasks",
                retry_after_s=max(1, int(first - time.time())),
                next_action="wait until one is removed after its time, or call the tool without a task",
            )
        key, now = secrets.token_urlsafe(18), time.time()
        ttl_s = min(max(ttl_s, MIN_TTL_S), MAX_TTL_S)
        task = self._tasks[key] = BackgroundTask(
            key=key, owner=owner, session=session, ttl_s=ttl_s, created_at=now, updated_at=now
        )
        task.on_changed = self._on_changed
        self._timers[key] = asyncio.get_running_loop().call_later(ttl_s, self._remove, key)
        return task

    def complete(self, task: BackgroundTask, result: Raw) -> None:
        """Keeps the result of a task, where its owner has room for it."""
        kept = (one.result for one in self._tasks.values() if one.owner == task.owner and one.result is not None)
        if len(result) + sum(map(len, kept)) <= MAX_BYTES_EACH:
            task.end("completed", result=result)
            return
        problem = f"it is done, and the results of {task.owner}'s tasks would have over {MAX_BYTES_EACH >> 20} MiB"
        task.end("failed", failure=Failure(-32603, f"{problem}: it was left out. Call it without a task"))

    def find(self, key: str, owner: str) -> BackgroundTask | None:
        """A task of this owner."""
        task = self._tasks.get(key)
        return task if task is not None and task.owner == owner else None

    def listed(self, owner: str, session: str) -> list[BackgroundTask]:
        """Those that one session of an owner began, the oldest first."""
        return [task for task in self._tasks.values() if (task.owner, task.session) == (owner, session)]

    def _remove(self, key: str) -> None:
        self._timers.pop(key).cancel()
        task = self._tasks.pop(key)
        if not task.ended:
            task.end("failed", failure=Failure(-32603, f"it did not end within {task.ttl_s:g} s"))
        if task.job is not None:
            task.job.cancel()
        self._on_removed(task)

    async def aclose(self) -> None:
        """Cancels what runs, and gives it a moment to end."""
        jobs = [task.job for task in self._tasks.values() if task.job is not None and not task.job.done()]
        for key in tuple(self._tasks):
            self._tasks[key].end("cancelled")
            self._remove(key)
        if jobs:
            await asyncio.wait(jobs, timeout=_CLOSE_GRACE_S)
