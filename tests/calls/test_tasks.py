"""Calls that outlive their requests: whose they are, how many there may be, and when they are over."""

import asyncio

import pytest
from msgspec import Raw

from toolfold.calls import tasks
from toolfold.calls.tasks import BackgroundTask, Failure, TaskStore
from toolfold.errors import QuotaExceeded


def store(removed: "asyncio.Queue[BackgroundTask] | None" = None) -> TaskStore:
    return TaskStore(lambda task: None, lambda task: removed.put_nowait(task) if removed is not None else None)


async def test_a_caller_has_its_own_and_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_TASKS", 150)
    kept = store()
    own = [kept.add("ann", "one") for _ in range(tasks.MAX_TASKS_EACH)]
    assert len({task.key for task in own}) == 100
    own[0].end("completed", result=Raw(b"{}"))  # one that is kept counts, too: it was promised for its time
    with pytest.raises(QuotaExceeded, match="ann has 100 tasks") as full:
        kept.add("ann", "two")
    assert full.value.retry_after_s > 60
    others = [kept.add(f"bob-{number}", "one") for number in range(50)]
    with pytest.raises(QuotaExceeded, match="this gateway has too many tasks"):
        kept.add("eve", "one")
    assert kept.find(own[1].key, "ann") is own[1]
    assert kept.find(own[1].key, "bob-1") is None
    assert kept.find(others[1].key, "bob-1") is others[1]
    assert (len(kept.listed("ann", "one")), kept.listed("ann", "two"), kept.listed("bob-1", "two")) == (100, [], [])
    await kept.aclose()
    assert kept.find(own[1].key, "ann") is None
    assert own[1].status == "cancelled"


async def test_a_task_whose_time_is_over_is_ended_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MIN_TTL_S", 0.01)
    removed: asyncio.Queue[BackgroundTask] = asyncio.Queue()
    kept = store(removed)
    task = kept.add("ann", "one", 0.0)
    task.job = asyncio.ensure_future(asyncio.Event().wait())
    async with asyncio.timeout(20):
        assert await removed.get() is task
        await asyncio.wait({task.job})
    assert task.job.cancelled()
    assert (task.status, kept.find(task.key, "ann")) == ("failed", None)
    assert task.failure is not None
    assert "did not end within" in task.failure.message
    assert kept.add("ann", "one", 10**9).ttl_s == tasks.MAX_TTL_S
    await kept.aclose()


async def test_a_task_asks_is_answered_and_ends_once() -> None:
    kept = store()
    task = kept.add("ann", "one")
    asking = [asyncio.ensure_future(task.ask("elicitation/create", Raw(b"{}"))) for _ in range(2)]
    async with asyncio.timeout(20):
        while len(task.open_questions) < 2:
            await task.change(task.changes)
        assert task.status == "input_required"
        task.answer({"input-1": Raw(b"1"), "input-9": Raw(b"9")})
        assert await asking[0] == Raw(b"1")
        assert list(task.open_questions) == ["input-2"]
        task.refuse("input-2", ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await asking[1]
    assert str(task.status) == "working"
    task.cancel()
    task.end("completed", result=Raw(b"{}"))
    task.end("failed", failure=Failure(-1, "late"))
    task.tell("late")
    assert (task.status, task.result, task.failure, task.message) == ("cancelled", None, None, "")
    await kept.aclose()


async def test_results_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_BYTES_EACH", 1000)
    kept = store()
    first, second, other = kept.add("ann", "one"), kept.add("ann", "one"), kept.add("bob", "one")
    for task in (first, second, other):
        kept.complete(task, Raw(b"x" * 600))
    assert [task.status for task in (first, second, other)] == ["completed", "failed", "completed"]
    assert second.failure is not None
    assert "it was left out" in second.failure.message
    await kept.aclose()
