"""A search expands its first hits for a model where a few lines tell all that they take: two steps instead of three."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold import Gateway, Settings, tokens
from toolfold.config.sections import Discovery
from toolfold.disclosure.plain_arguments import plain_arguments
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.faces.surface.operations import Operations
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL, CallContext, ServerInfo

FIND: dict[str, Any] = {
    "name": "find_order",
    "description": "Finds an order of a customer.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "order_id": {"type": "string", "description": "The number\nof the order"},
            "limit": {"type": "integer", "default": 10, "maximum": 50},
        },
        "required": ["order_id"],
    },
}
LINES = ["order_id: string (required) - The number of the order", "limit: integer = 10, maximum 50"]
NESTED = {"type": "object", "properties": {"lines": {"type": "array", "items": {"type": "object"}}}}
CHANGE = {"name": "change_order", "description": "Changes the lines of an order.", "inputSchema": NESTED}
OTHERS = [{**FIND, "name": f"find_{thing}", "description": f"Finds a {thing}."} for thing in ("payment", "parcel")]
PLAIN = {"query": "find an order of a customer"}
CALL = {"tool_id": "shop.find_order", "args": {"order_id": "7"}}


@asynccontextmanager
async def shop(folder: Path, **discovery: Any) -> AsyncIterator[tuple[Gateway, MemoryUpstream]]:
    server = MemoryUpstream("shop", [FIND, CHANGE, *OTHERS])
    server.answer("find_order", {"content": [{"type": "text", "text": "order 7"}]})
    settings = Settings(home=folder, discovery=Discovery(**discovery))
    async with Gateway(settings, upstreams=[server]) as gateway:
        await gateway.build()
        yield gateway, server


async def ask(gateway: Gateway, name: str, arguments: dict[str, Any]) -> Any:
    """What a model reads."""
    raw = await DiscoverySurface(gateway).call(name, Raw(json.dumps(arguments).encode()))
    text = msgspec.json.decode(raw)["content"][0]["text"]
    return json.loads(text) if text.startswith("{") else text


async def search(gateway: Gateway, query: str = PLAIN["query"]) -> Any:
    return await ask(gateway, "search_tool_by_category", {"query": query})


@pytest.mark.requirement("D-02", "D-05")
async def test_20_the_first_hits_come_with_what_they_take_and_pointers_stay_pointers(tmp_path: Path) -> None:
    async with shop(tmp_path) as (gateway, _):
        found = await search(gateway)
        assert found["expanded"]["shop.find_order"] == LINES
        assert len(found["expanded"]) <= 2
        for pointer in found["results"]:
            assert set(pointer) == {"tool_id", "path", "summary", "tags", "confidence"}
        assert "schema" not in json.dumps(found)
        # The call is the next step.
        assert await ask(gateway, "call_tool", CALL) == "order 7"
        changed = await search(gateway, "change the lines of an order")
        assert changed["results"][0]["tool_id"] == "shop.change_order"
        assert "shop.change_order" not in changed.get("expanded", {}), "lines cannot tell what is nested"


@pytest.mark.requirement("D-05")
async def test_20_programs_and_the_strict_form_get_pointers_alone(tmp_path: Path) -> None:
    async with shop(tmp_path / "a") as (gateway, _):
        assert "expanded" not in await gateway.search_tool_by_category(PLAIN["query"])
        asked = Raw(json.dumps(PLAIN).encode())
        answer = await Operations(gateway).run("search_tool_by_category", asked, CallContext())
        assert isinstance(answer, dict)
        assert "expanded" not in answer
        assert gateway.expansions.version(LOCAL, "shop.find_order") is None
        assert "unless a search `expanded` it" in await DiscoverySurface(gateway).instructions(LOCAL)
        tools = await DiscoverySurface(gateway).tools(LOCAL)
    async with shop(tmp_path / "b", expand_hits=False) as (gateway, _):
        found = await search(gateway)
        assert set(found) == {"category_path", "results", "next_cursor"}
        assert "order_id" not in json.dumps(found)
        told = await DiscoverySurface(gateway).instructions(LOCAL)
        assert "Always call `expand_tool` before execution to obtain the argument schema." in told
        assert await DiscoverySurface(gateway).tools(LOCAL) == tools, "the definitions are the same bytes"


@pytest.mark.requirement("D-08")
@pytest.mark.parametrize("expand_hits", [True, False])
async def test_20_where_expanding_is_enforced_an_expanded_hit_may_be_called(tmp_path: Path, expand_hits: bool) -> None:
    async with shop(tmp_path, strict=True, expand_hits=expand_hits) as (gateway, _):
        assert (await ask(gateway, "call_tool", CALL))["error"]["code"] == "NOT_EXPANDED"
        found = await search(gateway)
        called = await ask(gateway, "call_tool", CALL)
        assert called == "order 7" if expand_hits else called["error"]["code"] == "NOT_EXPANDED"
        # Only what was shown counts.
        others = {pointer["tool_id"] for pointer in found["results"]} - found.get("expanded", {}).keys()
        for tool_id in others:
            refused = await ask(gateway, "call_tool", {"tool_id": tool_id, "args": {}})
            assert refused["error"]["code"] == "NOT_EXPANDED"


@pytest.mark.requirement("D-13")
async def test_20_a_hit_that_changed_since_the_search_is_not_called(tmp_path: Path) -> None:
    async with shop(tmp_path) as (gateway, server):
        await search(gateway)
        changed = {**FIND, "inputSchema": {**FIND["inputSchema"], "required": ["order_id", "limit"]}}
        server.set_tools([changed, CHANGE, *OTHERS])
        await gateway.build()
        error = (await ask(gateway, "call_tool", CALL))["error"]
        assert error["code"] == "TOOL_CHANGED"
        assert "expand_tool" in error["next_action"]
        assert (await search(gateway))["expanded"]["shop.find_order"][1].startswith("limit: integer (required)")
        assert await ask(gateway, "call_tool", {**CALL, "args": {"order_id": "7", "limit": 1}}) == "order 7"


@pytest.mark.requirement("D-09")
async def test_20_a_call_after_an_expanding_search_is_selected_from_it(tmp_path: Path) -> None:
    async with shop(tmp_path) as (gateway, _):
        await search(gateway)
        await ask(gateway, "call_tool", CALL)
        steps = {step.step: step for step in await gateway.audit_log.steps()}
        assert list(steps) == ["search", "choose", "call"]
        assert "shop.find_order" in steps["search"].expanded
        assert steps["call"].search == steps["search"].id
        assert steps["call"].selection == steps["choose"].selection
        assert steps["search"].shown_bytes > len(json.dumps(LINES))
    # Another process takes the search up from the store.
    async with shop(tmp_path) as (gateway, _):
        await search(gateway)
        newest = (await gateway.audit_log.steps())[-1].id
    async with shop(tmp_path) as (gateway, _):
        await ask(gateway, "call_tool", CALL)
        assert (await gateway.audit_log.steps())[-1].search == newest


async def test_20_few_servers_are_named_with_what_they_say_they_are_connected_to(tmp_path: Path) -> None:
    def server(number: int, said: str) -> MemoryUpstream:
        return MemoryUpstream(f"shop-{number}", [FIND], info=ServerInfo(name="shop", version="1", instructions=said))

    said = ["The shop in\nVienna. Ask before you order.", 'Orders of "all" shops', "", "x" * 4_000]
    async with Gateway(
        Settings(home=tmp_path / "few"), upstreams=[server(n, text) for n, text in enumerate(said)]
    ) as gateway:
        await gateway.build()
        text = await DiscoverySurface(gateway).instructions(LOCAL)
        assert (
            'shop-0 (1: "The shop in Vienna"), shop-1 (1: "Orders of \'all\' shops"), shop-2 (1), shop-3 (1: "xx'
            in text
        )
        assert tokens.count(text) <= 400
    many = [server(n, said[0]) for n in range(13)]
    async with Gateway(Settings(home=tmp_path / "many"), upstreams=many) as gateway:
        await gateway.build()
        text = await DiscoverySurface(gateway).instructions(LOCAL)
        assert "shop-12 (1)" in text
        assert "Vienna" not in text


def told(properties: Any, **more: Any) -> list[str] | None:
    return plain_arguments(Raw(json.dumps({"type": "object", "properties": properties, **more}).encode()))


def test_20_lines_tell_all_of_a_plain_schema() -> None:
    properties = {
        "path": {"type": "string", "title": "Path", "description": "Where  to look"},
        "depth": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "order": {"type": "string", "enum": ["asc", "desc"], "default": "asc"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "All of them", "maxItems": 5},
        "ids": {"type": "array", "items": {"type": ["string", "integer"]}},
        "when": {"type": "string", "format": "date"},
        "dry run": {"type": "boolean", "default": False},
    }
    assert told(properties, required=["path"], additionalProperties=False) == [
        "path: string (required) - Where to look",
        "depth: integer|null",
        'order: "asc"|"desc" = "asc"',
        "tags: string[], maxItems 5 - All of them",
        "ids: (string|integer)[]",
        "when: string, format date",
        '"dry run": boolean = false',
    ]
    assert told({}) == []


@pytest.mark.parametrize(
    "argument",
    [
        {"type": "object"},
        {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"type": "array"},
        {"type": "array", "items": {"type": "string", "maxLength": 3}},
        {"$ref": "#/$defs/A"},
        {"anyOf": [{"type": "string", "description": "one"}, {"type": "integer"}]},
        {"type": "string", "anyOf": [{"type": "string"}]},
        {"type": "integer", "multipleOf": 5},
        {"enum": ["a", "b"]},
        {"type": "string", "enum": [str(n) for n in range(50)]},
        {"description": "anything"},
        {"type": "string", "description": "word " * 200},
        {"type": "nothing"},
        {"type": []},
        {"type": [{}]},
        {"type": "string", "enum": "ab"},
        {"anyOf": 5},
        {"anyOf": []},
        True,
        [],
    ],
)
def test_20_what_lines_cannot_tell_whole_is_left_to_expand_tool(argument: Any) -> None:
    assert told({"a": argument}) is None


def test_20_a_schema_that_describes_more_than_its_keys_is_left_to_expand_tool() -> None:
    text = {"a": {"type": "string"}}
    assert told(text) is not None
    assert told(text, additionalProperties={"type": "string"}) is None
    assert told(text, oneOf=[{"required": ["a"]}]) is None
    assert told(text, required=["b"]) is None
    assert told(text, required="a") is None
    assert told(text, required=[["a"]]) is None
    for schema in (b"{}", b'{"type":"object"}', b"true", b"[]", b"{", b'{"properties":[]}'):
        assert plain_arguments(Raw(schema)) is None
    assert told({f"key_{n}": {"type": "string"} for n in range(60)}) is None
    deep = b'{"properties":{"a":' + b'{"type":"array","items":' * 5_000 + b'{"type":"string"}' + b"}" * 5_002
    assert plain_arguments(Raw(deep)) is None


def test_20_what_a_search_expands_takes_few_tokens() -> None:
    most = told({"a": {"type": "string", "description": "x " * 180}})
    assert most is not None
    assert tokens.count(json.dumps(most)) <= 400
