"""What a surface shows of stored outputs, scripts and policies: `tool_output` when it is of use, to whom it is."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.config import Outputs, Policy
from toolfold.errors import SandboxError
from toolfold.faces.surface.base import Surface
from toolfold.faces.surface.direct import DirectSurface
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL, CallContext, Caller

ORDERS = "\n".join(f"order {number}: {number * 7} pieces" for number in range(4_000))


@asynccontextmanager
async def shop(folder: Path, **settings: Any) -> AsyncIterator[Gateway]:
    server = MemoryUpstream("shop", [{"name": "all_orders", "description": "Lists all orders"}, {"name": "buy"}])
    server.answer("all_orders", {"content": [{"type": "text", "text": ORDERS}]})
    made = Settings(home=folder / "home", outputs=Outputs(directory=str(folder)), **settings)
    async with Gateway(made, upstreams=[server]) as gateway:
        await gateway.build()
        yield gateway


async def names(surface: Surface, caller: Caller, *, listens: bool) -> list[str]:
    return [msgspec.json.decode(raw)["name"] for raw in await surface.tools(caller, listens=listens)]


async def text(surface: Surface, name: str, arguments: dict[str, Any], caller: Caller = LOCAL) -> str:
    raw = await surface.call(name, Raw(msgspec.json.encode(arguments)), CallContext(caller=caller))
    result = msgspec.json.decode(raw)
    return str(result["content"][0]["text"])


@pytest.mark.requirement("O-10")
@pytest.mark.parametrize("profile", [DiscoverySurface, DirectSurface])
async def test_tool_output_is_there_for_a_listener_while_something_of_its_own_is_stored(
    tmp_path: Path, profile: Callable[[Gateway], Surface]
) -> None:
    somebody = Caller(name="somebody", session="s")
    async with shop(tmp_path) as gateway:
        surface = profile(gateway)
        told: list[Caller | None] = []
        stop = surface.watch(told.append)
        assert "tool_output" not in await names(surface, somebody, listens=True)
        assert "tool_output" in await names(surface, somebody, listens=False)
        if profile is DiscoverySurface:
            message = await text(surface, "call_tool", {"tool_id": "shop.all_orders"}, somebody)
        else:
            message = await text(surface, "shop_all_orders", {}, somebody)
        assert message.startswith("Tool output is too large")
        assert told == [somebody]
        assert "tool_output" in await names(surface, somebody, listens=True)
        assert "tool_output" not in await names(surface, LOCAL, listens=True)
        (handle,) = re.findall(r'handle = "([^"]+)"', message)
        asked = {"handle": handle, "extract": "lines 8-8"}
        assert "order 7: 49 pieces" in await text(surface, "tool_output", asked, somebody)
        assert "UNKNOWN_HANDLE" in await text(surface, "tool_output", asked)
        await gateway.outputs.end(somebody)
        assert told == [somebody, somebody]
        assert "tool_output" not in await names(surface, somebody, listens=True)
        stop()


@pytest.mark.requirement("O-04")
def test_the_schema_of_tool_output_is_the_one_that_the_outputs_declare() -> None:
    from toolfold.faces.surface.definitions import TOOL_OUTPUT
    from toolfold.outputs.tool_output_definition import SCHEMA

    assert TOOL_OUTPUT.input_schema == SCHEMA


def large(count: int) -> dict[str, Any]:
    fields = {f"field_{number}": {"type": "string", "description": "what stands here " * 3} for number in range(count)}
    return {"type": "object", "properties": fields}


@pytest.mark.requirement("D-05")
async def test_large_schemas_are_folded_for_a_model(tmp_path: Path) -> None:
    small: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
    tools = [
        {"name": "gives", "inputSchema": small, "outputSchema": large(300)},
        {"name": "takes", "inputSchema": large(300)},
    ]
    made = Settings(home=tmp_path / "home", outputs=Outputs(directory=str(tmp_path)))
    async with Gateway(made, upstreams=[MemoryUpstream("big", tools)]) as gateway:
        await gateway.build()
        surface = DiscoverySurface(gateway)
        gives = json.loads(await text(surface, "expand_tool", {"tool_id": "big.gives"}))
        assert gives["args_schema"] == small
        assert gives["result_schema"] is None
        assert "field_0: string" in gives["output_fields"]
        assert "inspect_tool_output" in gives["note"]
        takes = json.loads(await text(surface, "expand_tool", {"tool_id": "big.takes"}))
        assert takes["args_schema"] is None
        asked = {"tool_id": "big.takes", "args_path": "field_7"}
        assert "what stands here" in await text(surface, "expand_tool", asked)
        whole = await gateway.expand_tool("big.gives")
        assert msgspec.json.decode(whole["result_schema"]) == large(300), "a program gets all of it"


@pytest.mark.requirement("U-08")
async def test_a_script_that_prints_too_much_is_stored_like_any_result(tmp_path: Path) -> None:
    async with shop(tmp_path) as gateway:
        surface = DiscoverySurface(gateway)
        short = await text(surface, "run_script", {"code": "print(6 * 7)"})
        if SandboxError.code in short:
            pytest.skip(f"no sandbox here: {short}")
        assert short.startswith("42")
        message = await text(surface, "run_script", {"code": "for n in range(5000): print('line', n)"})
        (handle,) = re.findall(r'handle = "([^"]+)"', message)
        found = await text(surface, "tool_output", {"handle": handle, "extract": "lines 101-101"})
        assert "line 100" in found
        wrong = await surface.call("run_script", Raw(b'{"code": "1 +"}'))
        assert msgspec.json.decode(wrong)["isError"] is True


@pytest.mark.requirement("D-07", "D-08", "G-05")
async def test_a_caller_reads_of_nothing_that_its_policy_hides(tmp_path: Path) -> None:
    guest = Caller(name="guest", policy="guests")
    policies = (Policy(name="default", allow=("**",)), Policy(name="guests", allow=("shop.buy",)))
    async with shop(tmp_path, policies=policies) as gateway:
        surface = DiscoverySurface(gateway)
        assert "2 tools of 1 server: shop (2)" in await surface.instructions(LOCAL)
        assert "There is 1 tool of 1 server: shop (1)" in await surface.instructions(guest)
        hidden = await text(surface, "expand_tool", {"tool_id": "shop.all_orders"}, guest)
        missing = await text(surface, "expand_tool", {"tool_id": "shop.old_orders"}, guest)
        assert hidden == missing.replace("old_orders", "all_orders")
        assert "all_orders" not in json.loads(hidden)["error"]["hints"]
        direct = DirectSurface(gateway)
        assert await names(direct, guest, listens=True) == ["shop_buy"]
        assert await names(direct, LOCAL, listens=True) == ["shop_all_orders", "shop_buy"]
