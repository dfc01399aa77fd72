"""Recorded runs over real servers: twenty of all kinds replayed, and their list, whatever lies in the folder."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_agent_end_to_end import GOOD, MISTAKES, SCRIPT, say

from toolfold import Gateway
from toolfold.agent import record
from toolfold.agent.budgets import Budgets
from toolfold.agent.definition import AgentDefinition
from toolfold.agent.record import RunRecord, load_record, summarise_record
from toolfold.config import Settings
from toolfold.config.sections import Limits
from toolfold.demo.data import demo_servers, make_demo_data
from toolfold.errors import ConfigError, ModelError, StoreError, ToolfoldError
from toolfold.model import Prompt, Reply, Usage
from toolfold.testing.scripted_model import ScriptedModel

Step = Callable[[Prompt], Reply | ModelError]

LOG = {"type": "tool", "tool_id": "git.log", "args": {"limit": 20}}
SEARCH = {"type": "search", "query": "show the commit history"}
BUSY = {"type": "task_status", "status": "busy"}
FINISH = {"type": "finish", "report": "done"}
HELP = {"type": "agent", "agent": "helper", "task": "look"}
MIDDLE = {"type": "agent", "agent": "middle", "task": "pass it on"}
SLEEP = {"type": "sandbox", "code": "import time\ntime.sleep(600)"}
SANDBOX = {"type": "sandbox", "code": SCRIPT}


def paid(*commands: dict[str, Any]) -> Step:
    return lambda prompt: msgspec.structs.replace(say(*commands)(prompt), usage=Usage(10, 10, 0.1))


def reported(prompt: Prompt) -> Reply:
    nonce = prompt.messages[0].content.partition("<ai-agent-")[2].partition("-FINAL")[0]
    return Reply(text=f'<ai-agent-{nonce}-FINAL format="text">wrapped</ai-agent-{nonce}-FINAL>')


def written(step: Step) -> Step:
    """The same from a model that cannot call tools."""

    def answer(prompt: Prompt) -> Reply | ModelError:
        reply = step(prompt)
        if isinstance(reply, ModelError) or not reply.uses:
            return reply
        commands = [{**use.arguments, "type": use.name} for use in reply.uses]
        whole = commands[0] if len(commands) == 1 else {"type": "batch", "commands": commands}
        return Reply(text=f"I do this.\n```json\n{msgspec.json.encode(whole).decode()}\n```")

    return answer


def plan(*commands: dict[str, Any]) -> list[Step]:
    return [say(one) for one in commands]


def limited(**budgets: Any) -> AgentDefinition:
    return AgentDefinition(budgets=Budgets(**budgets))


HELPED = AgentDefinition(agents=("helper", "middle"))
NOBODY = {"type": "agent", "agent": "nobody", "task": "help"}

RUNS: dict[str, tuple[list[Step], AgentDefinition]] = {
    "every stage": ([*GOOD], AgentDefinition()),
    "every mistake": ([*MISTAKES], AgentDefinition()),
    "every stage, written": ([written(step) for step in GOOD], AgentDefinition()),
    "every mistake, written": ([written(step) for step in MISTAKES], AgentDefinition()),
    "out of steps": (plan(*[BUSY] * 4), limited(steps=4)),
    "out of calls": (plan(LOG, LOG, FINISH), limited(calls=1)),
    "out of scripts": (plan(SANDBOX, SANDBOX, FINISH), limited(code_runs=1)),
    "out of time": (plan(SLEEP, FINISH), limited(seconds=1.5)),
    "out of tokens": ([paid(BUSY), paid(BUSY), paid(FINISH)], limited(tokens=30)),
    "out of money": ([paid(BUSY), paid(BUSY), paid(BUSY)], limited(cost=0.2)),
    "given up": (plan(LOG, {"type": "fail", "reason": "no"}), AgentDefinition()),
    "no commands": ([lambda prompt: Reply(text="hello")] * 4, AgentDefinition()),
    "a wrapped report, written": ([reported], AgentDefinition()),
    "no model any more": ([say(LOG), lambda prompt: ModelError("gone", next_action="wait")], AgentDefinition()),
    "a sub-agent": (plan(HELP, LOG, FINISH, FINISH), HELPED),
    "an unknown sub-agent": (plan(NOBODY, FINISH), HELPED),
    "a sub-agent of a sub-agent": (plan(MIDDLE, HELP, LOG, FINISH, FINISH, FINISH), HELPED),
    "a sub-agent out of the run's time": (
        plan(HELP, SLEEP, FINISH, FINISH),
        msgspec.structs.replace(HELPED, budgets=Budgets(seconds=1.5)),
    ),
    "not allowed": (plan(LOG, SANDBOX, FINISH), AgentDefinition(tools=("files.*",))),
    "fruitless": (plan(SEARCH, SEARCH, SEARCH, SEARCH, SEARCH, LOG, SEARCH, FINISH), AgentDefinition()),
    "side by side": ([say(SEARCH, {**SEARCH, "query": "read a file"}, LOG, BUSY), say(FINISH)], AgentDefinition()),
    "history in handles": (
        plan(SEARCH, LOG, LOG, FINISH),
        AgentDefinition(budgets=Budgets(history_tokens=300), thresholds={"tool_response_max_bytes": 10_000}),
    ),
}


async def recorded(tmp_path: Path) -> Settings:
    """Runs all of them, and gives the settings of a gateway without any server that has their records."""
    folder = tmp_path / "user" / "agents"
    folder.mkdir(parents=True)
    (folder / "helper.md").write_text("---\ndescription: Helps.\n---\n")
    (folder / "middle.md").write_text("---\nagents: [helper]\n---\n")
    settings = Settings(
        servers=tuple(demo_servers(make_demo_data(tmp_path / "data"))),
        home=tmp_path / "home",
        user_home=tmp_path / "user",
        limits=Limits(tool_response_max_bytes=600),
    )

    async with Gateway(settings) as gateway:
        await gateway.build()
        for name, (steps, definition) in RUNS.items():
            remaining = list(steps)
            model = ScriptedModel(
                lambda prompt, left=remaining: left.pop(0)(prompt),  # type: ignore[misc]  # a default binds it
                calls_tools="written" not in name,
            )
            await gateway.agent(model=model, definition=definition).run(name)
    return msgspec.structs.replace(settings, servers=(), user_home=tmp_path / "nobody")


@pytest.mark.skipif(shutil.which("git") is None, reason="the git program is not installed")
@pytest.mark.requirement("A-05")
async def test_replays_of_twenty_different_runs_are_the_same_event_for_event(tmp_path: Path) -> None:
    settings = await recorded(tmp_path)

    async with Gateway(settings) as gateway:
        agent = gateway.agent(model="")
        listed = {one["task"]: one for one in agent.runs()}
        assert listed.keys() == RUNS.keys()
        for name, one in listed.items():
            again = await agent.replay(one["run"])
            assert again.identical, (name, again.divergences)
            assert again.report.ending == one["ending"], name
        handles = settings.home / "runs" / f"{listed['history in handles']['run']}.jsonl"
        assert b'"history.stored"' in handles.read_bytes()
        endings = {one["ending"] for one in listed.values()}
        assert endings == {"finished", "failed", "out_of_budget"}


def small_run(file: Path, *, at_end: bool = True) -> None:
    kept = RunRecord(file)
    kept.write("run.started", "", task="t", definition=AgentDefinition())
    kept.write("turn.answered", "", turn=1)
    kept.write("turn.answered", "/1.0", turn=1)
    if at_end:
        kept.write("run.ended", "", report={"ending": "finished"})
    kept.close()


def test_a_run_that_could_not_start_and_files_that_are_no_runs_do_not_spoil_the_list(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> list[dict[str, Any]]:
        async with Gateway(Settings(home=tmp_path)) as gateway:
            agent = gateway.agent(model="")
            with pytest.raises(ToolfoldError):
                await agent.run("no model is configured")
            assert agent.runs() == []
            small_run(tmp_path / "runs" / "a.jsonl")
            small_run(tmp_path / "runs" / "b.jsonl", at_end=False)
            (tmp_path / "runs" / "c.jsonl").write_bytes(b"")
            (tmp_path / "runs" / "d.jsonl").write_bytes(b"\x00nothing\n")
            with caplog.at_level(logging.WARNING):
                return agent.runs()

    listed = asyncio.run(main())
    assert [(one["run"], one["ending"], one["turns"]) for one in listed] == [("b", None, 1), ("a", "finished", 1)]
    assert [word in caplog.text for word in ("c.jsonl holds no run", "d.jsonl holds no run")] == [True, True]


def test_a_list_of_runs_decodes_only_their_ends(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    small_run(file, at_end=False)
    with file.open("ab") as more:
        more.write(b"a line that is no JSON\n" + b'{"event":"run.ended","path":"","report":{"ending":"failed"}}\n')
    assert summarise_record(file)["ending"] == "failed"


def test_a_run_whose_last_line_is_half_written_broke_off_and_stays_in_the_list(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    small_run(file, at_end=False)
    with file.open("ab") as more:
        more.write(b'{"event":"run.ended","path":"","report":{"end')
    assert summarise_record(file)["ending"] is None


def test_the_oldest_runs_go_and_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_RUNS_MAX", 3)
    for number in range(5):
        small_run(tmp_path / f"{number}.jsonl")
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["2", "3", "4"]
    assert load_record(tmp_path / "4.jsonl")[0]["task"] == "t"
    (tmp_path / "9.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot be written"):
        small_run(tmp_path / "9.jsonl")
    assert not os.path.lexists(tmp_path / "elsewhere")


def test_a_record_that_is_broken_or_missing_names_the_line_or_the_run(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    small_run(file)
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'{"event":"turn.answered"', b'{"event', 1))
    with pytest.raises(ConfigError, match="line 2 of"):
        load_record(file)
    file.write_bytes(whole.partition(b"\n")[2])
    with pytest.raises(ConfigError, match="holds no run"):
        load_record(file)
    for load in (load_record, summarise_record):
        with pytest.raises(ConfigError, match="the run nowhere cannot be read"):
            load(tmp_path / "nowhere.jsonl")


async def test_agents_and_runs_that_do_not_exist_or_have_ended_are_refused(tmp_path: Path) -> None:
    small_run(tmp_path / "runs" / "a.jsonl")
    async with Gateway(Settings(home=tmp_path)) as gateway:
        with pytest.raises(ConfigError, match="there is no agent 'nobody'"):
            gateway.agent("nobody", model="test").check()
        agent = gateway.agent()
        with pytest.raises(ConfigError, match="the run a has ended"):
            await agent.resume("a")
        for outside in ("../a", ".a"):
            with pytest.raises(ConfigError, match="is no run"):
                await agent.replay(outside)
