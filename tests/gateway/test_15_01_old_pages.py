"""Lists, searches and the tree say so where tools of a server are in them that cannot be read, and open no server."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.errors import ServerUnavailable
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.tokens import count

pytestmark = pytest.mark.usefixtures("engine")  # on both engines

OLD = r"shop could not be read the last time \(.*\): this is what it listed on 20\d\d-\d\d-\d\d \d\d:\d\d UTC"


def tool(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def servers() -> tuple[MemoryUpstream, MemoryUpstream]:
    shop = MemoryUpstream("shop", [tool("find_order", "Finds an order by its number.")])
    return shop, MemoryUpstream("bank", [tool("balance", "The balance of a bank account.")])


async def pages(gateway: Gateway) -> dict[str, Any]:
    """What is said to be old, by question."""
    tree = await gateway.tree()
    shop, bank = [(await gateway.tool(tool_id)).paths[0] for tool_id in ("shop.find_order", "bank.balance")]
    answers = {
        "list": await gateway.list(shop),
        "list of categories": await gateway.list(),
        "list with a query": await gateway.list(query="find an order"),
        "search": await gateway.search_tool_by_category("find an order", limit=1),
        "nodes": await gateway.search_nodes("find an order"),
        "tree": {"may_be_old": tree.may_be_old} if tree.may_be_old else {},
        "of another": await gateway.list(bank),
    }
    return {name: answer["may_be_old"] for name, answer in answers.items() if "may_be_old" in answer}


def test_15_01_pages_say_what_is_old_and_a_later_run_does_too(tmp_path: Path) -> None:
    async def main() -> None:
        shop, bank = servers()
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, bank]) as gateway:
            await gateway.build()
            assert await pages(gateway) == {}
            shop.open_error = ServerUnavailable("the licence has expired. " * 20, server="shop")
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, bank]) as gateway:
            assert await pages(gateway) == {}  # nobody has asked it yet
            await gateway.upstreams.ask()
            said = await pages(gateway)
            assert said.keys() == {"list", "list of categories", "list with a query", "search", "nodes", "tree"}
            assert all(re.fullmatch(OLD, text) for text in said.values())
            assert all(count(text) < 50 for text in said.values())
        opened = shop.opened
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, bank]) as gateway:
            assert len(await pages(gateway)) == 6
            assert shop.opened == opened

    asyncio.run(main())


def test_15_01_a_server_that_died_for_good_makes_its_tools_old(tmp_path: Path) -> None:
    async def main() -> None:
        shop, bank = servers()
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, bank]) as gateway:
            await gateway.build()
            stale = asyncio.Event()
            gateway.events.subscribe(lambda _: stale.set(), only="catalogue.stale")
            # As when it was started again in vain too often: nobody asks for it.
            supervisor = (await gateway.pool())._supervisors["shop"]
            supervisor._fail(ServerUnavailable("it failed 6 times in a row", server="shop"))
            await asyncio.wait_for(stale.wait(), 30)
            assert "it failed 6 times" in (await pages(gateway))["search"]

    asyncio.run(main())
