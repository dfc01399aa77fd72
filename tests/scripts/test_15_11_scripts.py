"""What models and people write in scripts works, or is answered in one line that says what to write instead."""

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from script_kit import git, git_log, open_gateway, run_script, with_tools

from toolfold import Gateway
from toolfold.errors import ScriptError
from toolfold.faces.surface.definitions import BY_NAME
from toolfold.scripts import report
from toolfold.scripts.runner import ScriptResult
from toolfold.testing.memory_upstream import MemoryUpstream

LOG = 'log = use_tools("git.git_log")\n'


def finished(home: Path, code: str, **options: Any) -> ScriptResult:
    result = run_script(home, code, **options)
    assert result.outcome == "finished", report.as_text(result)
    return result


THREADS = {
    "a pool, beside no loop": """
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda n: asyncio.run(count(n)), range(8)))
        found
    """,
    "a thread, while the loop waits for it": """
        [await count(8), await asyncio.to_thread(lambda: asyncio.run(count(3)))]
    """,
    "a thread, while the loop calls too": """
        async def both():
            return await asyncio.gather(*[count(n) for n in range(4)], asyncio.to_thread(lambda: asyncio.run(count(5))))
        await both()
    """,
    "a pool that blocks the loop in the middle of a call": """
        async def main():
            task = asyncio.create_task(count(6))
            await asyncio.sleep(0)
            with ThreadPoolExecutor(2) as pool:
                found = list(pool.map(lambda n: asyncio.run(count(n)), range(4)))
            return [*found, await task]
        await main()
    """,
    "a loop in one thread that calls many at once": """
        async def many():
            return await asyncio.gather(*[count(n) for n in range(20)])
        found = []
        thread = threading.Thread(target=lambda: found.extend(asyncio.run(many())))
        thread.start()
        thread.join()
        found
    """,
    "a large result, read in a thread": """
        large = await log(max_count=6000)
        [large.size > 300_000, len(await asyncio.to_thread(lambda: large.commits))]
    """,
}
FOUND = [list(range(8)), [8, 3], [0, 1, 2, 3, 5], [0, 1, 2, 3, 6], list(range(20)), [True, 6000]]


@pytest.mark.parametrize(("how", "found"), list(zip(THREADS, FOUND, strict=True)))
def test_15_11_tools_are_called_from_threads(tmp_path: Path, how: str, found: list[Any]) -> None:
    code = """
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
log = use_tools("git.git_log")
async def count(n):
    return len((await log(max_count=n)).commits)
""" + textwrap.dedent(THREADS[how])
    assert finished(tmp_path, code).answer == found


def test_15_11_a_group_of_errors_shows_each_with_its_line(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        LOG
        + """
import asyncio
async def bad(n):
    return await log(max_count=f"many {n}")
async def worse():
    raise ValueError("worse") from KeyError("the cause")
async with asyncio.TaskGroup() as group:
    group.create_task(bad(1))
    group.create_task(worse())
""",
    )
    assert result.error is not None
    assert (result.error.type, result.error.line) == ("ExceptionGroup", 5)
    text = report.as_text(result)
    assert "InvalidArguments in line 5: the arguments do not fit git_log: max_count" in result.error.message
    assert "ValueError in line 7: worse (caused by KeyError: 'the cause')" in result.error.message
    assert "call it as git_log(" in result.error.next_action
    assert "toolfold" not in text


UNAWAITED = [
    (LOG + "async def main():\n    return 1\n\nmain()", "line 5: main() was not awaited, so it did not run"),
    (
        LOG + "async def main():\n    return 1\n\nif __name__ == '__main__':\n    main()",
        "line 6: main() was not awaited",
    ),
    (LOG + "def helper():\n    log(max_count=1)\nhelper()", "line 3: git_log() was not awaited, so it did not run"),
    (LOG + "found = log(max_count=1)\nprint('done')", "line 2: git_log() was not awaited"),
    (LOG + "found = [log(max_count=n) for n in range(3)]", "line 2: git_log() was not awaited"),
    (LOG + "from servers.git import git_log\ngit_log()", "line 3: git_log() was not awaited"),
]


@pytest.mark.parametrize(("code", "says"), UNAWAITED)
def test_15_11_what_was_not_awaited_is_said_in_one_line(tmp_path: Path, code: str, says: str) -> None:
    result = run_script(tmp_path, code)
    assert [warning for warning in result.warnings if "awaited" in warning] == list(result.warnings)
    assert len(result.warnings) == 1
    assert result.warnings[0].startswith(says)
    assert "await" in result.warnings[0].removeprefix(says)
    assert result.answer is None
    assert "never awaited" not in result.stderr


def test_15_11_what_is_awaited_later_is_no_news(tmp_path: Path) -> None:
    code = LOG + "import asyncio\nwaiting = [log(max_count=n) for n in range(3)]\nlen(await asyncio.gather(*waiting))"
    result = finished(tmp_path, code)
    assert (result.answer, result.warnings, result.stderr) == (3, (), "")


@pytest.mark.requirement("U-03", "U-05")
def test_15_11_imports_may_stand_above_use_tools(tmp_path: Path) -> None:
    code = """
from servers.git import git_log, GitLogParams
from runtime.discovery import use_tools
use_tools("git.git_log", "brew a cup of espresso on the moon")
print(len((await git_log(GitLogParams(max_count=2))).commits))
"""
    result = run_script(tmp_path, code.replace(', "brew a cup of espresso on the moon"', ""))
    assert (result.stdout, result.ok) == ("2\n", True)
    missing = run_script(tmp_path, code)
    assert missing.error is not None
    assert (missing.error.type, missing.error.line) == ("ToolNotFound", 4)
    other = run_script(tmp_path, "from servers.mail import send_mail\n" + LOG)
    assert other.error is not None
    assert other.error.message == "servers.mail is not there: no use_tools in this script names a tool of it"


@pytest.mark.requirement("U-04", "U-05")
def test_15_11_one_need_gives_one_function_and_several_that_many(tmp_path: Path) -> None:
    code = """
one = use_tools("git.git_log")
two, three = use_tools("git.git_log", "git.git_branch")
(four,) = use_tools("git.git_branch")
[five] = use_tools("git.git_log")
print(len((await one(max_count=1)).commits), len((await two(max_count=2)).commits))
print(await three(name="x") == await four(name="x"), five.tool_id)
print(one.tool_id, use_tools("git.git_log")[0].tool_id, one.__name__, callable(one))
"""
    result = finished(tmp_path, code)
    assert result.stdout.splitlines() == ["1 2", "True git.git_log", "git.git_log git.git_log git_log True"]


@pytest.mark.parametrize("code", ['use_tools("git.git_log")', 'use_tools("git.git_log", "git.git_branch")\nprint("x")'])
def test_15_11_bindings_stand_before_the_run_and_are_no_summary(tmp_path: Path, code: str) -> None:
    result = finished(tmp_path, code)
    assert result.answer is None
    text = report.as_text(result)
    assert text.startswith("[git.git_log: git_log(*, max_count: int = 10) -> GitLogResult]\n")
    assert "summary" not in text
    if "print" in code:
        assert text.index("git_branch(*, name: str)") < text.index("\nx\n")


@pytest.mark.requirement("O-16")
def test_15_11_a_stored_output_is_a_typed_argument_and_opens(tmp_path: Path) -> None:
    def send(body: str, copies: list[str], count: int = 1) -> str:
        """Send a letter."""
        return f"{len(body)} {len(copies[0])} {count}"

    document = '{"lines": [1, 2, 3]}\n' + "ü" * 1_000_000

    async def work(gateway: Gateway) -> ScriptResult:
        stored = await gateway.outputs.store_text(document, tool_id="box.dump")
        numbers = await gateway.outputs.store_text('{"n": 5}', tool_id="box.numbers")
        code = f"""
from servers.box import SendParams
whole = {{"$output": "{stored.handle}"}}
send = use_tools("box.send")
print(await send(body=whole, copies=[whole], count={{"$output": "{numbers.handle}", "path": "n"}}))
print(await send(SendParams(body=whole, copies=["x"])))
print(await send(body=open_output("{stored.handle}"), copies=["x"]))
out = open_output("{stored.handle}")
print(out.bytes, next(iter(out.lines())), len(out.text()), out.text(2, 5), len(out.read(5, 10)))
print(open_output("{numbers.handle}").json())
open_output("00000000-0000-4000-8000-000000000000")
"""
        return await gateway.run_script(code)

    result = with_tools(tmp_path, work, upstreams=[MemoryUpstream("box", [send])])
    size = len(document.encode())
    assert result.stdout.splitlines() == [
        f"{len(document)} {len(document)} 5",
        f"{len(document)} 1 1",
        f"{len(document)} 1 1",
        f'{size} {{"lines": [1, 2, 3]}} {len(document)} lines 10',
        "{'n': 5}",
    ], report.as_text(result)
    assert result.error is not None
    assert (result.error.type, result.error.line) == ("UnknownHandle", 11)


def test_15_11_a_missing_library_is_answered_with_what_there_is(tmp_path: Path) -> None:
    result = run_script(tmp_path, "import nosuchlibrary.part")
    assert result.error is not None
    assert (result.error.type, result.error.line) == ("ModuleNotFoundError", 1)
    assert "the standard library and" in result.error.next_action
    assert re.search(r"\bnumpy\b.*\bpydantic\b", result.error.next_action)


def two_gits() -> list[MemoryUpstream]:
    def log(limit: int = 3) -> str:
        """Show the commit log of the repository."""
        return "one"

    def log_again(limit: int = 3) -> str:
        """Show the commit log of the repository."""
        return "two"

    log_again.__name__ = "log"
    return [MemoryUpstream("git", [log]), MemoryUpstream("work", [log_again])]


@pytest.mark.requirement("U-04")
def test_15_11_a_need_whose_runner_up_is_as_near_is_not_run(tmp_path: Path) -> None:
    async def main() -> tuple[ScriptError, ScriptResult, ScriptResult]:
        async with open_gateway(tmp_path, two_gits()) as gateway:
            with pytest.raises(ScriptError) as raised:
                await gateway.run_script('print("started")\nlog = use_tools("show the commit log")\nawait log()')
            by_id = await gateway.run_script('log = use_tools("work.log")\nawait log()')
            by_server = await gateway.run_script('log = use_tools("show the commit log", server="git")\nawait log()')
            return raised.value, by_id, by_server

    error, by_id, by_server = asyncio.run(main())
    assert error.message.startswith("line 2: 'show the commit log' fits git.log and work.log alike")
    assert [hint["tool_id"] for hint in error.hints] == ["git.log", "work.log"]
    assert 'use_tools("git.log")' in error.next_action
    assert [run.needs[0].tool_id for run in (by_id, by_server)] == ["work.log", "git.log"]


@pytest.mark.requirement("U-04")
def test_15_11_a_tool_that_writes_is_bound_only_where_the_match_is_sure(tmp_path: Path) -> None:
    remove = {
        "name": "purge_records",
        "description": "Remove entries of the warehouse ledger for good.",
        "inputSchema": {"type": "object"},
        "annotations": {"destructiveHint": True},
    }
    upstream = MemoryUpstream("store", [remove])
    upstream.answer("purge_records", "gone")

    async def main() -> tuple[ScriptError, ScriptResult, ScriptResult]:
        async with open_gateway(tmp_path, [upstream, git()]) as gateway:
            with pytest.raises(ScriptError) as raised:
                await gateway.run_script('use_tools("read ledger entries")')
            sure = await gateway.run_script('use_tools("remove entries of the warehouse ledger for good")')
            return raised.value, sure, await gateway.run_script('use_tools("store.purge_records")')

    error, sure, by_id = asyncio.run(main())
    assert "store.purge_records" in error.message
    assert "may write" in error.message
    assert error.hints[0]["tool_id"] == "store.purge_records"
    assert sure.ok
    assert by_id.ok


def test_15_11_models_read_that_use_tools_takes_ids() -> None:
    assert 'use_tools("git.log")' in BY_NAME["run_script"].description


@pytest.mark.requirement("U-10")
async def test_15_11_a_script_that_runs_while_the_gateway_closes_is_told_so(tmp_path: Path) -> None:
    errors: list[str] = []

    async def run(gateway: Gateway) -> None:
        try:
            await gateway.run_script("print(1)")
        except Exception as error:  # noqa: BLE001 - whatever it is, its text is what counts
            errors.append(str(error))

    async with open_gateway(tmp_path, [MemoryUpstream("git", [git_log])]) as gateway:
        running = [asyncio.create_task(run(gateway)) for _ in range(12)]
        await asyncio.sleep(0)
    await asyncio.gather(*running)
    assert errors
    assert {error for error in errors if "--unsafe" in error or "zygote" in error} == set()
    assert any("the gateway was closed" in error for error in errors)


def test_15_01_a_tool_that_was_not_imported_is_told_how_to_be(tmp_path: Path) -> None:
    result = run_script(tmp_path, 'use_tools("git.git_log")\nprint(git_log(max_count=1))\n')
    assert result.error is not None
    assert result.error.type == "NameError"
    assert "from servers.git import git_log" in result.error.next_action


CRM = {
    "find_contact": "Find a contact of the customer database by its name.",
    "list_orders": "List orders of all customers with amounts and status.",
    "send_invoice": "Send the invoice of an order by mail to its customer.",
    "export_contacts": "Export all contacts of the customer database as CSV.",
    "ship_car": "Ship the car in the workshop.",
}


def crm_result(home: Path, code: str) -> ScriptResult:
    tools = [{"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in CRM.items()]
    return with_tools(home, lambda gateway: gateway.run_script(code), upstreams=[MemoryUpstream("crm", tools)])


def test_15_11_a_need_that_is_not_sure_binds_nothing_that_may_write(tmp_path: Path) -> None:
    """Nothing says whether `send_invoice` writes: one word is not enough to call it."""
    with pytest.raises(ScriptError, match=r"may mean crm\.send_invoice"):
        crm_result(tmp_path, 'use_tools("invoice")')


def test_15_11_a_need_that_nothing_fits_can_be_caught(tmp_path: Path) -> None:
    code = """
try:
    use_tools("order a taxi to the moon")
except ToolNotFound as error:
    print(error.candidates)
"""
    assert "crm." in crm_result(tmp_path, "from toolfold import ToolNotFound\n" + code).stdout
