"""The assistant: native tool calls and JSON commands, bounded rounds, compact lines, whole events."""

import asyncio
from typing import Any

import pytest
from live_scripted import Scripted, use

from toolfold import LiveSession
from toolfold.events import Event
from toolfold.live.manager import Assistant, format_tool_call
from toolfold.model import Reply


class Seen:
    """What a person would see."""

    def __init__(self) -> None:
        self.said = ""
        self.lines: list[str] = []

    def text(self, piece: str) -> None:
        self.said += piece

    def tool(self, name: str, arguments: dict[str, Any], answer: dict[str, Any]) -> None:
        self.lines.append(format_tool_call(name, arguments, answer))


def asked(model: Scripted, *questions: str) -> tuple[Seen, list[Event], list[str]]:
    async def main() -> tuple[Seen, list[Event], list[str]]:
        async with LiveSession() as session:
            await session.execute("def next(x):\n    x + 1")
            events: list[Event] = []
            session.events.subscribe(events.append)
            seen = Seen()
            assistant = Assistant(model, session, seen)
            return seen, events, [await assistant.ask(question) for question in questions]

    return asyncio.run(main())


@pytest.mark.requirement("L-10", "L-11")
def test_a_model_with_native_tools_looks_and_answers() -> None:
    model = Scripted(
        [use("inspect", expr="next"), use("eval_expr", expr="next(42)"), Reply(text="It returns nothing.")]
    )
    seen, events, answers = asked(model, "why None?")
    assert answers == ["It returns nothing."]
    assert seen.said.strip() == "It returns nothing."
    assert seen.lines[1] == "eval_expr(next(42)) → None"
    assert [event.name for event in events] == ["live.ask", "live.tool", "live.tool", "live.answer"]
    assert events[1].data["answer"]["result"]["callable"]["signature"] == "(x)"
    assert [tool.name for tool in model.asked[0].tools] == ["list_globals", "inspect", "eval_expr"]
    system = model.asked[0].messages[0].content
    for rule in (
        "list_globals only when needed",
        "Prefer inspect",
        "eval_expr for targeted",
        "repeated shallow probes",
    ):
        assert rule in system


@pytest.mark.requirement("L-10")
def test_a_model_without_native_tools_gives_json_commands() -> None:
    replies = [
        Reply(text='Let me see. {"tool": "inspect", "arguments": {"expr": "next"}}'),
        Reply(text='{"answer": "It lacks a return."}'),
    ]
    model = Scripted(replies, calls_tools=False)
    seen, _, answers = asked(model, "why None?")
    assert answers == ["It lacks a return."]
    assert seen.said == "It lacks a return."
    assert "Result of inspect" in model.asked[1].messages[-1].content
    assert not model.asked[0].tools


def test_a_model_that_never_answers_is_stopped() -> None:
    model = Scripted([use("list_globals") for _ in range(20)])
    _, events, answers = asked(model, "what is there?")
    assert answers == [""]
    assert sum(event.name == "live.tool" for event in events) == 7
    assert not model.asked[-1].tools


def test_a_tool_that_does_not_exist_is_told_to_the_model() -> None:
    model = Scripted([use("get_type", expr="next"), Reply(text="done")])
    seen, _, _ = asked(model, "what is it?")
    assert seen.lines == ["get_type(next) → unknown_function: there is no function 'get_type'"]


@pytest.mark.requirement("L-11")
def test_large_payloads_are_shown_on_one_short_line_and_recorded_whole() -> None:
    model = Scripted([use("eval_expr", expr="'x' * 3000"), Reply(text="done")])
    seen, events, _ = asked(model, "show it")
    assert len(seen.lines[0]) == 100
    assert len(events[1].data["answer"]["result"]["value_repr"]) == 3002


def test_a_long_conversation_keeps_within_the_window() -> None:
    model = Scripted([Reply(text="y" * 20_000) for _ in range(12)])
    _, _, answers = asked(model, *(f"question {number}" for number in range(12)))
    assert len(answers) == 12
    last = model.asked[-1].messages
    assert sum(len(message.content) for message in last) < 32_000 * 4
    assert last[-1].content == "question 11"
