"""A build tells what changed since the last build, also what was taken in from its servers meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.testing.memory_upstream import MemoryUpstream

pytestmark = pytest.mark.usefixtures("engine")  # on both engines


def tool(name: str, description: str = "Works on an order.") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def told(build: Any) -> dict[str, str]:
    return {change.tool_id: change.kind for change in build.changes}


@pytest.mark.parametrize("meanwhile", ["expand", "reread", "serve", "nothing"])
def test_15_01_a_build_tells_what_changed_since_the_last_one(tmp_path: Path, meanwhile: str) -> None:
    async def main() -> None:
        shop = MemoryUpstream("shop", [tool("find"), tool("ship"), tool("pay")])
        bank = MemoryUpstream("bank", [tool("balance")])
        settings = Settings(home=tmp_path)
        async with Gateway(settings, upstreams=[shop, bank]) as gateway:
            assert set(told(await gateway.build(index=False)).values()) == {"added"}
            assert told(await gateway.build(index=False)) == {}
        shop.set_tools([tool("find", "Finds an order."), tool("pay"), tool("cancel")])
        upstreams = [shop] if meanwhile == "serve" else [shop, bank]
        async with Gateway(settings, upstreams=upstreams) as gateway:
            if meanwhile == "expand":
                await gateway.expand_tool("shop.find")
            elif meanwhile == "reread":
                await gateway.reread("shop")
            elif meanwhile == "serve":
                await gateway.begin()  # another list of servers: it builds, and nobody reads what came of it
        async with Gateway(settings, upstreams=[shop, bank]) as gateway:
            build = await gateway.build(index=False)
            assert told(build) == {"shop.cancel": "added", "shop.find": "changed", "shop.ship": "removed"}
            report = build.report
            assert (report.added, report.removed, report.changed, report.unchanged) == (1, 1, 1, 2)
            (own,) = [server for server in report.servers if server.name == "shop"]
            assert (own.added, own.removed, own.changed) == (1, 1, 1)
            assert told(await gateway.build(index=False)) == {}

    asyncio.run(main())


def test_15_01_what_came_and_went_between_two_builds_is_no_change(tmp_path: Path) -> None:
    async def main() -> None:
        shop = MemoryUpstream("shop", [tool("find")])
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            await gateway.build(index=False)
            for tools in ([tool("find"), tool("ship")], [tool("find")]):
                shop.set_tools(tools)
                await gateway.reread("shop")
            assert told(await gateway.build(index=False)) == {}

    asyncio.run(main())
