"""What small models say is taken: calls in other forms, plain words, a bad command among good ones, a repeated call."""

from typing import Any

import msgspec
import pytest
from agent_environment import FIND, FINISH, SEARCH, TOOLS, FakeEnvironment, Run, Scripted

from toolfold.agent.budgets import Budgets
from toolfold.agent.definition import AgentDefinition
from toolfold.model import Prompt, Reply, ToolUse

FOUND = [("shop.find", {"q": 1})]
DONE = "<ai-agent-NONCE-FINAL format='text'>%s</ai-agent-NONCE-FINAL>"


def offered() -> FakeEnvironment:
    environment = FakeEnvironment()
    environment.few = True
    return environment


@pytest.mark.parametrize(
    "said",
    [
        '{"name": "shop.find", "arguments": {"q": 1}}',
        '{"name": "shop_find", "arguments": {"q": 1}}',
        '{"name": "find", "arguments": {"q": 1}}',
        '{"name": "Shop.Find", "parameters": {"q": 1}}',
        '{{"name": "shop_find", "arguments": {"q": 1}}}}',
        '<tool_call>\n{"name": "shop.find", "arguments": "{\\"q\\": 1}"}\n</tool_call>',
        '```json\n{"tool": "shop.find", "args": {"q": 1}}\n```',
        '{"type": "function", "function": {"name": "shop_find", "arguments": {"q": 1}}}',
        '{"type": "function", "name": "shop_find", "parameters": {"q": 1}}',
        '{"type": "shop.find", "q": 1}',
        '{"action": "shop.find", "action_input": {"q": 1}}',
        '{"type": "shop.find", "args": {"q": 1}, "reasoning": "to see"}',
        '{"type": "tool", "tool_id": "shop_find", "arguments": {"q": 1}}',
        '{"type": "tool", "name": "shop.find", "q": 1}',
        '{"name": "tool", "arguments": {"tool_id": "shop.find", "args": {"q": 1}}}',
    ],
)
@pytest.mark.parametrize("native", [True, False])
def test_15_13_a_call_is_taken_in_the_forms_that_models_write(said: str, native: bool) -> None:
    run = Run(Scripted(said, FINISH, calls_tools=native), environment=offered())
    assert (run.environment.called, run.report.ending) == (FOUND, "finished")


@pytest.mark.parametrize("name", ["shop_find", "shop.find", "find"])
def test_15_13_a_tool_is_called_natively_by_its_own_name(name: str) -> None:
    class Calls(Scripted):
        async def complete(self, prompt: Prompt) -> Reply:
            self.prompts.append(prompt)
            return Reply(uses=(ToolUse("1", name, {"q": 1}),)) if len(self.prompts) == 1 else Reply(text="It is 5.")

    model = Calls("")
    run = Run(model, environment=offered())
    assert run.environment.called == FOUND
    assert {"shop_find", "shop_pay", "git_log"} <= {offer.name for offer in model.prompts[0].tools}
    assert (run.report.ending, run.report.text, run.report.calls) == ("finished", "It is 5.", 1)


@pytest.mark.parametrize("said", ['{"answer": "It is 5."}', '{"name": "finish", "arguments": {"answer": "It is 5."}}'])
def test_15_13_a_report_is_taken_in_the_forms_that_models_write(said: str) -> None:
    assert Run(Scripted(FIND, said, calls_tools=False)).report.text == "It is 5."


def test_15_13_plain_words_are_the_report_and_before_any_call_they_are_asked_for_once_more() -> None:
    assert Run(Scripted(FIND, "The price is 12.90.")).report.text == "The price is 12.90."
    model = Scripted("I cannot know that.", "It cannot be known.")
    report = Run(model).report
    assert (report.ending, report.text, report.turns, report.calls) == ("finished", "It cannot be known.", 2, 0)
    assert "No tool was called yet. Call one" in model.prompts[1].messages[-1].content


def test_15_13_plain_words_after_a_call_that_did_not_work_are_asked_for_once_more() -> None:
    environment = FakeEnvironment()
    environment.answer = lambda tool_id, args: (args["q"] == 2, "no such thing" if args["q"] == 1 else "5 of them")
    model = Scripted(FIND, "You can look it up.", {**FIND, "args": {"q": 2}}, "There are 5.")
    assert Run(model, environment=environment).report.text == "There are 5."
    assert "The last call did not work. Call one" in model.prompts[2].messages[-1].content


@pytest.mark.parametrize(
    "said", ['{"name": "shop.fi', "```\nshop.find(q=1)\n```", "<tool_call>shop.find</tool_call>", "fail", ""]
)
def test_15_13_a_try_at_a_command_is_no_report(said: str) -> None:
    report = Run(Scripted(FIND, said)).report
    assert (report.ending, report.synthetic) == ("failed", True)


def test_15_13_an_answer_that_is_cut_off_is_no_report() -> None:
    class Cut(Scripted):
        async def complete(self, prompt: Prompt) -> Reply:
            return msgspec.structs.replace(await super().complete(prompt), cut=True)

    assert Run(Cut(FIND, "The price is")).report.ending == "failed"


@pytest.mark.parametrize(
    "said",
    [
        DONE % '{"type": "tool", "tool_id": "shop.find", "args": {"q": 1}}',
        DONE % '{"name": "shop_find", "arguments": {"q": 1}}',
        DONE % 'I do this: {"type": "search", "query": "shop"}',
        {"type": "finish", "report": '{"name": "shop.find", "arguments": {"q": 1}}'},
    ],
)
def test_15_13_a_report_that_holds_a_command_is_refused_and_told_why(said: Any) -> None:
    model = Scripted(said, FIND, FINISH, calls_tools=False)
    run = Run(model, environment=offered())
    assert "the report holds a command, which was not done" in model.prompts[1].messages[-1].content
    assert (run.environment.called, run.report.text) == (FOUND, "done")


@pytest.mark.parametrize(
    "said",
    [
        {"type": "tool", "tool_id": "shop.find", "args": "all of them"},
        {"name": "shop.find", "arguments": "all of them"},
        {"name": "shop.find", "arguments": [1]},
        {"name": "find", "size": 5},
    ],
)
def test_15_13_a_call_whose_arguments_cannot_be_read_is_not_made_without_them(said: Any) -> None:
    run = Run(Scripted(msgspec.json.encode(said).decode(), FINISH), environment=offered())
    assert (run.environment.called, run.report.ending) == ([], "finished")


def test_15_13_a_report_with_other_json_is_a_report() -> None:
    assert Run(Scripted(DONE % '{"vat": 0.07}', calls_tools=False)).report.text == '{"vat": 0.07}'


def test_15_13_a_report_that_is_a_fail_is_one() -> None:
    report = Run(Scripted(DONE % '{"name": "fail", "arguments": {"reason": "no"}}', calls_tools=False)).report
    assert (report.ending, report.text) == ("failed", "no")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("few", [True, False])
def test_15_13_no_prompt_names_what_the_run_has_not(native: bool, few: bool) -> None:
    model = Scripted(SEARCH, FINISH, calls_tools=native)
    environment = FakeEnvironment()
    environment.few = few
    Run(model, environment=environment)
    for prompt in model.prompts:
        text = msgspec.json.encode(prompt).decode()
        assert [word for word in ("shopify", "a.txt", "files.read", "read a file", "variants") if word in text] == []


@pytest.mark.requirement("S-11")
def test_15_13_folding_is_explained_while_something_is_folded_with_an_example_of_its_own() -> None:
    line = 'items[]: object (contains 9 sub-fields; inspect_tool_output(tool_id="shop.find", field_path="items[]"))'
    folded = {**TOOLS["shop.find"], "output_fields": [line], "has_hidden_fields": True}

    class Folds(FakeEnvironment):
        async def search(self, query, category_path, limit):  # type: ignore[no-untyped-def]  # the same as above it
            return (folded,) if query == "shop" else (TOOLS["git.log"],)

    model = Scripted({"type": "search", "query": "git"}, SEARCH, FINISH)
    Run(model, environment=Folds())
    systems = [prompt.messages[0].content for prompt in model.prompts]
    assert ["**Handling Large Outputs:**" in text for text in systems] == [False, False, True]
    assert '"args": {"tool_id": "shop.find", "field_path": "items[]"}' in systems[2]
    offers = [[offer.name for offer in prompt.tools] for prompt in model.prompts]
    assert ["toolbox_inspect_tool_output" in names for names in offers] == [False, False, True]


def test_15_13_the_same_call_with_the_same_result_is_told_and_ends_in_the_last_turn() -> None:
    model = Scripted(FIND)
    run = Run(model)
    lasts = [prompt.messages[-1].content for prompt in model.prompts]
    assert ["Same call, same result: finish" in text for text in lasts[:3]] == [False, False, True]
    assert "This is the last turn (2 repeats of the same call used up)" in lasts[3]
    assert [offer.name for offer in model.prompts[3].tools] == ["finish", "fail"]
    assert (run.report.ending, run.report.turns) == ("out_of_budget", 4)


def test_15_13_a_call_that_was_written_as_text_is_answered_as_a_call() -> None:
    model = Scripted('I look.\n```json\n{"name": "shop_find", "arguments": {"q": 1}}\n```', "It is 5.")
    assert Run(model, environment=offered()).report.text == "It is 5."
    said, answer = model.prompts[1].messages[-2:]
    assert [(use.name, use.arguments) for use in said.uses] == [("shop_find", {"q": 1})]
    assert (answer.role, answer.use_id) == ("tool", said.uses[0].id)


def test_15_13_a_call_whose_result_changes_is_no_repeat() -> None:
    environment = FakeEnvironment()
    environment.answer = lambda tool_id, args: (True, f"{len(environment.called)} of 6")
    model = Scripted(*[FIND] * 6, FINISH)
    assert Run(model, environment=environment).report.turns == 7
    assert not any("Same call" in message.content for message in model.prompts[-1].messages)


@pytest.mark.parametrize("native", [True, False])
def test_15_13_one_bad_command_does_not_void_its_batch(native: bool) -> None:
    bad = ({"type": "dance"}, {"type": "search"}, {"type": "sandbox", "code": 5})
    model = Scripted((FIND, *bad), FINISH, calls_tools=native)
    run = Run(model)
    assert run.environment.called == FOUND
    assert [one["ok"] for one in run.results()] == [True, False, False, False]
    assert "there is no command 'dance'" in run.results()[1]["text"]
    text = "\n".join(message.content for message in model.prompts[1].messages[3:])
    assert "query" in text


def test_15_13_few_tools_are_all_offered_without_a_search() -> None:
    model = Scripted(FIND, FINISH)
    run = Run(model, environment=offered())
    names = [offer.name for offer in model.prompts[0].tools]
    assert names[:3] == ["shop_find", "shop_pay", "git_log"]
    assert "search" not in names
    assert "These are all there are" in model.prompts[0].messages[0].content
    assert model.prompts[0].messages[1].content == "the task"
    assert run.report.ending == "finished"
    written = Scripted(FIND, FINISH, calls_tools=False)
    Run(written, environment=offered())
    assert '"tool_id":"git.log"' in written.prompts[0].messages[1].content
    assert "- search:" not in written.prompts[0].messages[0].content


def test_15_13_a_sub_agent_sees_only_its_own_servers() -> None:
    helper = AgentDefinition(name="helper", tools=("git.*",), budgets=Budgets(steps=5))
    ask = {"type": "agent", "agent": "helper", "task": "look"}
    model = Scripted(ask, {"type": "finish", "report": "seen"}, FINISH)
    Run(model, definition=AgentDefinition(agents=("helper",)), agents={"helper": helper}, environment=offered())
    seen = msgspec.json.encode(model.prompts[1]).decode()
    assert "git_log" in seen
    assert "shop" not in seen
