"""What several gateways learn and note at once is all kept: nobody writes over what another has just written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.json import encode

from toolfold import Gateway, Settings
from toolfold.config.sections import Trust
from toolfold.disclosure.observed import Observer
from toolfold.disclosure.render import Expansions
from toolfold.events import Events
from toolfold.policy.trust import _TrustStore
from toolfold.storage.base import Store, update_state
from toolfold.storage.postgres import PostgresStore
from toolfold.storage.sqlite import SqliteStore
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.testing.store_conformance import sample_tool
from toolfold.types import Caller, Listing, Outcome, ToolDefinition
from toolfold.upstream.caller_tools import CallerTools


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shared.sqlite" if request.param == "sqlite" else request.getfixturevalue("database"))


@asynccontextmanager
async def stores(address: str, count: int = 3) -> AsyncIterator[list[Store]]:
    """As so many gateways have it."""
    make = PostgresStore if address.startswith("postgresql://") else SqliteStore
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(make(address)) for _ in range(count)]


async def test_no_change_is_lost(address: str) -> None:
    async with stores(address) as opened:
        await asyncio.gather(
            *(update_state(s, "n", "k", lambda old: b"%d" % (int(old or 0) + 1)) for s in opened for _ in range(20))
        )
        assert await opened[0].get("n", "k") == b"60"
        await update_state(opened[0], "n", "k", lambda _: None)
        assert await opened[1].get("n", "k") == b"60"


async def test_the_tools_of_callers_at_several_gateways_are_all_known(address: str) -> None:
    async with stores(address) as opened:
        known = [CallerTools(store) for store in opened]
        for tools in known:
            await tools.load()  # each has looked before anybody wrote

        def listing(number: int) -> Listing:
            raw = Raw(encode({"name": f"own{number}", "inputSchema": {"type": "object"}}))
            return Listing(server="box", tools=(ToolDefinition(name=f"own{number}", raw=raw),))

        await asyncio.gather(
            *(known[number % 3].record("box", f"caller-{number}", listing(number)) for number in range(30))
        )
        found = await CallerTools(opened[0]).of("box")
        assert sorted(found.callers) == sorted(f"caller-{number}" for number in range(30))
        assert len(found.tools) == 30
        hidden = await CallerTools(opened[0]).hidden_from("caller-3", frozenset({"box"}))
        assert len(hidden) == 29
        assert ("box", "own3") not in hidden


async def test_what_people_accept_at_several_gateways_stays_accepted(address: str) -> None:
    tools = [sample_tool(f"shop.tool{number}") for number in range(30)]
    async with stores(address) as opened:
        records = [_TrustStore(store, Trust(accept_new=False)) for store in opened]
        accepted = await asyncio.gather(*(records[n % 3].accept([tool]) for n, tool in enumerate(tools)))
        assert accepted == [[tool.tool_id] for tool in tools]
        assert await records[0].accept(tools) == []
        review = await records[1].review(tools)
        assert review.held == {}


async def test_shapes_that_several_gateways_saw_are_one(address: str) -> None:
    tool = sample_tool()
    async with stores(address) as opened:
        observers = [Observer(store, Events()) for store in opened]
        for number in range(4):
            for place, observer in enumerate(observers):
                result = {"content": [], "structuredContent": {f"field{place}": number}}
                observer.observe(tool, Outcome(raw=Raw(encode(result))))
        await asyncio.gather(*(observer.settled() for observer in observers))
        seen = await observers[0].of(tool)
        assert seen is not None
        assert all(f"field{place}" in str(seen) for place in range(3))
        assert seen.calls == 12


async def test_inspections_at_several_gateways_are_counted_together(address: str, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}}
    upstream = MemoryUpstream("s", [{"name": "give", "inputSchema": {"type": "object"}, "outputSchema": schema}])
    async with stores(address) as opened, AsyncExitStack() as stack:
        gateways = [
            await stack.enter_async_context(
                Gateway(Settings(home=tmp_path / str(number)), upstreams=[upstream] if not number else (), store=store)
            )
            for number, store in enumerate(opened)
        ]
        await gateways[0].build(registry=tmp_path / "registry.json")
        await asyncio.gather(*(gateway.inspect_tool_output("s.give", "a") for gateway in gateways for _ in range(10)))
        assert await gateways[0].inspections() == {"s.give": 30}


async def test_what_a_caller_expanded_at_one_gateway_the_others_know(address: str) -> None:
    anna, bob = Caller(name="anna", session="one"), Caller(name="bob", session="one")
    async with stores(address, 2) as (one, two):
        await Expansions().share(one, anna, "Git.Log", 3)
        asked = Expansions()
        assert not await asked.is_shared(two, bob, "git.log", 3)
        assert not await asked.is_shared(two, anna, "git.log", 4)
        assert asked.version(anna, "git.log") is None
        assert await asked.is_shared(two, anna, "git.log", 3)
        assert asked.version(anna, "git.log") == 3
