"""How tool objects are read that servers really send, and those that they should not send."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from toolfold.types import Annotations
from toolfold.upstream.definitions import _MAX_WARNINGS, _read_definition, read_definitions


def test_a_tool_keeps_its_exact_bytes_with_odd_spaces_and_order() -> None:
    text = b'{ "outputSchema" : {"type":"object"} ,"name":"a", "x-own": [1e5], "inputSchema": {"b": 1,  "a": 2}}'
    tool, warnings = _read_definition(Raw(text))
    assert tool is not None
    assert not warnings
    assert bytes(tool.raw) == text
    assert bytes(tool.input_schema) == b'{"b": 1,  "a": 2}'
    assert tool.output_schema is not None
    assert bytes(tool.output_schema) == b'{"type":"object"}'


def test_annotations_and_the_title_that_older_servers_put_there() -> None:
    raw = b'{"name":"a","inputSchema":{},"annotations":{"title":"A","readOnlyHint":true,"destructiveHint":false}}'
    tool, _ = _read_definition(Raw(raw))
    assert tool is not None
    assert tool.annotations == Annotations(read_only=True, destructive=False)
    assert tool.title == "A"


@pytest.mark.parametrize(
    "raw", [b"{}", b'{"name":3}', b'{"name":""}', b'{"name":"  "}', b'{"name":null}', b"[]", b"1", b'"text"', b"null"]
)
def test_a_tool_that_nobody_could_call_is_skipped_and_said(raw: bytes) -> None:
    good = Raw(b'{"name":"good","inputSchema":{}}')
    tools, warnings = read_definitions([Raw(raw), good])
    assert [tool.name for tool in tools] == ["good"]
    assert len(warnings) == 1
    assert "number 1 is skipped" in warnings[0]


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ("", "no inputSchema"),
        ('"inputSchema":null', "an inputSchema that is no object"),
        ('"inputSchema":[]', "an inputSchema that is no object"),
        ('"inputSchema":{},"description":7', "a description that is no text"),
        ('"inputSchema":{},"title":{}', "a title that is no text"),
        ('"inputSchema":{},"outputSchema":3', "an outputSchema that is no object"),
        ('"inputSchema":{},"annotations":[]', "annotations that are no object"),
        ('"inputSchema":{},"annotations":{"readOnlyHint":"yes"}', "neither true nor false"),
    ],
)
def test_a_field_of_the_wrong_kind_is_told_and_the_tool_stays(fields: str, warning: str) -> None:
    text = '{"name":"a"' + ("," + fields if fields else "") + "}"
    tools, warnings = read_definitions([Raw(text.encode())])
    assert [tool.name for tool in tools] == ["a"]
    assert bytes(tools[0].raw) == text.encode()
    assert len(warnings) == 1
    assert warning in warnings[0]
    assert tools[0].annotations == Annotations()


@pytest.mark.parametrize("fields", ['"description":null', '"outputSchema":null', '"annotations":null', '"title":null'])
def test_null_is_as_good_as_absent(fields: str) -> None:
    _, warnings = read_definitions([Raw(b'{"name":"a","inputSchema":{},' + fields.encode() + b"}")])
    assert warnings == ()


def test_a_name_that_comes_twice_is_kept_once_and_said() -> None:
    first, second = Raw(b'{"name":"a","inputSchema":{},"description":"1"}'), Raw(b'{"name":"a","inputSchema":{}}')
    tools, warnings = read_definitions([first, second])
    assert [tool.description for tool in tools] == ["1"]
    assert "listed twice" in warnings[0]


def test_warnings_do_not_flood() -> None:
    _, warnings = read_definitions([Raw(b"{}")] * 500)
    assert len(warnings) == _MAX_WARNINGS + 1
    assert warnings[-1] == "and 450 more warnings about this server's tools"


@pytest.mark.requirement("G-01")
def test_every_tool_of_the_recorded_servers_arrives_and_none_is_altered(shared_data: Path) -> None:
    count = 0
    for file in sorted((shared_data / "servers").glob("*.json")):
        recorded = json.loads(file.read_bytes())["tools"]
        raws = [Raw(msgspec.json.encode(tool)) for tool in recorded]
        tools, warnings = read_definitions(raws)
        assert [json.loads(bytes(tool.raw)) for tool in tools] == recorded
        assert [json.loads(bytes(tool.input_schema)) for tool in tools] == [tool["inputSchema"] for tool in recorded]
        assert warnings == ()
        count += len(tools)
    assert count > 2000
