"""What was saved: exact for definitions, counted once a fingerprint, and for what was shown where it can be."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from toolfold import Gateway, Settings, tokens
from toolfold.audit.record import Step
from toolfold.audit.savings import _COUNTS, _add_up
from toolfold.config import Audit
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def tool(number: int) -> dict[str, Any]:
    schema = {"type": "object", "properties": {f"field{at}": {"type": "string"} for at in range(20)}}
    return {"name": f"tool_{number}", "description": f"Does the thing number {number}.", "inputSchema": schema}


def test_each_session_is_told_what_all_definitions_would_have_cost(tmp_path: Path) -> None:
    tools = [tool(number) for number in range(30)]
    tokens.encoding()

    async def main() -> None:
        async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("many", tools)]) as gateway:
            await gateway.build()
            alice, bob = Caller(name="alice", session="a"), Caller(name="bob", session="b")
            page = await gateway.list(caller=alice)
            await gateway.call_tool("many.tool_1", {}, caller=alice)
            await gateway.expand_tool("many.tool_1", caller=bob)
            found = await gateway.savings()
            full = sum(tokens.count(msgspec.json.encode(one).decode()) for one in tools)
            assert (found.tools, found.full_tokens) == (30, full)
            first, second = found.sessions
            assert (first.caller, first.calls, first.steps) == ("alice", 1, 2)
            result = first.full_tokens - full
            assert 0 < result < 10
            assert first.shown_tokens == tokens.count(msgspec.json.encode(page).decode()) + result
            assert (first.estimated, second.estimated) == (True, False)  # a result is counted by its bytes
            assert found.total.full_tokens == 2 * full + result
            assert found.total.shown_tokens == first.shown_tokens + second.shown_tokens
            assert second.saved_percent > 80
            kept = await gateway.store.items(_COUNTS)
            assert sum(msgspec.json.decode(kept["many"]).values()) == full

    run(main())


def test_what_was_not_counted_is_worked_out_from_its_bytes_and_says_so() -> None:
    steps = [Step(id="1", step="search", at=1.0, caller="local", shown_bytes=400)]
    found = _add_up(steps, 10, 1000, 4000)
    assert (found.total.shown_tokens, found.total.estimated, found.total.saved_percent) == (100, True, 90.0)
    assert _add_up([], 0, 0, 0).sessions == ()


def test_17_savings_count_the_surface_every_page_and_what_results_were_folded_to() -> None:
    steps = [
        Step(id="1", step="search", at=1.0, caller="local", shown_bytes=400, shown_tokens=100),
        Step(id="2", step="call", at=2.0, caller="local", result_bytes=40, stored="h", stored_bytes=4_000_000),
        Step(id="3", step="call", at=3.0, caller="local", result_bytes=400),
    ]
    (found,) = _add_up(steps, 10, 1000, 4000, 1150).sessions
    assert (found.shown_tokens, found.full_tokens) == (1150 + 100 + 10 + 100, 1000 + 1_000_000 + 100)
    assert found.saved_percent == 99.8
    (few,) = _add_up(steps[:1], 10, 1000, 4000, 1150).sessions
    assert few.saved_percent == -25.0


def test_17_savings_are_never_all_of_it() -> None:
    steps = [Step(id="1", step="search", at=1.0, caller="local", shown_bytes=4, shown_tokens=1)]
    assert _add_up(steps, 10, 100_000_000, 400_000_000).total.saved_percent == 99.9


def test_a_step_with_huge_arguments_is_kept_without_them(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(home=tmp_path, audit=Audit(values="full"))
        async with Gateway(settings, upstreams=[MemoryUpstream("many", [tool(1)])]) as gateway:
            await gateway.build()
            await gateway.call_tool("many.tool_1", {"field1": "x" * 30_000})
            await gateway.call_tool("many.tool_1", {"field1": "x" * 300_000})
            steps = await gateway.audit_log.steps()
            assert [(step.arguments, (step.argument_bytes or 0) > 30_000) for step in steps] == [(None, True)] * 2

    run(main())
