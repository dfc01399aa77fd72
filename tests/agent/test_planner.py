"""The planner loop in a small world of its own: what it shows, allows, refuses, remembers, and how every run ends."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from toolfold import tokens
from toolfold.agent.budgets import Budgets
from toolfold.agent.planner import Definition, Planner, Report, Surroundings
from toolfold.agent.record import Record, comparable
from toolfold.agent.replay import LOST, Memory
from toolfold.agent.world import Descriptor
from toolfold.errors import ModelError, NoMatchInCategory
from toolfold.model import Model, Prompt, Reply, ToolUse, Usage

INSPECTOR = {"tool_id": "toolbox.inspect_tool_output", "description": "Shows structure."}
TOOLS = {name: {"tool_id": name, "description": f"Does {name}."} for name in ("shop.find", "shop.pay", "git.log")}

Say = str | dict[str, Any] | tuple[dict[str, Any], ...] | Exception


class Scripted:
    """Says one thing after the other. A dictionary is a command, a tuple several at once."""

    name = "scripted"
    context_tokens = 100_000
    max_output_tokens = 4_000

    def __init__(self, *says: Say, calls_tools: bool = True) -> None:
        self.prompts: list[Prompt] = []
        self.calls_tools = calls_tools
        self._says = list(says)

    async def complete(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        said = self._says.pop(0) if len(self._says) > 1 else self._says[0]
        if isinstance(said, Exception):
            raise said
        usage = Usage(100, 10, 0.01)
        if isinstance(said, str):
            return Reply(text=said.replace("NONCE", nonce(prompt)), usage=usage)
        commands = said if isinstance(said, tuple) else (said,)
        if not self.calls_tools:
            one = commands[0] if len(commands) == 1 else {"type": "batch", "commands": list(commands)}
            return Reply(text=f"```json\n{msgspec.json.encode(one).decode()}\n```", usage=usage)
        uses = tuple(
            ToolUse(f"u{number}", one["type"], {key: value for key, value in one.items() if key != "type"})
            for number, one in enumerate(commands)
        )
        return Reply(uses=uses, usage=usage)

    def count_tokens(self, text: str) -> int:
        return tokens.count(text)


def nonce(prompt: Prompt) -> str:
    return prompt.messages[0].content.partition("<ai-agent-")[2].partition("-FINAL")[0]


class SmallWorld:
    """Three tools, and texts that are kept under short handles."""

    def __init__(self) -> None:
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.kept: dict[str, str] = {}
        self.answer: Callable[[str, dict[str, Any]], tuple[bool, str]] = lambda tool_id, args: (True, f"{tool_id} done")
        self.hang = False

    async def inventory(self) -> Mapping[str, Sequence[str]]:
        return {"shop": ["find", "pay"], "git": ["log"]}

    async def preloaded(self) -> tuple[Descriptor, ...]:
        return (INSPECTOR,)

    async def search(self, query: str, category_path: Sequence[str], limit: int) -> tuple[Descriptor, ...]:
        found = tuple(one for name, one in TOOLS.items() if query in name)
        if not found:
            raise NoMatchInCategory(f"no tool fits {query!r}", hints=[["Shop"]], next_action="search in Shop")
        return found[:limit]

    async def call(self, tool_id: str, args: dict[str, Any]) -> tuple[bool, str]:
        self.called.append((tool_id, args))
        if self.hang:
            await asyncio.Event().wait()
        return self.answer(tool_id, args)

    async def run_script(self, code: str) -> tuple[bool, str]:
        return True, f"ran {len(code)} characters"

    async def extract(self, handle: str, extract: str, mode: str) -> str:
        return f"{extract} of {self.kept[handle][:20]}"

    async def store(self, name: str, arguments: str, text: str) -> str:
        handle = f"h{len(self.kept)}"
        self.kept[handle] = text
        return f'Tool output is too large. Call tool_output(handle = "{handle}", …).'

    def holds_outputs(self) -> bool:
        return bool(self.kept)

    def under(self, thresholds: Mapping[str, int]) -> "SmallWorld":
        return self


class Run:
    """One run, with what is left of it."""

    def __init__(
        self,
        model: Model,
        *,
        world: SmallWorld | None = None,
        definition: Definition | None = None,
        agents: Mapping[str, Definition] | None = None,
        memory: Memory | None = None,
        task: str = "the task",
    ) -> None:
        self.world = world or SmallWorld()
        self.record = Record()
        self.memory = memory or Memory()
        around = Surroundings(
            world=self.world,
            record=self.record,
            memory=self.memory,
            run="r1",
            model_for=lambda name: model,
            agents=agents or {},
        )
        planner = Planner(definition or Definition(), around)
        self.report: Report = asyncio.run(planner.run(task))

    def results(self) -> list[dict[str, Any]]:
        return [event["result"] for event in self.record.events if event["event"] == "command.done"]


SEARCH = {"type": "search", "query": "shop"}
FIND = {"type": "tool", "tool_id": "shop.find", "args": {"q": 1}}
FINISH = {"type": "finish", "report": "done", "data": {"n": 1}}


@pytest.mark.requirement("A-01")
@pytest.mark.parametrize("native", [True, False])
def test_a_task_goes_from_search_over_tools_to_a_report(native: bool) -> None:
    model = Scripted(SEARCH, FIND, {"type": "sandbox", "code": "print(1)"}, FINISH, calls_tools=native)
    run = Run(model)
    assert (run.report.ending, run.report.text, run.report.data) == ("finished", "done", {"n": 1})
    assert run.world.called == [("shop.find", {"q": 1})]
    assert (run.report.turns, run.report.calls, run.report.usage) == (4, 1, Usage(400, 40, 0.04))
    first = model.prompts[0].messages[1].content
    assert '"provider_tree":{"shop":["find","pay"]' in first
    assert "shop.find done" in model.prompts[2].messages[-1].content
    assert bool(model.prompts[0].tools) is native


@pytest.mark.requirement("S-10", "S-11")
def test_the_inspector_comes_first_in_available_tools_and_the_prompt_explains_folding() -> None:
    model = Scripted(SEARCH, FINISH)
    Run(model)
    state = [msgspec.json.decode(prompt.messages[1].content.partition("STATE\n")[2]) for prompt in model.prompts]
    assert [one["tool_id"] for one in state[0]["available_tools"]] == [INSPECTOR["tool_id"]]
    assert [one["tool_id"] for one in state[1]["available_tools"]] == [INSPECTOR["tool_id"], "shop.find", "shop.pay"]
    assert "**Handling Large Outputs:**" in model.prompts[0].messages[0].content


@pytest.mark.requirement("A-02")
def test_a_tool_that_no_search_found_is_refused_with_a_hint_and_the_inspector_is_not() -> None:
    inspect = {"type": "tool", "tool_id": INSPECTOR["tool_id"], "args": {}}
    run = Run(Scripted(SEARCH, {"type": "tool", "tool_id": "git.log", "args": {}}, inspect, FINISH))
    refused = msgspec.json.decode(run.results()[1]["text"])
    assert refused["code"] == "REFUSED"
    assert "shop.find" in refused["hints"]
    assert [name for name, _ in run.world.called] == [INSPECTOR["tool_id"]]


def test_before_any_search_a_tool_may_be_called_by_its_id() -> None:
    assert Run(Scripted(FIND, FINISH)).world.called == [("shop.find", {"q": 1})]


@pytest.mark.requirement("A-03")
def test_several_commands_of_one_turn_are_done_side_by_side_and_answered_each() -> None:
    model = Scripted((FIND, {**FIND, "args": {"q": 2}}, {"type": "task_status", "status": "half"}), FINISH)
    run = Run(model)
    assert len(run.world.called) == 2
    answers = [message for message in model.prompts[1].messages if message.role == "tool"]
    assert [message.use_id for message in answers] == ["u0", "u1", "u2"]


def test_errors_go_back_to_the_model_as_they_are() -> None:
    run = Run(Scripted({"type": "search", "query": "moon"}, {"type": "fail", "reason": "nothing fits"}))
    assert msgspec.json.decode(run.results()[0]["text"]) == {
        "code": "NO_MATCH_IN_CATEGORY",
        "message": "no tool fits 'moon'",
        "hints": [["Shop"]],
        "next_action": "search in Shop",
    }
    assert (run.report.ending, run.report.text) == ("failed", "nothing fits")


def test_after_three_fruitless_searches_searching_on_is_refused_until_something_is_done() -> None:
    moon = {"type": "search", "query": "moon"}
    run = Run(Scripted(moon, moon, moon, SEARCH, {"type": "tool", "tool_id": INSPECTOR["tool_id"]}, SEARCH, FINISH))
    codes = [msgspec.json.decode(one["text"]).get("code") if not one["ok"] else "" for one in run.results()]
    assert codes == ["NO_MATCH_IN_CATEGORY"] * 3 + ["REFUSED", "", ""]


@pytest.mark.requirement("O-10")
def test_tool_output_is_offered_while_something_is_stored_and_never_in_the_last_turn() -> None:
    world = SmallWorld()
    world.kept["h0"] = "a large result"
    extract = {"type": "tool_output", "handle": "h0", "extract": "the name"}
    model = Scripted(FIND, (extract, {**extract, "extract": "the date"}), FIND)
    run = Run(model, world=world, definition=Definition(budgets=Budgets(steps=4)))
    offered = [[tool.name for tool in prompt.tools] for prompt in model.prompts]
    assert "tool_output" not in offered[0]
    assert "tool_output" in offered[1]
    assert offered[3] == ["finish", "fail"]
    assert [one["text"] for one in run.results()[1:3]] == ["the name of a large result", "the date of a large result"]
    assert (run.report.ending, run.report.synthetic) == ("out_of_budget", True)


@pytest.mark.parametrize(
    "said",
    [
        '<ai-agent-NONCE-FINAL format="text">All is well.</ai-agent-NONCE-FINAL>',
        '<think>x</think><ai-agent-NONCE-FINAL format="text">All is well.',
    ],
)
def test_a_report_in_the_wrapper_with_the_runs_nonce_ends_it(said: str) -> None:
    assert Run(Scripted(said)).report.text == "All is well."


def test_a_wrapper_with_another_nonce_is_no_report() -> None:
    run = Run(Scripted('<ai-agent-0000-FINAL format="text">lies</ai-agent-0000-FINAL>'))
    assert run.report.synthetic
    assert run.report.ending == "out_of_budget"


def test_a_model_that_says_no_commands_is_told_so_and_given_up_in_the_end() -> None:
    model = Scripted("hello", "what?", SEARCH, FINISH)
    assert Run(model).report.ending == "finished"
    assert "BAD_COMMAND" in model.prompts[1].messages[-1].content
    assert Run(Scripted("hello")).report.turns == 4


def test_budgets_of_calls_and_scripts_are_kept() -> None:
    definition = Definition(budgets=Budgets(calls=1, code_runs=1))
    script = {"type": "sandbox", "code": "1"}
    run = Run(Scripted(FIND, FIND, script, script, FINISH), definition=definition)
    assert [one["ok"] for one in run.results()] == [True, False, True, False]


def test_a_tool_that_hangs_ends_with_the_runs_time_and_the_model_has_the_last_word() -> None:
    world = SmallWorld()
    world.hang = True
    run = Run(Scripted(FIND, FINISH), world=world, definition=Definition(budgets=Budgets(seconds=0.2)))
    assert "used up" in run.results()[0]["text"]
    assert run.report.ending == "finished"


def test_a_model_that_cannot_be_asked_ends_the_run_with_the_reason() -> None:
    report = Run(Scripted(ModelError("the key was refused", next_action="give another"))).report
    assert (report.ending, report.synthetic, report.text) == ("failed", True, "the key was refused. give another")


@pytest.mark.requirement("A-01")
def test_history_over_its_budget_becomes_handles_and_nothing_is_cut() -> None:
    world = SmallWorld()
    world.answer = lambda tool_id, args: (True, f"{args['q']} " + "word " * 2_000)
    calls = [{**FIND, "args": {"q": number}} for number in range(4)]
    model = Scripted(*calls, FINISH)
    Run(model, world=world, definition=Definition(budgets=Budgets(history_tokens=5_000)))
    texts = [message.content for message in model.prompts[-1].messages if message.role == "tool"]
    assert texts[0].startswith("Tool output is too large.")
    assert texts[-1].count("word") == 2_000
    assert all(text.count("word") == 2_000 for text in world.kept.values())


@pytest.mark.requirement("A-03", "A-04")
def test_a_sub_agent_has_its_own_tools_and_limits_and_its_report_comes_back() -> None:
    helper = Definition(name="helper", description="Helps.", tools=("git.*",), budgets=Budgets(steps=5), sandbox=False)
    outer = Definition(agents=("helper",))
    ask = {"type": "agent", "agent": "helper", "task": "look"}
    model = Scripted(
        ask, FIND, {"type": "tool", "tool_id": "git.log", "args": {}}, {"type": "finish", "report": "seen"}, FINISH
    )
    run = Run(model, definition=outer, agents={"helper": helper})
    assert [name for name, _ in run.world.called] == ["git.log"]
    assert run.report.ending == "finished"
    ended = [event["report"]["text"] for event in run.record.events if event["event"] == "run.ended"]
    assert ended == ["seen", "done"]
    assert "- helper: Helps." in model.prompts[0].messages[0].content
    assert "sandbox" not in [tool.name for tool in model.prompts[1].tools]
    assert run.report.usage.input_tokens == 500


def recorded() -> Run:
    helper = Definition(name="helper", description="Helps.", tools=("git.*",))
    ask = {"type": "agent", "agent": "helper", "task": "look"}
    says: list[Say] = [SEARCH, (FIND, FIND), "nonsense", ask, {"type": "search", "query": "git"}]
    says += [{"type": "tool", "tool_id": "git.log", "args": {}}, {"type": "finish", "report": "seen"}, FINISH]
    return Run(Scripted(*says), definition=Definition(agents=("helper",)), agents={"helper": helper})


@pytest.mark.requirement("A-05")
def test_a_replay_without_a_model_is_the_same_event_for_event() -> None:
    first = recorded()
    helper = Definition(name="helper", description="Helps.", tools=("git.*",))
    memory = Memory(first.record.events, goes_on=False)
    nobody = Scripted(ModelError("nobody is asked in a replay"))
    again = Run(nobody, definition=Definition(agents=("helper",)), agents={"helper": helper}, memory=memory)
    assert comparable(again.record.events) == comparable(first.record.events)
    assert (again.world.called, memory.divergences, nobody.prompts) == ([], [], [])


def test_a_replay_with_other_tools_says_where_it_differs() -> None:
    first = Run(Scripted(FIND, FINISH))
    world = SmallWorld()
    world.answer = lambda tool_id, args: (True, "something else")
    memory = Memory(first.record.events, live_tools=True, goes_on=False)
    Run(Scripted("nobody"), world=world, memory=memory)
    assert [(one.turn, one.what) for one in memory.divergences] == [(1, "result"), (2, "prompt")]
    assert (memory.divergences[0].expected, memory.divergences[0].got) == ("shop.find done", "something else")


@pytest.mark.requirement("A-05")
def test_a_run_that_broke_off_goes_on_and_repeats_nothing_it_may_have_done() -> None:
    first = Run(Scripted(SEARCH, FIND, {**FIND, "args": {"q": 2}}, FINISH))
    events = [event for event in first.record.events if event["event"] != "run.ended"]
    cut = next(number for number, event in enumerate(events) if event["event"] == "command.done" and event["turn"] == 3)
    model = Scripted(FINISH)
    run = Run(model, memory=Memory(events[:cut]))
    assert run.report.ending == "finished"
    assert run.world.called == []
    assert LOST in model.prompts[0].messages[-1].content
    assert "shop.find done" in model.prompts[0].messages[-3].content
