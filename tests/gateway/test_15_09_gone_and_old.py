"""A tool that was there and is gone is told from one that never was; what may be old is told from what is not."""

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.config import Policy
from toolfold.errors import ServerUnavailable, ToolNotFound
from toolfold.testing.memory_upstream import MemoryUpstream

pytestmark = pytest.mark.usefixtures("engine")  # on both engines

TIME = r"20\d\d-\d\d-\d\d \d\d:\d\d UTC"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def tool(name: str, description: str = "Works on an order of the shop.") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def shops() -> tuple[MemoryUpstream, MemoryUpstream]:
    bank = MemoryUpstream("bank", [tool("balance", "The balance of an account.")])
    return MemoryUpstream("shop", [tool("find_order", "Finds an order by its number."), tool("ship")]), bank


@pytest.mark.parametrize("operation", ["expand_tool", "inspect_tool_output"])
def test_15_01_what_an_unreachable_server_listed_once_is_said_to_be_old(tmp_path: Path, operation: str) -> None:
    async def main() -> None:
        shop, bank = shops()
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, bank]) as gateway:
            await gateway.build()
            assert "may_be_old" not in await getattr(gateway, operation)("shop.ship")
        shop.open_error = ServerUnavailable("the licence has expired", server="shop")
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, bank]) as gateway:
            said = (await getattr(gateway, operation)("shop.ship"))["may_be_old"]
            assert re.fullmatch(
                f"shop could not be read the last time \\(the licence has expired\\): this is what it listed on {TIME}",
                said,
            )
            assert "may_be_old" not in await getattr(gateway, operation)("bank.balance")
        shop.open_error = None
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, bank]) as gateway:
            assert "may_be_old" not in await getattr(gateway, operation)("shop.ship")

    run(main())


def test_15_01_a_server_that_has_not_answered_yet_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        shop, _ = shops()
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            await gateway.build()
        monkeypatch.setattr("toolfold.upstream.refresh._ASK_S", 0.01)
        shop.delay = asyncio.Event()
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            assert "it has not answered yet" in (await gateway.expand_tool("shop.ship"))["may_be_old"]
            shop.delay.set()

    run(main())


def test_15_09_a_removed_tool_is_told_from_one_that_never_was(tmp_path: Path) -> None:
    async def main() -> None:
        shop, bank = shops()
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, bank]) as gateway:
            await gateway.build()
            shop.set_tools([tool("lookup", "Finds an order by its number."), tool("ship")])
            await gateway.reread("shop")
            for ask in (gateway.expand_tool, gateway.inspect_tool_output, gateway.tool):
                with pytest.raises(ToolNotFound) as gone:
                    await ask("SHOP.find_order")
                said = gone.value.message
                assert re.fullmatch(f"'SHOP.find_order' is gone: shop listed it until {TIME}, and no longer does", said)
                # What came when it went is what it may be called now.
                assert gone.value.hints[0] == "shop.lookup"
                assert "ids in hints" in gone.value.next_action
            with pytest.raises(ToolNotFound, match=r"there is no tool 'shop\.find_ordr'"):
                await gateway.expand_tool("shop.find_ordr")

    run(main())


@pytest.mark.parametrize("first", [True, False])
def test_15_01_a_renamed_tool_is_hinted_at_before_others_that_came(tmp_path: Path, first: bool) -> None:
    """Also where the new name was there for a while before the old one went."""

    async def main() -> None:
        shop, bank = shops()
        new = [tool("zoom_in", "Finds an order by its number."), tool("archive", "Puts an order away."), tool("ship")]
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, bank]) as gateway:
            await gateway.build()
            if first:
                shop.set_tools([*new, tool("find_order", "Finds an order by its number.")])
                await gateway.reread("shop")
            shop.set_tools(new)
            await gateway.reread("shop")
            with pytest.raises(ToolNotFound) as gone:
                await gateway.expand_tool("shop.find_order")
            assert gone.value.hints[0] == "shop.zoom_in"

    run(main())


def test_15_09_a_tool_whose_server_was_taken_out_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        shop, bank = shops()
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, bank]) as gateway:
            await gateway.build()
        async with Gateway(Settings(home=tmp_path), upstreams=[bank]) as gateway:
            await gateway.build()
            with pytest.raises(ToolNotFound, match=f"is gone: its server was taken out by {TIME}"):
                await gateway.expand_tool("shop.ship")

    run(main())


def test_15_09_a_tool_that_came_back_is_there_and_may_go_again(tmp_path: Path) -> None:
    async def main() -> None:
        shop, _ = shops()
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            await gateway.build()
            for tools in (["find_order"], ["find_order", "ship"], ["find_order"]):
                shop.set_tools([tool(name) for name in tools])
                await gateway.reread("shop")
                if "ship" in tools:
                    assert (await gateway.expand_tool("shop.ship"))["version"] == 1
            with pytest.raises(ToolNotFound, match=f"is gone: shop listed it until {TIME}"):
                await gateway.expand_tool("shop.ship")

    run(main())


def test_15_09_a_caller_learns_nothing_of_what_its_policy_hid(tmp_path: Path) -> None:
    async def main() -> None:
        shop, bank = shops()
        policies = (Policy(name="default", deny=("shop.find_order",)),)
        async with Gateway(Settings(home=tmp_path, policies=policies), upstreams=[shop, bank]) as gateway:
            await gateway.build()
            shop.set_tools([tool("ship")])
            await gateway.reread("shop")
            with pytest.raises(ToolNotFound, match=r"there is no tool 'shop\.find_order'"):
                await gateway.expand_tool("shop.find_order")

    run(main())


def test_19_a_tool_that_keeps_a_hash_is_named_where_its_twin_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        shop, _ = shops()
        shop.set_tools([tool("echo"), tool("ECHO")])
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            await gateway.build()
            async with gateway.catalogue.snapshot() as snapshot:
                (hashed,) = [one for one in await snapshot.tools(server="shop") if "-" in one.tool_id]
            shop.set_tools([tool(hashed.name)])
            await gateway.reread("shop")
            with pytest.raises(ToolNotFound, match=f"is called {hashed.tool_id} here") as missing:
                await gateway.call_tool(f"shop.{hashed.name}", {})
            assert missing.value.hints[0] == hashed.tool_id
            assert "gone" not in missing.value.message

    run(main())
