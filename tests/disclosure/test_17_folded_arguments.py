"""A large input schema is folded by `expand_tool` and opens by path; calls are checked against the whole of it."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from toolfold import Gateway, Settings, tokens
from toolfold.disclosure.arguments import Arguments
from toolfold.errors import UnknownField
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.testing.memory_upstream import MemoryUpstream

TEXT = {"type": "string"}
# Some 60,000 bytes: a required argument at the end of many, a reference, two alternatives, a required object.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        **{f"option_{n}": {**TEXT, "description": f"Option {n}. " + "What it does. " * 20} for n in range(150)},
        "target": {"$ref": "#/$defs/Target"},
        "source": {"anyOf": [{"$ref": "#/$defs/Url"}, {"$ref": "#/$defs/Target"}]},
        "name": {**TEXT, "description": "The name\nof the thing."},
    },
    "required": ["target", "name"],
    "additionalProperties": False,
    "$defs": {
        "Target": {
            "type": "object",
            "properties": {"host": TEXT, "port": {"type": "integer", "minimum": 1}, "next": {"$ref": "#/$defs/Link"}},
            "required": ["host"],
        },
        "Url": {"type": "object", "properties": {"url": TEXT}, "required": ["url"]},
        "Link": {"type": "object", "properties": {"target": {"$ref": "#/$defs/Target"}, "url": TEXT}},
        "Unused": {"type": "object", "properties": {f"field_{n}": TEXT for n in range(200)}},
    },
}
TOOL = {"name": "make", "description": "Makes a thing.", "inputSchema": SCHEMA}


@asynccontextmanager
async def surface(folder: Path, *tools: dict[str, Any]) -> AsyncIterator[DiscoverySurface]:
    async with Gateway(Settings(home=folder), upstreams=[MemoryUpstream("s", list(tools))]) as gateway:
        await gateway.build(index=False)
        yield DiscoverySurface(gateway)


async def ask(shown: DiscoverySurface, operation: str, **arguments: Any) -> tuple[dict[str, Any], int]:
    result = json.loads(bytes(await shown.call(operation, Raw(json.dumps(arguments).encode()))))
    text = result["content"][0]["text"]
    return json.loads(text), tokens.count(text)


async def test_17_a_large_input_schema_is_folded_with_what_is_required_first(tmp_path: Path) -> None:
    assert tokens.count(json.dumps(SCHEMA)) > 10_000
    async with surface(tmp_path, TOOL) as shown:
        answer, cost = await ask(shown, "expand_tool", tool_id="s.make")
        assert cost < 2_000
        assert answer["description"] == "Makes a thing."
        assert answer["args_schema"] is None
        assert answer["has_hidden_args"] is True
        assert "args_path" in answer["note"]
        first, second, *rest = answer["args_fields"]
        assert first.startswith("target: object (required)")
        assert second == "name: string (required) - The name of the thing."
        assert re.fullmatch(r'\* \(\+\d+ more fields; expand_tool\(\.\.\., args_path=""\)\)', rest[-1])
        keys = list(answer)
        assert keys.index("description") < keys.index("args_fields") < keys.index("result_schema")


async def test_17_each_part_opens_by_its_path_with_what_it_refers_to(tmp_path: Path) -> None:
    async with surface(tmp_path, TOOL) as shown:
        target, cost = await ask(shown, "expand_tool", tool_id="s.make", args_path="target")
        assert cost < 400
        assert target["args_path"] == "target"
        assert target["version"] == 1
        assert target["args_schema"] == {
            **SCHEMA["$defs"]["Target"],
            "$defs": {"Link": SCHEMA["$defs"]["Link"], "Target": SCHEMA["$defs"]["Target"]},
        }
        port, _ = await ask(shown, "expand_tool", tool_id="s.make", args_path="target.port")
        assert port["args_schema"] == {"type": "integer", "minimum": 1}
        whole, cost = await ask(shown, "expand_tool", tool_id="s.make", args_path="$")
        assert cost < 2_000
        assert whole["args_schema"] is None


async def test_17_alternatives_are_named_with_the_path_of_each() -> None:
    small = Arguments(SCHEMA, "s.make").part("source")["args_schema"]
    assert small["anyOf"] == SCHEMA["properties"]["source"]["anyOf"]
    assert set(small["$defs"]) == {"Url", "Target", "Link"}
    wide = {"type": "object", "properties": {f"field_{n}": {**TEXT, "description": "x" * 80} for n in range(80)}}
    arguments = Arguments({"properties": {"one": {"oneOf": [{**wide, "title": "A"}, {**wide, "title": "B"}]}}}, "s.x")
    part = arguments.part("one")
    assert part["args_schema"] is None
    assert part["has_hidden_args"] is True
    assert [kind["path"] for kind in part["alternatives"]] == ["one<A>", "one<B>"]
    assert "(one of 2 alternatives)" in arguments.folded()["args_fields"][0]
    assert arguments.folded()["has_hidden_args"] is True
    assert arguments.part("one<A>")["args_path"] == "one<A>"


async def test_17_a_wrong_path_names_those_that_exist(tmp_path: Path) -> None:
    async with surface(tmp_path, TOOL) as shown:
        answer, _ = await ask(shown, "expand_tool", tool_id="s.make", args_path="target.hots")
        assert answer["error"]["code"] == "UNKNOWN_FIELD"
        assert answer["error"]["message"] == 'the input has no "hots" at "target"'
        assert answer["error"]["hints"][0] == "target.host"
        assert answer["error"]["next_action"].startswith('call expand_tool with args_path="target.host"')


async def test_17_calls_are_checked_against_the_whole_schema(tmp_path: Path) -> None:
    async with surface(tmp_path, TOOL) as shown:
        good = {"name": "a", "target": {"host": "h", "port": 1}, "option_149": "x"}
        result = json.loads(
            bytes(await shown.call("call_tool", Raw(json.dumps({"tool_id": "s.make", "args": good}).encode())))
        )
        assert not result.get("isError")
        answer, cost = await ask(shown, "call_tool", tool_id="s.make", args={**good, "option_149": 1})
        assert answer["error"]["code"] == "INVALID_ARGUMENTS"
        assert "option_149" in answer["error"]["message"] + str(answer["error"]["hints"])
        assert cost < 2_000
        folded = next(hint for hint in answer["error"]["hints"] if "args_fields" in hint)
        assert folded["args_fields"][1].startswith("name: string (required)")


async def test_17_a_program_gets_the_schema_whole(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("s", [TOOL])]) as gateway:
        await gateway.build(index=False)
        answer = await gateway.expand_tool("s.make")
        assert json.loads(bytes(answer["args_schema"])) == SCHEMA


@pytest.mark.parametrize("schema", [{}, {"$defs": [1], "properties": {"a": {"$ref": "#/$defs/0"}}}, {"properties": 3}])
def test_17_odd_schemas_fold_to_something(schema: Any) -> None:
    arguments = Arguments(schema, "s.x")
    assert arguments.folded()["args_fields"]
    assert arguments.part("")["args_path"] == ""
    with pytest.raises(UnknownField):
        arguments.part("nothing.here")


def test_17_every_large_schema_of_recorded_servers_costs_little_and_opens_at_each_mark(shared_data: Path) -> None:
    seen = 0
    for file in sorted((shared_data / "servers").glob("*.json")):
        for tool in json.loads(file.read_text())["tools"]:
            schema = tool["inputSchema"]
            if len(json.dumps(schema)) <= 6_000:
                continue
            seen += 1
            arguments = Arguments(schema, tool["name"])
            lines = arguments.folded()["args_fields"]
            assert len(lines) <= 30
            assert tokens.count("\n".join(lines)) < 1_500, tool["name"]
            for path in re.findall(r'args_path="([^"]*)"\)', "\n".join(lines)):
                part = arguments.part(path)
                assert part["args_path"] == path
                assert tokens.count(json.dumps(part)) < 1_800, (tool["name"], path)
            required = [name for name in schema.get("required", ()) if name in schema["properties"]]
            assert [re.split(r"[:\[]", line)[0] for line in lines[: len(required[:9])]] == required[:9], tool["name"]
    assert seen > 10
