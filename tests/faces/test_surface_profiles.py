"""The profiles beside the default: tools as they are, and the choice between the two by what they cost."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.disclosure.describer import Describer
from toolfold.errors import ToolNotFound
from toolfold.faces.surface.auto import AutoSurface
from toolfold.faces.surface.direct import DirectSurface, _safe_names
from toolfold.policy.view import CatalogueView
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL, Caller

SUM: dict[str, Any] = {
    "name": "sum",
    "title": "Sum",
    "description": "Adds numbers.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "_meta": {"vendor/key": [1, 2]},
}


def tools(count: int) -> list[dict[str, Any]]:
    return [{"name": f"tool_{n}", "description": f"Does thing number {n}. " * 5} for n in range(count)]


async def test_direct_lists_every_tool_as_its_server_wrote_it_under_a_safe_name(tmp_path: Path) -> None:
    server = MemoryUpstream("maths", [SUM])
    server.answer("sum", {"content": [{"type": "text", "text": "3"}], "structuredContent": {"n": 3}})
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build()
        surface = DirectSurface(gateway)
        raws = await surface.tools(LOCAL)
        assert [msgspec.json.decode(raw)["name"] for raw in raws] == ["maths_sum", "tool_output"]
        shown = msgspec.json.decode(raws[0])
        kept = {key: value for key, value in SUM.items() if key != "outputSchema"}
        assert shown == {**kept, "name": "maths_sum"}
        result = await surface.call("maths_sum", Raw(b'{"a": 1.50}'))
        assert msgspec.json.decode(result)["structuredContent"] == {"n": 3}
        assert bytes(server.calls[0].arguments) == b'{"a": 1.50}'
        failed = msgspec.json.decode(await surface.call("maths_sum", Raw(b"{}")))
        assert failed["isError"] is True
        assert "INVALID_ARGUMENTS" in failed["content"][0]["text"]
        with pytest.raises(ToolNotFound):
            await surface.call("maths.sum")


async def test_a_changed_catalogue_is_told_and_listed_anew(tmp_path: Path) -> None:
    server = MemoryUpstream("maths", [SUM])
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build()
        surface = DirectSurface(gateway)
        told: list[Caller | None] = []
        stop = surface.watch(told.append)
        assert len(await surface.tools(LOCAL)) == 2
        server.set_tools([SUM, *tools(1)])
        await gateway.build()
        assert told == [None]
        assert len(await surface.tools(LOCAL)) == 3
        stop()
        await gateway.build()
        assert told == [None]


async def test_auto_shows_tools_as_they_are_while_they_are_cheap_and_discovery_from_there_on(tmp_path: Path) -> None:
    server = MemoryUpstream("many", tools(10))
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        surface = AutoSurface(gateway)
        assert len(await surface.tools(LOCAL)) == 8, "without a catalogue there is only discovery"
        await gateway.build()
        assert len(await surface.tools(LOCAL)) == 12, "the tools, tool_output, run_script"
        assert "tool_output" in await surface.instructions(LOCAL)
        assert b"isError" not in bytes(await surface.call("many_tool_3"))
        server.set_tools(tools(200))
        await gateway.build()
        names = [msgspec.json.decode(raw)["name"] for raw in await surface.tools(LOCAL)]
        assert names[0] == "list"
        assert "200 tools" in await surface.instructions(LOCAL)
        listed = await surface.call("list")
        assert b"isError" not in bytes(listed)


@given(st.lists(st.text(st.sampled_from("aA._-0é/"), min_size=1, max_size=80), unique=True, max_size=30))
def test_names_are_safe_unique_and_do_not_depend_on_order(ids: list[str]) -> None:
    names = _safe_names(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names.values())
    assert len({name.casefold() for name in names.values()} | {"tool_output"}) == len(ids) + 1
    assert _safe_names(reversed(ids)) == names


async def test_18_a_tool_that_comes_while_what_is_near_is_looked_for_is_found(tmp_path: Path) -> None:
    """An error must not say that there is no such tool, and name it as what is near."""
    server = MemoryUpstream("maths", [])
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build()

        async def suggest(view: CatalogueView, tool_id: str) -> list[str]:
            server.set_tools([{"name": "sum", "inputSchema": {"type": "object"}}])
            await gateway.reread("maths")
            return [tool_id]

        describer = Describer(gateway.store, gateway.events, suggest=suggest)
        assert (await describer.tool(gateway.view(), "maths.sum")).tool_id == "maths.sum"
