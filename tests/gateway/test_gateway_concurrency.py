"""What must hold when things come at once, or when what stands below a gateway fails: nothing lost, nothing doubled."""

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.audit.record import Step
from toolfold.config import CallerKey, Policy, Trust
from toolfold.config.sections import Discovery
from toolfold.errors import ConfirmationNeeded, NotAuthorized, StoreFull, ToolChanged, ToolfoldError
from toolfold.events import Event
from toolfold.storage.sqlite import SqliteStore
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import CallContext, Outcome, ToolCall

pytestmark = pytest.mark.usefixtures("engine")  # on both engines

T = TypeVar("T")

FIND = {"name": "find", "description": "Finds an order.", "inputSchema": {"type": "object"}}


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def gateway_of(home: Path, *upstreams: MemoryUpstream, **settings: Any) -> Gateway:
    return Gateway(Settings(home=home, **settings), upstreams=upstreams or [MemoryUpstream("shop", [FIND])])


async def steps_of(gateway: Gateway) -> list[Step]:
    return await gateway.audit_log.steps()


def test_first_calls_that_come_at_once_share_one_pool(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_of(tmp_path) as gateway:
            pools = await asyncio.gather(*(gateway.pool() for _ in range(20)))
            assert len({id(pool) for pool in pools}) == 1

    run(main())


class _Full(SqliteStore):
    """A store whose disk is full for one kind of state."""

    async def put(self, namespace: str, key: str, value: bytes) -> None:
        if namespace == "observed":
            raise StoreFull("no room to write")
        await super().put(namespace, key, value)

    async def swap(self, namespace: str, key: str, old: bytes | None, new: bytes) -> bool:
        if namespace == "observed":
            raise StoreFull("no room to write")
        return await super().swap(namespace, key, old, new)


def test_a_call_works_though_what_it_returned_cannot_be_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = MemoryUpstream("shop", [FIND])
        server.answer("find", {"content": [], "structuredContent": {"id": 7}})
        store = _Full(tmp_path / "own.db")
        async with Gateway(Settings(home=tmp_path), upstreams=[server], store=store) as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("shop.find", {})
            assert b'"id":7' in bytes(outcome.raw)

    with caplog.at_level(logging.WARNING, "toolfold.gateway"):
        run(main())
    assert "what shop.find returned could not be noted: no room to write" in caplog.text


def test_results_that_come_at_once_are_all_taken_in(tmp_path: Path) -> None:
    async def main() -> None:
        server = MemoryUpstream("shop", [FIND])
        server.answer("find", *({"content": [], "structuredContent": {f"field_{n}": n}} for n in range(10)))
        async with gateway_of(tmp_path, server) as gateway:
            await gateway.build()
            await asyncio.gather(*(gateway.call_tool("shop.find", {}) for _ in range(10)))
            seen = await gateway.inspect_tool_output("shop.find")
            assert seen["observed_calls"] == 10

    run(main())


@pytest.mark.requirement("D-09")
def test_half_a_character_in_a_request_loses_no_line_of_the_trail(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_of(tmp_path) as gateway:
            await gateway.build()
            with pytest.raises(ToolfoldError):
                await gateway.expand_tool("shop.\ud800")
            with pytest.raises(ToolfoldError):
                await gateway.list(["\udfff"])
            with pytest.raises(ToolfoldError):
                await gateway.call_tool("shop.\ud800", {})
            await gateway.call_tool("shop.find", {})
            steps = await steps_of(gateway)
            assert [step.step for step in steps] == ["expand", "list", "call", "call"]
            assert steps[0].tool_id == "shop.?"
            assert gateway.audit_log.dropped == 0

    run(main())


class _Broken(MemoryUpstream):
    async def call(self, call: ToolCall, context: CallContext) -> Outcome:
        raise ZeroDivisionError("a bug of ours")


class _Endless(MemoryUpstream):
    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.begun = asyncio.Event()

    async def call(self, call: ToolCall, context: CallContext) -> Outcome:
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")


@pytest.mark.requirement("D-09")
def test_calls_that_end_by_a_bug_a_cancellation_or_a_changed_tool_are_kept_and_told_too(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[tuple[str, str]] = []

        def listen(event: Event) -> None:
            if event.name == "call.failed":
                told.append((event.data["tool_id"], event.data["code"]))

        server = _Endless("slow", [FIND])
        async with gateway_of(tmp_path, server, _Broken("broken", [FIND])) as gateway:
            await gateway.build()
            gateway.events.subscribe(listen)
            with pytest.raises(ZeroDivisionError):
                await gateway.call_tool("broken.find", {})
            with pytest.raises(ToolChanged):
                await gateway.call_tool("slow.find", {}, expect_version=9)
            waiting = asyncio.ensure_future(gateway.call_tool("slow.find", {}))
            await server.begun.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            kept = [(step.tool_id, step.code) for step in await steps_of(gateway) if step.step == "call"]
        assert kept == [("broken.find", "INTERNAL_ERROR"), ("slow.find", "TOOL_CHANGED"), ("slow.find", "CANCELLED")]
        assert told == kept

    run(main())


def test_a_gateway_closes_the_rest_where_closing_one_part_fails(tmp_path: Path) -> None:
    async def main() -> None:
        gateway = gateway_of(tmp_path, MemoryUpstream("shop", [FIND]))
        await gateway.__aenter__()
        await gateway.build()
        await gateway.call_tool("shop.find", {})
        upstreams = gateway.upstreams

        async def broken() -> None:
            raise StoreFull("closing failed")

        gateway.trust.aclose = broken  # type: ignore[method-assign]  # a part whose end fails
        with pytest.raises(StoreFull, match="closing failed"):
            await gateway.aclose()
        assert upstreams._pool is None
        await gateway.aclose()

    run(main())


def test_a_commit_is_seen_at_once_by_callers_who_see_a_part(tmp_path: Path) -> None:
    async def main() -> None:
        server = MemoryUpstream("shop", [FIND])
        settings = Settings(home=tmp_path, policies=(Policy(name="default", deny=("path:Nowhere/**",)),))
        async with Gateway(settings, upstreams=[server]) as gateway:
            await gateway.build()
            assert (await gateway.expand_tool("shop.find"))["version"] == 1
            server.set_tools([{**FIND, "description": "Finds another one."}])
            await gateway.build()
            assert (await gateway.expand_tool("shop.find"))["version"] == 2

    run(main())


def test_reviews_that_come_at_once_are_one_and_what_somebody_accepts_meanwhile_stays(tmp_path: Path) -> None:
    async def main() -> None:
        server = MemoryUpstream("shop", [FIND])
        settings = Settings(home=tmp_path, trust=Trust(hold_changed=True))
        async with Gateway(settings, upstreams=[server]) as gateway:
            await gateway.build()
            server.set_tools([{**FIND, "description": "Changed."}])
            await gateway.build()
            with pytest.raises(NotAuthorized):
                await gateway.call_tool("shop.find", {})
            reviews = await asyncio.gather(*(gateway.trust.review() for _ in range(5)))
            assert all(review is reviews[0] for review in reviews)
            assert await gateway.trust.accept(["shop.find"]) == ["shop.find"]
            assert (await gateway.trust.review()).held == {}
            await gateway.call_tool("shop.find", {})

    run(main())


@pytest.mark.requirement("D-09")
def test_a_call_before_expanding_is_kept_as_refused_where_that_is_not_allowed(tmp_path: Path) -> None:
    from toolfold.faces.surface.operations import Operations

    async def main() -> None:
        async with gateway_of(tmp_path, discovery=Discovery(strict=True)) as gateway:
            await gateway.build()
            arguments = Raw(b'{"tool_id":"shop.find","args":{}}')
            with pytest.raises(ToolfoldError, match="was not expanded"):
                await Operations(gateway).run("call_tool", arguments, CallContext())
            (step,) = await steps_of(gateway)
            assert (step.step, step.tool_id, step.code) == ("call", "shop.find", "NOT_EXPANDED")

    run(main())


def test_the_policy_that_wants_a_confirmation_is_the_one_that_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        careful = Policy(name="careful", confirm=("**",))
        keys = (CallerKey(name="local", policy="careful"),)
        async with gateway_of(tmp_path, policies=(careful,), callers=keys) as gateway:
            await gateway.build()
            with pytest.raises(ConfirmationNeeded) as caught:
                await gateway.call_tool("shop.find", {})
            assert caught.value.hints == ("policy `careful`, key `confirm`",)

    run(main())


def test_a_call_that_ends_while_the_gateway_closes_is_recorded_in_the_same_log(tmp_path: Path) -> None:
    async def main() -> None:
        gateway = gateway_of(tmp_path)
        await gateway.__aenter__()
        await gateway.build()
        before, during = gateway.audit_log, list[object]()

        async def closing() -> None:
            during.append(gateway.audit_log)

        gateway.scripts.aclose = closing  # type: ignore[method-assign]  # looks while the rest is still open
        await gateway.aclose()
        assert during == [before]

    run(main())


def test_a_result_that_cannot_be_read_is_logged_and_the_next_one_is_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = MemoryUpstream("shop", [FIND])
        server.answer("find", {"content": [], "structuredContent": {"id": 7}})
        async with gateway_of(tmp_path, server) as gateway:
            await gateway.build()
            tool = await gateway.describer.tool(gateway.view(), "shop.find")
            gateway.describer.observer.observe(tool, Outcome(raw=Raw(b'{"structuredContent":{"a":"\xff"}}')))
            await gateway.call_tool("shop.find", {})
            assert (await gateway.inspect_tool_output("shop.find"))["observed_calls"] == 1

    run(main())
    assert "what shop.find returned could not be noted" in caplog.text


@pytest.mark.requirement("D-09")
def test_first_steps_of_a_caller_that_come_at_once_make_one_choice(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_of(tmp_path) as gateway:
            await gateway.build()
            await gateway.search_tool_by_category("find an order")
        async with gateway_of(tmp_path) as gateway:
            await asyncio.gather(*(gateway.expand_tool("shop.find") for _ in range(5)))
            await gateway.call_tool("shop.find", {})
            chosen = [step for step in await steps_of(gateway) if step.step == "choose"]
            assert len(chosen) == 1

    run(main())
