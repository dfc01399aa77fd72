"""What one script does costs the others little: what it sends, prints and asks for is bounded before it is read."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from script_kit import git, open_gateway, run_script, with_tools
from test_script_boundary import RAW

from toolfold import Gateway
from toolfold.config.sections import Policy, Scripts
from toolfold.errors import InvalidArguments, SandboxError, ScriptError
from toolfold.events import Event
from toolfold.scripts import report
from toolfold.scripts.protocol import Frame, clean_text
from toolfold.scripts.runner import ScriptResult, _Slots
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller

pytestmark = pytest.mark.requirement("G-20")

LISTS = b"[" + b"[]," * 1_000_000 + b"1]"


def test_what_a_frame_carries_is_not_decoded_with_it() -> None:
    frame = Frame.parse(b'{"op":"done","outcome":"failed","error":{"x":%b},"warnings":%b}' % (LISTS, LISTS))
    assert isinstance(frame.error, msgspec.Raw)
    assert isinstance(frame.warnings, msgspec.Raw)


def test_an_account_of_an_error_that_no_child_sends_is_not_read(tmp_path: Path) -> None:
    code = f"""{RAW}
frame(b'{{"op":"done","outcome":"failed","error":{{"x":[' + b'[],' * 1_000_000 + b'1]}},"warnings":[1]}}')
"""
    result = run_script(tmp_path, code)
    assert result.outcome == "failed"
    assert result.error is not None
    assert result.error.message == "what the script told of its error cannot be read"
    assert result.warnings == ("what the script was to be warned of cannot be read",)


def test_arguments_of_too_many_values_are_refused_and_long_ones_are_not(tmp_path: Path) -> None:
    upstream = MemoryUpstream("files", [write_file])
    code = """
write, = use_tools("files.write_file")
print(await write(text=',[{"' * 800_000))
try:
    await write(text="x" * 5_000_000)
except Exception as error:
    print(type(error).__name__, error)
"""
    lines = run_script(tmp_path, code, upstreams=[upstream]).stdout.splitlines()
    assert lines[0] == "3200000"
    assert lines[1].startswith("InvalidArguments the arguments of files.write_file have 5,000,")
    assert len(upstream.calls) == 1
    with pytest.raises(InvalidArguments, match="over 100,000 values"):
        Frame(op="call", args=msgspec.Raw(b'{"text":' + LISTS + b"}")).canonical_arguments()


def write_file(text: str) -> str:
    """Writes a text to a file and says how long it was."""
    return str(len(text))


@pytest.mark.parametrize("text", [b"\0" * (1 << 20), b"a\0" * (1 << 19), "\u202e".encode() * (1 << 18)])
def test_control_characters_are_written_out_without_a_step_of_ours_for_each(text: bytes) -> None:
    steps = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        found = clean_text(text)
    finally:
        sys.setprofile(None)
    assert found == "".join(ascii(char)[1:-1] for char in text.decode())
    assert steps < 1000


def test_a_long_script_is_read_beside_other_work(tmp_path: Path) -> None:
    async def work(gateway: Gateway) -> int:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        task = asyncio.create_task(others())
        await asyncio.sleep(0)
        before = turns
        with pytest.raises(ScriptError):
            await gateway.scripts.prepare("a\n" * 28_000 + "use_tools(a)")
        task.cancel()
        return turns - before

    assert with_tools(tmp_path, work) > 0


def test_what_is_far_over_the_cap_is_neither_kept_nor_endless(tmp_path: Path) -> None:
    events: list[Event] = []
    code = """
import asyncio
log, = use_tools("git.git_log")
len(await asyncio.gather(*(log(max_count=1) for _ in range(2000)), return_exceptions=True))
"""

    async def work(gateway: Gateway) -> ScriptResult:
        gateway.events.subscribe(events.append)
        return await gateway.run_script(code)

    result = with_tools(tmp_path, work, scripts=Scripts(calls=10, ready=1))
    assert result.answer == 2000, report.as_text(result)
    assert sorted(call.code for call in result.calls) == [""] * 10 + ["CALL_LIMIT"]
    assert result.warnings == ("calls over the limit of 10, which were refused: 1,990",)
    assert sum(event.name == "script.call" for event in events) == 11


def test_so_many_scripts_run_at_once_and_one_that_gets_no_turn_says_so(tmp_path: Path) -> None:
    async def work(gateway: Gateway) -> None:
        started = asyncio.Event()
        gateway.events.subscribe(lambda event: started.set() if event.name == "script.started" else None)
        first = asyncio.create_task(gateway.run_script("import time\ntime.sleep(1000)"))
        async with asyncio.timeout(20):
            await started.wait()
        with pytest.raises(SandboxError, match="1 scripts run already"):
            await gateway.run_script("1", timeout_s=0.2)
        waiting = asyncio.create_task(gateway.run_script("1 + 1"))
        await asyncio.sleep(0)
        first.cancel()
        assert (await waiting).answer == 2
        assert (await gateway.run_script("1 + 2")).answer == 3

    with_tools(tmp_path, work, scripts=Scripts(at_once=1, ready=1, wall_s=30.0))


async def test_15_17_one_callers_scripts_do_not_keep_another_waiting(tmp_path: Path) -> None:
    ann, bob = Caller(name="ann"), Caller(name="bob")
    async with open_gateway(tmp_path, scripts=Scripts(at_once=2, ready=1, wall_s=30.0)) as gateway:
        started = asyncio.Event()
        gateway.events.subscribe(lambda event: started.set() if event.name == "script.started" else None)
        first, second = (
            asyncio.create_task(gateway.run_script("import time\ntime.sleep(1000)", caller=ann)) for _ in range(2)
        )
        async with asyncio.timeout(20):
            await started.wait()
            assert (await gateway.run_script("1 + 1", caller=bob)).answer == 2
        with pytest.raises(SandboxError, match="1 scripts run already, 1 of them yours"):
            await gateway.run_script("1", caller=ann, timeout_s=0.1)
        assert not first.done()
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


async def test_15_17_whoever_runs_least_comes_first() -> None:
    slots = _Slots(4)
    order: list[str] = []

    async def take(caller: str) -> None:
        await slots.acquire(caller)
        order.append(caller)

    tasks = [asyncio.create_task(take(caller)) for caller in "aaaaa"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == ["a", "a", "a"]
    tasks += [asyncio.create_task(take(caller)) for caller in "bbc"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == ["a", "a", "a", "b"]
    slots.release("a")
    await asyncio.sleep(0)
    assert order[4:] == ["c"]
    tasks[3].cancel()  # one that waits leaves nothing behind
    for caller in "aac":
        slots.release(caller)
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(order[5:]) == ["a", "b"]
    for caller in "abb":
        slots.release(caller)
    assert not slots.running


async def test_a_run_that_ends_while_a_person_is_asked_ends_its_calls_quietly(tmp_path: Path) -> None:
    events: list[Event] = []

    asked = asyncio.Event()

    async def person(method: str, params: msgspec.Raw) -> msgspec.Raw:
        asked.set()
        return await asyncio.Future()

    policies = (Policy(name="default", confirm=("git.git_branch",)),)
    async with open_gateway(tmp_path, policies=policies) as gateway:
        gateway.events.subscribe(events.append)
        run = gateway.run_script(
            "branch, = use_tools('git.git_branch')\nawait branch(name='one')",
            on_input=person,
            capabilities=msgspec.Raw(b'{"elicitation":{}}'),
        )
        task = asyncio.create_task(run)
        async with asyncio.timeout(20):
            await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [event.data["code"] for event in events if event.name == "script.call"] == ["CANCELLED"]


def test_refused_calls_and_nonsense_are_in_the_audit_trail(tmp_path: Path) -> None:
    caller = Caller(name="ada", session="s1")

    calls = [
        '{"op":"call","id":1,"tool":"mail.send_mail","args":{}}',
        '{"op":"call","id":2,"tool":"git.git_log","args":{"max_count":1,"max_count":2}}',
        *(f'{{"op":"call","id":{number},"tool":"git.git_log","args":{{"max_count":1}}}}' for number in range(3, 9)),
    ]
    code = RAW + "".join(f"frame({call.encode()!r})\nanswer()\n" for call in calls) + "frame(b'nonsense')\nanswer()"

    async def work(gateway: Gateway) -> list[tuple[str, str, str]]:
        await gateway.run_script(code, caller=caller)
        steps = await gateway.audit_log.steps()
        return [(step.caller, step.tool_id, step.code) for step in steps if step.step == "call" and step.code]

    assert sorted(with_tools(tmp_path, work, upstreams=[git()], scripts=Scripts(calls=5, ready=1))) == [
        ("ada", "", "SANDBOX_ERROR"),
        ("ada", "git.git_log", "CALL_LIMIT"),
        ("ada", "git.git_log", "INVALID_ARGUMENTS"),
        ("ada", "mail.send_mail", "NOT_DECLARED"),
    ]


def test_a_large_result_is_read_in_pieces_of_whole_characters(tmp_path: Path) -> None:
    text = "a" + "\U0001f600ü€" * 300_000
    big = MemoryUpstream("logs", [{"name": "read_all", "description": "Read.", "inputSchema": {"type": "object"}}])
    big.answer("read_all", text)
    code = """
import json
read, = use_tools("logs.read_all")
whole = await read()
pieces = list(whole.pieces())
[len(pieces) > 2, sum(len(piece.encode()) for piece in pieces) == whole.size, len(whole.text), "\\ufffd" in whole.text]
"""
    assert run_script(tmp_path, code, upstreams=[big]).answer == [True, True, len(text), False]


def test_what_one_loop_did_not_get_to_send_the_next_one_sends(tmp_path: Path) -> None:
    code = """
import asyncio
write, = use_tools("files.write_file")
async def first():
    tasks = [asyncio.create_task(write(text="x" * 3_000_000)) for _ in range(4)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in tasks: task.cancel()
async def second():
    return str(await write(text="abc"))
asyncio.run(first())
asyncio.run(second())
"""
    result = run_script(tmp_path, code, upstreams=[MemoryUpstream("files", [write_file])])
    assert result.outcome == "finished", report.as_text(result)
    assert result.answer == "3"


async def test_19_freed_turns_go_round_over_the_callers_that_wait() -> None:
    slots = _Slots(8)
    order: list[str] = []

    async def take(caller: str) -> None:
        await slots.acquire(caller)
        order.append(caller)

    async def settle() -> None:
        for _ in range(5):  # turns of the loop alone
            await asyncio.sleep(0)

    # One caller comes first, with fifty scripts; each of the others has a few.
    tasks = [asyncio.create_task(take(caller)) for caller in "a" * 50 + "b" * 12 + "c" * 12]
    await settle()
    begun = len(order)
    for ended in range(30):
        slots.release(order[ended])
        await settle()
    shared = Counter(order[begun:])
    assert shared.total() >= 24
    assert max(shared.values()) - min(shared[name] for name in "abc") <= 3, shared
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_19_a_second_caller_gets_more_than_one_turn_beside_one_who_holds_most() -> None:
    slots = _Slots(16)
    tasks = [asyncio.create_task(slots.acquire(caller)) for caller in "a" * 40 + "b" * 40]
    for _ in range(200):
        await asyncio.sleep(0)
    assert dict(slots.running) == {"a": 12, "b": 3}
    newcomer = asyncio.create_task(slots.acquire("c"))
    async with asyncio.timeout(10):
        await newcomer
    assert slots.running.total() == 16
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
