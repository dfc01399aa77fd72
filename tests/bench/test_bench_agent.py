"""`toolfold bench agent`: its tasks can be done in every setting, and a run that fails is told as a failure."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.agent import SETTINGS, TASKS, Harness, Ran, run, twelve_servers
from benchmarks.agent.loop import Bounds, Toolset, play, read_command
from benchmarks.agent.policies import sparse
from benchmarks.agent.tasks import Task, Tool
from benchmarks.agent.world import World
from toolfold.config.sections import Model as ModelSettings
from toolfold.errors import ConfigError
from toolfold.faces.cli import run as main
from toolfold.model import Prompt, Reply, ToolOffer, ToolUse
from toolfold.testing.scripted_model import ScriptedModel

pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif(shutil.which("git") is None, reason="the git program is not installed"),
]
BY_NAME = {task.name: task for task in TASKS}


def played(
    folder: Path, *tasks: Task, settings: tuple[str, ...] = SETTINGS, **options: Any
) -> dict[tuple[str, str], Ran]:
    ran = asyncio.run(Harness(folder, {}).run_all(tasks, settings=settings, **options))
    return {(one.task, one.setting): one for one in ran}


def test_there_are_enough_tasks_and_most_need_nothing_installed() -> None:
    assert len(BY_NAME) == len(TASKS) >= 40
    demo = [task for task in TASKS if task.servers <= {"files", "git", "sqlite"}]
    assert len(demo) >= 30
    assert sum(len(task.servers) > 1 for task in demo) >= 8
    assert sum(bool(task.extracts) for task in demo) >= 5
    assert {"excel", "memory"} <= {server for task in TASKS for server in task.servers}


def test_no_check_is_content_with_a_world_where_nothing_was_done(tmp_path: Path) -> None:
    world = World(tmp_path).fresh()
    content = [task.name for task in TASKS if not task.check(world, "") or not task.check(world, "I do not know.")]
    assert not content


def test_tasks_succeed_in_every_setting_and_are_counted(tmp_path: Path) -> None:
    names = ("sqlite-large-ends", "git-largest", "joint-summary")
    ran = played(tmp_path, *(BY_NAME[name] for name in names))
    assert {key: one.problem for key, one in ran.items()} == {(n, s): "" for n in names for s in SETTINGS}
    for one in ran.values():
        assert one.played.input_tokens >= one.played.first_input_tokens > 500
        assert one.played.output_tokens > 0
    # 16 calls: one turn of many calls natively, one script; search and expansion come before in toolfold's settings.
    turns = {setting: ran["git-largest", setting].played.turns for setting in SETTINGS}
    assert turns == {"all_tools": 3, "surface": 4, "scripts": 3}
    calls = {setting: ran["git-largest", setting].played.calls for setting in SETTINGS}
    assert calls["scripts"] < calls["all_tools"] < calls["surface"]
    # A large result stays outside.
    large = {setting: ran["sqlite-large-ends", setting].played.input_tokens for setting in SETTINGS}
    assert large["surface"] < large["all_tools"]
    assert large["scripts"] < large["all_tools"]


async def shrug(query: Tool) -> Any:
    await query(sql="SELECT 1")
    return "I do not know."


async def stumble(query: Tool) -> Any:
    found = await query(sql="SELECT nonsense FROM nowhere")
    return found.rows[0][0]


async def wrong(execute: Tool) -> Any:
    await execute(sql="UPDATE products SET stock = stock + 10")
    return "Done."


def test_a_run_that_did_not_do_its_task_is_a_failure_in_every_setting(tmp_path: Path) -> None:
    shrugged = replace(BY_NAME["sqlite-count"], name="shrugged", plan=shrug)
    stumbled = replace(BY_NAME["sqlite-count"], name="stumbled", plan=stumble)
    overdone = replace(BY_NAME["sqlite-update"], name="overdone", plan=wrong)
    harness = Harness(tmp_path, {})
    ran = asyncio.run(harness.run_all([shrugged, overdone], settings=("all_tools", "scripts")))
    ran += asyncio.run(harness.run_all([stumbled], settings=("all_tools", "surface")))
    problems = {(one.task, one.setting): one.problem for one in ran}
    open_orders = harness.world.value("SELECT count(*) FROM orders WHERE status = 'open'")
    lacking = f"the answer lacks {open_orders}"
    assert {problems.pop(("overdone", setting))[:60] for setting in ("all_tools", "scripts")} == {
        "SELECT p.title, p.stock - b.stock FROM products p JOIN befor"
    }
    assert problems == {
        ("shrugged", "all_tools"): lacking,
        ("shrugged", "scripts"): lacking,
        ("stumbled", "all_tools"): lacking,
        ("stumbled", "surface"): lacking,
    }
    assert ran[-1].played.answer.startswith("The plan failed: ")


def test_each_run_begins_with_fresh_data(tmp_path: Path) -> None:
    task = BY_NAME["sqlite-insert"]
    ran = asyncio.run(Harness(tmp_path, {}).run_all([task, task], settings=("all_tools",)))
    assert [one.problem for one in ran] == ["", ""]


class Bell:
    """A toolset with one tool."""

    async def instructions(self) -> str:
        return "Ring."

    async def offers(self) -> tuple[ToolOffer, ...]:
        return (ToolOffer("ring", "Rings a bell.", {"type": "object"}),)

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return f"{name} {json.dumps(arguments)}"


def test_a_model_that_never_answers_ends_within_its_bounds() -> None:
    toolset: Toolset = Bell()
    model = ScriptedModel(lambda prompt: Reply(uses=(ToolUse("1", "ring", {}),)))
    found = asyncio.run(play(model, toolset, "Ring the bell.", Bounds(turns=4)))
    assert (found.ending, found.turns, found.calls) == ("out_of_turns", 4, 4)


def test_a_model_that_fails_ends_the_run_with_its_reason() -> None:
    found = asyncio.run(play(ScriptedModel([]), Bell(), "Ring the bell.", Bounds()))
    assert found.ending == "model_error: the script of the model is used up"


def test_a_model_without_native_calls_is_asked_for_json() -> None:
    model = ScriptedModel(
        ['```json\n{"tool": "ring", "arguments": {"times": 2}}\n```', '{"answer": "It rang."}'],
        calls_tools=False,
        price=0.5,
    )
    found = asyncio.run(play(model, Bell(), "Ring the bell.", Bounds()))
    assert (found.answer, found.turns, found.calls, found.cost) == ("It rang.", 2, 1, 1.0)
    first, second = model.prompts
    assert not first.tools
    assert "Rings a bell." in first.messages[0].content
    assert second.messages[-1].content == 'ring {"times": 2}'
    assert read_command("no JSON at all", 1) == ((), "no JSON at all")


def test_15_13_a_call_that_a_model_writes_as_text_counts_for_the_bare_loop_too() -> None:
    model = ScriptedModel(['I ring.\n```json\n{"name": "ring", "arguments": {"times": 2}}\n```', "It rang."])
    found = asyncio.run(play(model, Bell(), "Ring the bell.", Bounds()))
    assert (found.answer, found.turns, found.calls) == ("It rang.", 2, 1)
    said, answer = model.prompts[1].messages[-2:]
    assert (said.uses[0].name, answer.content) == ("ring", 'ring {"times": 2}')


def test_parts_of_a_large_result_read_like_the_whole() -> None:
    found = sparse({"rows[250]": [1, "x"], "total.lines": 7})
    assert (found.rows[250][1], found.total.lines) == ("x", 7)


def test_the_command_reports_each_setting_and_says_what_is_absent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "agent", "--only", "files-vat", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    metrics = found["metrics"]
    assert found["name"] == "agent"
    assert {name: one["succeeded"] for name, one in metrics["settings"].items()} == dict.fromkeys(SETTINGS, 1)
    assert metrics["servers"]["excel"].startswith("absent: ")
    assert metrics["failures"] == []
    assert metrics["twelve_servers"].startswith("not measured: ")
    with pytest.raises(ConfigError, match="no task fits 'nothing'"):
        run(only="nothing")
    with pytest.raises(ConfigError, match="no model is configured"):
        run(model=ModelSettings())


def test_a_dozen_real_servers_cost_far_fewer_tokens_behind_the_surface(shared_data: Path) -> None:
    found = twelve_servers.measured(shared_data)
    assert isinstance(found, dict)
    assert found["tools"] > 150
    assert [found[setting]["problem"] for setting in SETTINGS] == ["", "", ""]
    assert found["surface"]["to_all_tools"] < 0.25
    assert found["scripts"]["to_all_tools"] < found["surface"]["to_all_tools"]


def test_a_prompt_counts_whole_whatever_the_model_says_it_took() -> None:
    seen: list[Prompt] = []

    def answer(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply(text="done")

    found = asyncio.run(play(ScriptedModel(answer), Bell(), "Ring the bell.", Bounds()))
    assert found.input_tokens > sum(len(message.content.split()) for message in seen[0].messages)
    assert (found.billed_input_tokens, found.cost) == (0, None)
