"""Arguments that are too deep or too large are refused like any others: with our own error, and in a few words."""

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold.calls.argument_check import MAX_EXAMPLE
from toolfold.calls.validate import ArgumentValidator
from toolfold.errors import InvalidArguments
from toolfold.types import CallContext, Tool, ToolCall, ToolDefinition

LONGEST_ERROR = 20_000


def tool_with(schema: Any) -> Tool:
    raw = Raw(msgspec.json.encode(schema))
    definition = ToolDefinition(name="t", raw=Raw(b"{}"), input_schema=raw)
    return Tool(tool_id="s.t", server="s", definition=definition, fingerprint=str(hash(bytes(raw))))


def refused(schema: Any, arguments: bytes) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        asyncio.run(checked(schema, arguments))
    return caught.value


async def checked(schema: Any, arguments: bytes) -> None:
    """The whole check, at once or in a process of its own."""
    waiting = ArgumentValidator()(ToolCall(tool=tool_with(schema), arguments=Raw(arguments)), CallContext())
    if waiting is not None:
        await waiting


TREE = {"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False}


@pytest.mark.parametrize("depth", [200, 254, 255, 256, 500, 1_000, 5_000, 100_000])
@pytest.mark.parametrize("schema", [{"type": "object"}, TREE])
def test_arguments_however_deep_fit_or_are_refused_as_invalid(schema: dict[str, Any], depth: int) -> None:
    arguments = b'{"a":' * depth + b"{}" + b"}" * depth
    with contextlib.suppress(InvalidArguments):
        ArgumentValidator().check(tool_with(schema), Raw(arguments))


@pytest.mark.parametrize("depth", [200, 300, 5_000])
def test_arguments_that_are_deep_and_wrong_are_refused_in_a_few_words(depth: int) -> None:
    error = refused({"type": "object", "required": ["b"]}, b'{"a":' + b"[" * depth + b"]" * depth + b"}")
    assert len(str(error.as_dict())) < LONGEST_ERROR


@pytest.mark.parametrize(
    "given",
    [
        {"a": "x" * 1_000_000},
        {"x" * 1_000_000: 1},
        {f"key-{number}": number for number in range(100_000)},
        {"a": {"b" * 500_000: {"c" * 500_000: 1}}},
        {"a": ["x" * 1000] * 1000},
    ],
)
def test_an_error_about_huge_arguments_is_short_and_still_shows_what_would_do(given: dict[str, Any]) -> None:
    whole = {"type": "object", "additionalProperties": {"type": "integer"}}
    schema = {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "integer"}, whole]}, "b": {"type": "integer"}},
        "required": ["b"],
        "additionalProperties": False,
    }
    error = refused(schema, msgspec.json.encode(given))
    assert len(str(error.as_dict())) < LONGEST_ERROR
    assert '{"b":1' in error.next_action


def test_where_no_short_example_exists_the_error_says_where_to_look() -> None:
    names = [f"{number}-{'n' * 60}" for number in range(MAX_EXAMPLE // 50)]
    error = refused({"type": "object", "required": names}, b"{}")
    assert "expand_tool" in error.next_action
    assert len(str(error.as_dict())) < LONGEST_ERROR
