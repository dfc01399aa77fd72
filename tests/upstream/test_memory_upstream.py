"""The in-memory upstream that users test with keeps the contract of the real ones."""

import json

import pytest
from tool_calls import CONTEXT, tool_call

from toolfold.errors import ServerClosed, ServerTimeout
from toolfold.testing.memory_upstream import MemoryUpstream


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_dictionaries_and_functions_are_tools_and_answers_are_scripted() -> None:
    shop = MemoryUpstream("shop", [{"name": "find", "inputSchema": {"type": "object"}}, add, {"title": "no name"}])
    await shop.open()
    listing = await shop.listing()
    assert [tool.name for tool in listing.tools] == ["find", "add"]
    assert len(listing.warnings) == 1
    shop.answer("find", {"id": 1}, {"content": [], "isError": True}, lambda call: call.tool.name.upper())
    first, second, third, fourth = [await shop.call(tool_call("find"), CONTEXT) for _ in range(4)]
    assert json.loads(bytes(first.result)) == {"content": [{"type": "text", "text": '{"id":1}'}]}
    assert second.is_error
    assert third.result == fourth.result
    assert b"FIND" in bytes(third.result)
    assert (await shop.call(tool_call("nothing"), CONTEXT)).is_error
    wrong = await shop.call(tool_call("add"), CONTEXT)
    assert wrong.is_error
    assert b"`a` is missing" in bytes(wrong.result)
    assert len(shop.calls) == 6


async def test_faults_are_switches() -> None:
    shop = MemoryUpstream("shop", [add])
    with pytest.raises(ServerClosed):
        await shop.listing()
    shop.open_error = ServerTimeout("not now")
    with pytest.raises(ServerTimeout, match="not now"):
        await shop.open()
    shop.open_error = None
    await shop.open()
    shop.call_error = ServerTimeout("too slow")
    with pytest.raises(ServerTimeout, match="too slow"):
        await shop.call(tool_call("add"), CONTEXT)
    shop.die()
    with pytest.raises(ServerClosed):
        await shop.listing()
    await shop.aclose()
    await shop.open()
    assert (await shop.listing()).tools
