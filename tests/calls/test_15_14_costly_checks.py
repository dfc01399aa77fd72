"""No schema and no arguments hold up the gateway: what may take long is checked elsewhere, and for a bounded time."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.calls import argument_check
from toolfold.calls.argument_check import Verdict
from toolfold.calls.validate import ArgumentValidator, _SchemaCost
from toolfold.errors import InvalidArguments
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import CallContext, Tool, ToolCall, ToolDefinition
from toolfold.upstream.definitions import read_definitions


def nested_unions(depth: int, keyword: str = "anyOf") -> dict[str, Any]:
    """Each level refers twice to the next: a few lines, and twice the work with each of them."""
    levels: dict[str, Any] = {
        f"l{number}": {keyword: [{"$ref": f"#/$defs/l{number + 1}"}] * 2} for number in range(depth)
    }
    return {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/l0"}},
        "$defs": {**levels, f"l{depth}": {"type": "string"}},
    }


def chained(length: int) -> dict[str, Any]:
    links: dict[str, Any] = {f"l{number}": {"$ref": f"#/$defs/l{number + 1}"} for number in range(length)}
    return {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/l0"}},
        "$defs": {**links, f"l{length}": {"type": "string"}},
    }


ONE = {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}, "required": ["a"]}
RECURSIVE = {"$defs": {"n": {"anyOf": [ONE, {**ONE, "required": ["b"]}]}}, "$ref": "#/$defs/n", "type": "object"}
TREE = {"type": "object", "properties": {"c": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"c": value}
    return value


def call_of(schema: Any, arguments: Any) -> ToolCall:
    raw = Raw(msgspec.json.encode(schema))
    definition = ToolDefinition(name="t", raw=Raw(b"{}"), input_schema=raw)
    tool = Tool(tool_id="s.t", server="s", definition=definition, fingerprint=str(hash(bytes(raw))))
    return ToolCall(tool=tool, arguments=Raw(msgspec.json.encode(arguments)))


COSTLY = [
    (nested_unions(30), {"x": 1}),
    (nested_unions(30, "oneOf"), {"x": "fits"}),
    (nested_unions(60, "allOf"), {"x": "fits"}),
    (RECURSIVE, deep(40)),
    (chained(3_000), {"x": 1}),
    ({"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}}, {"x": 1}),
    ({"type": "object", "patternProperties": {f"\\w{{{number}}}": {} for number in range(900, 990)}}, {"x": 1}),
]


@pytest.mark.parametrize(("schema", "arguments"), COSTLY)
def test_15_14_what_may_take_long_is_never_checked_on_the_event_loop(schema: Any, arguments: Any) -> None:
    call = call_of(schema, arguments)
    assert ArgumentValidator().check(call.tool, call.arguments) is False


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (RECURSIVE, {"a": 1, "b": 2}),
        (TREE, deep(25)),
        (nested_unions(5), {"x": "fits"}),
        ({"type": "object", "properties": {"x": {"enum": list(range(500))}}}, {"x": 7}),
        ({"type": "object", "items": {"type": "integer"}}, {"x": list(range(10_000))}),
    ],
)
def test_15_14_usual_arguments_are_checked_at_once_whatever_the_schema_could_cost(schema: Any, arguments: Any) -> None:
    call = call_of(schema, arguments)
    assert ArgumentValidator().check(call.tool, call.arguments) is True


def test_15_14_every_recorded_tool_is_cheap_to_check(shared_data: Path) -> None:
    costs = [
        _SchemaCost(tool["inputSchema"]).steps(12)
        for file in sorted((shared_data / "servers").glob("*.json"))
        for tool in json.loads(file.read_text(encoding="utf-8"))["tools"] or ()
    ]
    assert max(costs) < 5_000
    assert sorted(costs)[len(costs) * 99 // 100] < 50


@pytest.mark.parametrize("schema", [nested_unions(30), RECURSIVE])
def test_15_14_the_process_ends_at_its_deadline(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argument_check, "_WAIT_S", 0.5)
    call = call_of(schema, {"x": 1} if schema is not RECURSIVE else deep(60))
    assert Verdict.in_process(call.tool.definition.input_schema, call.arguments) is None


def test_15_14_the_process_gives_the_same_verdict() -> None:
    call = call_of(chained(2_000), {"x": 1})
    verdict = Verdict.in_process(call.tool.definition.input_schema, call.arguments)
    assert verdict is not None
    assert verdict.problems == [{"field": "x", "problem": '1 is not of type "string"'}]
    fitting = call_of(chained(2_000), {"x": "a"})
    assert Verdict.in_process(fitting.tool.definition.input_schema, fitting.arguments) == Verdict()


async def test_15_14_other_callers_are_served_while_a_costly_check_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(argument_check, "_WAIT_S", 1.0)
    hostile = {"name": "hostile", "inputSchema": nested_unions(30)}
    server = MemoryUpstream("s", [hostile, {"name": "plain", "inputSchema": {"type": "object"}}])
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build()
        costly = asyncio.create_task(gateway.call_tool("s.hostile", {"x": 1}))
        for _ in range(20):
            assert not (await gateway.call_tool("s.plain", {})).is_error
        assert not costly.done()
        # Its server is left to judge, and the log says so.
        assert not (await costly).is_error
    assert "unchecked" in caplog.text


async def test_15_14_a_costly_check_that_ends_refuses_what_does_not_fit() -> None:
    waiting = ArgumentValidator()(call_of(chained(2_000), {"x": 1}), CallContext())
    assert waiting is not None
    with pytest.raises(InvalidArguments, match='x: 1 is not of type "string"'):
        await waiting


def test_15_14_a_pattern_that_is_given_up_refuses_nothing() -> None:
    schema = {"type": "object", "properties": {"x": {"pattern": "^(?=(a+)+$)(a|aa)+\\1b$"}}}
    call = call_of(schema, {"x": "a" * 60})
    assert ArgumentValidator().check(call.tool, call.arguments) is True


@pytest.mark.parametrize("depth", [1, 5, 40])
def test_15_14_a_schema_that_includes_itself_has_no_bound(depth: int) -> None:
    assert _SchemaCost({"allOf": [{"$ref": "#"}]}).steps(depth) == math.inf
    assert _SchemaCost({"$ref": "https://example.org/elsewhere"}).steps(depth) == math.inf


@pytest.mark.parametrize("key", ["inputSchema", "outputSchema"])
@pytest.mark.parametrize(
    ("schema", "excess"), [(chained(50_000), "over 1,048,576 bytes"), (deep(101), "over 100 levels")]
)
def test_15_14_schemas_are_bounded_when_they_come_in(key: str, schema: Any, excess: str) -> None:
    tools, warnings = read_definitions([Raw(msgspec.json.encode({"name": "t", "inputSchema": {}, key: schema}))])
    assert [tool.name for tool in tools] == ["t"]
    assert len(warnings) == 1
    assert f"{key} of {excess}" in warnings[0]
    assert bytes(tools[0].input_schema) == b"{}"
    assert tools[0].output_schema is None
