"""Scripts from end to end: needs become functions, calls reach servers, and every way to end has its name."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from script_kit import (
    EXAMPLES,
    create_repository,
    git,
    git_log,
    mail,
    open_gateway,
    run_script,
    run_scripts,
    with_tools,
)

import toolfold
from toolfold import Gateway, Settings
from toolfold.config.sections import Scripts
from toolfold.errors import ScriptError
from toolfold.events import Event
from toolfold.scripts import report
from toolfold.scripts.runner import ScriptResult
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import ServerSpec


@pytest.mark.requirement("U-02", "U-07", "U-08")
def test_the_example_of_the_note_runs_unchanged_on_a_real_repository(tmp_path: Path) -> None:
    repository = create_repository(tmp_path / "repository")
    server = ServerSpec(
        name="git", transport="stdio", command=sys.executable, args=(str(EXAMPLES / "git_server.py"), str(repository))
    )
    settings = Settings(servers=(server,), home=tmp_path / "home")

    page = (EXAMPLES.parent / "docs" / "scripts.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python[^\n]*\n(.*?)```", page, re.DOTALL)

    async def main() -> tuple[ScriptResult, str, str, list[ScriptResult]]:
        async with Gateway(settings) as gateway:
            await gateway.build()
        async with Gateway(settings) as gateway:
            before = (await gateway.servers())[0].status
            await gateway.scripts.prepare((EXAMPLES / "agent_script.py").read_bytes())
            resolved = (await gateway.servers())[0].status
            result = await gateway.run_script((EXAMPLES / "agent_script.py").read_bytes())
            return result, before, resolved, [await gateway.run_script(block) for block in blocks]

    result, before, resolved, documented = asyncio.run(main())
    assert [run.outcome for run in documented] == ["finished"] * len(blocks), [run.error for run in documented]
    assert documented[0].answer == {"authors": ["Ada"]}
    summary = {"commit_count": 3, "latest_commit_author": "Ada", "files_changed_in_last_commit": 3}
    assert (before, resolved) == ("idle", "idle"), "resolving needs opens no connection"
    assert result.outcome == "finished", report.as_text(result)
    assert result.answer == summary
    assert result.stdout == f"Analyzing recent commits...\nAnalysis complete: {summary}\n"
    assert [(need.tool_id, call.tool_id) for need, call in zip(result.needs, result.calls, strict=True)] == [
        ("git.git_log", "git.git_log"),
        ("git.git_diff", "git.git_diff"),
    ]
    assert all(0 < need.confidence <= 1 for need in result.needs)
    assert not result.unsafe
    assert result.layers


@pytest.mark.requirement("U-07")
def test_a_server_is_opened_by_the_first_call_and_not_before(tmp_path: Path) -> None:
    tools, other = git(), mail()

    async def main() -> list[int]:
        async with open_gateway(tmp_path, [tools, other]):
            pass
        opens = [tools.opened]
        async with Gateway(Settings(home=tmp_path), upstreams=[tools, other]) as gateway:
            await gateway.run_script('use_tools("get the git commit log", "send an e-mail")\nprint("no call")')
            opens.append(tools.opened)
            await gateway.run_script('log, _ = use_tools("get the git commit log", "send an e-mail")\nawait log()')
            opens += [tools.opened, other.opened]
        return opens

    assert asyncio.run(main()) == [1, 1, 2, 1]


@pytest.mark.requirement("U-04")
def test_a_need_that_nothing_fits_raises_at_the_call_and_other_words_can_be_tried(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        from runtime.discovery import use_tools
        from runtime.exceptions import ToolNotFound
        print("started")
        try:
            use_tools("brew a cup of espresso on the moon")
        except ToolNotFound as error:
            print("nothing for", error.query, type(error.candidates).__name__)
            bindings = use_tools("get the git commit log")
        print(bindings[0].tool_id, bindings[0].import_path)
        print(bindings[0].signature)
        """,
    )
    assert result.stdout.splitlines() == [
        "started",
        "nothing for brew a cup of espresso on the moon tuple",
        "git.git_log from servers.git import git_log, GitLogParams",
        "git_log(*, max_count: int = 10) -> GitLogResult",
    ]
    assert [need.tool_id for need in result.needs] == ["", "git.git_log"]
    assert "nothing fits" in report.as_text(result)


@pytest.mark.requirement("U-04", "U-03")
def test_exact_ids_and_a_named_server_are_needs_too(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        one, = use_tools("git.git_log")
        two, = use_tools("git_branch", server="git")
        three, = use_tools("send a mail to somebody", server="mail")
        print(one.tool_id, two.tool_id, three.tool_id, one.confidence)
        try:
            use_tools("git.git_lgo")
        except Exception as error:
            print(type(error).__name__, list(error.candidates)[:1])
        """,
    )
    assert result.stdout.splitlines() == [
        "git.git_log git.git_branch mail.send_mail 1.0",
        "ToolNotFound ['git.git_log']",
    ]


@pytest.mark.requirement("U-05")
def test_functions_come_from_the_servers_modules_and_only_those_that_are_declared(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        try:
            from servers.mail import send_mail
        except ImportError as error:
            print(error)
        use_tools("get the git commit log")
        import servers.git
        from servers.git import git_log, GitLogParams
        try:
            from servers.git import git_blame
        except ImportError as error:
            print(error)
        print(len((await git_log(GitLogParams(max_count=3))).commits), len((await git_log(max_count=2)).commits))
        print(type(GitLogParams).__mro__[1].__name__ != "", [name for name in dir(servers.git)])
        """,
    )
    lines = result.stdout.splitlines()
    assert result.ok, report.as_text(result)
    assert lines[0] == "servers.mail is not there: no use_tools in this script names a tool of it"
    assert "servers.git has no 'git_blame'; this script declares: GitLog" in lines[1]
    assert lines[2] == "3 2"
    assert "git_log" in lines[3]
    assert "git_branch" not in lines[3]


def test_the_modules_of_a_script_are_unknown_outside_it() -> None:
    assert "servers" not in sys.modules
    assert "runtime" not in sys.modules
    with pytest.raises(ScriptError, match="only in scripts"):
        toolfold.use_tools("anything")


@pytest.mark.requirement("U-09")
def test_a_tool_that_changed_or_came_is_there_for_the_next_script_without_any_step(tmp_path: Path) -> None:
    upstream = MemoryUpstream("git", [git_log])
    code = 'log, = use_tools("get the git commit log")\nprint(log.signature)'

    async def main() -> list[str]:
        async with open_gateway(tmp_path, [upstream]) as gateway:
            first = await gateway.run_script(code)

            def changed(limit: int, author: str = "") -> str:
                """Get the git commit log: the latest commits of the repository with hash and author."""
                return f"{limit} by {author}"

            changed.__name__ = "git_log"
            upstream.set_tools([changed])
            await gateway.reread("git")
            second = await gateway.run_script(code)
            return [first.stdout, second.stdout]

    first, second = asyncio.run(main())
    assert "max_count: int = 10" in first
    assert "limit: int, author: str = ''" in second


ENDS: list[tuple[str, str, Any]] = [
    ("exit()", "exited", 0),
    ("exit(3)", "exited", 3),
    ("quit('bad luck')", "exited", 1),
    ("raise SystemExit(2)", "exited", 2),
    ("raise KeyboardInterrupt", "interrupted", None),
    ("input('name? ')", "input_refused", None),
    ("breakpoint()", "input_refused", None),
    ("import os; os._exit(0)", "left", 0),
    ("import os; os._exit(7)", "left", 7),
    ("1 / 0", "failed", None),
    ("return 5", "failed", None),
    ("import asyncio\nraise asyncio.CancelledError", "failed", None),
    ("raise GeneratorExit", "failed", None),
    ("class E(BaseException): pass\nraise E('own')", "failed", None),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed", None),
    ("import ctypes; ctypes.string_at(0)", "crashed", None),
    ("x = bytearray(8 << 30)", "out_of_memory", None),
    ("while True: pass", "timed_out", None),
]


@pytest.mark.requirement("U-08")
def test_every_way_to_end_has_its_name(tmp_path: Path) -> None:
    async def work(gateway: Gateway) -> list[ScriptResult]:
        return [await gateway.run_script(code, timeout_s=3.0) for code, _, _ in ENDS]

    results = with_tools(tmp_path, work)
    found = [(code, result.outcome, result.code) for (code, _, _), result in zip(ENDS, results, strict=True)]
    assert [(code, outcome) for code, outcome, _ in found] == [(code, outcome) for code, outcome, _ in ENDS]
    for (code, outcome, _), (_, _, wanted) in zip(found, ENDS, strict=True):
        if outcome in {"exited", "left"}:
            assert (code, results[[c for c, _, _ in ENDS].index(code)].code) == (code, wanted)


ANSWERS: list[tuple[str, Any]] = [
    ("async def main():\n    return {'a': 1}\nimport asyncio\nasyncio.run(main())", {"a": 1}),
    ("from asyncio import run\nasync def main():\n    return [1]\nx = run(main())", [1]),
    ("def main():\n    return {'a': 2}\nif __name__ == '__main__':\n    main()", {"a": 2}),
    ("async def main():\n    return {'a': 3}", {"a": 3}),
    ("def main():\n    return 'never mentioned'", "never mentioned"),
    ("print('x')\nprint('{\"a\": 4}')", {"a": 4}),
    ("x = 5\n{'a': x}", {"a": 5}),
    (
        "import datetime, pathlib\n{'d': datetime.date(2024, 1, 2), 'p': pathlib.Path('/x'), 's': {1}}",
        {"d": "2024-01-02", "p": "/x", "s": [1]},
    ),
    ("a = []\na.append(a)\na", None),
    ("print('plain')", None),
]


@pytest.mark.requirement("U-08")
def test_the_final_summary_is_what_main_returned_or_the_last_value_or_the_last_json_line(tmp_path: Path) -> None:
    results = run_scripts(tmp_path, [code for code, _ in ANSWERS], upstreams=[])
    assert [result.outcome for result in results] == ["finished"] * len(ANSWERS)
    assert [result.answer for result in results] == [answer for _, answer in ANSWERS]


@pytest.mark.requirement("U-08")
def test_an_error_names_the_scripts_own_line_and_shows_none_of_our_frames(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        branch, = use_tools("create a git branch")

        async def helper():
            return await branch(name=[1, 2])

        async def main():
            await helper()

        import asyncio
        asyncio.run(main())
        """,
    )
    assert result.outcome == "failed"
    assert result.error is not None
    assert (result.error.type, result.error.line) == ("InvalidArguments", 5)
    assert result.error.source == "return await branch(name=[1, 2])"
    assert "call it as git_branch(*, name: str)" in result.error.next_action
    assert "toolfold" not in result.error.traceback
    assert "asyncio/" not in result.error.traceback


@pytest.mark.requirement("U-08")
@pytest.mark.parametrize(
    "use", ["print(branch(name='x').name)", "branch(name='x')[0]", "for one in branch(name='x'): pass"]
)
def test_a_call_that_is_not_awaited_is_told_how(tmp_path: Path, use: str) -> None:
    result = run_script(tmp_path, f'branch, = use_tools("create a git branch")\n{use}')
    assert result.outcome == "failed"
    assert result.error is not None
    assert (result.error.line, result.error.next_action[:18]) == (2, "tools are awaited:")


@pytest.mark.requirement("U-08")
def test_output_is_bounded_told_and_free_of_terminal_codes(tmp_path: Path) -> None:
    async def work(gateway: Gateway) -> list[ScriptResult]:
        flood = await gateway.run_script("print('x' * 100_000_000)")
        odd = await gateway.run_script(
            "import sys\nprint('\\x1b[31mred\\x1b[0m \\x07 \\x1b]0;title\\x07 \\u202e')\n"
            "sys.stdout.buffer.write(b'\\xff\\n')"
        )
        return [flood, odd, await gateway.run_script("raise ValueError('\\x1b[31mred \\ud800')")]

    flood, odd, raised = with_tools(tmp_path, work, scripts=Scripts(wall_s=20.0, output_bytes=10_000, ready=1))
    assert len(flood.stdout) <= 10_000
    assert flood.output_dropped > 90_000_000
    assert report.as_dict(flood)["output_dropped_bytes"] == flood.output_dropped
    assert "bytes of output were dropped" in report.as_text(flood)
    assert raised.error is not None
    assert raised.error.message == "red \\ud800"
    assert "\\x1b" not in raised.error.traceback.splitlines()[-1]
    assert odd.stdout == "red \\x07  \\u202e\n\ufffd\n"


@pytest.mark.requirement("U-10")
def test_unsafe_is_said_in_every_result(tmp_path: Path) -> None:
    result = run_script(tmp_path, "print('bare')", unsafe=True)
    assert result.unsafe
    assert result.layers == ()
    assert report.as_dict(result)["unsafe"] is True
    assert "without a sandbox" in report.as_text(result)


def test_scripts_run_side_by_side(tmp_path: Path) -> None:
    async def work(gateway: Gateway) -> list[ScriptResult]:
        code = 'log, = use_tools("git.git_log")\nlen((await log(max_count={0})).commits)'
        return list(await asyncio.gather(*(gateway.run_script(code.format(n)) for n in range(1, 13))))

    assert [result.answer for result in with_tools(tmp_path, work)] == list(range(1, 13))


def test_what_happens_is_told_as_events(tmp_path: Path) -> None:
    events: list[Event] = []

    async def work(gateway: Gateway) -> None:
        gateway.events.subscribe(events.append)
        await gateway.run_script('log, = use_tools("git.git_log")\nawait log()')

    with_tools(tmp_path, work)
    names = [event.name for event in events if event.name.startswith(("script.", "call."))]
    assert names == ["script.started", "call.started", "call.finished", "script.call", "script.finished"]
    started = next(event for event in events if event.name == "script.started")
    assert started.data["needs"] == [{"need": "git.git_log", "tool_id": "git.git_log", "confidence": 1.0}]
