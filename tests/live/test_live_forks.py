"""What the forks behind `inspect` and the evaluations leave of a session: signals, children, descriptors, chance."""

import os
import random
import signal

import pytest

from toolfold import LiveSession
from toolfold.live.session import LiveLimits

# An object with code of its own: it is inspected in a forked child.
ODD = "class Odd:\n    def __repr__(self): return 'odd'\nit = Odd()\n"


async def value(session: LiveSession, expr: str) -> str:
    answer = await session.eval_expr(expr)
    assert answer["ok"], answer
    return str(answer["result"]["value_repr"])


async def shown(session: LiveSession, expr: str) -> str:
    answer = await session.inspect(expr)
    assert answer["ok"], answer
    return str(answer["result"]["repr"]["text"])


@pytest.mark.requirement("L-05")
async def test_the_sessions_own_handler_does_not_see_the_workers_children() -> None:
    async with LiveSession() as session:
        await session.execute(
            f"{ODD}import signal\nseen = []\nsignal.signal(signal.SIGCHLD, lambda *_: seen.append(1))"
        )
        for _ in range(3):
            assert await shown(session, "it") == "odd"
            assert await value(session, "seen") == "[]"


async def test_a_session_that_ignores_the_end_of_children_is_inspected_all_the_same() -> None:
    async with LiveSession() as session:
        await session.execute(f"{ODD}import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)")
        assert await shown(session, "it") == "odd"
        assert await value(session, "it") == "odd"


@pytest.mark.requirement("L-12")
async def test_chance_continues_after_a_crash_where_it_stood() -> None:
    async with LiveSession() as session:
        await session.execute("import os, random\nrandom.seed(7)")
        assert (await session.eval_expr("os._exit(3)"))["error"]["session"] == "kept"
        assert await value(session, "random.random()") == repr(random.Random(7).random())


async def test_a_session_with_a_child_of_its_own_evaluates_in_place_and_can_wait_for_it() -> None:
    async with LiveSession(trusted=True, limits=LiveLimits(eval_s=0.5)) as session:
        await session.execute(
            "import subprocess, sys, time\n"
            "child = subprocess.Popen([sys.executable, '-c', 'input(); exit(5)'], stdin=subprocess.PIPE)"
        )
        assert (await session.eval_expr("time.sleep(600)"))["error"]["session"] == "interrupted"
        found = await session.execute("child.communicate(b'\\n')\nchild.returncode")
        assert found["result"]["value_repr"] == "5"


async def test_a_session_that_cannot_fork_evaluates_in_place_and_says_why_it_cannot_inspect() -> None:
    async with LiveSession(limits=LiveLimits(eval_s=0.5)) as session:
        await session.execute(
            f"{ODD}import os, resource, time\n"
            "def files():\n"
            "    found = 0\n"
            "    for fd in range(200):\n"
            "        try: os.fstat(fd); found += 1\n"
            "        except OSError: pass\n"
            "    return found"
        )
        before = await value(session, "files()")
        await session.execute("resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))")
        error = (await session.inspect("it"))["error"]
        assert error["code"] == "internal"
        assert error["message"].startswith("the session cannot fork: BlockingIOError")
        assert (await session.eval_expr("time.sleep(600)"))["error"]["session"] == "interrupted"
        assert await value(session, "files()") == before


async def test_an_interrupt_between_two_evaluations_is_ignored() -> None:
    async with LiveSession(trusted=True) as session:
        pid = int(await value(session, "__import__('os').getpid()"))
        os.kill(pid, signal.SIGINT)
        assert await value(session, "6 * 7") == "42"
        assert await value(session, "__import__('os').getpid()") == str(pid)


async def test_a_handler_of_interrupts_that_the_session_set_stays_its_own() -> None:
    async with LiveSession() as session:
        await session.execute("import signal\ndef heard(*_): pass\nsignal.signal(signal.SIGINT, heard)")
        assert await value(session, "signal.getsignal(signal.SIGINT) is heard") == "True"


@pytest.mark.requirement("L-08")
@pytest.mark.parametrize(("operation", "limit"), [("inspect", 65_536), ("eval_expr", 65_536), ("execute", 1024**2)])
async def test_code_longer_than_allowed_is_refused(operation: str, limit: int) -> None:
    async with LiveSession() as session:
        error = (await getattr(session, operation)(" " * (limit + 1)))["error"]
        assert error["code"] == "invalid_arguments"
        assert f"{limit} are allowed" in error["message"]


async def test_a_builtin_is_inspected_behind_the_sessions_own_names() -> None:
    async with LiveSession() as session:
        assert await shown(session, "len") == "<built-in function len>"
        await session.execute("len = 5")
        assert await shown(session, "len") == "5"
