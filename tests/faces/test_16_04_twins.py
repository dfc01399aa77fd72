"""The same tool at two servers is one hit that carries both ids, in every face, within what the caller may see."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.agent.environment import Environment
from toolfold.config.sections import Policy
from toolfold.errors import ScriptError
from toolfold.faces.cli.catalogue import _tool_ids
from toolfold.faces.cli.terminal import Output
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import CallContext, Caller

REFUND: dict[str, Any] = {
    "name": "refund_order",
    "description": "Refunds the payment of an order to the customer.",
    "inputSchema": {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]},
}
# The same schema, its keys in another order.
AGAIN = {**REFUND, "inputSchema": dict(reversed(REFUND["inputSchema"].items()))}
OTHER = {**REFUND, "inputSchema": {"type": "object", "properties": {"order": {"type": "string"}}}}
SILENT = {"name": "ping", "inputSchema": {"type": "object"}}
FURTHER = {"name": "list_products", "description": "Lists the products of the shop.", "inputSchema": {"type": "object"}}
IDS = ["east.refund_order", "west.refund_order"]


@asynccontextmanager
async def shops(home: Path, *policies: Policy) -> AsyncIterator[Gateway]:
    servers = [
        MemoryUpstream("east", [REFUND, FURTHER, SILENT]),
        MemoryUpstream("west", [AGAIN, SILENT]),
        MemoryUpstream("north", [OTHER]),
    ]
    async with Gateway(Settings(home=home, policies=policies), upstreams=servers) as gateway:
        await gateway.build()
        yield gateway


def ids(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [[hit["tool_id"], *hit.get("same_as", ())] for hit in results]


async def test_16_04_the_same_tool_of_two_servers_is_one_hit_with_both_ids(tmp_path: Path) -> None:
    async with shops(tmp_path) as gateway:
        found = ids((await gateway.search_tool_by_category("refund an order"))["results"])
        assert sorted(map(sorted, found[:2])) == sorted([IDS, ["north.refund_order"]])
        listed = ids((await gateway.list(query="refund an order"))["tools"])
        assert IDS in list(map(sorted, listed))
        surface = DiscoverySurface(gateway)
        asked = Raw(msgspec.json.encode({"query": "refund_order"}))
        answer = json.loads(bytes(await surface.call("search_tool_by_category", asked, CallContext())))
        named = json.loads(answer["content"][0]["text"])["results"]
        assert [hit["confidence"] for hit in named[:2]] == [1.0, 1.0]
        assert IDS in list(map(sorted, ids(named)))
        both = next(hit for hit in named if "same_as" in hit)
        assert _tool_ids(both, Output()) == " = ".join([both["tool_id"], *both["same_as"]])


async def test_16_04_tools_that_say_nothing_of_themselves_are_nobodys_twins(tmp_path: Path) -> None:
    async with shops(tmp_path) as gateway:
        found = ids((await gateway.search_tool_by_category("ping"))["results"])
        assert sorted(found[:2]) == [["east.ping"], ["west.ping"]]


async def test_16_04_what_a_caller_may_not_see_is_no_id_of_a_hit(tmp_path: Path) -> None:
    async with shops(tmp_path, Policy(name="half", deny=("west.*",))) as gateway:
        found = await gateway.search_tool_by_category("refund an order", caller=Caller(name="a", policy="half"))
        assert "west" not in json.dumps(found)


async def test_16_04_pages_show_each_tool_once(tmp_path: Path) -> None:
    async with shops(tmp_path) as gateway:
        seen: list[list[str]] = []
        cursor = None
        while True:
            page = await gateway.search_tool_by_category("refund an order", limit=1, cursor=cursor)
            seen += ids(page["results"])
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert sorted(one for hit in seen for one in hit) == sorted(
            [*IDS, "north.refund_order", "east.list_products", "east.ping", "west.ping"]
        )


async def test_16_04_a_need_does_not_choose_between_servers(tmp_path: Path) -> None:
    async with shops(tmp_path) as gateway:
        with pytest.raises(ScriptError) as caught:
            await gateway.run_script('refund = use_tools("refund the payment of an order to the customer")')
        assert {hint["tool_id"] for hint in caught.value.hints} >= set(IDS)
        match = await gateway.search.resolve(gateway.view(), "refund an order", server="west")
        assert (match.tool.tool_id, IDS[0] in [hit.tool_id for hit in match.runners_up]) == ("west.refund_order", False)


async def test_16_04_a_planner_sees_one_hit_and_may_use_both_ids(tmp_path: Path) -> None:
    async with shops(tmp_path) as gateway:
        found = await Environment(gateway, Caller()).search("refund an order", (), 5)
        assert IDS in [sorted([tool["tool_id"], *tool.get("same_as", ())]) for tool in found]


async def test_16_04_whoever_takes_either_id_chose_that_hit(tmp_path: Path) -> None:
    async with shops(tmp_path) as gateway:
        found = (await gateway.search_tool_by_category("refund an order"))["results"]
        hit = next(hit for hit in found if "same_as" in hit)
        await gateway.expand_tool(hit["same_as"][0])
        steps = await gateway.audit_log.steps()
        expanded = next(step for step in steps if step.step in ("expand", "choose"))
        assert expanded.search == next(step.id for step in steps if step.step == "search")
