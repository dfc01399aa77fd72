"""A call that waits on the spot gives way to all else that the script's event loop has to do, and to its end."""

import asyncio
from pathlib import Path

from script_kit import git, run_script

from toolfold.scripts import report
from toolfold.scripts.runner import ScriptResult
from toolfold.testing.memory_upstream import MemoryUpstream


def gate() -> MemoryUpstream:
    """Two tools: one waits until the other was called."""
    opened = asyncio.Event()

    async def wait() -> str:
        """Waits until the gate is open."""
        await opened.wait()
        return "through"

    async def free() -> str:
        """Opens the gate."""
        opened.set()
        return "open"

    return MemoryUpstream("gate", [wait, free])


def through(home: Path, code: str) -> ScriptResult:
    result = run_script(
        home, "import asyncio, time\nwait, free = use_tools('gate.wait', 'gate.free')\n" + code, upstreams=[gate()]
    )
    assert result.outcome == "finished", report.as_text(result)
    return result


def test_a_timer_fires_while_a_call_waits(tmp_path: Path) -> None:
    code = """
asyncio.get_running_loop().call_later(0.02, lambda: asyncio.ensure_future(free()))
str(await wait())
"""
    assert through(tmp_path, code).answer == "through"


def test_what_a_thread_finished_is_taken_up_while_a_call_waits(tmp_path: Path) -> None:
    code = """
async def later():
    await asyncio.to_thread(time.sleep, 0.02)
    return await free()
task = asyncio.create_task(later())
await asyncio.sleep(0.001)
[str(await wait()), str(await task)]
"""
    assert through(tmp_path, code).answer == ["through", "open"]


def test_what_another_descriptor_brings_is_taken_up_while_a_call_waits(tmp_path: Path) -> None:
    code = """
import os, threading
reading, writing = os.pipe()
asyncio.get_running_loop().add_reader(reading, lambda: (os.read(reading, 1), asyncio.ensure_future(free())))
threading.Timer(0.02, os.write, (writing, b"x")).start()
str(await wait())
"""
    assert through(tmp_path, code).answer == "through"


def test_other_tasks_go_on_between_calls_that_follow_each_other(tmp_path: Path) -> None:
    code = """
log, = use_tools("git.git_log")
import asyncio
ticks = 0
async def tick():
    global ticks
    while True:
        await asyncio.sleep(0)
        ticks += 1
ticking = asyncio.create_task(tick())
for _ in range(20): await log(max_count=1)
ticking.cancel()
ticks
"""
    result = run_script(tmp_path, code, upstreams=[git()])
    assert result.answer >= 20, report.as_text(result)
    assert len(result.calls) == 20


def test_a_timeout_ends_a_call_here_and_at_the_host(tmp_path: Path) -> None:
    code = """
try:
    async with asyncio.timeout(0.05):
        await wait()
except TimeoutError:
    print("too late")
str(await free())
"""
    result = through(tmp_path, code)
    assert result.stdout == "too late\n"
    assert result.answer == "open"
    assert [call.code for call in result.calls] == ["CANCELLED", ""]


def test_a_task_that_was_told_to_end_does_not_wait_for_another_call(tmp_path: Path) -> None:
    code = """
async def doomed():
    asyncio.current_task().cancel()
    await wait()
task = asyncio.create_task(doomed())
await asyncio.wait([task])
task.cancelled()
"""
    assert through(tmp_path, code).answer is True


def test_calls_one_by_one_and_many_at_once_take_turns_over_several_loops(tmp_path: Path) -> None:
    code = """
import asyncio
log, = use_tools("git.git_log")
async def alone(n): return len((await log(max_count=n)).commits)
async def together(): return await asyncio.gather(*(alone(n) for n in range(1, 40)))
async def mixed(): return [await alone(1), sum(await together()), await alone(2), sum(await together()), await alone(3)]
a = asyncio.run(mixed())
b = asyncio.run(alone(4))
c = asyncio.run(mixed())
[a, b, c]
"""
    result = run_script(tmp_path, code, upstreams=[git()])
    assert result.answer == [[1, 780, 2, 780, 3], 4, [1, 780, 2, 780, 3]], report.as_text(result)
    assert len(result.calls) == 163


def test_a_foreign_event_loop_works_as_well(tmp_path: Path) -> None:
    code = """
import asyncio, selectors
log, = use_tools("git.git_log")
async def alone(n): return len((await log(max_count=n)).commits)
loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
answer = [loop.run_until_complete(alone(n)) for n in (1, 2, 3)]
loop.close()
answer
"""
    assert run_script(tmp_path, code, upstreams=[git()]).answer == [1, 2, 3]
