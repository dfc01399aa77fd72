"""The pool: many servers side by side, opened once, restarted when they die, closed without remains."""

import asyncio
from contextlib import aclosing

import pytest
from msgspec.structs import replace
from pool_kit import TOOL, Watch, pool_of, run
from tool_calls import CONTEXT, tool_call

from toolfold.errors import ConfigError, ServerUnavailable, UpstreamError
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Listing, ServerInfo
from toolfold.upstream.base import Hooks
from toolfold.upstream.functions import FunctionsUpstream
from toolfold.upstream.pool import Pool, PoolLimits


@pytest.mark.requirement("G-01")
def test_servers_open_in_parallel_and_a_broken_or_hanging_one_holds_up_nobody() -> None:
    async def main() -> None:
        good, bad, hanging = MemoryUpstream("good", [TOOL]), MemoryUpstream("bad"), MemoryUpstream("hanging")
        bad.open_error = ServerUnavailable("no such program", next_action="install it")
        hanging.delay = asyncio.Event()
        async with pool_of(bad, hanging, good) as pool, aclosing(pool.listings()) as listings:
            results: dict[str, Listing | UpstreamError] = {}
            async for name, result in listings:
                results[name] = result
                if len(results) == 2:
                    break
            assert set(results) == {"good", "bad"}
            assert isinstance(results["good"], Listing)
            states = pool.states()
        assert [(state.name, state.status) for state in states] == [
            ("bad", "failed"),
            ("hanging", "connecting"),
            ("good", "ready"),
        ]
        assert (states[0].error, states[0].next_action) == ("no such program", "install it")
        assert states[2].tools == 1

    run(main)


def test_a_server_is_opened_once_however_many_ask_at_once() -> None:
    async def main() -> None:
        server = MemoryUpstream("one", [TOOL])
        async with pool_of(server) as pool:
            assert pool.state("one").status == "idle"
            await asyncio.gather(*(pool.call(tool_call("look"), CONTEXT) for _ in range(50)), pool.listing("one"))
            assert (server.opened, len(server.calls)) == (1, 50)
            assert pool.state("one").status == "ready"
        assert server.closed >= 1
        assert pool.state("one").status == "idle"

    run(main)


def test_no_more_than_so_many_are_opened_at_once() -> None:
    async def main() -> None:
        opening, most = 0, 0

        class Slow(MemoryUpstream):
            async def open(self) -> ServerInfo:
                nonlocal opening, most
                opening += 1
                most = max(most, opening)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                opening -= 1
                return await super().open()

        servers = [Slow(f"s{number}") for number in range(20)]
        async with pool_of(*servers, limits=PoolLimits(open_at_once=4)) as pool:
            names = [name async for name, _ in pool.listings()]
        assert sorted(names) == sorted(server.spec.name for server in servers)
        assert most == 4

    run(main)


def test_disabled_and_unknown_servers_say_so() -> None:
    async def main() -> None:
        off = replace(MemoryUpstream("off").spec, enabled=False)
        async with Pool([off, MemoryUpstream("orders").spec]) as pool:
            assert pool.state("off").status == "disabled"
            with pytest.raises(ServerUnavailable, match="disabled in the configuration"):
                await pool.ensure("off")
            with pytest.raises(ServerUnavailable, match="no server 'order'") as caught:
                await pool.ensure("order")
            assert caught.value.hints == ("orders",)

    run(main)


def test_disabled_servers_are_not_listed() -> None:
    async def main() -> None:
        off = MemoryUpstream("off")
        off.make(replace(off.spec, enabled=False), Hooks())
        async with pool_of(off, MemoryUpstream("on", [TOOL])) as pool:
            assert [name async for name, _ in pool.listings()] == ["on"]

    run(main)


def test_two_servers_of_one_name_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="two servers are named 'one'"):
            Pool([MemoryUpstream("one").spec, MemoryUpstream("one").spec])

    run(main)


def test_a_change_is_told_to_who_watches_and_makes_the_list_due() -> None:
    async def main() -> None:
        watch, server = Watch(), MemoryUpstream("one", [TOOL])
        async with pool_of(server, MemoryUpstream("two"), watch=watch) as pool:
            told: list[str] = []
            stop = pool.watch(told.append)
            await pool.listing("one")
            assert pool.due() == []
            server.changed()
            assert (told, pool.due()) == (["one"], ["one"])
            await pool.listing("one")
            assert pool.due() == []
            stop()
            server.changed()
            assert told == ["one"]
            assert watch.count("changed") == 2

    run(main)


def test_a_list_with_a_lifetime_is_due_when_it_is_over() -> None:
    async def main() -> None:
        short, long = MemoryUpstream("short", [TOOL], ttl_ms=0), MemoryUpstream("long", [TOOL], ttl_ms=3_600_000)
        none = MemoryUpstream("none", [TOOL])
        async with pool_of(short, long, none, limits=PoolLimits(min_ttl_s=0.0)) as pool:
            async for _ in pool.listings():
                pass
            assert pool.due() == ["short"]
        async with pool_of(MemoryUpstream("short", [TOOL], ttl_ms=0)) as pool:
            await pool.listing("short")
            assert pool.due() == []  # A server cannot ask to be read without a pause.

    run(main)


def test_a_failed_listing_is_shown_and_does_not_close_the_server() -> None:
    async def main() -> None:
        server = MemoryUpstream("one", [TOOL])
        server.list_error = ServerUnavailable("cannot list now")
        async with pool_of(server) as pool:
            with pytest.raises(ServerUnavailable):
                await pool.listing("one")
            assert (pool.state("one").status, pool.state("one").error) == ("ready", "cannot list now")
            server.list_error = None
            await pool.listing("one")
            assert pool.state("one").error == ""
            assert server.opened == 1

    run(main)


def test_closing_frees_everybody_who_waits() -> None:
    async def main() -> None:
        server = MemoryUpstream("one", [TOOL])
        server.delay = asyncio.Event()
        pool = pool_of(server)
        waiting = [asyncio.create_task(pool.ensure("one")) for _ in range(3)]
        await asyncio.sleep(0)
        await pool.aclose()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, UpstreamError) for result in results)
        await pool.aclose()
        with pytest.raises(ServerUnavailable, match="the pool is closed"):
            await pool.ensure("one")

    run(main)


def test_a_waiter_that_is_cancelled_takes_nobody_with_it() -> None:
    async def main() -> None:
        server = MemoryUpstream("one", [TOOL])
        server.delay = asyncio.Event()
        async with pool_of(server) as pool:
            first, second = asyncio.create_task(pool.ensure("one")), asyncio.create_task(pool.ensure("one"))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            server.delay.set()
            assert (await second).spec.name == "one"

    run(main)


def test_ready_made_upstreams_stand_beside_configured_ones() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def main() -> None:
        async with Pool([], ready_made=[FunctionsUpstream.of("own", [add])]) as pool:
            outcome = await pool.call(tool_call("add", "own", a=1, b=2), CONTEXT)
            assert b'"structuredContent":{"result":3}' in bytes(outcome.result)
            assert pool.names == ("own",)

    run(main)


def test_many_hanging_servers_do_not_keep_the_others_from_opening() -> None:
    async def main() -> None:
        hanging = [MemoryUpstream(f"hanging{number}") for number in range(6)]
        for server in hanging:
            server.delay = asyncio.Event()
        limits = PoolLimits(open_at_once=2, turn_s=0.01)
        async with pool_of(*hanging, MemoryUpstream("good", [TOOL]), limits=limits) as pool:
            async with aclosing(pool.listings()) as listings:
                name, _ = await anext(listings)
            assert name == "good"

    run(main)
