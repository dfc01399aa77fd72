"""The same script gets the same types on every run: from the declared schema or the lock, never from what was seen."""

import asyncio
from pathlib import Path

import pytest
from script_kit import open_gateway

from toolfold import Gateway
from toolfold.scripts.lock import Lock
from toolfold.scripts.runner import ScriptResult
from toolfold.testing.memory_upstream import MemoryUpstream

pytestmark = pytest.mark.requirement("Q-05")

FIND = 'find = use_tools("shop.find_order")\norder = await find()\n'
CODE = FIND + 'print(type(order).__name__, order.id, order["id"], order.lines[0].sku, order.json().id, "id" in order)'


def shop() -> MemoryUpstream:
    """A tool without an output schema, which prints JSON."""
    tool = {"name": "find_order", "description": "Find an order of the shop.", "inputSchema": {"type": "object"}}
    upstream = MemoryUpstream("shop", [tool])
    upstream.answer("find_order", {"id": 7, "lines": [{"sku": "x"}]})
    return upstream


async def observed(gateway: Gateway, *, calls: int = 1) -> None:
    """Lets the gateway see what the tool returns."""
    for _ in range(calls):
        await gateway.call_tool("shop.find_order", {})
    await gateway.describer.observer.settled()


@pytest.mark.requirement("U-06")
def test_15_03_what_was_seen_meanwhile_changes_no_type(tmp_path: Path) -> None:
    async def main() -> list[str]:
        async with open_gateway(tmp_path, [shop()]) as gateway:
            before = await gateway.run_script(CODE)
            await observed(gateway)
            return [(run.stdout or str(run.error)).strip() for run in (before, await gateway.run_script(CODE))]

    first, second = asyncio.run(main())
    assert first == second == "TextResult 7 7 x 7 True"


@pytest.mark.requirement("U-11")
def test_15_03_a_lock_pins_the_shape_that_was_known_when_it_was_made(tmp_path: Path) -> None:
    code = FIND + "print(type(order).__name__, order.id)"

    async def main() -> list[ScriptResult]:
        async with open_gateway(tmp_path, [shop()]) as gateway:
            early = await gateway.run_script(code, locked=Lock())
            await observed(gateway)
            late = await gateway.run_script(code, locked=Lock())
            again = [
                await gateway.run_script(code, locked=Lock.load(Lock.create(run.needs).dump())) for run in (early, late)
            ]
            return [early, late, *again]

    shown = [run.stdout.strip() or str(run.error) for run in asyncio.run(main())]
    assert shown == ["TextResult 7", "FindOrderResult 7", "TextResult 7", "FindOrderResult 7"]


@pytest.mark.requirement("U-12", "S-15")
def test_15_03_stubs_still_tell_what_was_seen(tmp_path: Path) -> None:
    async def main() -> str:
        async with open_gateway(tmp_path, [shop()]) as gateway:
            await observed(gateway, calls=2)
            return (await gateway.scripts.stubs(["shop.find_order"]))[1]["servers/shop.pyi"]

    text = asyncio.run(main())
    assert "class FindOrderResult" in text
    assert "seen in 2 calls, not declared" in text


def test_15_03_a_text_that_is_no_json_says_so_where_a_key_is_asked_for(tmp_path: Path) -> None:
    upstream = shop()
    upstream.answer("find_order", "none today")

    async def main() -> ScriptResult:
        async with open_gateway(tmp_path, [upstream]) as gateway:
            return await gateway.run_script(FIND + "print(order.upper())\norder.id")

    result = asyncio.run(main())
    assert result.stdout == "NONE TODAY\n"
    assert result.error is not None
    assert result.error.message == "the result is a text that is no JSON object, so it has no 'id': read it as a str"
