"""What a model, a program and a person read of a tool's results, before and after a call."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.config.sections import Limits
from toolfold.disclosure.fold import NOT_DECLARED
from toolfold.errors import InvalidArguments, NoMatchInCategory, RemoteError, ServerTimeout, ToolNotFound, UnknownPath
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.faces.surface.operations import FOLDED
from toolfold.testing.memory_upstream import MemoryUpstream

SMALL = {"type": "object", "properties": {"id": {"type": "string"}, "total": {"type": "number"}}, "required": ["id"]}
LARGE = {"type": "object", "properties": {f"field_{number}": SMALL for number in range(90)}}
COUNTED = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = [
    {"name": "silent", "inputSchema": {"type": "object"}},
    {
        "name": "small",
        "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "outputSchema": SMALL,
    },
    {"name": "large", "inputSchema": {"type": "object"}, "outputSchema": LARGE},
]


async def ask(gateway: Gateway, operation: str, **arguments: Any) -> list[str]:
    """The texts of a result as a model gets them."""
    result = await DiscoverySurface(gateway).call(operation, Raw(json.dumps(arguments).encode()))
    return [block["text"] for block in json.loads(bytes(result))["content"]]


async def test_15_08_expand_tool_shows_the_folded_result_beside_or_instead_of_the_schema(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("s", TOOLS)]) as gateway:
        await gateway.build()
        texts = [await ask(gateway, "expand_tool", tool_id=f"s.{name}") for name in ("silent", "small", "large")]
        silent, small, large = (json.loads(text) for (text,) in texts)
        assert (silent["output_fields"], silent["has_hidden_fields"]) == ([NOT_DECLARED], False)
        assert small["result_schema"] == SMALL
        assert (small["output_fields"], small["has_hidden_fields"]) == (["id: string", "total: number"], False)
        assert large["result_schema"] is None
        assert large["has_hidden_fields"] is True
        assert len(large["output_fields"]) == 30
        assert large["note"] == FOLDED
        whole = await gateway.expand_tool("s.large")
        assert json.loads(bytes(whole["result_schema"])) == LARGE
        assert whole["output_fields"] == large["output_fields"]
        descriptor = await gateway.descriptor("s.silent")
        assert descriptor["output_fields"] == [NOT_DECLARED]


async def test_15_09_results_that_contradict_the_declaration_are_told_with_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolfold.disclosure.observed._OWN_RESULT_S", 60.0)
    server = MemoryUpstream("s", TOOLS)
    wrong = {"content": [{"type": "text", "text": "{}"}], "structuredContent": {"total": "many"}}
    server.answer("small", wrong)
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build()
        texts = await ask(gateway, "call_tool", tool_id="s.small")
        assert texts[0] == "{}"
        assert "total: declared number, seen string" in texts[1]
        assert "id: declared required, seen missing" in texts[1]
        for answer in (await gateway.expand_tool("s.small"), await gateway.inspect_tool_output("s.small")):
            assert "total: declared number, seen string" in answer["contradicted"]
        every = await gateway.describer.all_contradictions(gateway.view())
        assert list(every) == ["s.small"]


async def test_15_09_a_bare_array_in_place_of_a_declared_object_is_shown_as_it_is(tmp_path: Path) -> None:
    server = MemoryUpstream("s", TOOLS)
    server.answer("small", {"content": [{"type": "text", "text": '[{"sku": "a"}]'}]})
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build()
        assert "declared object, seen array" in (await ask(gateway, "call_tool", tool_id="s.small"))[1]
        expanded = await gateway.expand_tool("s.small")
        assert expanded["output_fields"] == ["[].sku: string"]
        assert (await gateway.inspect_tool_output("s.small"))["node_type"] == "array"


async def test_15_09_results_that_fit_come_alone(tmp_path: Path) -> None:
    server = MemoryUpstream("s", TOOLS)
    server.answer("small", {"content": [{"type": "text", "text": "x"}], "structuredContent": {"id": "a"}})
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build()
        assert await ask(gateway, "call_tool", tool_id="s.small") == ["x"]
        assert "contradicted" not in await gateway.expand_tool("s.small")


async def test_15_09_an_error_claims_nothing_about_what_the_model_did(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("s", TOOLS)]) as gateway:
        await gateway.build()
        (text,) = await ask(gateway, "call_tool", tool_id="s.small", args={"n": "many"})
        error = json.loads(text)["error"]
        assert "did not expand" not in text
        assert error["next_action"].startswith('call it again with arguments like {"n":1}')
        assert {"args_schema": COUNTED} in error["hints"]


async def test_15_09_the_servers_own_error_code_and_data_are_kept(tmp_path: Path) -> None:
    server = MemoryUpstream("s", TOOLS)
    server.call_error = RemoteError("no room", rpc_code=-32042, data={"free": 0})
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build()
        (text,) = await ask(gateway, "call_tool", tool_id="s.small")
        error = json.loads(text)["error"]
        assert (error["code"], error["rpc_code"], error["data"]) == ("REMOTE_ERROR", -32042, {"free": 0})


async def test_15_09_nothing_found_is_not_told_as_impossible(tmp_path: Path) -> None:
    many = [*TOOLS, *({"name": f"tool_{number}", "inputSchema": {"type": "object"}} for number in range(30))]
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("s", many)]) as gateway:
        await gateway.build()
        with pytest.raises(NoMatchInCategory) as caught:
            await gateway.search_tool_by_category("paint the ceiling of the chapel")
        told = f"{caught.value.message} {caught.value.next_action}"
        assert "cannot" not in told
        assert len(caught.value.hints) == 5


@pytest.mark.parametrize("seconds", [float("nan"), -1, 0])
async def test_15_09_a_time_that_is_none_is_refused(seconds: float, tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("s", TOOLS)]) as gateway:
        await gateway.build()
        with pytest.raises(InvalidArguments, match="timeout_s"):
            await gateway.call_tool("s.small", {}, timeout_s=seconds)
        with pytest.raises(InvalidArguments, match="timeout_s"):
            await gateway.run_script("print(1)", timeout_s=seconds)
        (call,) = [step for step in await gateway.audit_log.steps() if step.step == "call"]
        assert call.code == "INVALID_ARGUMENTS"


@pytest.mark.parametrize(
    ("requested", "limit", "told", "advice"),
    [
        (0.02, 5.0, "within 0.02 s, the time that this request allowed", "allow more time (timeout_s)"),
        (None, 0.02, "within 0.02 s, the limit for its server", "raise call_timeout_s of s"),
        (9.0, 0.02, "this request asked for 9 s, more than is allowed", "raise call_timeout_s of s"),
    ],
)
async def test_15_09_a_time_out_names_whose_limit_it_was(
    requested: float | None, limit: float, told: str, advice: str, tmp_path: Path
) -> None:
    server = MemoryUpstream("s", TOOLS)
    async with Gateway(Settings(home=tmp_path, limits=Limits(call_timeout_s=limit)), upstreams=[server]) as gateway:
        await gateway.build()
        server.delay = asyncio.Event()
        with pytest.raises(ServerTimeout) as caught:
            await gateway.call_tool("s.small", {}, timeout_s=requested)
        server.delay.set()
    assert told in caught.value.message
    assert advice in caught.value.next_action


@pytest.mark.parametrize("tool_id", ["s.smal", "zzzzzzzzzzzz"])
async def test_15_09_hints_are_named_where_there_are_any(tool_id: str, tmp_path: Path) -> None:
    for tools in (TOOLS, []):
        async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("s", tools)]) as gateway:
            await gateway.build()
            with pytest.raises(ToolNotFound) as caught:
                await gateway.expand_tool(tool_id)
            assert ("hints" in caught.value.next_action) == bool(caught.value.hints)
            with pytest.raises(UnknownPath) as lost:
                await gateway.list(["Nowhere"])
            assert ("hints" in lost.value.next_action) == bool(lost.value.hints)
