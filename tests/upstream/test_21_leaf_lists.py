"""Lists of resources and prompts that are too long, large, slow or wrong: bounded, and never at the tools' cost."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold.errors import ProtocolViolation
from toolfold.types import CallContext, Listing, ServerSpec, Tool, ToolCall
from toolfold.upstream.leaves import MAX_LEAVES, read_leaf
from toolfold.upstream.mcp import McpUpstream

pytestmark = pytest.mark.requirement("G-15")

SERVER = Path(__file__).parents[1] / "servers" / "leaves_stdio.py"


def opened(home: Path, made: Any, scene: Callable[[McpUpstream], Awaitable[None]], **spec: Any) -> None:
    (home / "a.json").write_text(json.dumps(made))
    args = (str(SERVER), str(home / "a.json"))
    server = McpUpstream(ServerSpec(name="a", transport="stdio", command=sys.executable, args=args, **spec))

    async def main() -> None:
        async with asyncio.timeout(60):
            await server.open()
            try:
                await scene(server)
            finally:
                await server.aclose()

    asyncio.run(main())


def listed(home: Path, made: Any, **spec: Any) -> Listing:
    found: list[Listing] = []

    async def scene(server: McpUpstream) -> None:
        found.append(await server.listing())

    opened(home, made, scene, **spec)
    return found[0]


def addresses(listing: Listing) -> list[str]:
    return [leaf.address for leaf in listing.tools if leaf.kind != "tool"]


def test_every_page_is_read_and_each_object_kept_as_it_came(tmp_path: Path) -> None:
    many = [{"uri": f"test:{n}", "name": f"n{n}", "size": n, "_meta": {"a": [n]}} for n in range(30)]
    listing = listed(tmp_path, {"resources": many, "page": 4})
    assert addresses(listing) == [one["uri"] for one in many]
    assert msgspec.json.decode(listing.tools[-1].raw) == many[-1]
    assert listing.tool_count == 3
    assert not listing.warnings


def test_a_list_without_an_end_is_cut(tmp_path: Path) -> None:
    listing = listed(tmp_path, {"endless": True})
    assert 0 < len(addresses(listing)) <= MAX_LEAVES
    assert listing.tool_count == 3
    assert "has no end" in listing.warnings[0]


def test_a_list_that_never_comes_costs_the_tools_nothing(tmp_path: Path) -> None:
    started = time.monotonic()
    listing = listed(tmp_path, {"silent": ["resources/list"], "prompts": [{"name": "p"}]}, start_timeout_s=4)
    assert time.monotonic() - started < 30
    assert (listing.tool_count, addresses(listing)) == (3, ["p"])
    assert "took over 2 s" in listing.warnings[0]


def test_a_list_that_is_refused_is_a_warning_and_missing_templates_are_none(tmp_path: Path) -> None:
    listing = listed(tmp_path, {"refuse": ["resources/list", "resources/templates/list"]})
    assert listing.tool_count == 3
    assert [text for text in listing.warnings if "could not be listed" in text] == list(listing.warnings)
    assert len(listing.warnings) == 1


@pytest.mark.parametrize(
    ("kind", "sent", "why"),
    [
        ("resource", {"uri": "a:" + "x" * 9_000, "name": "n"}, "over 8,192 characters"),
        ("resource", {"uri": "a:b", "name": "n", "description": "x" * 70_000}, "over 65,536 bytes"),
        ("resource", {"uri": "a:" + "x" * 1_000_000, "name": "n"}, "over 65,536 bytes"),
        ("resource", {"uri": "", "name": "n"}, "is empty"),
        ("resource", {"uri": 7, "name": "n"}, "is empty"),
        ("resource", [1], "is empty"),
        ("template", {"uriTemplate": "a:{b", "name": "n"}, "brace"),
        ("prompt", {"description": "no name"}, "is empty"),
    ],
)
def test_what_nobody_could_read_is_left_out_with_the_reason(kind: Any, sent: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_leaf(kind, Raw(json.dumps(sent).encode()))


def test_odd_ones_are_kept_as_they_are(tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        {"uri": "a:\u0000\u0007\u202e x", "name": ""},
        {"uri": "..", "name": 7},
        {"uri": "a:b", "size": -(10**15)},
    ]
    listing = listed(tmp_path, {"resources": [*odd, {"uri": "a:" + "x" * 1_000_000}]})
    assert addresses(listing) == [one["uri"] for one in odd]
    assert "one of its resources was left out" in listing.warnings[0]


def call_of(leaf: Any, **more: Any) -> ToolCall:
    return ToolCall(tool=Tool(tool_id="x", server="a", definition=leaf, fingerprint="f"), **more)


@pytest.mark.parametrize("sent", [{"contents": 7}, {}, {"contents": [{"text": 7}]}, {"contents": ["x"]}])
def test_a_result_that_is_none_is_said_so(sent: Any, tmp_path: Path) -> None:
    leaf = read_leaf("resource", Raw(b'{"uri":"a:b","name":"n"}'))

    async def scene(server: McpUpstream) -> None:
        for call in (call_of(leaf), call_of(leaf, method="resources/read", arguments=Raw(b'{"uri":"a:b"}'))):
            with pytest.raises(ProtocolViolation, match="resources/read cannot be read"):
                await server.call(call, CallContext())

    opened(tmp_path, {"texts": {"a:b": sent}}, scene)


def test_a_resource_that_lies_about_its_size_is_read_as_large_as_it_is(tmp_path: Path) -> None:
    leaf = read_leaf("resource", Raw(b'{"uri":"a:b","name":"n","size":3}'))

    async def scene(server: McpUpstream) -> None:
        outcome = await server.call(call_of(leaf), CallContext())
        assert len(outcome.text) == 500_000

    opened(tmp_path, {"texts": {"a:b": "x" * 500_000}}, scene)


def test_arguments_of_a_prompt_and_variables_of_a_template_are_its_schema() -> None:
    prompt = read_leaf("prompt", Raw(b'{"name":"p","arguments":[{"name":"a","required":true},{"name":"b"},7]}'))
    schema = msgspec.json.decode(prompt.input_schema)
    assert (list(schema["properties"]), schema["required"]) == (["a", "b"], ["a"])
    template = read_leaf("template", Raw(b'{"uriTemplate":"a:{/x}{?y,z*}","name":"t"}'))
    schema = msgspec.json.decode(template.input_schema)
    assert (list(schema["properties"]), schema["required"]) == (["x", "y", "z"], ["x"])
