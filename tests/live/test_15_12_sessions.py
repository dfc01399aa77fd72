"""A session stays one: forks of its code, threads under inspection, arrays and frames, names that a model assigns."""

import asyncio
from typing import Any

import pytest

from toolfold import LiveSession
from toolfold.live.prompts import OFFERS
from toolfold.live.session import LiveLimits


async def value(session: LiveSession, expr: str) -> str:
    answer = await session.eval_expr(expr)
    assert answer["ok"], answer
    return str(answer["result"]["value_repr"])


async def shown(session: LiveSession, expr: str) -> dict[str, Any]:
    answer = await session.inspect(expr)
    assert answer["ok"], answer
    found: dict[str, Any] = answer["result"]
    return found


@pytest.mark.requirement("L-12")
@pytest.mark.parametrize("trusted", [False, True])
async def test_15_12_a_fork_does_not_split_the_session(trusted: bool) -> None:
    async with LiveSession(trusted=trusted) as session:
        await session.execute("import os\nme = os.getpid()\nx = 0")
        await session.eval_expr("os.fork()")
        await session.execute("if os.fork() == 0: raise ValueError('the other one')")
        await session.inspect("os.fork()")
        for number in range(1, 7):
            assert await value(session, "(x := x + 1), os.getpid() == me") == f"({number}, True)"


@pytest.mark.requirement("L-12")
@pytest.mark.parametrize("ending", ["'well'", "[1][7]", "time.sleep(600)", "os._exit(3)"])
async def test_15_17_forks_of_an_evaluation_end_with_it(ending: str) -> None:
    """Each fork holds a lock, which the system gives to the session as soon as the fork is gone."""
    async with LiveSession(limits=LiveLimits(eval_s=2.0)) as session:
        await session.execute("""
import fcntl, os, time
file = open('locks', 'w')
def many():
    for number in range(3):
        reading, writing = os.pipe()
        if os.fork() == 0:
            below = os.fork() == 0
            fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * number + below)
            os.write(writing, b'.')
            time.sleep(600)
        while os.read(reading, 1) + os.read(reading, 1) != b'..': pass
def are_gone():
    fcntl.lockf(file, fcntl.LOCK_EX, 6, 0)
    return True
""")
        answer = await session.eval_expr(f"(many(), {ending})")
        assert answer["ok"] == (ending == "'well'")
        assert await value(session, "are_gone()") == "True"


@pytest.mark.requirement("L-03")
async def test_15_12_a_thread_looks_as_it_does_in_the_session() -> None:
    async with LiveSession() as session:
        await session.execute("""
import threading
go = threading.Event()
thread = threading.Thread(target=go.wait, name='waits', daemon=True)
thread.start()
ended = threading.Thread(target=int)
ended.start()
ended.join()
""")
        for expr in ("thread", "ended", "threading.current_thread()", "[thread, ended]", "threading.active_count()"):
            assert (await shown(session, expr))["repr"]["text"] == await value(session, expr)
        assert "started" in await value(session, "thread")


@pytest.mark.requirement("L-03")
async def test_15_12_arrays_have_shape_types_and_a_sample() -> None:
    async with LiveSession(trusted=True) as session:
        await session.execute("import numpy\nrow = numpy.arange(40)\ngrid = numpy.zeros((3, 2))\none = numpy.array(5)")
        row, grid, one = [await shown(session, name) for name in ("row", "grid", "one")]
    assert row["size"] == {"len": 40, "shape": [40]}
    assert row["dtypes"] == {"items": "int64"}
    items = [str(number) for number in range(16)]
    assert row["sample"] == {"items": items, "shown": 16, "total": 40, "truncated": True}
    assert (grid["size"]["shape"], grid["dtypes"]) == ([3, 2], {"items": "float64"})
    assert grid["sample"] == {"items": ["array([0., 0.])"] * 3, "shown": 3, "total": 3, "truncated": False}
    assert one["dtypes"] == {"items": "int64"}
    assert "sample" not in one


@pytest.mark.requirement("L-03")
@pytest.mark.parametrize("library", ["pandas", "polars"])
async def test_15_12_frames_have_shape_types_and_a_sample(library: str) -> None:
    pytest.importorskip(library)
    async with LiveSession(trusted=True) as session:
        await session.execute(f"import {library}\nframe = {library}.DataFrame({{'a': [1, 2], 'b': ['x', 'y']}})")
        frame, column = await shown(session, "frame"), await shown(session, "frame['a']")
    assert frame["size"]["shape"] == [2, 2]
    assert [name.lower() for name in frame["dtypes"]] == ["a", "b"]
    assert frame["dtypes"]["a"].lower() == "int64"
    assert frame["sample"]["items"] == ["{'a': 1, 'b': 'x'}", "{'a': 2, 'b': 'y'}"]
    assert column["dtypes"]["items"].lower() == "int64"
    assert column["sample"]["items"] == ["1", "2"]


@pytest.mark.requirement("L-01", "L-11")
async def test_15_12_a_model_is_told_how_to_assign_a_name() -> None:
    async with LiveSession() as session:
        refused = await session.dispatch("eval_expr", {"expr": "x = 6 * 7"})
        assert refused["error"]["exc_type"] == "SyntaxError"
        assert "(x := 1) assigns a name" in refused["error"]["next_action"]
        assert (await session.dispatch("eval_expr", {"expr": "(x := 6 * 7)"}))["ok"]
        assert (await session.dispatch("eval_expr", {"expr": 'exec("""y = x\ndef twice(n): return 2 * n""")'}))["ok"]
        assert await value(session, "twice(y)") == "84"
    description = next(offer.description for offer in OFFERS if offer.name == "eval_expr")
    assert "(x := 1) assigns a name" in description


async def test_15_12_a_signal_that_an_evaluation_blocks_stays_blocked() -> None:
    mask = "signal.SIGCHLD in signal.pthread_sigmask(signal.SIG_BLOCK, ())"
    async with LiveSession() as session:
        await session.execute("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})")
        assert await value(session, mask) == "True"
        await session.inspect("signal.Signals(17)")
        assert await value(session, mask) == "True"
        await session.execute("signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})")
        assert await value(session, mask) == "False"


async def test_15_12_the_session_answers_once_for_each_request_after_many_forks() -> None:
    async with LiveSession() as session:
        await session.execute("import os")
        answers = await asyncio.gather(*(session.eval_expr(f"os.fork() and {number}") for number in range(5)))
        assert [answer["result"]["value_repr"] for answer in answers] == ["0", "1", "2", "3", "4"]
