"""A recorded run again: without a model, with other tools, and on from where it broke off."""

import asyncio

import pytest
from agent_environment import FIND, FINISH, INSPECTOR, SEARCH, FakeEnvironment, Hangs, Run, Say, Scripted

from toolfold.agent.budgets import Budgets
from toolfold.agent.definition import AgentDefinition
from toolfold.agent.replay import _OUTCOME_UNKNOWN, RunMemory, _comparable_events, diff_records
from toolfold.errors import ModelError

ASK = {"type": "agent", "agent": "helper", "task": "look"}
MOON = {"type": "search", "query": "moon"}
LOG = {"type": "tool", "tool_id": "git.log", "args": {}}
SEEN = {"type": "finish", "report": "seen"}
HELPER = AgentDefinition(name="helper", description="Helps.", tools=("git.*",))
OUTER = AgentDefinition(agents=("helper",))


def again(first: Run, definition: AgentDefinition = OUTER) -> Run:
    """The same from its record, with nobody to ask."""
    memory = RunMemory(first.record.events, resumes=False)
    nobody = Scripted(ModelError("nobody is asked in a replay"))
    run = Run(nobody, definition=definition, agents={"helper": HELPER}, memory=memory)
    assert (run.environment.called, nobody.prompts) == ([], [])
    return run


@pytest.mark.requirement("A-05")
@pytest.mark.parametrize(
    "says",
    [
        [SEARCH, (FIND, FIND), "nonsense", ASK, {"type": "search", "query": "git"}, LOG, SEEN, FINISH],
        [SEARCH, LOG, FIND, FINISH],
        [{**ASK, "agent": "nobody"}, FINISH],
        [MOON, MOON, MOON, SEARCH, FIND, SEARCH, FINISH],
        [ASK, FIND, SEEN, FINISH],
        [ASK, ModelError("busy"), FINISH],
        [FIND, ModelError("the key was refused", next_action="give another")],
        ["what?"],
    ],
    ids=[
        "all of it",
        "a refused call",
        "an unknown agent",
        "fruitless",
        "not allowed",
        "a child fails",
        "fails",
        "bad",
    ],
)
def test_a_replay_without_a_model_is_the_same_event_for_event(says: list[Say]) -> None:
    first = Run(Scripted(*says), definition=OUTER, agents={"helper": HELPER})
    run = again(first)
    assert list(diff_records(first.record.events, run.record.events)) == []
    assert run.memory.divergences == []


@pytest.mark.requirement("A-05")
def test_a_sub_agent_that_was_stopped_is_stopped_in_the_replay_and_stays_so_in_a_resumed_run() -> None:
    limited = AgentDefinition(agents=("helper",), budgets=Budgets(seconds=1.0))
    model = Hangs(ASK, LOG, asyncio.Event(), FINISH)
    first = Run(model, definition=limited, agents={"helper": HELPER})
    assert [event["path"] for event in first.record.events if event["event"] == "run.ended"] == [""]
    run = again(first, limited)
    assert _comparable_events(run.record.events) == _comparable_events(first.record.events)
    cut = [event for event in first.record.events if event.get("turn") != 2 or event["path"]][:-1]
    resumed = Scripted(FINISH)
    Run(resumed, definition=limited, agents={"helper": HELPER}, memory=RunMemory(cut))
    assert len(resumed.prompts) == 1
    assert "used up" in resumed.prompts[0].messages[-1].content


@pytest.mark.requirement("A-05")
def test_tools_found_side_by_side_stand_in_the_order_of_the_commands() -> None:
    class Slow(FakeEnvironment):
        async def search(self, query, category_path, limit):  # type: ignore[no-untyped-def]  # the same as above it
            for _ in range(5 if query == "git" else 0):
                await asyncio.sleep(0)
            return await super().search(query, category_path, limit)

    first = Run(Scripted(({"type": "search", "query": "git"}, SEARCH), FINISH), definition=OUTER, environment=Slow())
    run = again(first)
    assert _comparable_events(run.record.events) == _comparable_events(first.record.events)


def test_a_record_that_breaks_off_is_replayed_to_its_end_and_says_what_is_missing() -> None:
    first = Run(Scripted(SEARCH, FIND, FINISH))
    cut = next(n for n, event in enumerate(first.record.events) if event["event"] == "command.done") + 4
    events = first.record.events[:cut]
    assert events[-1]["event"] == "command.started"
    memory = RunMemory(events, resumes=False)
    run = Run(Scripted(ModelError("nobody")), memory=memory)
    assert (run.environment.called, run.report.ending) == ([], "failed")
    assert "the record ends in turn 2" in run.report.text
    (missing,) = diff_records(events, run.record.events)
    assert (missing.what, missing.expected) == ("run.ended", "nothing")


def test_a_resumed_run_may_search_again_after_a_call_that_it_remembers() -> None:
    first = Run(Scripted(MOON, MOON, MOON, {"type": "tool", "tool_id": INSPECTOR["tool_id"]}, FINISH))
    events = first.record.events[:-3]
    run = Run(Scripted(SEARCH, FINISH), memory=RunMemory(events))
    assert [one["ok"] for one in run.results()] == [False, False, False, True, True]


def test_a_replay_with_other_tools_says_where_it_differs() -> None:
    first = Run(Scripted(FIND, FINISH))
    environment = FakeEnvironment()
    environment.answer = lambda tool_id, args: (True, "something else")
    memory = RunMemory(first.record.events, live_tools=True, resumes=False)
    Run(Scripted("nobody"), environment=environment, memory=memory)
    assert [(one.turn, one.what) for one in memory.divergences] == [(1, "result"), (2, "prompt")]
    assert (memory.divergences[0].expected, memory.divergences[0].got) == ("shop.find done", "something else")


@pytest.mark.requirement("A-05")
def test_a_run_that_broke_off_goes_on_and_repeats_nothing_it_may_have_done() -> None:
    first = Run(Scripted(SEARCH, FIND, {**FIND, "args": {"q": 2}}, FINISH))
    events = [event for event in first.record.events if event["event"] != "run.ended"]
    cut = next(number for number, event in enumerate(events) if event["event"] == "command.done" and event["turn"] == 3)
    model = Scripted(FINISH)
    run = Run(model, memory=RunMemory(events[:cut]))
    assert run.report.ending == "finished"
    assert run.environment.called == []
    assert _OUTCOME_UNKNOWN in model.prompts[0].messages[-1].content
    assert "shop.find done" in model.prompts[0].messages[-3].content
