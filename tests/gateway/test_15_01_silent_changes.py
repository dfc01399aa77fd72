"""A server may change its tools and say nothing: the first call that fails for it has them read again."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.errors import InvalidArguments, RemoteError, ToolChanged, ToolNotFound
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller, ServerSpec

pytestmark = pytest.mark.usefixtures("engine")  # on both engines

MODEL = Caller(name="alice", session="one")

# Its tools change with a call of `renew`, and no notification goes out.
APIARY = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("apiary")

@server.tool()
def weigh(hive: str) -> str:
    """Read the scale below a hive."""
    return "31.2"

@server.tool()
def requeen(hive: str) -> str:
    """Replace the queen of a colony."""
    return "ok"

@server.tool()
def renew() -> str:
    """Change the tools."""
    server.remove_tool("weigh")
    server.remove_tool("requeen")

    def weigh(number: int) -> str:
        """Read the scale below a hive."""
        return f"{number}: 31.2"

    def move_hive(hive: str, yard: str) -> str:
        """Relocate a hive to another yard."""
        return "moved"

    def replace_queen(hive: str) -> str:
        """Replace the queen of a colony."""
        return "ok"

    for function in (weigh, move_hive, replace_queen):
        server.add_tool(function)
    return "renewed"

server.run()
'''


def run(work: Callable[[Gateway], Awaitable[None]], gateway: Gateway) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), gateway:
            await gateway.build(index=False)
            await work(gateway)

    asyncio.run(main())


def tool(name: str, *required: str) -> dict[str, Any]:
    properties = {key: {"type": "string"} for key in required}
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"name": name, "description": "Works on an order.", "inputSchema": schema}


def test_15_01_a_real_server_that_changed_silently_is_no_dead_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolfold.upstream.refresh._LOOK_AGAIN_S", 0.0)
    (tmp_path / "apiary.py").write_text(APIARY)
    spec = ServerSpec(name="apiary", transport="stdio", command=sys.executable, args=(str(tmp_path / "apiary.py"),))

    async def work(gateway: Gateway) -> None:
        await gateway.expand_tool("apiary.weigh", caller=MODEL)
        await gateway.call_tool("apiary.renew", {}, caller=MODEL)
        # The server refuses what the old schema takes.
        with pytest.raises(ToolChanged, match=r"which refused this call: version 1 is now 2"):
            await gateway.call_tool("apiary.weigh", {"hive": "H-1"}, caller=MODEL)
        shown = await gateway.expand_tool("apiary.weigh", caller=MODEL)
        assert b"number" in bytes(shown["args_schema"])
        await gateway.call_tool("apiary.weigh", {"number": 3}, caller=MODEL)
        with pytest.raises(ToolNotFound, match="apiary listed it until") as gone:
            await gateway.call_tool("apiary.requeen", {"hive": "H-1"}, caller=MODEL)
        assert gone.value.hints[0] == "apiary.replace_queen"

    run(work, Gateway(Settings(home=tmp_path, servers=(spec,))))


def test_15_01_arguments_that_fit_what_the_server_lists_now_are_not_refused_by_an_old_schema(tmp_path: Path) -> None:
    shop = MemoryUpstream("shop", [tool("find", "order_id")])

    async def work(gateway: Gateway) -> None:
        await gateway.expand_tool("shop.find", caller=MODEL)
        shop.set_tools([tool("find", "number")])
        with pytest.raises(ToolChanged, match="version 1 is now 2"):
            await gateway.call_tool("shop.find", {"number": "7"}, caller=MODEL)
        assert not shop.calls
        # Who expanded nothing is held to nothing.
        await gateway.call_tool("shop.find", {"number": "7"})
        assert len(shop.calls) == 1

    run(work, Gateway(Settings(home=tmp_path), upstreams=[shop]))


def test_15_01_arguments_that_fit_neither_are_told_what_the_tool_takes_now(tmp_path: Path) -> None:
    shop = MemoryUpstream("shop", [tool("find", "order_id")])

    async def work(gateway: Gateway) -> None:
        shop.set_tools([tool("find", "number")])
        with pytest.raises(InvalidArguments, match="number"):
            await gateway.call_tool("shop.find", {"id": "7"})
        shop.set_tools([])
        with pytest.raises(InvalidArguments):  # read a moment ago, and not again so soon
            await gateway.call_tool("shop.find", {"id": "7"})

    run(work, Gateway(Settings(home=tmp_path), upstreams=[shop]))


@pytest.mark.parametrize("code", [-32601, -32602, -32603])
def test_15_01_an_error_of_the_protocol_has_the_list_read_where_it_speaks_of_the_call(
    tmp_path: Path, code: int
) -> None:
    shop = MemoryUpstream("shop", [tool("find", "order_id")])
    shop.call_error = RemoteError("out of order", rpc_code=code, server="shop")

    async def work(gateway: Gateway) -> None:
        shop.set_tools([tool("search")])
        with pytest.raises(RemoteError if code == -32603 else ToolNotFound):
            await gateway.call_tool("shop.find", {"order_id": "7"})

    run(work, Gateway(Settings(home=tmp_path), upstreams=[shop]))


def test_15_01_a_failure_that_says_nothing_of_the_call_reads_nothing(tmp_path: Path) -> None:
    shop = MemoryUpstream("shop", [tool("find", "order_id")])
    failed = {"content": [{"type": "text", "text": "the printer is out of paper"}], "isError": True}
    shop.answer("find", failed)

    async def work(gateway: Gateway) -> None:
        listed = shop.listed
        assert (await gateway.call_tool("shop.find", {"order_id": "7"})).is_error
        assert shop.listed == listed
        shop.answer("find", {**failed, "content": [{"type": "text", "text": "invalid parameter order_id"}]})
        for _ in range(5):
            assert (await gateway.call_tool("shop.find", {"order_id": "7"})).is_error
        assert shop.listed == listed + 1  # however often it fails

    run(work, Gateway(Settings(home=tmp_path), upstreams=[shop]))
