"""Commands are read from whatever form a model gives them in, and what cannot be read says what would do."""

import pytest

from toolfold.agent.commands import (
    BadCommand,
    Finish,
    Search,
    Single,
    UseTool,
    answer_schema,
    parse_commands,
    tool_offers,
)
from toolfold.model import Reply, ToolUse

ALL = ("search", "tool", "sandbox", "tool_output", "agent", "task_status", "batch", "finish", "fail")


def commands(text: str, allowed: tuple[str, ...] = ALL) -> list[Single]:
    return [command for _, command in parse_commands(Reply(text=text), allowed)]


@pytest.mark.requirement("A-01")
@pytest.mark.parametrize(
    "text",
    [
        '{"type": "search", "query": "read a file"}',
        'Let me look.\n```json\n{"type": "search", "query": "read a file"}\n```\nThen I go on.',
        '```\n{"type": "search", "query": "read a file"}\n```',
        'I will use {"type": "search", "query": "read a file"} now',
        '<think>{"type": "fail", "reason": "no"}</think>{"type": "search", "query": "read a file"}',
        '{"type": "search", "query": "read a file"} {"type": "search", "query": "another"}',
        '{"query": "read a file", "type": "search", "unknown": 1}',
        'I choose {this one}: {"type": "search", "query": "read a file"}',
        'First {"note": "no command"}, then {"type": "search", "query": "read a file"}',
    ],
)
def test_a_command_is_found_in_bare_fenced_and_surrounded_json(text: str) -> None:
    assert commands(text) == [Search(query="read a file")]


def test_a_batch_is_its_commands() -> None:
    inner = '{"type": "tool", "tool_id": "a.b", "args": {"x": 1}}, {"type": "finish", "report": "r"}'
    text = f'{{"type": "batch", "commands": [{inner}]}}'
    assert commands(text) == [UseTool(tool_id="a.b", args={"x": 1}), Finish(report="r")]


def test_native_calls_keep_the_ids_that_their_answers_need() -> None:
    reply = Reply(uses=(ToolUse("1", "search", {"query": "a"}), ToolUse("2", "tool", {"tool_id": "t", "args": {}})))
    assert parse_commands(reply, ALL) == (("1", Search(query="a")), ("2", UseTool(tool_id="t")))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("I am done.", "no command"),
        ("", "no command"),
        ('{"type": "dance"}', "no command"),
        ('{"type": "search"}', "query"),
        ('{"type": "search", "query": 5}', "query"),
        ('{"type": "batch", "commands": []}', "no command"),
        ("[" * 100_000, "no command"),
        ('{"a":' * 100_000, "no command"),
        ("{" * 100_000, "no command"),
        ('{"type": "batch", "commands": [{"type": "search", "query": "a"}, ', "no whole JSON object"),
        ('{"type": "search", "query": "\\ud800"}', "no whole JSON object"),
    ],
)
def test_what_is_no_command_is_told_with_one_that_would_do(text: str, says: str) -> None:
    with pytest.raises(BadCommand) as told:
        commands(text)
    assert says in told.value.message
    assert '"type": "search"' in told.value.next_action


def test_a_command_that_is_not_there_in_this_turn_is_refused() -> None:
    with pytest.raises(BadCommand, match="search"):
        commands('{"type": "search", "query": "a"}', ("finish", "fail"))


def test_offers_and_the_answer_schema_name_the_commands_of_the_turn() -> None:
    assert [offer.name for offer in tool_offers(("finish", "fail"))] == ["finish", "fail"]
    assert [one["properties"]["type"]["const"] for one in answer_schema(("finish", "fail"))["anyOf"]] == [
        "finish",
        "fail",
    ]


def test_too_many_commands_at_once_and_unknown_ones_are_refused() -> None:
    many = tuple(ToolUse(f"u{number}", "task_status", {"status": "busy"}) for number in range(21))
    with pytest.raises(BadCommand, match="21 commands at once"):
        parse_commands(Reply(uses=many), ALL)
    with pytest.raises(BadCommand, match="there is no command 'dance'"):
        parse_commands(Reply(uses=(ToolUse("u", "dance", {}),)), ALL)
