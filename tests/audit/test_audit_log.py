"""The audit log: every step, tied into selections, without values, and there after a kill."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from toolfold import Gateway, Settings
from toolfold.audit.record import Step
from toolfold.audit.selections import _SessionSelections
from toolfold.config import Audit
from toolfold.errors import InvalidArguments, ToolNotFound, UpstreamError
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller

T = TypeVar("T")
SECRET = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def tool(name: str, description: str) -> dict[str, Any]:
    properties = {"order_id": {"type": "integer"}, "note": {"type": "string"}, "password": {"type": "string"}}
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}}


TOOLS = [
    tool("find_order", "Finds an order of the shop by its number."),
    tool("refund_order", "Refunds an order of the shop."),
    tool("weather", "Tells the weather of a city."),
]


def gateway_of(home: Path, **audit: Any) -> Gateway:
    return Gateway(Settings(home=home, audit=Audit(**audit)), upstreams=[MemoryUpstream("shop", TOOLS)])


async def steps_of(gateway: Gateway) -> list[Step]:
    return await gateway.audit_log.steps()


@pytest.mark.requirement("D-09")
def test_search_choose_expand_and_call_are_tied_together_without_the_client_passing_anything(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_of(tmp_path) as gateway:
            await gateway.build()
            found = await gateway.search_tool_by_category("find an order by its number")
            await gateway.expand_tool("shop.find_order")
            await gateway.call_tool("shop.find_order", {"order_id": 7})
            steps = await steps_of(gateway)
        assert [step.step for step in steps] == ["search", "choose", "expand", "call"]
        search, choose, expand, call = steps
        assert search.results == tuple(one["tool_id"] for one in found["results"])
        assert choose.selection == expand.selection == call.selection != ""
        assert choose.search == expand.search == call.search == search.id
        assert (choose.rank, choose.query) == (1, "find an order by its number")
        assert (call.tool_id, call.version, call.is_error, call.code) == ("shop.find_order", 1, False, "")
        assert search.shown_bytes > 0
        assert call.seconds > 0

    run(main())


def test_15_18_a_call_by_id_is_not_tied_to_a_search_that_is_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_of(tmp_path, learn=True) as gateway:
            await gateway.build()
            lessons: list[tuple[str, str]] = []

            async def learn(query: str, tool_id: str, selected_by: str) -> None:
                lessons.append((query, tool_id))

            gateway.audit_log._learn = learn
            found = await gateway.search_tool_by_category("an order of the shop")
            assert {"shop.find_order", "shop.refund_order"} <= {hit["tool_id"] for hit in found["results"]}
            await gateway.call_tool("shop.refund_order", {"order_id": 6})
            await gateway.expand_tool("shop.find_order")
            await gateway.call_tool("shop.find_order", {"order_id": 7})
            await gateway.call_tool("shop.find_order", {"order_id": 8})
            await gateway.call_tool("shop.refund_order", {"order_id": 7})
            await gateway.expand_tool("shop.refund_order")
            await gateway.call_tool("shop.weather", {})
            steps = await steps_of(gateway)
        search = steps[0].id
        calls = [step for step in steps if step.step == "call"]
        assert [(step.tool_id, step.search) for step in calls] == [
            ("shop.refund_order", ""),
            ("shop.find_order", search),
            ("shop.find_order", search),
            ("shop.refund_order", ""),
            ("shop.weather", ""),
        ]
        assert calls[1].selection == calls[2].selection
        expanded = [step for step in steps if step.step == "expand"][-1]
        assert (expanded.selection, expanded.search) == (calls[3].selection, "")
        assert [step.tool_id for step in steps if step.step == "choose"] == ["shop.find_order"]
        assert lessons == [("an order of the shop", "shop.find_order")]
        # The same from what is stored: a process of its own ties no more than the first did.
        async with gateway_of(tmp_path) as gateway:
            await gateway.call_tool("shop.refund_order", {"order_id": 9})
            assert (await steps_of(gateway))[-1].search == ""

    run(main())


def test_15_18_a_failed_call_leaves_its_search_open_and_time_closes_it() -> None:
    session = _SessionSelections()
    session.add_result("s1", "an order", 1_000.0, ["shop.find", "shop.refund"])
    session.expand("shop.find", 1_001.0)
    session.start("a", "shop.find", 1_001.0)
    # No call of shop.find worked: another tool of the same search may be the right one.
    session.expand("shop.refund", 1_002.0)
    second = session.start("b", "shop.refund", 1_002.0)
    assert second.result is not None
    assert (session.use("shop.refund", 1_003.0), session.use("shop.refund", 1_004.0)) == (["an order"], [])
    session.add_result("s2", "the weather", 2_000.0, ["shop.weather"])
    assert session.start("x", "shop.weather", 2_010.0).result is None
    session.expand("shop.weather", 2_020.0)
    assert session.start("c", "shop.weather", 4_000.0).result is None
    assert session.start("d", "shop.weather", 2_100.0).result is not None


@pytest.mark.requirement("D-09")
def test_two_callers_and_two_sessions_have_chains_of_their_own(tmp_path: Path) -> None:
    async def main() -> None:
        alice, bob = Caller(name="alice", session="a"), Caller(name="bob", session="b")
        async with gateway_of(tmp_path) as gateway:
            await gateway.build()
            await gateway.search_tool_by_category("find an order", caller=alice)
            await gateway.expand_tool("shop.find_order", caller=alice)
            await gateway.call_tool("shop.find_order", {}, caller=bob)
            await gateway.call_tool("shop.find_order", {}, caller=alice)
            await gateway.search_tool_by_category("find an order", caller=alice)
            await gateway.expand_tool("shop.find_order", caller=alice)
            await gateway.call_tool("shop.find_order", {}, caller=alice)
            steps = await steps_of(gateway)
        calls = [step for step in steps if step.step == "call"]
        assert [bool(step.search) for step in calls] == [False, True, True]
        assert len({step.selection for step in calls}) == 3
        assert [step.caller for step in steps if step.step == "choose"] == ["alice", "alice"]
        assert {step.session for step in steps} == {"a", "b"}

    run(main())


@pytest.mark.requirement("D-09")
def test_a_selection_goes_on_in_another_process(tmp_path: Path) -> None:
    """As with the command line, where each step is a process of its own."""

    async def main() -> None:
        async with gateway_of(tmp_path) as gateway:
            await gateway.build()
            await gateway.search_tool_by_category("find an order")
        async with gateway_of(tmp_path) as gateway:
            await gateway.expand_tool("shop.find_order")
        async with gateway_of(tmp_path) as gateway:
            await gateway.call_tool("shop.find_order", {})
            steps = await steps_of(gateway)
        assert [step.step for step in steps] == ["search", "choose", "expand", "call"]
        assert len({step.selection for step in steps[1:]}) == 1

    run(main())


@pytest.mark.requirement("D-09")
def test_what_fails_is_kept_with_its_code(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_of(tmp_path) as gateway:
            await gateway.build()
            with pytest.raises(ToolNotFound):
                await gateway.expand_tool("shop.nothing")
            with pytest.raises(ToolNotFound):
                await gateway.call_tool("shop.nothing", {})
            with pytest.raises(InvalidArguments):
                await gateway.call_tool("shop.find_order", {"order_id": "seven"})
            steps = await steps_of(gateway)
        assert [(step.step, step.code) for step in steps] == [
            ("expand", "TOOL_NOT_FOUND"),
            ("call", "TOOL_NOT_FOUND"),
            ("call", "INVALID_ARGUMENTS"),
        ]

    run(main())


ARGUMENTS = {"order_id": 7, "note": f"my token is {SECRET} " + "x" * 300, "password": "hunter2-hunter2", "zzz": 1}


@pytest.mark.requirement("D-09")
@pytest.mark.parametrize("values", ["shapes", "masked", "full"])
def test_of_arguments_only_what_the_policy_says_is_kept_and_never_a_secret(tmp_path: Path, values: str) -> None:
    async def main() -> list[Step]:
        async with gateway_of(tmp_path, values=values) as gateway:
            await gateway.build()
            await gateway.call_tool("shop.find_order", ARGUMENTS)
            return await steps_of(gateway)

    (call,) = run(main())
    kept = json.dumps(call.arguments)
    assert SECRET not in kept
    assert "hunter2" not in kept
    if values == "shapes":
        length = len(str(ARGUMENTS["note"]))
        assert call.arguments == {
            "order_id": "integer",
            "note": f"string of {length}",
            "password": "string of 15",
            "…": "1 more",
        }
    else:
        assert call.arguments["order_id"] == 7
        assert call.arguments["password"] == "***"
        assert ("x" * 300 in kept) is (values == "full")
    assert call.argument_bytes == len(json.dumps(ARGUMENTS, separators=(",", ":")))


@pytest.mark.requirement("D-09")
def test_secrets_are_masked_in_error_texts_and_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "plain-words-nobody-would-guess")

    async def main() -> str:
        from misbehaving_stdio import misbehaving_spec
        from msgspec.structs import replace

        spec = replace(misbehaving_spec("odd"), env={"KEY": "${SHOP_KEY}"})
        shop = MemoryUpstream("shop", TOOLS)
        settings = Settings(home=tmp_path, servers=(spec,))
        async with Gateway(settings, upstreams=[shop]) as gateway:
            await gateway.build(["shop"])
            shop.call_error = UpstreamError(f"refused: plain-words-nobody-would-guess and Bearer {SECRET}")
            with pytest.raises(UpstreamError):
                await gateway.call_tool("shop.find_order", {})
            await gateway.list(query=f"find an order with {SECRET}")
            return json.dumps([[step.query, step.message] for step in await steps_of(gateway)])

    kept = run(main())
    assert "refused" in kept
    assert "find an order" in kept
    assert SECRET not in kept
    assert "nobody-would-guess" not in kept


def test_the_trail_is_bounded(tmp_path: Path) -> None:
    async def main() -> int:
        async with gateway_of(tmp_path, max_entries=100) as gateway:
            await gateway.build()
            for _ in range(130):
                await gateway.call_tool("shop.find_order", {})
            return len(await steps_of(gateway))

    assert run(main()) == 100


def test_switched_off_it_keeps_nothing(tmp_path: Path) -> None:
    async def main() -> list[Step]:
        async with gateway_of(tmp_path, enabled=False) as gateway:
            await gateway.build()
            await gateway.list()
            await gateway.call_tool("shop.find_order", {})
        async with gateway_of(tmp_path) as gateway:
            return await steps_of(gateway)

    assert run(main()) == []


def test_a_store_that_cannot_be_written_breaks_no_step(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_of(tmp_path) as gateway:
            await gateway.build()
            await steps_of(gateway)

            async def full(*args: Any, **kwargs: Any) -> None:
                from toolfold.errors import StoreFull

                raise StoreFull("no room")

            vars(gateway.store)["append_audit"] = full  # the disk is full from here on
            assert not (await gateway.call_tool("shop.find_order", {})).is_error
            await gateway.audit_log.flush()
            assert gateway.audit_log.gauges()["audit_waiting"] == 1
            await gateway.audit_log.aclose()
            assert gateway.audit_log.dropped == 1

    run(main())


def test_19_what_a_store_that_was_away_did_not_take_is_written_once_it_is_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_of(tmp_path) as gateway:
            await gateway.build()
            before = len(await steps_of(gateway))

            async def away(*args: Any, **kwargs: Any) -> None:
                from toolfold.errors import StoreError

                raise StoreError("it is restarting")

            vars(gateway.store)["append_audit"] = away
            for _ in range(3):
                await gateway.call_tool("shop.find_order", {})
                await gateway.audit_log.flush()
            del vars(gateway.store)["append_audit"]
            async with asyncio.timeout(20):
                while gateway.audit_log.gauges()["audit_waiting"]:  # noqa: ASYNC110 - by itself, without another step
                    await asyncio.sleep(0.05)
            assert len(await steps_of(gateway)) == before + 3
            assert gateway.audit_log.dropped == 0

    run(main())


CHILD = """
import asyncio, sys
from pathlib import Path
from toolfold import Gateway, Settings
from toolfold.testing.memory_upstream import MemoryUpstream

async def main():
    tools = [{"name": "find_order", "inputSchema": {"type": "object"}}]
    async with Gateway(Settings(home=Path(sys.argv[1])), upstreams=[MemoryUpstream("shop", tools)]) as gateway:
        await gateway.build()
        for number in range(5):
            await gateway.call_tool("shop.find_order", {})
        await gateway.audit_log.flush()
        await gateway.call_tool("shop.find_order", {})
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.requirement("D-09")
def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()

    async def main() -> int:
        async with gateway_of(tmp_path) as gateway:
            return len(await steps_of(gateway))

    assert 5 <= run(main()) <= 6


@pytest.mark.requirement("D-09")
def test_search_learns_from_it_where_wanted(tmp_path: Path) -> None:
    """A tool that was chosen and worked rises for the same request."""

    async def main() -> None:
        async with gateway_of(tmp_path, learn=True) as gateway:
            await gateway.build()
            query = "give the money of an order back"
            page = await gateway.search_tool_by_category("order", limit=3)
            assert len(page["results"]) >= 2
            before = {
                hit.tool_id: hit.why.prior for hit in await gateway.search.hits(gateway.view(), query, (), limit=3)
            }
            await gateway.list(query="order")
            await gateway.search.learn(query, "shop.refund_order")
            after = {
                hit.tool_id: hit.why.prior for hit in await gateway.search.hits(gateway.view(), query, (), limit=3)
            }
            assert before["shop.refund_order"] == 0 < after["shop.refund_order"]
            await gateway.expand_tool("shop.refund_order")
            await gateway.call_tool("shop.refund_order", {})
            await steps_of(gateway)
            learned = {
                hit.tool_id: hit.why.prior for hit in await gateway.search.hits(gateway.view(), "order", (), limit=3)
            }
            assert learned["shop.refund_order"] > 0

    run(main())
