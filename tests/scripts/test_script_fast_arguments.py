"""Arguments that take the short way are what their models would have made of them."""

import contextlib
import socket
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolfold.errors import InvalidArguments
from toolfold.scripts.runtime.functions import BoundTool, _FastArguments
from toolfold.scripts.runtime.host_link import HostLink
from toolfold.scripts.tool_specs import _describe_tool
from toolfold.types import Tool, ToolDefinition

KINDS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "minLength": 2, "pattern": "^a"},
    {"type": "integer", "default": 3},
    {"type": "number"},
    {"type": "boolean"},
    {"type": ["string", "null"]},
    {"enum": ["a", "b", 1]},
    {"type": "array", "items": {"type": "integer"}},
    {"type": "object", "properties": {"x": {"type": "integer"}}},
    {},
]
NAMES = ["text", "from", "a-b", "count"]
VALUES = st.one_of(
    st.text(max_size=3),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["x", "y"]), st.integers(), max_size=2),
)


def bound_to(schema: dict[str, Any]) -> tuple[BoundTool, _FastArguments]:
    definition = ToolDefinition(name="do", raw=Raw(b"{}"), input_schema=Raw(msgspec.json.encode(schema)))
    spec = _describe_tool(Tool(tool_id="s.do", server="s", definition=definition, fingerprint="f"), None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        bound = BoundTool(spec, HostLink(ours, 1, 1 << 20), lambda _: None)
        return bound, bound._fast_arguments


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(KINDS), min_size=1),
    st.sets(st.sampled_from(NAMES)),
    st.dictionaries(st.sampled_from(["text", "from_", "from", "a_b", "count", "other"]), VALUES),
)
def test_the_short_way_gives_what_the_model_gives_or_leaves_it_to_the_model(
    properties: dict[str, Any], required: set[str], given_: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": properties, "required": sorted(required & properties.keys())}
    bound, fast = bound_to(schema)
    short = fast.convert(given_)
    if short is not None:
        made = bound.arguments((), given_)
        assert msgspec.json.encode(short, order="sorted") == msgspec.json.encode(made, order="sorted")


def test_plain_keywords_take_the_short_way_and_all_others_do_not() -> None:
    properties = {"from": {"type": "string"}, "count": {"type": "integer"}, "ids": {"type": "array"}}
    bound, fast = bound_to({"type": "object", "properties": properties, "required": ["from"]})
    assert fast.convert({"from_": "x", "count": 3}) == {"from": "x", "count": 3}
    for given_ in ({}, {"count": 3}, {"from_": 1}, {"from_": "x", "count": True}, {"from_": "x", "ids": []}, {"zz": 1}):
        assert fast.convert(given_) is None
        with contextlib.suppress(InvalidArguments):
            bound.arguments((), given_)
