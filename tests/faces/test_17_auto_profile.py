"""The default profile fits the catalogue: few tools are shown as they are, many are folded, pinned ones beside them."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold import Gateway, Settings, tokens
from toolfold.adapters import OpenAITools
from toolfold.config.sections import CallerKey, Discovery, Policy
from toolfold.errors import ToolNotFound
from toolfold.faces.cli.parser import build_parser
from toolfold.faces.surface import auto
from toolfold.faces.surface.auto import AutoSurface
from toolfold.faces.surface.base import Surface
from toolfold.faces.surface.definitions import BY_NAME
from toolfold.faces.surface.direct import DirectSurface
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL, CallContext, Caller

pytestmark = pytest.mark.requirement("G-17")


def tools(count: int, words: int = 20) -> list[dict[str, Any]]:
    return [{"name": f"tool_{n}", "description": f"Does thing number {n}. " + "word " * words} for n in range(count)]


async def names(surface: Surface, caller: Caller = LOCAL) -> list[str]:
    return [msgspec.json.decode(raw)["name"] for raw in await surface.tools(caller)]


async def cost(surface: Surface) -> int:
    text = b",".join(bytes(raw) for raw in await surface.tools(LOCAL)).decode()
    return tokens.count(text + await surface.instructions(LOCAL))


def test_17_auto_is_what_is_served_where_nothing_is_said() -> None:
    assert build_parser().parse_args(["serve"]).profile == "auto"


async def test_17_few_tools_are_shown_directly_and_cost_less_than_the_operations(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("s", tools(17))]) as gateway:
        await gateway.build()
        surface = AutoSurface(gateway)
        assert await names(surface) == [*sorted(f"s_tool_{n}" for n in range(17)), "tool_output", "run_script"]
        assert await cost(surface) < await cost(DiscoverySurface(gateway))
        told = await surface.instructions(LOCAL)
        assert "search" not in told
        assert "expand" not in told
        assert "run_script" in told


async def test_17_an_adapter_given_a_gateway_shows_what_auto_shows(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("s", tools(2))]) as gateway:
        await gateway.build()
        shown = [tool["function"]["name"] for tool in await OpenAITools(gateway).chat_tools()]
        assert shown == ["s_tool_0", "s_tool_1", "tool_output", "run_script"]


async def test_17_a_tool_more_or_less_does_not_flip_what_a_client_sees(tmp_path: Path) -> None:
    """The least number that is folded at once is still direct for who had fewer, and the other way round."""
    server = MemoryUpstream("s", tools(1))
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:

        async def folded(count: int, surface: AutoSurface) -> bool:
            server.set_tools(tools(count))
            await gateway.build(index=False)
            return (await names(surface))[0] == "list"

        edge = 30
        while not await folded(edge, AutoSurface(gateway)):
            edge += 3
        grows = AutoSurface(gateway)
        assert not await folded(edge - 3, grows)
        assert not await folded(edge, grows)
        assert not await folded(edge - 3, grows)
        shrinks = AutoSurface(gateway)
        assert await folded(edge, shrinks)
        assert await folded(edge - 3, shrinks)
        assert await folded(99, grows)
        assert not await folded(5, shrinks)


async def test_17_a_client_is_told_exactly_when_its_list_changes(tmp_path: Path) -> None:
    server = MemoryUpstream("s", tools(5))
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build(index=False)
        surface = AutoSurface(gateway)
        told: asyncio.Queue[Caller | None] = asyncio.Queue()
        stop = surface.watch(told.put_nowait)

        async def changes(count: int) -> int:
            server.set_tools(tools(count))
            await gateway.build(index=False)
            await surface._tasks.wait()
            return told.qsize()

        await surface.tools(LOCAL)
        assert await changes(5) == 0, "the same list"
        assert await changes(6) == 1, "one tool more"
        await surface.tools(LOCAL)
        assert await changes(150) == 2, "folded"
        assert (await names(surface))[0] == "list"
        assert await changes(160) == 2, "still the same eight"
        stop()


async def test_17_what_was_listed_before_the_change_can_still_be_called(tmp_path: Path) -> None:
    server = MemoryUpstream("s", tools(5))
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build()
        surface = AutoSurface(gateway)
        await surface.tools(LOCAL)
        assert b"isError" not in bytes(await surface.call("list")), "the operations work, listed or not"
        server.set_tools(tools(150))
        await gateway.build(index=False)
        assert (await names(surface))[0] == "list"
        assert b"isError" not in bytes(await surface.call("s_tool_3"))
        with pytest.raises(ToolNotFound):
            await surface.call("s_tool_140")


async def test_17_a_name_that_is_nearly_right_is_answered_with_the_right_one(tmp_path: Path) -> None:
    listed = [{"name": name} for name in ("add", "blame", "branches", "diff", "grep", "log", "show", "status")]
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("git", listed)]) as gateway:
        await gateway.build(index=False)
        with pytest.raises(ToolNotFound) as raised:
            await AutoSurface(gateway).call("git_lgo")
        assert raised.value.hints[0] == "git_log"


async def test_17_each_caller_gets_what_fits_its_own_view(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path,
        policies=(Policy(name="narrow", allow=("s.tool_1",)), Policy(name="wide")),
        callers=(
            CallerKey(name="ann", key="k" * 16, policy="narrow"),
            CallerKey(name="bob", key="l" * 16, policy="wide"),
        ),
    )
    async with Gateway(settings, upstreams=[MemoryUpstream("s", tools(150))]) as gateway:
        await gateway.build(index=False)
        surface = AutoSurface(gateway)
        ann, bob = Caller(name="ann", policy="narrow"), Caller(name="bob", policy="wide")
        assert "s_tool_1" in (shown := await names(surface, ann))
        assert "s_tool_2" not in shown
        assert (await names(surface, bob))[0] == "list"
        with pytest.raises(ToolNotFound):
            await surface.call("s_tool_2", context=CallContext(caller=ann))


async def test_17_strict_stays_folded(tmp_path: Path) -> None:
    """Whoever wants tools expanded before they are called gets no surface where nothing is expanded."""
    settings = Settings(home=tmp_path, discovery=Discovery(strict=True))
    async with Gateway(settings, upstreams=[MemoryUpstream("s", tools(2))]) as gateway:
        await gateway.build()
        assert await names(AutoSurface(gateway)) == list(BY_NAME)


async def test_17_the_first_list_of_all_does_not_wait_for_a_slow_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "_FIRST_LIST_S", 0.01)
    slow = MemoryUpstream("s", tools(2))
    slow.delay = asyncio.Event()
    async with Gateway(Settings(home=tmp_path), upstreams=[slow]) as gateway:
        reading = gateway.begin()
        surface = AutoSurface(gateway)
        told: asyncio.Queue[Caller | None] = asyncio.Queue()
        surface.watch(told.put_nowait)
        assert await names(surface) == list(BY_NAME)
        called = asyncio.ensure_future(surface.call("s_tool_1"))
        slow.delay.set()
        assert b"isError" not in bytes(await called)
        assert await asyncio.wait_for(told.get(), 20) == LOCAL
        assert (await names(surface))[:2] == ["s_tool_0", "s_tool_1"]
        await reading


async def test_17_the_first_list_of_all_is_right_where_servers_take_a_while(tmp_path: Path) -> None:
    slow = MemoryUpstream("s", tools(2))
    slow.delay = asyncio.Event()
    async with Gateway(Settings(home=tmp_path), upstreams=[slow]) as gateway:
        reading = gateway.begin()
        listing = asyncio.ensure_future(names(AutoSurface(gateway)))
        assert not (await asyncio.wait([listing], timeout=1.0))[0]
        slow.delay.set()
        assert (await listing)[:2] == ["s_tool_0", "s_tool_1"]
        await reading


async def test_17_pinned_tools_stand_beside_the_operations(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, discovery=Discovery(pin=("S.tool_7", "s.tool_1?", "gone.*")))
    async with Gateway(settings, upstreams=[MemoryUpstream("s", tools(150))]) as gateway:
        await gateway.build(index=False)
        for surface in (AutoSurface(gateway), DiscoverySurface(gateway)):
            assert await names(surface) == [*BY_NAME, "s_tool_7", *(f"s_tool_1{n}" for n in range(10))]
            assert b"isError" not in bytes(await surface.call("s_tool_12"))
            told = await surface.instructions(LOCAL)
            assert "to be called directly: s_tool_7, s_tool_10" in told
            assert tokens.count(told) <= 400
            with pytest.raises(ToolNotFound):
                await surface.call("s_tool_20")


async def test_17_a_pinned_tool_that_a_caller_may_not_see_is_not_there(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path,
        discovery=Discovery(pin=("s.*",)),
        policies=(Policy(name="narrow", deny=("s.tool_1",)),),
        callers=(CallerKey(name="ann", key="k" * 16, policy="narrow"),),
    )
    async with Gateway(settings, upstreams=[MemoryUpstream("s", tools(3))]) as gateway:
        await gateway.build(index=False)
        ann = Caller(name="ann", policy="narrow")
        assert (await names(DiscoverySurface(gateway), ann))[-2:] == ["s_tool_0", "s_tool_2"]
        with pytest.raises(ToolNotFound):
            await DiscoverySurface(gateway).call("s_tool_1", context=CallContext(caller=ann))


@pytest.mark.parametrize(("pin_used", "pinned"), [(3, ["s_tool_7", "s_tool_3"]), (1, ["s_tool_7"]), (0, [])])
async def test_17_the_tools_that_are_used_most_pin_themselves(tmp_path: Path, pin_used: int, pinned: list[str]) -> None:
    """Three sessions make a tool one of them. A loop in one session does not, nor what another caller uses."""
    settings = Settings(home=tmp_path, discovery=Discovery(pin_used=pin_used))
    sessions = {"s.tool_7": 4, "s.tool_3": 3, "s.tool_4": 2}
    async with Gateway(settings, upstreams=[MemoryUpstream("s", tools(150))]) as gateway:
        await gateway.build(index=False)
        assert await names(AutoSurface(gateway)) == list(BY_NAME)
        for tool_id, count in sessions.items():
            for number in range(count):
                await gateway.call_tool(tool_id, {}, caller=Caller(session=f"one-{number}"))
        for _ in range(5):
            await gateway.call_tool("s.tool_5", {}, caller=Caller(session="loop"))
        for number in range(5):
            await gateway.call_tool("s.tool_6", {}, caller=Caller(name="bob", session=f"one-{number}"))
        surface = AutoSurface(gateway)
        assert await names(surface) == [*BY_NAME, *pinned]
        assert ("to be called directly: s_tool_7" in await surface.instructions(LOCAL)) == bool(pinned)
        for number in range(5):
            await gateway.call_tool("s.tool_9", {}, caller=Caller(session=f"two-{number}"))
        assert await names(surface) == [*BY_NAME, *pinned], "what a client sees stays while it is connected"
        assert await names(DiscoverySurface(gateway)) == list(BY_NAME), "the profile discovery is the same for ever"


async def test_17_a_tool_never_takes_the_name_of_an_operation(tmp_path: Path) -> None:
    async with Gateway(
        Settings(home=tmp_path, discovery=Discovery(pin=("**",))),
        upstreams=[MemoryUpstream("search", [{"name": "nodes"}]), MemoryUpstream("run", [{"name": "script"}])],
    ) as gateway:
        await gateway.build(index=False)
        for surface in (DirectSurface(gateway), AutoSurface(gateway), DiscoverySurface(gateway)):
            shown = await names(surface)
            assert len(set(shown)) == len(shown)
        assert b"tool_id" in bytes(await AutoSurface(gateway).call("search_nodes", Raw(b'{"query": 1, "tool_id": ""}')))


async def test_17_instructions_fit_what_is_shown_from_the_first_moment(tmp_path: Path) -> None:
    """A handshake comes before anything was read in the background: what the last process built is there."""
    settings = Settings(home=tmp_path, discovery=Discovery(pin=("s.tool_1",)))
    for count, shown in ((3, "Call the tools that are listed."), (150, "to be called directly: s_tool_1.")):
        upstream = MemoryUpstream("s", tools(count))
        async with Gateway(settings, upstreams=[upstream]) as gateway:
            await gateway.build(index=False)
        async with Gateway(settings, upstreams=[MemoryUpstream("s", tools(count))]) as gateway:
            reading = gateway.begin()
            assert gateway.initial_build.pending
            assert shown in await AutoSurface(gateway).instructions(LOCAL)
            await reading
