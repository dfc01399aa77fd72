"""How the pool restarts servers that die, and when it gives up."""

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace
from pool_kit import QUICK, TOOL, Watch, pool_of, run
from tool_calls import CONTEXT, tool_call

from toolfold.errors import ServerClosed, ServerUnavailable
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import CallContext, Listing, Outcome, ServerInfo, ToolCall
from toolfold.upstream.pool import PoolLimits


def test_a_dead_server_is_started_again_and_what_was_in_flight_is_lost_not_repeated() -> None:
    async def main() -> None:
        called = asyncio.Event()

        class Telling(MemoryUpstream):
            async def call(self, call: ToolCall, context: CallContext) -> Outcome:
                called.set()
                return await super().call(call, context)

        watch, server = Watch(), Telling("one", [TOOL])
        async with pool_of(server, watch=watch) as pool:
            await pool.ensure("one")
            server.delay = asyncio.Event()
            call = asyncio.create_task(pool.call(tool_call("look"), CONTEXT))
            await called.wait()
            server.delay = None
            server.die("it crashed")
            with pytest.raises(ServerClosed):
                await call
            await watch.until("restarted")
            assert len(server.calls) == 1
            await pool.call(tool_call("look"), CONTEXT)
            state = pool.state("one")
            assert (state.status, state.restarts, server.opened) == ("ready", 1, 2)
        assert [event.name for event in watch.seen] == [
            "upstream.opening",
            "upstream.ready",
            "upstream.closed",
            "upstream.opening",
            "upstream.ready",
            "upstream.restarted",
        ]
        assert watch.seen[2].data == {"server": "one", "reason": "it crashed"}

    run(main)


def test_a_call_in_the_moment_of_death_waits_for_the_restart() -> None:
    async def main() -> None:
        server = MemoryUpstream("one", [TOOL])
        async with pool_of(server) as pool:
            await pool.ensure("one")
            server.die()
            await pool.call(tool_call("look"), CONTEXT)
            assert server.opened == 2

    run(main)


def test_a_server_that_crashes_again_and_again_ends_failed_with_a_reason_and_a_later_call_tries_again() -> None:
    async def main() -> None:
        watch = Watch()

        class Crashing(MemoryUpstream):
            heals = False

            async def open(self) -> ServerInfo:
                info = await super().open()
                if not self.heals:
                    asyncio.get_running_loop().call_soon(self.die, "exit code 3")
                return info

        server = Crashing("one", [TOOL])
        limits = replace(QUICK, first_pause_s=0.01, longest_pause_s=1000.0, max_restarts=3)
        async with pool_of(server, watch=watch, limits=limits) as pool:
            with suppress(ServerClosed):  # It may be gone before anybody has it.
                await pool.ensure("one")
            await watch.until("failed")
            state = pool.state("one")
            assert state.status == "failed"
            assert "failed 4 times in a row" in state.error
            assert "exit code 3" in state.error
            assert state.next_action
            assert server.opened == 4
            server.heals = True
            with pytest.raises(ServerUnavailable, match="failed 4 times") as caught:
                await pool.call(tool_call("look"), CONTEXT)
            assert "It can be tried again in" in caught.value.next_action
            pool._supervisors["one"]._retry_at = 0.0  # As if the pause were over.
            await pool.call(tool_call("look"), CONTEXT)
            assert pool.state("one").status == "ready"
            assert server.opened == 5

    run(main)


def test_a_server_that_lived_long_enough_starts_without_a_record() -> None:
    async def main() -> None:
        watch, server = Watch(), MemoryUpstream("one", [TOOL])
        async with pool_of(server, watch=watch, limits=replace(QUICK, healthy_after_s=0.0)) as pool:
            for number in range(1, 11):
                await pool.ensure("one")
                server.die()
                await watch.until("restarted", number)
            assert pool.state("one").restarts == 10
            assert watch.count("failed") == 0

    run(main)


def test_a_failed_start_is_not_tried_again_before_its_pause_is_over() -> None:
    async def main() -> None:
        server = MemoryUpstream("one", [TOOL])
        server.open_error = ServerUnavailable("no such program", hints=["look here"], next_action="Install it.")
        async with pool_of(server, limits=PoolLimits(first_pause_s=1000.0, longest_pause_s=1000.0)) as pool:
            with pytest.raises(ServerUnavailable, match="no such program"):
                await pool.ensure("one")
            for _ in range(20):
                with pytest.raises(ServerUnavailable, match="one is not available: no such program") as caught:
                    await pool.ensure("one")
            assert server.opened == 1
            assert caught.value.hints == ("look here",)
            assert caught.value.next_action.startswith("Install it. It can be tried again in ")

    run(main)


def test_pauses_grow_and_are_bounded() -> None:
    async def main() -> None:
        watch = Watch()
        server = MemoryUpstream("one", [TOOL])
        limits = PoolLimits(first_pause_s=1.0, longest_pause_s=8.0, max_restarts=100)
        async with pool_of(server, watch=watch, limits=limits) as pool:
            supervisor = pool._supervisors["one"]
            pauses = []
            for failures in range(1, 9):
                supervisor._failures = failures
                pauses.append(supervisor._pause())
        for pause, whole in zip(pauses, [1, 2, 4, 8, 8, 8, 8, 8], strict=True):
            assert whole / 2 <= pause <= whole

    run(main)


def test_an_upstream_with_a_fault_of_ours_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        class Faulty(MemoryUpstream):
            async def open(self) -> ServerInfo:
                raise ZeroDivisionError("our fault")

        good, faulty = MemoryUpstream("good", [TOOL]), Faulty("faulty")
        async with pool_of(faulty, good) as pool:
            results = {name: result async for name, result in pool.listings()}
            assert isinstance(results["good"], Listing)
            assert isinstance(results["faulty"], ServerUnavailable)
            assert "ZeroDivisionError: our fault" in pool.state("faulty").error

    run(main)
    assert "in an unexpected way" in caplog.text


def test_a_restarted_server_is_to_be_listed_again() -> None:
    async def main() -> None:
        watch, server = Watch(), MemoryUpstream("one", [TOOL])
        async with pool_of(server, watch=watch) as pool:
            await pool.listing("one")
            assert pool.due() == []
            server.die()
            await watch.until("restarted")
            assert pool.due() == ["one"]
            await pool.listing("one")
            assert pool.due() == []

    run(main)


async def test_a_list_under_way_when_somebody_signs_in_is_read_over_the_new_connection() -> None:
    began, closed = asyncio.Event(), asyncio.Event()

    class Slow(MemoryUpstream):
        async def listing(self) -> Listing:
            if self.opened == 1:
                began.set()
                await closed.wait()
                raise ServerClosed("the connection was closed, so tools/list cannot go on")
            return await super().listing()

        async def aclose(self) -> None:
            closed.set()
            await super().aclose()

    server = Slow("one", [TOOL])
    async with pool_of(server) as pool:
        reading = asyncio.create_task(pool.listing("one"))
        await began.wait()
        pool.reopen("one", "somebody signed in or out")
        assert (await reading).tool_count == 1
        assert server.opened == 2
