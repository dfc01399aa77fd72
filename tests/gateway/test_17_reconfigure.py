"""A gateway that is open takes over other servers, policies and callers; what did not change is not touched."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from filed_stdio import filed_spec
from msgspec.structs import replace

from toolfold import Gateway, Settings
from toolfold.config import CallerKey, Policy
from toolfold.errors import ToolNotFound
from toolfold.events import Event
from toolfold.types import Caller, ServerSpec

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}}


def spec(home: Path, name: str, *tools: str) -> ServerSpec:
    (home / f"{name}.json").write_text(json.dumps([tool(one) for one in tools]))
    return filed_spec(name, home / f"{name}.json")


async def ids(gateway: Gateway, caller: Caller | None = None) -> set[str]:
    return {tool.tool_id for tool in await gateway.tools_below((), caller=caller or Caller())}


async def until(gateway: Gateway, wanted: set[str]) -> None:
    while await ids(gateway) != wanted:  # noqa: ASYNC110 - another process brings it about
        await asyncio.sleep(0.02)


def test_17_reconfigure_only_what_differs_is_started_anew(tmp_path: Path) -> None:
    async def scene() -> None:
        kept, gone = spec(tmp_path, "kept", "stay"), spec(tmp_path, "gone", "leave")
        settings = Settings(home=tmp_path, servers=(kept, gone))
        async with Gateway(settings) as gateway:
            await gateway.build()
            before = {state.name: state.pid for state in await gateway.servers()}
            assert await gateway.reconfigure(replace(settings, servers=(kept, spec(tmp_path, "new", "come")))) == ()
            await until(gateway, {"kept.stay", "new.come"})
            after = {state.name: state.pid for state in await gateway.servers()}
            assert set(after) == {"kept", "new"}
            assert after["kept"] == before["kept"]
            with pytest.raises(ToolNotFound):
                await gateway.expand_tool("gone.leave")
            changed = replace(kept, env={"NEW": "1"})
            await gateway.reconfigure(replace(settings, servers=(changed,)))
            await until(gateway, {"kept.stay"})
            await gateway.call_tool("kept.stay", {})
            assert {state.pid for state in await gateway.servers()} != {before["kept"]}

    run(scene())


def test_17_reconfigure_a_disabled_server_leaves_and_comes_back(tmp_path: Path) -> None:
    async def scene() -> None:
        one, two = spec(tmp_path, "one", "a"), spec(tmp_path, "two", "b")
        settings = Settings(home=tmp_path, servers=(one, two))
        async with Gateway(settings) as gateway:
            await gateway.build()
            await gateway.reconfigure(replace(settings, servers=(one, replace(two, enabled=False))))
            assert await ids(gateway) == {"one.a"}
            assert {state.name: state.status for state in await gateway.servers()}["two"] == "disabled"
            await gateway.reconfigure(settings)
            await until(gateway, {"one.a", "two.b"})

    run(scene())


def test_17_reconfigure_holds_for_a_session_that_has_the_caller_of_before(tmp_path: Path) -> None:
    async def scene() -> None:
        server = spec(tmp_path, "shop", "look", "buy")
        narrow, wide = Policy(name="narrow", allow=("shop.look",)), Policy(name="wide")
        key = CallerKey(name="ann", key="k" * 20, policy="wide")
        settings = Settings(home=tmp_path, servers=(server,), policies=(narrow, wide), callers=(key,))
        # A session keeps its caller from its handshake on.
        ann = Caller(name="ann", session="s", policy="wide")
        async with Gateway(settings) as gateway:
            await gateway.build()
            assert await ids(gateway, ann) == {"shop.look", "shop.buy"}
            await gateway.reconfigure(replace(settings, callers=(replace(key, policy="narrow"),)))
            assert await ids(gateway, ann) == {"shop.look"}
            with pytest.raises(ToolNotFound):
                await gateway.call_tool("shop.buy", {}, caller=ann)
            # The policy is gone with the caller: nothing is left to see.
            await gateway.reconfigure(replace(settings, policies=(narrow,), callers=()))
            assert await ids(gateway, ann) == set()
            await gateway.reconfigure(settings)
            assert await ids(gateway, ann) == {"shop.look", "shop.buy"}

    run(scene())


def test_17_reconfigure_names_what_else_differs_and_leaves_it(tmp_path: Path) -> None:
    async def scene() -> None:
        settings = Settings(home=tmp_path)
        async with Gateway(settings) as gateway:
            limits = replace(settings.limits, call_timeout_s=1.0, max_frame_bytes=70_000)
            other = replace(settings, limits=limits, home=tmp_path / "other")
            assert set(await gateway.reconfigure(other)) == {"limits.max_frame_bytes", "home"}
            assert gateway.settings == replace(settings, limits=replace(settings.limits, call_timeout_s=1.0))
            assert gateway.upstreams.call_timeout_s("any") == 1.0

    run(scene())


def test_17_idle_servers_stop_and_start_again_with_the_next_call(tmp_path: Path) -> None:
    async def scene() -> None:
        quick, kept = spec(tmp_path, "quick", "a"), replace(spec(tmp_path, "kept", "b"), keep_alive=True)
        settings = Settings(home=tmp_path, servers=(quick, kept))
        settings = replace(settings, limits=replace(settings.limits, idle_s=0.3))
        stopped: asyncio.Queue[Event] = asyncio.Queue()
        async with Gateway(settings) as gateway:
            gateway.events.subscribe(stopped.put_nowait, only="upstream.idle")
            await gateway.build()
            first = {state.name: state.pid for state in await gateway.servers()}
            assert (await stopped.get()).data["server"] == "quick"
            states = {state.name: state for state in await gateway.servers()}
            assert (states["quick"].status, states["quick"].pid) == ("idle", None)
            assert "the next call starts it" in states["quick"].note
            assert states["kept"].pid == first["kept"]
            # The catalogue stays, and a question about something that is nowhere starts nothing.
            assert await ids(gateway) == {"quick.a", "kept.b"}
            with pytest.raises(ToolNotFound):
                await gateway.call_tool("nowhere.x", {})
            assert (await gateway.servers())[0].status == "idle"
            await gateway.call_tool("quick.a", {})
            assert (await gateway.servers())[0].pid not in {None, first["quick"]}
            assert (await stopped.get()).data["server"] == "quick"

    run(scene())


def test_17_idle_servers_are_not_stopped_while_they_answer(tmp_path: Path) -> None:
    async def scene() -> None:
        server = spec(tmp_path, "shop", "sleep")
        settings = Settings(home=tmp_path, servers=(server,))
        settings = replace(settings, limits=replace(settings.limits, idle_s=0.1))
        told: list[str] = []
        async with Gateway(settings) as gateway:
            await gateway.build()
            gateway.events.subscribe(lambda event: told.append(event.name))
            assert not (await gateway.call_tool("shop.sleep", {})).is_error
            assert "upstream.idle" not in told[told.index("call.started") : told.index("call.finished")]

    run(scene())
