"""The agent over real servers, with a scripted model: from search over an oversized result and a script to the report.

And the same with a model that makes every mistake there is.
"""

import asyncio
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway
from toolfold.agent.definition import AgentDefinition
from toolfold.agent.planner import AgentReport
from toolfold.agent.record import load_record
from toolfold.config import Settings
from toolfold.config.sections import Limits
from toolfold.demo.data import demo_servers, make_demo_data
from toolfold.model import Prompt, Reply, ToolUse
from toolfold.testing.scripted_model import ScriptedModel

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is not installed")

SCRIPT = """
import asyncio
from runtime.discovery import use_tools

use_tools("get the commit log of the repository", server="git")
from servers.git import log


async def main():
    found = await log(limit=3)
    return {"commits": len(found.commits)}


asyncio.run(main())
"""

Plan = Callable[[Prompt], dict[str, Any] | str]


def use(*commands: dict[str, Any]) -> Reply:
    return Reply(
        uses=tuple(
            ToolUse(f"u{number}", one["type"], {key: value for key, value in one.items() if key != "type"})
            for number, one in enumerate(commands)
        )
    )


def last(prompt: Prompt) -> str:
    return prompt.messages[-1].content


def handle_in(prompt: Prompt) -> str:
    found = re.findall(r'tool_output\(handle = "([^"]+)"', "\n".join(message.content for message in prompt.messages))
    return str(found[-1])


class Played:
    """One run over the demo servers, and what is left of it."""

    def __init__(
        self,
        folder: Path,
        steps: list[Callable[[Prompt], Reply]],
        *,
        definition: AgentDefinition | None = None,
        **limits: Any,
    ) -> None:
        self._definition = definition
        data = make_demo_data(folder / "data")
        self.settings = Settings(servers=tuple(demo_servers(data)), home=folder / "home", limits=Limits(**limits))
        remaining = list(steps)

        def answer(prompt: Prompt) -> Reply:
            return remaining.pop(0)(prompt)

        self.model = ScriptedModel(answer)
        self.report: AgentReport = asyncio.run(self._run())
        self.file = next((folder / "home" / "runs").glob("*.jsonl"))
        self.events = load_record(self.file)

    async def _run(self) -> AgentReport:
        async with Gateway(self.settings) as gateway:
            await gateway.build()
            return await gateway.agent(model=self.model, definition=self._definition).run("How many commits are there?")

    def results(self) -> list[dict[str, Any]]:
        return [event["result"] for event in self.events if event["event"] == "command.done"]


def say(*commands: dict[str, Any]) -> Callable[[Prompt], Reply]:
    return lambda prompt: use(*commands)


GOOD: list[Callable[[Prompt], Reply]] = [
    say({"type": "search", "query": "show the commit history"}),
    say(
        {
            "type": "tool",
            "tool_id": "toolbox.inspect_tool_output",
            "args": {"tool_id": "git.log", "field_path": "commits[]"},
        }
    ),
    say({"type": "tool", "tool_id": "git.log", "args": {"limit": 20}}),
    lambda prompt: use(
        {"type": "tool_output", "handle": handle_in(prompt), "extract": "commits[0].subject"},
        {"type": "tool_output", "handle": handle_in(prompt), "extract": "the author of the first commit"},
    ),
    say({"type": "sandbox", "code": SCRIPT}),
    say({"type": "finish", "report": "There are commits.", "data": {"ok": True}}),
]


@needs_git
@pytest.mark.requirement("A-01", "A-03", "A-05", "O-10")
def test_a_task_goes_through_every_stage_over_real_servers(tmp_path: Path) -> None:
    run = Played(tmp_path, GOOD, tool_response_max_bytes=600)
    texts = [one["text"] for one in run.results()]
    assert [one["ok"] for one in run.results()] == [True] * 6, texts
    assert "git.log" in texts[0]
    assert '"field_path":"commits[]"' in texts[1]
    assert texts[2].startswith("Tool output is too large (")
    assert texts[3].startswith("ABSTRACT FROM TOOL OUTPUT git.log WITH HANDLE ")
    assert 'summary: {"commits":3}' in texts[5]
    assert (run.report.ending, run.report.text, run.report.data) == ("finished", "There are commits.", {"ok": True})
    assert run.file.stat().st_mode & 0o777 == 0o600


MISTAKES: list[Callable[[Prompt], Reply]] = [
    lambda prompt: Reply(text="I think I should begin."),
    say({"type": "search", "query": "order a taxi to the airport"}),
    say({"type": "search", "query": "show the commit history", "category_path": ["No", "Such", "Place"]}),
    say({"type": "search", "query": "show the commit history"}),
    say({"type": "tool", "tool_id": "git.lgo", "args": {}}),
    say({"type": "tool", "tool_id": "git.log", "args": {"limit": "many"}}),
    say(
        {
            "type": "tool",
            "tool_id": "toolbox.inspect_tool_output",
            "args": {"tool_id": "git.log", "field_path": "comits"},
        }
    ),
    say({"type": "tool_output", "handle": "nothing", "extract": "x"}),
    say({"type": "sandbox", "code": "from runtime.discovery import use_tools\nuse_tools(open('x').read())"}),
    say({"type": "sandbox", "code": "1/0"}),
    say({"type": "agent", "agent": "nobody", "task": "help"}),
    lambda prompt: Reply(text='{"type": "finish"}'),
    say({"type": "finish", "report": "at last"}),
]


@needs_git
@pytest.mark.requirement("A-01", "A-02")
def test_a_model_that_makes_every_mistake_is_told_each_and_can_still_finish(tmp_path: Path) -> None:
    run = Played(tmp_path, MISTAKES)
    assert (run.report.ending, run.report.text) == ("finished", "at last")
    told = {}
    for prompt in run.model.prompts[1:]:
        found = re.search(r'"code":"([A-Z_]+)","message":"((?:[^"\\]|\\.)*)"', last(prompt))
        if found:
            told[found[1]] = found[2]
    assert {
        "NO_MATCH_IN_CATEGORY",
        "UNKNOWN_PATH",
        "REFUSED",
        "INVALID_ARGUMENTS",
        "UNKNOWN_FIELD",
    } <= set(told)
    assert {"SCRIPT_INVALID"} <= set(told)
    texts = "\n".join(last(prompt) for prompt in run.model.prompts)
    assert "ZeroDivisionError" in texts
    assert "No tool was called yet" in texts
    assert "the command 'finish' cannot be read: Object missing required field `report`" in texts


@needs_git
def test_a_model_that_never_reports_ends_within_its_budget(tmp_path: Path) -> None:
    run = Played(tmp_path, [say({"type": "task_status", "status": "busy"})] * 30)
    assert (run.report.ending, run.report.synthetic, run.report.turns) == ("out_of_budget", True, 25)


SCRIPT_OF_ANOTHER = """
import asyncio
from runtime.discovery import use_tools

use_tools("git.log")
from servers.git import log


async def main():
    try:
        await log(limit=1)
    except Exception as error:
        return {"code": error.code}
    return {"code": "none"}


asyncio.run(main())
"""


@needs_git
@pytest.mark.requirement("A-04")
def test_an_agents_allow_list_holds_inside_its_scripts(tmp_path: Path) -> None:
    def summaries(pattern: str) -> str:
        plan = [say({"type": "sandbox", "code": SCRIPT_OF_ANOTHER}), say({"type": "finish", "report": "done"})]
        run = Played(tmp_path / pattern[:3], plan, definition=AgentDefinition(tools=(pattern,)))
        return str(run.results()[0]["text"])

    assert '"code":"NOT_AUTHORIZED"' in summaries("files.*")
    assert '"code":"none"' in summaries("git.*")


@needs_git
@pytest.mark.requirement("A-04", "O-06")
def test_an_agent_files_own_thresholds_hold_for_its_calls_and_its_extractions(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path / "data")
    settings = Settings(servers=tuple(demo_servers(data)), home=tmp_path / "home", user_home=tmp_path)
    (tmp_path / "agents").mkdir()
    front = "thresholds: {tool_response_max_bytes: 300, max_chunks_for_full_mode: 7}"
    (tmp_path / "agents" / "careful.md").write_text(f"---\n{front}\n---\nBe careful.")
    plan = [
        say({"type": "tool", "tool_id": "git.log", "args": {"limit": 5}}),
        lambda prompt: use({"type": "tool_output", "handle": handle_in(prompt), "extract": "commits[0].author"}),
        say({"type": "finish", "report": "done"}),
    ]

    def answer(prompt: Prompt) -> Reply:
        return plan.pop(0)(prompt)

    async def run() -> AgentReport:
        async with Gateway(settings) as gateway:
            await gateway.build()
            return await gateway.agent("careful", model=ScriptedModel(answer)).run("look")

    report = asyncio.run(run())
    events = load_record(next((tmp_path / "home" / "runs").glob("*.jsonl")))
    texts = [event["result"]["text"] for event in events if event["event"] == "command.done"]
    assert report.ending == "finished"
    assert texts[0].startswith("Tool output is too large (")
    assert texts[1].startswith("ABSTRACT FROM TOOL OUTPUT git.log")
    assert events[0]["definition"]["thresholds"] == {"tool_response_max_bytes": 300, "max_chunks_for_full_mode": 7}
