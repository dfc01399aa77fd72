"""What servers and clients do while the catalogue is being made: nobody sees a part of it, nobody is sent away."""

import asyncio
from pathlib import Path

import pytest

from toolfold import Gateway, Settings
from toolfold.events import Event
from toolfold.faces.surface.auto import AutoSurface
from toolfold.faces.surface.base import Surface
from toolfold.faces.surface.direct import DirectSurface
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL

pytestmark = pytest.mark.usefixtures("engine")  # on both engines


def find_order(order_id: int) -> dict[str, int]:
    """Finds an order of the shop by its number."""
    return {"order": order_id}


def cancel_order(order_id: int) -> dict[str, int]:
    """Cancels an order of the shop by its number."""
    return {"order": order_id}


def forecast(city: str) -> str:
    """Tells tomorrow's weather in a city."""
    return city


def test_a_server_that_changes_during_a_build_is_read_again_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        shop, weather = MemoryUpstream("shop", [find_order]), MemoryUpstream("weather", [forecast])
        order: list[str] = []
        rereading: list[asyncio.Task[None]] = []

        def told(event: Event) -> None:
            if event.name in {"catalogue.built", "catalogue.updated"}:
                order.append(event.name)

        async with Gateway(Settings(home=tmp_path), upstreams=[shop, weather]) as gateway:
            gateway.events.subscribe(told)
            held = weather.delay = asyncio.Event()

            def changes(name: str, _found: object) -> None:
                if name == "shop":
                    shop.set_tools([find_order, cancel_order])
                    rereading.append(asyncio.ensure_future(gateway.reread("shop")))
                    held.set()

            build = await gateway.build(on_server=changes)
            await asyncio.gather(*rereading)
            assert build.report.tools == 2
            assert order == ["catalogue.built", "catalogue.updated"]
            assert {tool.tool_id for tool in await gateway.tools_below(())} == {
                "shop.find_order",
                "shop.cancel_order",
                "weather.forecast",
            }

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("profile", [DiscoverySurface, DirectSurface, AutoSurface])
def test_the_first_client_of_all_waits_for_tools_and_not_for_its_handshake(
    profile: type[DiscoverySurface | DirectSurface | AutoSurface], tmp_path: Path
) -> None:
    async def main() -> None:
        shop = MemoryUpstream("shop", [find_order])
        shop.delay = asyncio.Event()
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            reading = gateway.begin()
            surface: Surface = profile(gateway)
            said = await surface.instructions(LOCAL)
            assert "has to build" not in said
            assert profile is not DiscoverySurface or "being read right now: shop" in said
            listing = asyncio.ensure_future(surface.tools(LOCAL))
            searching = asyncio.ensure_future(gateway.search_tool_by_category("find an order"))
            shop.delay.set()
            shown = b"".join(bytes(tool) for tool in await listing)
            assert (b"shop_find_order" in shown) == (profile is not DiscoverySurface)
            assert (await searching)["results"][0]["tool_id"] == "shop.find_order"
            await reading

    asyncio.run(asyncio.wait_for(main(), 60))
