"""Output schemas through the gateway: observed where nothing is declared, the toolbox always at hand."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from toolfold import Gateway, Settings
from toolfold.disclosure.fold import NOT_DECLARED
from toolfold.errors import InvalidArguments, UnknownField
from toolfold.events import Event
from toolfold.testing.memory_upstream import MemoryUpstream

pytestmark = pytest.mark.usefixtures("engine")  # on both engines

T = TypeVar("T")

INSPECTOR = "toolbox.inspect_tool_output"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def structured(value: Any) -> dict[str, Any]:
    return {"content": [], "structuredContent": value}


def text(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(value)}]}


def shop(**fields: Any) -> MemoryUpstream:
    tool = {"name": "get_order", "description": "Gets an order.", "inputSchema": {"type": "object"}, **fields}
    return MemoryUpstream("shop", [tool])


@pytest.mark.requirement("S-15")
def test_what_a_tool_returned_stands_in_for_a_schema_it_does_not_declare(tmp_path: Path) -> None:
    async def main() -> None:
        server = shop()
        async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
            await gateway.build()
            before = await gateway.inspect_tool_output("shop.get_order")
            assert "none of its results was seen" in before["note"]
            server.answer("get_order", structured({"id": 7, "items": [{"sku": "a"}]}), text({"id": 8, "note": None}))
            await gateway.call_tool("shop.get_order", {})
            await gateway.call_tool("shop.get_order", {})
            expanded = await gateway.expand_tool("shop.get_order")
            schema = json.loads(bytes(expanded["result_schema"]))
            assert schema["x-observed"] == {"calls": 2}
            assert schema["required"] == ["id"]
            descriptor = await gateway.descriptor("shop.get_order")
            assert "items[].sku: string" in descriptor["output_fields"]
            assert descriptor["observed_calls"] == 2
        async with Gateway(Settings(home=tmp_path), upstreams=[shop()]) as gateway:
            kept = await gateway.inspect_tool_output("shop.get_order", "items[]")
            assert (kept["observed_calls"], kept["children"]) == (2, [{"name": "sku", "type": "string"}])

    run(main())


@pytest.mark.requirement("S-15")
def test_failed_calls_and_plain_text_teach_nothing_and_a_new_version_starts_anew(tmp_path: Path) -> None:
    async def main() -> None:
        server = shop()
        async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
            await gateway.build()
            failed = {**structured({"error": "no"}), "isError": True}
            server.answer("get_order", failed, {"content": [{"type": "text", "text": "done"}]}, structured({"id": 1}))
            for _ in range(3):
                await gateway.call_tool("shop.get_order", {})
            assert (await gateway.descriptor("shop.get_order"))["output_fields"] == ["id: integer"]
            changed = {"name": "get_order", "description": "Gets an order, faster.", "inputSchema": {"type": "object"}}
            server.set_tools([changed])
            await gateway.build()
            assert (await gateway.descriptor("shop.get_order"))["output_fields"] == [NOT_DECLARED]

    run(main())


@pytest.mark.requirement("S-15")
def test_results_that_contradict_what_is_declared_are_reported_once_and_the_call_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[Event] = []
        declared = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
        server = shop(outputSchema=declared)
        server.answer("get_order", structured({"id": "seven"}))
        async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
            await gateway.build()
            gateway.events.subscribe(told.append)
            for _ in range(2):
                outcome = await gateway.call_tool("shop.get_order", {})
                assert b"seven" in bytes(outcome.result)
            tool = await gateway.catalogue.tool("shop.get_order")
            await gateway.describer.observer.settled()
            found = await gateway.describer.observer.contradictions(tool)
            assert [(one.path, one.declared, one.seen, one.count) for one in found] == [("id", "integer", "string", 2)]
            assert json.loads(bytes((await gateway.expand_tool("shop.get_order"))["result_schema"])) == declared
        reports = [event.data for event in told if event.name == "schema.contradicted"]
        assert reports == [{"tool_id": "shop.get_order", "path": "id", "declared": "integer", "seen": "string"}]

    run(main())


@pytest.mark.requirement("S-10")
def test_the_toolbox_is_always_there_can_be_called_and_comes_first_for_planners(tmp_path: Path) -> None:
    async def main() -> None:
        declared = {"type": "object", "properties": {"id": {"type": "integer"}, "lines": {"type": "object"}}}
        async with Gateway(Settings(home=tmp_path), upstreams=[shop(outputSchema=declared)]) as gateway:
            await gateway.build()
            assert await gateway.inventory() == {"toolbox": ["inspect_tool_output"], "shop": ["get_order"]}
            found = await gateway.search_tool_by_category("get an order", [])
            available = await gateway.available_tools("get an order", [])
            assert [one["tool_id"] for one in available] == [INSPECTOR, "shop.get_order"]
            assert [one["tool_id"] for one in found["results"]] == ["shop.get_order"]
            assert await gateway.search_tool_by_category("get an order", []) == found
            outcome = await gateway.call_tool(INSPECTOR, {"tool_id": "shop.get_order", "field_path": "id"})
            result = json.loads(bytes(outcome.result))
            assert result["structuredContent"]["node_type"] == "integer"
            assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
            own = json.loads(bytes((await gateway.expand_tool(INSPECTOR))["result_schema"]))
            assert set(own["required"]) <= result["structuredContent"].keys()
            with pytest.raises(InvalidArguments):
                await gateway.call_tool(INSPECTOR, {"field_path": "id"})
            with pytest.raises(UnknownField):
                await gateway.call_tool(INSPECTOR, {"tool_id": "shop.get_order", "field_path": "idd"})

    run(main())
