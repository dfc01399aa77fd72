"""Wrappers fit the schemas that servers really send: models take what the schema takes, and give it back unchanged."""

import json
import warnings
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from pydantic import ValidationError
from schema_instances import Instances

from benchmarks.recorded import build_tool, recorded_servers
from toolfold.errors import InvalidArguments, ToolFailed
from toolfold.scripts.runtime.functions import BoundTool
from toolfold.scripts.runtime.models import dump
from toolfold.scripts.runtime.records import TextResult
from toolfold.scripts.tool_specs import _describe_tool

Schema = dict[str, Any]


def bound(inputs: Schema, output: Schema | None = None, name: str = "do_it") -> tuple[BoundTool, list[str]]:
    warned: list[str] = []
    tool = build_tool("box", {"name": name, "inputSchema": {"type": "object", **inputs}})
    return BoundTool(_describe_tool(tool, output), None, warned.append), warned  # type: ignore[arg-type]  # nothing is called


def sent(tool: BoundTool, *given: Any, **keywords: Any) -> dict[str, Any]:
    return tool.arguments(given, keywords)


@pytest.mark.requirement("U-05")
def test_every_recorded_tool_has_models_that_take_and_give_what_its_schema_allows(shared_data: Path) -> None:
    recorded = recorded_servers(shared_data / "servers")
    checked = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tool in recorded.tools:
            schema = json.loads(bytes(tool.definition.input_schema))
            made = BoundTool(_describe_tool(tool, _output(tool.definition.output_schema)), None, list[str]().append)  # type: ignore[arg-type]  # nothing is called
            for name in made.names:
                assert made.get(name) is not None
            validator = _validator(schema)
            for seed in range(3):
                value = Instances(schema, seed).value(schema)
                if validator is None or not validator.is_valid(value):
                    continue
                got = made.arguments((value,), {})
                assert got == value, tool.tool_id
                assert validator.is_valid(got), tool.tool_id
                checked += 1
    assert len(recorded.tools) > 2_000
    assert checked > len(recorded.tools) * 2


@pytest.mark.requirement("U-06")
def test_every_recorded_output_schema_reads_results_that_fit_it_without_a_warning(shared_data: Path) -> None:
    checked = 0
    for tool in recorded_servers(shared_data / "servers").tools:
        schema = _output(tool.definition.output_schema)
        validator = _validator(schema) if schema is not None else None
        if validator is None:
            continue
        warned: list[str] = []
        made = BoundTool(_describe_tool(tool, schema), None, warned.append)  # type: ignore[arg-type]  # nothing is called
        for seed in range(3):
            value = Instances(schema, seed).value(schema)
            if validator.is_valid(value):
                read = made._reader.read({"content": [], "structuredContent": value})
                # A declared list comes as a list: the wrapper only makes it an object. What may also be something else
                # keeps its wrapper, whatever it is this time.
                wrapped = value.keys() == {"result"} and schema["properties"]["result"].get("type") == "array"
                assert dump(read) == (value["result"] if wrapped else value), tool.tool_id
                checked += 1
        assert not warned, tool.tool_id
    assert checked > 1_000


def _output(raw: Any) -> Any:
    return None if raw is None else json.loads(bytes(raw))


def _validator(schema: Any) -> Any:
    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except ValueError:
        return None


@pytest.mark.requirement("U-05")
def test_parameters_are_a_model_or_keywords_or_both() -> None:
    tool, _ = bound({"properties": {"count": {"type": "integer"}, "path": {"type": "string"}}, "required": ["path"]})
    params = tool.get("DoItParams")
    assert sent(tool, params(path="a", count=5)) == {"path": "a", "count": 5}
    assert sent(tool, path="a") == {"path": "a"}
    assert sent(tool, params(path="a"), count=2) == {"path": "a", "count": 2}
    assert sent(tool, {"path": "a", "count": "3"}) == {"path": "a", "count": 3}
    with pytest.raises(TypeError, match="DoItParams or keywords"):
        sent(tool, "a")


@pytest.mark.requirement("U-05")
def test_names_that_python_or_pydantic_has_taken_get_an_underscore_and_keep_their_key() -> None:
    keys = [
        "from",
        "class",
        "schema",
        "model_config",
        "2nd",
        "max-count",
        "_id",
        "copy",
        "x y",
        "日本",
        "self",
        "params",
    ]
    tool, _ = bound({"properties": {key: {"type": "integer"} for key in keys}})
    names = list(tool.get("DoItParams").model_fields)
    assert names[:5] == ["from_", "class_", "schema_", "model_config_", "field_2nd"]
    assert sent(tool, **dict.fromkeys(names, 1)) == dict.fromkeys(keys, 1)
    assert sent(tool, dict.fromkeys(keys, 1)) == dict.fromkeys(keys, 1)


@pytest.mark.requirement("U-05")
def test_none_is_dropped_unless_the_schema_wants_null() -> None:
    nullable = {"type": ["string", "null"]}
    tool, _ = bound(
        {
            "properties": {
                "plain": {"type": "string"},
                "null": nullable,
                "must": nullable,
                "sub": {"$ref": "#/$defs/S"},
            },
            "required": ["must"],
            "$defs": {"S": {"type": "object", "properties": {"a": {"type": "string"}, "b": nullable}}},
        }
    )
    assert sent(tool, must=None, plain=None) == {"must": None}
    assert sent(tool, must=None, null=None) == {"must": None, "null": None}
    assert sent(tool, must="x", sub={"a": None, "b": None}) == {"must": "x", "sub": {"b": None}}


@pytest.mark.requirement("U-05")
def test_defaults_are_shown_and_not_sent() -> None:
    tool, _ = bound({"properties": {"count": {"type": "integer", "default": 10}}})
    assert tool.get("DoItParams")().count == 10
    assert sent(tool) == {}
    assert tool.spec.signature == "do_it(*, count: int = 10) -> Any"


@pytest.mark.requirement("U-05")
def test_enums_unions_maps_and_recursion() -> None:
    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}},
    }
    tool, _ = bound(
        {
            "properties": {
                "kind": {"enum": ["a", "b"]},
                "either": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "tree": {"$ref": "#/$defs/T"},
            },
            "$defs": {"T": tree},
        }
    )
    nested = {"name": "a", "kids": [{"name": "b", "kids": []}]}
    given = {"kind": "b", "either": [1, 2], "labels": {"x": "y"}, "tree": nested}
    assert sent(tool, **given) == given
    with pytest.raises(InvalidArguments, match="kind"):
        sent(tool, kind="c")
    with pytest.raises(ValidationError):
        tool.get("DoItParams")(tree={"name": "a", "kids": [{"name": 5}]})


@pytest.mark.requirement("U-05")
def test_an_unknown_keyword_is_refused_with_the_signature_unless_the_schema_is_open() -> None:
    tool, _ = bound({"properties": {"count": {"type": "integer"}}})
    with pytest.raises(InvalidArguments, match="cuont") as caught:
        sent(tool, cuont=5)
    assert "do_it(*, count: int | None = None)" in caught.value.next_action
    wide, _ = bound({"properties": {"count": {"type": "integer"}}, "additionalProperties": True})
    assert sent(wide, more=[1]) == {"more": [1]}


COMMITS: Schema = {
    "type": "object",
    "properties": {
        "commits": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"sha": {"type": "string"}, "lines": {"type": "integer"}},
                "required": ["sha", "lines"],
            },
        },
        "text": {"type": "integer"},
    },
    "required": ["commits"],
}


@pytest.mark.requirement("U-06")
def test_results_are_models_with_attributes_and_the_raw_json() -> None:
    tool, warned = bound({}, COMMITS)
    data = {"commits": [{"sha": "a", "lines": 3, "more": {"deep": 1}}], "text": 4, "other": {"x": [{"y": 1}]}}
    result = tool._reader.read({"content": [{"type": "text", "text": "t"}], "structuredContent": data})
    assert type(result).__name__ == "DoItResult"
    assert (result.commits[0].sha, result.commits[0].lines, result.text) == ("a", 3, 4)
    assert result.commits[0].more.deep == 1
    assert result.other.x[0].y == 1
    assert result["commits"][0]["sha"] == "a"
    assert result.raw == data
    assert result.content == [{"type": "text", "text": "t"}]
    assert warned == []
    with pytest.raises(AttributeError, match="has no 'comits'; it has: commits, text, other"):
        _ = result.comits


@pytest.mark.requirement("U-06")
def test_a_result_that_does_not_fit_is_a_warning_and_keeps_what_it_has() -> None:
    tool, warned = bound({}, COMMITS)
    data = {"commits": [{"sha": "a", "lines": "many"}, {"lines": 2}, "odd"]}
    result = tool._reader.read({"content": [], "structuredContent": data})
    assert result.commits[0].lines == "many"
    assert result.commits[1].sha is None
    assert result.commits[2] == "odd"
    assert result.raw == data
    assert len(warned) == 1
    assert warned[0].startswith("box.do_it: commits.0.lines is not as its declared schema says: Input should be")


@pytest.mark.requirement("U-06")
def test_texts_are_texts_and_json_in_them_is_read_where_a_schema_says_so() -> None:
    plain, _ = bound({})
    result = plain._reader.read({"content": [{"type": "text", "text": "[1] first"}]})
    assert isinstance(result, TextResult)
    assert result == "[1] first" == result.text
    assert result.upper() == "[1] FIRST"
    as_json = plain._reader.read({"content": [{"type": "text", "text": '{"a": {"b": 1}}'}]})
    assert as_json.json().a.b == 1
    known, _ = bound({}, COMMITS)
    read = known._reader.read({"content": [{"type": "text", "text": json.dumps({"commits": []})}]})
    assert read.commits == []
    assert known._reader.read({"content": [{"type": "text", "text": "none today"}]}) == "none today"


def test_a_tool_that_says_it_failed_raises_what_it_said() -> None:
    tool, _ = bound({})
    with pytest.raises(ToolFailed, match="no such branch"):
        tool._reader.read({"isError": True, "content": [{"type": "text", "text": "no such branch"}]})
