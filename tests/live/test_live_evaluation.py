"""`eval_expr` and `execute`: what comes back, what stays, and what becomes of a session whose code misbehaves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from toolfold import LiveSession
from toolfold.errors import LiveError
from toolfold.live.session import LiveLimits

QUICK = LiveLimits(eval_s=0.5, execute_s=0.5)


def in_session(work: Callable[[LiveSession], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with LiveSession(**options) as session:
            return await work(session)

    return asyncio.run(main())


@pytest.mark.requirement("L-09", "L-02")
def test_an_evaluation_brings_back_value_and_output() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute(
            "import sys\ndef speak():\n    print('out')\n    print('err', file=sys.stderr)\n    return 42"
        )
        return await session.eval_expr("speak()")

    expected = {"ok": True, "result": {"value_repr": "42", "stdout": "out\n", "stderr": "err\n"}}
    assert in_session(work) == expected


@pytest.mark.requirement("L-09")
def test_what_an_evaluation_changes_stays() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("import random, os\nx = []\nrandom.seed(1)\npid = os.getpid()")
        for _ in range(3):
            await session.eval_expr("x.append(random.random())")
        same = await session.eval_expr("pid == os.getpid()")
        fresh = await session.eval_expr("(random.seed(1), [random.random() for _ in range(3)])[1] == x")
        return same["result"]["value_repr"], fresh["result"]["value_repr"]

    assert in_session(work) == ("True", "True")


@pytest.mark.requirement("L-09")
def test_output_and_values_are_bounded() -> None:
    async def work(session: LiveSession) -> Any:
        return await session.eval_expr("print('o' * 10**6) or 'v' * 10**6")

    found = in_session(work)["result"]
    assert len(found["value_repr"]) == 4096
    assert found["stdout"].startswith("oooo")
    assert found["stdout"].endswith("characters)")
    assert len(found["stdout"]) < 17_000


@pytest.mark.requirement("L-02")
def test_an_exception_comes_with_type_message_and_the_lines_that_led_to_it() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("def divide(a, b):\n    print('dividing')\n    return a / b")
        return await session.eval_expr("divide(1, 0)")

    error = in_session(work)["error"]
    assert error["code"] == "python_exception"
    assert error["exc_type"] == "ZeroDivisionError"
    assert error["message"] == "ZeroDivisionError: division by zero"
    assert error["traceback"].endswith('  File "<live-1>", line 3, in divide\n    return a / b')
    assert error["stdout"] == "dividing\n"


@pytest.mark.requirement("L-08", "L-12")
@pytest.mark.parametrize(
    "code",
    [
        "exec('while True: pass')",
        "max(range(10**12))",
        "__import__('re').match(r'(a+)+$', 'a' * 40 + 'b')",
        "__import__('time').sleep(600)",
        "x.append(1) or __import__('time').sleep(600)",
    ],
)
def test_an_evaluation_that_takes_too_long_leaves_nothing_behind(code: str) -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("x = []")
        answer = await session.eval_expr(code)
        return answer["error"], await session.eval_expr("x")

    error, after = in_session(work, limits=QUICK)
    assert (error["code"], error["session"]) == ("eval_timeout", "kept")
    assert after["result"]["value_repr"] == "[]"


@pytest.mark.requirement("L-12")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("__import__('os')._exit(3)", "exit code 3"),
        ("__import__('os').kill(__import__('os').getpid(), 11)", "SIGSEGV"),
        ("__import__('ctypes').string_at(0)", "SIGSEGV"),
        ("__import__('os').abort()", "SIGABRT"),
    ],
)
def test_a_crash_is_told_and_the_session_is_as_it_was(code: str, said: str) -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("x = [1]")
        answers = [await session.eval_expr(code), await session.execute(f"x.append(2)\n{code}")]
        return answers, await session.eval_expr("x")

    answers, after = in_session(work, trusted=True)
    for answer in answers:
        assert answer["error"]["code"] == "eval_crashed"
        assert answer["error"]["session"] == "kept"
    assert said in answers[0]["error"]["message"]
    assert after["result"]["value_repr"] == "[1]"


@pytest.mark.requirement("L-12")
def test_a_memory_bomb_is_an_error_of_the_session_only() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("x = [1]")
        answer = await session.eval_expr("[bytes(10**9) for _ in range(100)]")
        return answer, await session.eval_expr("x")

    answer, after = in_session(work)
    assert answer["error"].get("exc_type") == "MemoryError" or answer["error"]["code"] == "eval_crashed"
    assert after["result"]["value_repr"] == "[1]"


@pytest.mark.requirement("L-12")
def test_many_crashes_in_a_row_do_not_wear_the_session_out() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("x = [1]")
        for _ in range(12):
            assert (await session.eval_expr("__import__('os')._exit(1)"))["error"]["code"] == "eval_crashed"
        return await session.eval_expr("x")

    assert in_session(work)["result"]["value_repr"] == "[1]"


THREAD = "import threading\nstop = threading.Event()\nthreading.Thread(target=stop.wait, daemon=True).start()\nx = []"


@pytest.mark.requirement("L-08")
def test_with_threads_a_slow_evaluation_is_interrupted_and_says_that_changes_stay() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute(THREAD)
        answer = await session.eval_expr("x.append(1) or __import__('time').sleep(600)")
        return answer["error"], await session.eval_expr("x, threading.active_count()")

    error, after = in_session(work, limits=QUICK)
    assert (error["code"], error["session"]) == ("eval_timeout", "interrupted")
    assert after["result"]["value_repr"] == "([1], 2)"


@pytest.mark.requirement("L-12", "L-08")
def test_a_session_with_threads_that_cannot_be_interrupted_is_lost_and_says_so() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute(THREAD)
        answer = await session.eval_expr("max(range(10**12))")
        return answer["error"], await session.eval_expr("'x' in globals()")

    error, after = in_session(work, limits=QUICK)
    assert (error["code"], error["session"]) == ("session_lost", "lost")
    assert "empty session has begun" in error["message"]
    assert after["result"]["value_repr"] == "False"


def test_a_session_above_the_threshold_evaluates_in_place() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("x = []")
        answer = await session.eval_expr("x.append(1) or __import__('time').sleep(600)")
        return answer["error"]["session"], await session.eval_expr("x")

    limits = LiveLimits(eval_s=0.5, commit_max_bytes=1)
    session, after = in_session(work, limits=limits)
    assert session == "interrupted"
    assert after["result"]["value_repr"] == "[1]"


@pytest.mark.requirement("L-09")
def test_await_at_the_top_runs_and_tasks_left_over_are_cancelled() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute(
            "import asyncio\nseen = []\nasync def later():\n    await asyncio.sleep(0)\n    return 42\n"
            "async def pending():\n    try: await asyncio.sleep(600)\n"
            "    except asyncio.CancelledError: seen.append('cancelled')"
        )
        answer = await session.eval_expr("await later()")
        await session.execute("task = asyncio.create_task(pending())\nawait asyncio.sleep(0)")
        return answer, await session.eval_expr("seen")

    answer, seen = in_session(work)
    assert answer["result"]["value_repr"] == "42"
    assert seen["result"]["value_repr"] == "['cancelled']"


def test_exits_interrupts_and_input_are_errors_of_the_code() -> None:
    async def work(session: LiveSession) -> list[str]:
        codes = ("raise SystemExit(4)", "raise KeyboardInterrupt", "input()", "breakpoint()")
        answers = [await session.execute(code) for code in codes]
        assert (await session.eval_expr("1"))["ok"]
        return [answer["error"]["exc_type"] for answer in answers]

    assert in_session(work)[:3] == ["SystemExit", "KeyboardInterrupt", "EOFError"]


def test_streams_that_a_logger_kept_go_on_working() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("import logging, sys\nlogging.basicConfig(stream=sys.stderr, format='%(message)s')")
        return await session.eval_expr("logging.warning('careful')")

    assert in_session(work)["result"]["stderr"] == "careful\n"


@pytest.mark.requirement("L-01")
def test_there_are_three_tools_and_any_other_name_is_unknown() -> None:
    async def work(session: LiveSession) -> None:
        await session.execute("x = 1")
        for name in ("list_globals", "inspect", "eval_expr"):
            assert (await session.dispatch(name, {"expr": "x"}))["ok"]
        for name in ("get_type", "get_repr", "get_dir", "get_doc", "get_last_exception", "execute", "Inspect", ""):
            assert (await session.dispatch(name, {"expr": "x"}))["error"]["code"] == "unknown_function"
        for arguments in ({}, {"expr": 5}, {"expr": "  "}):
            assert (await session.dispatch("inspect", arguments))["error"]["code"] == "invalid_arguments"

    in_session(work)


def test_helpers_do_not_stand_among_the_names_of_the_session() -> None:
    async def work(session: LiveSession) -> Any:
        return await session.eval_expr("sorted(globals())")

    names = in_session(work)["result"]["value_repr"]
    assert names == "['__builtins__', '__doc__', '__loader__', '__name__', '__package__', '__spec__']"


def test_a_cancelled_request_leaves_the_session_usable() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("x = [1]")
        asking = asyncio.ensure_future(session.eval_expr("__import__('time').sleep(600)"))
        await session_is_busy(session)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return await session.eval_expr("x")

    async def session_is_busy(session: LiveSession) -> None:
        for _ in range(10):  # the request takes its turn within a few rounds of the loop
            await asyncio.sleep(0)
        assert session._turn.locked()

    assert in_session(work, limits=LiveLimits(eval_s=1.0))["result"]["value_repr"] == "[1]"


@pytest.mark.requirement("L-12")
def test_a_session_whose_whole_process_tree_dies_is_lost_and_begins_again() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("x = 1")
        answer = await session.execute(
            "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time\ntime.sleep(60)"
        )
        return answer["error"]["code"], await session.eval_expr("6 * 7")

    code, after = in_session(work, trusted=True)
    assert code == "session_lost"
    assert after["result"]["value_repr"] == "42"


async def test_a_closed_session_says_how_to_open_one() -> None:
    session = LiveSession()
    with pytest.raises(LiveError, match="not open"):
        await session.eval_expr("1")


FORGED = """
import gc
(mine,) = [one for one in gc.get_objects() if type(one).__name__ == '_Session' and hasattr(one, '_send')]
def forge(answer):
    import sys
    frame = sys._getframe()
    while frame.f_code.co_name != 'serve': frame = frame.f_back
    mine._send({'answer': answer, 'id': frame.f_locals['request']['id']})
"""


@pytest.mark.requirement("L-02")
@pytest.mark.parametrize(
    ("forged", "code"),
    [
        ("{'ok': True, 'result': {'value_repr': 5}}", "invalid_result_shape"),
        ("{'ok': 'yes'}", "invalid_result_shape"),
        ("{'ok': False, 'error': 'none'}", "invalid_result_shape"),
        ("{'ok': True, 'result': {'value_repr': 'x' * 10**6, 'stdout': '', 'stderr': ''}}", "session_lost"),
    ],
)
def test_an_answer_that_the_code_made_up_is_not_taken_on_trust(forged: str, code: str) -> None:
    async def work(session: LiveSession) -> Any:
        assert (await session.execute(FORGED))["ok"]
        answer = await session.eval_expr(f"forge({forged})")
        return answer["error"]["code"], await session.eval_expr("6 * 7")

    found, after = in_session(work)
    assert found == code
    assert after["result"]["value_repr"] == "42"


@pytest.mark.requirement("L-12")
def test_raw_bytes_on_the_line_end_the_session_and_nothing_else() -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute(FORGED)
        answer = await session.eval_expr("mine._link.sendall(b'\\xff' * 100)")
        return answer["error"]["code"], await session.eval_expr("6 * 7")

    found, after = in_session(work)
    assert found == "session_lost"
    assert after["result"]["value_repr"] == "42"
