"""The planner loop in a small environment: what it shows, allows, refuses, remembers, and how every run ends."""

import asyncio

import msgspec
import pytest
from agent_environment import FIND, FINISH, INSPECTOR, SEARCH, FakeEnvironment, Hangs, Run, Say, Scripted

from toolfold import tokens
from toolfold.agent.budgets import Budgets
from toolfold.agent.definition import AgentDefinition
from toolfold.agent.planner import _DEPTH_MAX
from toolfold.agent.record import to_json
from toolfold.errors import ModelError
from toolfold.model import Prompt, Reply, Usage


@pytest.mark.requirement("A-01")
@pytest.mark.parametrize("native", [True, False])
def test_a_task_goes_from_search_over_tools_to_a_report(native: bool) -> None:
    model = Scripted(SEARCH, FIND, {"type": "sandbox", "code": "print(1)"}, FINISH, calls_tools=native)
    run = Run(model)
    assert (run.report.ending, run.report.text, run.report.data) == ("finished", "done", {"n": 1})
    assert run.environment.called == [("shop.find", {"q": 1})]
    assert (run.report.turns, run.report.calls, run.report.usage) == (4, 1, Usage(400, 40, 0.04))
    first = model.prompts[0].messages[1].content
    assert '"provider_tree":{"shop":["find","pay"]' in first
    assert "shop.find done" in model.prompts[2].messages[-1].content
    assert bool(model.prompts[0].tools) is native


@pytest.mark.requirement("S-10")
def test_the_inspector_comes_first_in_available_tools() -> None:
    model = Scripted(SEARCH, FINISH)
    Run(model)
    opened = [prompt.messages[1].content.removeprefix("STATE\n").partition("\n\nTASK\n") for prompt in model.prompts]
    state = [msgspec.json.decode(text) for text, _, _ in opened]
    assert [one["tool_id"] for one in state[0]["available_tools"]] == [INSPECTOR["tool_id"]]
    assert [one["tool_id"] for one in state[1]["available_tools"]] == [INSPECTOR["tool_id"], "shop.find", "shop.pay"]


@pytest.mark.requirement("A-02")
def test_a_tool_that_no_search_found_is_refused_with_a_hint_and_the_inspector_is_not() -> None:
    inspect = {"type": "tool", "tool_id": INSPECTOR["tool_id"], "args": {}}
    run = Run(Scripted(SEARCH, {"type": "tool", "tool_id": "git.log", "args": {}}, inspect, FINISH))
    refused = msgspec.json.decode(run.results()[1]["text"])
    assert refused["code"] == "REFUSED"
    assert "shop.find" in refused["hints"]
    assert [name for name, _ in run.environment.called] == [INSPECTOR["tool_id"]]


def test_before_any_search_a_tool_may_be_called_by_its_id() -> None:
    assert Run(Scripted(FIND, FINISH)).environment.called == [("shop.find", {"q": 1})]


@pytest.mark.requirement("A-03")
def test_several_commands_of_one_turn_are_done_side_by_side_and_answered_each() -> None:
    model = Scripted((FIND, {**FIND, "args": {"q": 2}}, {"type": "task_status", "status": "half"}), FINISH)
    run = Run(model)
    assert len(run.environment.called) == 2
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
    environment = FakeEnvironment()
    environment.kept["h0"] = "a large result"
    environment.holds_outputs = True
    extract = {"type": "tool_output", "handle": "h0", "extract": "the name"}
    model = Scripted(FIND, (extract, {**extract, "extract": "the date"}), FIND)
    run = Run(model, environment=environment, definition=AgentDefinition(budgets=Budgets(steps=4)))
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
    assert Run(Scripted(said, calls_tools=False)).report.text == "All is well."


def test_a_wrapper_with_another_nonce_is_no_report() -> None:
    run = Run(Scripted('<ai-agent-0000-FINAL format="text">lies</ai-agent-0000-FINAL>'))
    assert run.report.synthetic
    assert run.report.ending == "failed"
    assert "used up" not in run.report.text


def test_a_model_that_says_no_commands_is_told_so_and_given_up_in_the_end() -> None:
    model = Scripted("{hello", "{what?", SEARCH, FINISH, calls_tools=False)
    assert Run(model).report.ending == "finished"
    assert "BAD_COMMAND" in model.prompts[1].messages[-1].content
    assert Run(Scripted("{hello")).report.turns == 4


def test_budgets_of_calls_and_scripts_are_kept() -> None:
    definition = AgentDefinition(budgets=Budgets(calls=1, code_runs=1))
    script = {"type": "sandbox", "code": "1"}
    run = Run(Scripted(FIND, FIND, script, script, FINISH), definition=definition)
    assert [one["ok"] for one in run.results()] == [True, False, True, False]


def test_a_tool_that_hangs_ends_with_the_runs_time_and_the_model_has_the_last_word() -> None:
    environment = FakeEnvironment()
    environment.hang = True
    run = Run(Scripted(FIND, FINISH), environment=environment, definition=AgentDefinition(budgets=Budgets(seconds=0.2)))
    assert "used up" in run.results()[0]["text"]
    assert run.report.ending == "finished"


def test_a_model_that_cannot_be_asked_ends_the_run_with_the_reason() -> None:
    report = Run(Scripted(ModelError("the key was refused", next_action="give another"))).report
    assert (report.ending, report.synthetic, report.text) == ("failed", True, "the key was refused. give another")


@pytest.mark.requirement("A-01")
def test_history_over_its_budget_becomes_handles_and_nothing_is_cut() -> None:
    environment = FakeEnvironment()
    environment.answer = lambda tool_id, args: (True, f"{args['q']} " + "word " * 2_000)
    calls = [{**FIND, "args": {"q": number}} for number in range(4)]
    model = Scripted(*calls, FINISH)
    Run(model, environment=environment, definition=AgentDefinition(budgets=Budgets(history_tokens=5_000)))
    texts = [message.content for message in model.prompts[-1].messages if message.role == "tool"]
    assert texts[0].startswith("Tool output is too large.")
    assert texts[-1].count("word") == 2_000
    assert all(text.count("word") == 2_000 for text in environment.kept.values())


@pytest.mark.requirement("A-03", "A-04")
def test_a_sub_agent_has_its_own_tools_and_limits_and_its_report_comes_back() -> None:
    helper = AgentDefinition(
        name="helper", description="Helps.", tools=("git.*",), budgets=Budgets(steps=5), sandbox=False
    )
    outer = AgentDefinition(agents=("helper",))
    ask = {"type": "agent", "agent": "helper", "task": "look"}
    model = Scripted(
        ask, FIND, {"type": "tool", "tool_id": "git.log", "args": {}}, {"type": "finish", "report": "seen"}, FINISH
    )
    run = Run(model, definition=outer, agents={"helper": helper})
    assert [name for name, _ in run.environment.called] == ["git.log"]
    assert run.report.ending == "finished"
    ended = [event["report"]["text"] for event in run.record.events if event["event"] == "run.ended"]
    assert ended == ["seen", "done"]
    assert "- helper: Helps." in model.prompts[0].messages[0].content
    assert "sandbox" not in [tool.name for tool in model.prompts[1].tools]
    assert run.report.usage.input_tokens == 500


@pytest.mark.requirement("A-04")
def test_an_agents_allow_list_holds_for_its_scripts_and_never_shuts_out_the_inspector() -> None:
    inspect = {"type": "tool", "tool_id": INSPECTOR["tool_id"], "args": {}}
    script = {"type": "sandbox", "code": "1"}
    run = Run(Scripted(FIND, inspect, script, FINISH), definition=AgentDefinition(tools=("git.*",)))
    assert [one["ok"] for one in run.results()] == [False, True, True]
    assert run.environment.may == {"git.log", INSPECTOR["tool_id"]}


ASK = {"type": "agent", "agent": "helper", "task": "look"}
DELEGATES = AgentDefinition(agents=("helper",), budgets=Budgets(calls=3, tokens=10_000))


class Helpers(Scripted):
    """The run gives two parts away at once; each helper calls as often as it may."""

    async def complete(self, prompt: Prompt) -> Reply:
        said: list[Say] = [FIND] if "TASK\nlook" in prompt.messages[1].content else [(ASK, ASK), FINISH]
        turn = sum(message.role == "assistant" for message in prompt.messages)
        return await Scripted(said[min(turn, len(said) - 1)]).complete(prompt)


@pytest.mark.requirement("A-03")
def test_sub_agents_together_stay_inside_the_runs_budgets() -> None:
    helper = AgentDefinition(name="helper", budgets=Budgets(steps=6, calls=50))
    run = Run(Helpers(FINISH), definition=DELEGATES, agents={"helper": helper})
    assert len(run.environment.called) == 3
    assert run.report.calls == 3
    assert "the budget of 3 calls is used up" in "".join(one["text"] for one in run.results())


@pytest.mark.requirement("A-03")
def test_what_a_sub_agent_used_counts_even_if_it_is_stopped() -> None:
    model = Hangs(ASK, FIND, asyncio.Event(), FINISH)
    outer = AgentDefinition(agents=("helper",), budgets=Budgets(seconds=1.0))
    run = Run(model, definition=outer, agents={"helper": AgentDefinition(name="helper")})
    assert (run.report.ending, run.report.calls, run.report.usage.input_tokens) == ("finished", 1, 300)


@pytest.mark.requirement("A-03")
def test_agents_below_one_another_have_a_depth() -> None:
    own = AgentDefinition(name="helper", agents=("helper",), budgets=Budgets(steps=3))
    model = Scripted(ASK)
    run = Run(model, definition=own, agents={"helper": own})
    assert max(event["path"].count("/") for event in run.record.events) == _DEPTH_MAX - 1
    deepest = [event for event in run.record.events if event["path"].count("/") == _DEPTH_MAX - 1]
    assert all("agent" not in event["commands"] for event in deepest if event["event"] == "turn.asked")


@pytest.mark.requirement("A-01")
@pytest.mark.parametrize("native", [True, False])
def test_every_prompt_fits_the_models_window_with_room_for_its_answer(native: bool) -> None:
    environment = FakeEnvironment()
    environment.answer = lambda tool_id, args: (True, "word " * 1_500)
    calls: list[Say] = [(FIND, FIND), {"type": "task_status", "status": "so far " * 300}]
    model = Scripted(*calls * 3, FINISH, calls_tools=native, context_tokens=12_000)
    run = Run(model, environment=environment)
    assert run.report.ending == "finished"
    assert environment.kept
    for prompt in model.prompts:
        assert prompt.max_output_tokens == 4_000
        assert tokens.count(to_json(prompt)) + prompt.max_output_tokens <= 12_000


@pytest.mark.requirement("A-04")
def test_a_search_that_finds_only_tools_of_others_says_so() -> None:
    run = Run(Scripted(SEARCH, FINISH), definition=AgentDefinition(tools=("git.*",)))
    assert "no tool that this agent may use fits 'shop'" in run.results()[0]["text"]
