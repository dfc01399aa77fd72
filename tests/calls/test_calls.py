"""Calls through the gateway: arguments checked before anything is sent, time bounded, all told, nothing repeated."""

import asyncio
import contextlib
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from misbehaving_stdio import misbehaving_spec
from msgspec import Raw
from msgspec.structs import replace
from open_gateway import OpenGateway

from toolfold import Gateway, Settings
from toolfold.calls.example_arguments import example_for
from toolfold.calls.validate import ArgumentValidator, _compile
from toolfold.config import Limits
from toolfold.errors import InvalidArguments, ServerClosed, ServerTimeout, ToolChanged, ToolNotFound
from toolfold.schema_walk.compile_schema import compile_schema
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Tool, ToolDefinition

T = TypeVar("T")

FIND_ORDER: dict[str, Any] = {
    "name": "find_order",
    "description": "Finds an order.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "order_id": {"type": "integer", "minimum": 1},
            "expand": {"enum": ["items", "customer"]},
            "address": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
        "required": ["order_id"],
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}},
}


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def tool_with(schema: Any) -> Tool:
    raw = Raw(msgspec.json.encode(schema))
    definition = ToolDefinition(name="t", raw=Raw(b"{}"), input_schema=raw)
    return Tool(tool_id="s.t", server="s", definition=definition, fingerprint=str(hash(bytes(raw))))


class Shop(OpenGateway):
    """A gateway over one shop in memory, built, with what it tells."""

    def __init__(self, home: Path) -> None:
        self.upstream = MemoryUpstream("shop", [FIND_ORDER])
        self.upstream.answer("find_order", {"id": 7})
        super().__init__(Gateway(Settings(home=home), upstreams=[self.upstream]))


@pytest.mark.requirement("D-05")
def test_expanding_a_tool_shows_its_schemas_as_the_server_sent_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with Shop(tmp_path) as shop:
            found = await shop.gateway.expand_tool("SHOP.Find_Order")
            assert found["tool_id"] == "shop.find_order"
            assert json.loads(bytes(found["args_schema"])) == FIND_ORDER["inputSchema"]
            assert json.loads(bytes(found["result_schema"])) == FIND_ORDER["outputSchema"]
            assert {"path", "summary", "version"} <= found.keys()
            with pytest.raises(ToolNotFound) as caught:
                await shop.gateway.expand_tool("shop.find_orders")
            assert caught.value.hints == ("shop.find_order",)

    run(main())


@pytest.mark.requirement("D-06")
def test_a_call_with_fitting_arguments_reaches_the_server_as_given(tmp_path: Path) -> None:
    async def main() -> None:
        async with Shop(tmp_path) as shop:
            outcome = await shop.gateway.call_tool("shop.find_order", {"order_id": 7, "expand": "items"})
            assert not outcome.is_error
            assert "7" in bytes(outcome.result).decode()
            assert [json.loads(bytes(call.arguments)) for call in shop.upstream.calls] == [
                {"order_id": 7, "expand": "items"}
            ]

    run(main())


@pytest.mark.requirement("D-06")
@pytest.mark.parametrize(
    ("arguments", "field", "corrected"),
    [
        ({}, "order_id", {"order_id": 1}),
        ({"order_id": "7"}, "order_id", {"order_id": 7}),
        ({"order_id": 7, "expand": "all"}, "expand", {"order_id": 7, "expand": "items"}),
        ({"order_id": 7, "address": {}}, "address.city", {"order_id": 7, "address": {"city": "text"}}),
        ({"order_id": 7, "colour": 1}, "colour", {"order_id": 7}),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_field_and_arguments_that_would_do(
    tmp_path: Path, arguments: dict[str, Any], field: str, corrected: dict[str, Any]
) -> None:
    async def main() -> None:
        async with Shop(tmp_path) as shop:
            with pytest.raises(InvalidArguments) as caught:
                await shop.gateway.call_tool("shop.find_order", arguments)
            assert caught.value.hints[0]["field"] == field
            assert msgspec.json.encode(corrected).decode() in caught.value.next_action
            assert shop.upstream.calls == []

    run(main())


@pytest.mark.parametrize("arguments", [b"[1]", b"17", b"not json", b"", b'{"order_id": ', b"\xff"])
def test_what_is_no_json_object_is_refused(tmp_path: Path, arguments: bytes) -> None:
    with pytest.raises(InvalidArguments):
        ArgumentValidator().check(tool_with(FIND_ORDER["inputSchema"]), Raw(arguments))


@pytest.mark.requirement("D-13")
def test_a_tool_that_changed_since_it_was_expanded_is_not_called(tmp_path: Path) -> None:
    async def main() -> None:
        async with Shop(tmp_path) as shop:
            version = (await shop.gateway.expand_tool("shop.find_order"))["version"]
            shop.upstream.set_tools([{**FIND_ORDER, "description": "Finds an order, and locks it."}])
            await shop.gateway.build()
            with pytest.raises(ToolChanged) as caught:
                await shop.gateway.call_tool("shop.find_order", {"order_id": 7}, expect_version=version)
            assert "expand_tool" in caught.value.next_action
            assert shop.upstream.calls == []

    run(main())


def test_each_call_is_told_with_sizes_and_without_values(tmp_path: Path) -> None:
    async def main() -> None:
        async with Shop(tmp_path) as shop:
            await shop.gateway.call_tool("shop.find_order", {"order_id": 424242})
            with pytest.raises(InvalidArguments):
                await shop.gateway.call_tool("shop.find_order", {"order_id": "secret"})
        calls = [event.name for event in shop.told if event.name.startswith("call.")]
        assert calls == ["call.started", "call.finished", "call.started", "call.failed"]
        assert shop.told[-1].data["code"] == "INVALID_ARGUMENTS"
        assert "424242" not in str(shop.told)
        assert "secret" not in str(shop.told)

    run(main())


def test_a_server_that_never_answers_is_given_up_at_the_limit_and_others_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        specs = (misbehaving_spec("hung", "--hang", "tools/call"), misbehaving_spec("fine"))
        settings = Settings(servers=specs, home=tmp_path, limits=Limits(call_timeout_s=0.3))
        async with Gateway(settings) as gateway:
            await gateway.build()
            hung = asyncio.ensure_future(gateway.call_tool("hung.echo", {}))
            assert not (await gateway.call_tool("fine.echo", {"a": 1})).is_error
            with pytest.raises(ServerTimeout):
                await hung

    run(main())


def test_a_servers_own_time_limit_holds_above_the_global_one_and_bounds_what_a_request_asks(tmp_path: Path) -> None:
    async def main() -> None:
        slow, hung = misbehaving_spec("slow", "--answer-delay", "0.4"), misbehaving_spec("hung", "--hang", "tools/call")
        specs = (replace(slow, call_timeout_s=30.0), replace(hung, call_timeout_s=10.0))
        settings = Settings(servers=specs, home=tmp_path, limits=Limits(call_timeout_s=0.2))
        async with Gateway(settings) as gateway:
            await gateway.build()
            assert not (await gateway.call_tool("slow.echo", {})).is_error
            with pytest.raises(ServerTimeout, match=r"within 0\.05 s"):
                await gateway.call_tool("hung.echo", {}, timeout_s=0.05)

    run(main())


def test_a_server_that_takes_too_long_names_its_own_setting_whatever_it_is_called(tmp_path: Path) -> None:
    async def main() -> None:
        spec = replace(misbehaving_spec("scripts", "--hang", "tools/call"), call_timeout_s=0.05)
        async with Gateway(Settings(servers=(spec,), home=tmp_path)) as gateway:
            await gateway.build()
            with pytest.raises(ServerTimeout) as late:
                await gateway.call_tool("scripts.echo", {})
            assert "raise call_timeout_s of scripts" in late.value.next_action

    run(main())


def test_a_server_that_dies_during_a_call_loses_it_and_the_call_is_not_repeated(tmp_path: Path) -> None:
    async def main() -> None:
        async with Gateway(Settings(servers=(misbehaving_spec("frail"),), home=tmp_path)) as gateway:
            await gateway.build()
            with pytest.raises(ServerClosed):
                await gateway.call_tool("frail.crash", {})
            assert not (await gateway.call_tool("frail.echo", {})).is_error

    run(main())


def test_references_out_of_a_schema_are_never_fetched() -> None:
    assert _compile(b'{"$ref": "http://127.0.0.1:9/schema.json"}').validator is None
    assert _compile(b'{"type": "nonsense"}').validator is None
    assert _compile(b"no json").validator is None


def test_arguments_are_judged_as_the_official_schema_suite_says(shared_data: Path) -> None:
    """Every case of draft 2020-12 that needs no document from elsewhere and no optional format."""
    folder = shared_data / "suites" / "json-schema-test-suite"
    wrong, judged = [], 0
    for file in sorted(folder.rglob("*.json")):
        if "optional" in file.parts or "remotes" in file.parts:
            continue
        for group in json.loads(file.read_text(encoding="utf-8")):
            validator = compile_schema(group["schema"])
            if validator is None:
                continue
            for case in group["tests"]:
                judged += 1
                if validator.is_valid(case["data"]) != case["valid"]:
                    wrong.append(f"{file.name}: {group['description']}: {case['description']}")
    assert wrong == []
    assert judged > 900


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=5), JSON)
def test_whatever_the_arguments_and_the_schema_only_our_own_error_comes_out(
    given_: dict[str, Any], schema: Any
) -> None:
    for one in (schema, {"type": "object", "properties": {"a": schema}, "required": ["a", "b"]}):
        with contextlib.suppress(InvalidArguments):
            ArgumentValidator().check(tool_with(one), Raw(msgspec.json.encode(given_)))


@given(JSON, JSON)
def test_an_example_can_be_made_of_anything(schema: Any, given_: Any) -> None:
    msgspec.json.encode(example_for(schema, given_))
