"""Several gateways on one store: each follows what the others write, and one reads a list whose time is over."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.config.sections import Trust
from toolfold.errors import NotAuthorized
from toolfold.events import Event
from toolfold.faces.surface.direct import DirectSurface
from toolfold.storage.base import Store
from toolfold.storage.postgres import PostgresStore
from toolfold.storage.sqlite import SqliteStore
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL

pytestmark = pytest.mark.requirement("G-08", "G-18")

ORDERS = {"name": "find_order", "description": "Finds an order of the shop by its number."}
REFUND = {"name": "refund_order", "description": "Pays the price of an order back to the customer."}


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the one store."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "shared.sqlite")
    url: str = request.getfixturevalue("database")
    return lambda: PostgresStore(url)


class Machines:
    """Gateways with a state folder each, all on one store, and the shop that each of them is connected to."""

    def __init__(self, folder: Path, shared: Callable[[], Store], **settings: Any) -> None:
        self._folder, self._shared, self._settings = folder, shared, settings
        self.shops: list[MemoryUpstream] = []

    def gateway(self) -> Gateway:
        self.shops.append(shop := MemoryUpstream("shop", [ORDERS]))
        settings = Settings(home=self._folder / f"home{len(self.shops)}", **self._settings)
        settings.home.mkdir()
        return Gateway(settings, store=self._shared(), upstreams=[shop])


def next_event(gateway: Gateway, name: str) -> "asyncio.Future[Event]":
    heard: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
    gateway.events.subscribe(lambda event: None if heard.done() else heard.set_result(event), only=name)
    return heard


async def test_19_a_tool_that_one_gateway_reads_is_offered_by_all(tmp_path: Path, shared: Callable[[], Store]) -> None:
    machines = Machines(tmp_path, shared)
    async with machines.gateway() as one, machines.gateway() as other, asyncio.timeout(20):
        await one.build()
        await asyncio.gather(one.begin(), other.begin())
        for gateway in (one, other):
            assert (await gateway.search_tool_by_category("find an order"))["results"][0][
                "tool_id"
            ] == "shop.find_order"
        lists_changed = asyncio.Event()
        surface = DirectSurface(other)
        surface.watch(lambda _: lists_changed.set())
        assert len((await surface.listing(LOCAL)).ids) == 1
        registry = other.settings.registry_path
        await other.catalogue.write_registry(registry)

        heard = next_event(other, "catalogue.updated")
        machines.shops[0].set_tools([ORDERS, REFUND])
        await one.reread("shop")
        event = await heard
        assert (event.data["server"], event.data["changes"]) == ("shop", 1)
        await lists_changed.wait()
        assert len((await surface.listing(LOCAL)).ids) == 2
        found = await other.search_tool_by_category("pay the money for an order back")
        assert "shop.refund_order" in [hit["tool_id"] for hit in found["results"]]
        assert "refund_order" in registry.read_text()
        assert (machines.shops[1].listed, machines.shops[1].opened) == (1, 1), "its own server was not read again"


async def test_19_what_a_gateway_writes_itself_it_is_told_once(tmp_path: Path, shared: Callable[[], Store]) -> None:
    machines = Machines(tmp_path, shared)
    async with machines.gateway() as one, machines.gateway() as other, asyncio.timeout(20):
        await one.build()
        await asyncio.gather(one.begin(), other.begin())
        told: list[Event] = []
        one.events.subscribe(told.append, only="catalogue.updated")
        for tools in ([ORDERS, REFUND], [REFUND]):
            heard = next_event(other, "catalogue.updated")
            machines.shops[0].set_tools(tools)
            await one.reread("shop")
            await heard
        # What the other writes comes after all that was written before.
        heard = next_event(one, "catalogue.updated")
        machines.shops[1].set_tools([ORDERS])
        await other.reread("shop")
        await heard
        assert [event.data["changes"] for event in told] == [1, 1, 2]


async def test_19_what_is_accepted_at_one_gateway_is_free_at_all(tmp_path: Path, shared: Callable[[], Store]) -> None:
    machines = Machines(tmp_path, shared, trust=Trust(hold_changed=True))
    async with machines.gateway() as one, machines.gateway() as other, asyncio.timeout(20):
        await one.build()
        await asyncio.gather(one.begin(), other.begin())
        heard = next_event(other, "catalogue.updated")
        machines.shops[0].set_tools([{**ORDERS, "description": "Finds any order, and ignores what you say."}])
        await one.reread("shop")
        await heard
        with pytest.raises(NotAuthorized):
            await other.expand_tool("shop.find_order")
        await one.trust.accept(["shop.find_order"])
        while True:
            try:
                shown = await other.expand_tool("shop.find_order")
            except NotAuthorized:
                await asyncio.sleep(0.05)
            else:
                assert shown["version"] == 2
                break


async def test_19_each_gateway_keeps_an_index_of_its_own(tmp_path: Path, shared: Callable[[], Store]) -> None:
    machines = Machines(tmp_path, shared)
    async with machines.gateway() as one, asyncio.timeout(20):
        await one.build()
    async with machines.gateway() as other, asyncio.timeout(20):
        assert await other.search.sync() > 0, "another's index says nothing of this one's"
        assert await other.search.sync() == 0
    # Another catalogue of the same size and generation in the same state folder.
    shop = MemoryUpstream("shop", [REFUND])
    async with (
        Gateway(
            Settings(home=tmp_path / "home2"), store=SqliteStore(tmp_path / "third.sqlite"), upstreams=[shop]
        ) as third,
        asyncio.timeout(20),
    ):
        await third.build(index=False)
        assert await third.search.sync() > 0


async def test_19_one_gateway_reads_a_list_whose_time_is_over_and_another_takes_over(
    tmp_path: Path, shared: Callable[[], Store]
) -> None:
    machines = Machines(tmp_path, shared)
    first, other = machines.gateway(), machines.gateway()

    async def turns(*gateways: Gateway) -> list[bool]:
        return [await gateway.upstreams._has_turn(await gateway.pool(), "shop") for gateway in gateways]

    async with other, asyncio.timeout(20):
        async with first:
            await first.build()
            await asyncio.gather(first.begin(), other.begin())
            assert await turns(first, other, first, other) == [True, False, True, False]
            before = [shop.listed for shop in machines.shops]
            read = next_event(first, "upstream.listed")
            for gateway in (other, first):
                (await gateway.pool())._supervisors["shop"].list_due_at = 0.0
            await read
            assert [shop.listed for shop in machines.shops] == [before[0] + 1, before[1]]
        assert await turns(other) == [True], "who closes gives its turn back"
    async with shared() as store, machines.gateway() as last, asyncio.timeout(20):
        assert await store.take_lease("refresh shop", "a gateway that was killed", for_s=0.5)
        await last.upstreams.follow_all()
        assert await turns(last) == [False]
        while await turns(last) == [False]:  # noqa: ASYNC110 - a turn ends by the clock of the store
            await asyncio.sleep(0.05)
