"""The gateway as a library: build, browse, follow servers that change, leave nothing behind."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from misbehaving_stdio import misbehaving_spec

from toolfold import Gateway, Settings
from toolfold.errors import NotBuilt, StoreError, UpstreamError
from toolfold.events import Event
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import CallContext, Listing, ToolCall

pytestmark = pytest.mark.usefixtures("engine")  # on both engines

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def find_order(order_id: int) -> dict[str, str]:
    """Finds an order of the shop by its number."""
    return {"order": str(order_id)}


def test_a_programs_own_functions_are_tools_like_any_other(tmp_path: Path) -> None:
    async def main() -> None:
        shop = MemoryUpstream("shop", [find_order])
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            build = await gateway.build()
            assert build.report.tools == 1
            tool = await gateway.catalogue.tool("shop.find_order")
            page = await gateway.list(tool.paths[0])
            assert [pointer["tool_id"] for pointer in page["tools"]] == ["shop.find_order"]

    run(main())


@pytest.mark.requirement("S-13")
def test_each_inspection_is_an_event_and_is_counted_per_tool(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[Event] = []
        shop = MemoryUpstream("shop", [find_order])
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            await gateway.build()
            gateway.events.subscribe(told.append)
            for path in ("", "*", ""):
                await gateway.inspect_tool_output("SHOP.find_order", path)
            await gateway.inspect_tool_output("toolbox.inspect_tool_output")
            assert await gateway.inspections() == {"shop.find_order": 3, "toolbox.inspect_tool_output": 1}
        assert [(event.name, event.data["tool_id"], event.data["field_path"]) for event in told] == [
            ("mcp.schema.inspect.called", "shop.find_order", ""),
            ("mcp.schema.inspect.called", "shop.find_order", "*"),
            ("mcp.schema.inspect.called", "shop.find_order", ""),
            ("mcp.schema.inspect.called", "toolbox.inspect_tool_output", ""),
        ]
        async with Gateway(Settings(home=tmp_path)) as gateway:
            assert (await gateway.inspections())["shop.find_order"] == 3

    run(main())


def test_the_descriptor_of_a_tool_tells_what_it_takes_and_returns(tmp_path: Path) -> None:
    async def main() -> None:
        shop = MemoryUpstream("shop", [find_order])
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            await gateway.build()
            descriptor = await gateway.descriptor("shop.find_order")
            assert descriptor["signature"].startswith("find_order(order_id: integer)")
            assert descriptor["description"] == "Finds an order of the shop by its number."

    run(main())


def test_before_the_first_build_it_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with Gateway(Settings(home=tmp_path)) as gateway:
            with pytest.raises(NotBuilt, match="no catalogue"):
                await gateway.list()

    run(main())


def test_a_gateway_that_is_not_open_says_how_to_open_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not open"):
        run(Gateway(Settings(home=tmp_path)).list())


@pytest.mark.requirement("D-13")
def test_a_server_that_says_its_tools_changed_is_read_again_and_nobody_else_is(tmp_path: Path) -> None:
    async def main() -> None:
        specs = (misbehaving_spec("moody"), misbehaving_spec("calm"))
        async with Gateway(Settings(servers=specs, home=tmp_path)) as gateway:
            first = await gateway.build()
            updated = asyncio.Event()
            told: list[Event] = []

            def listen(event: Event) -> None:
                if event.name == "catalogue.updated":
                    told.append(event)
                    updated.set()

            gateway.events.subscribe(listen)
            pool = await gateway.pool()
            change = await gateway.catalogue.tool("moody.change")
            await pool.call(ToolCall(tool=change), CallContext())
            await updated.wait()
            changes = await gateway.diff()
            assert [event.data["server"] for event in told] == ["moody"]
            assert [(change.kind, change.tool_id.partition(".")[0]) for change in changes] == [("added", "moody")]
            generations = await gateway.catalogue.generations()
            assert generations[-1].number == first.generation + 1

    run(main())


def updates(gateway: Gateway, name: str = "catalogue.updated") -> "asyncio.Queue[str]":
    """The servers that events of a name speak of, as they come."""
    told: asyncio.Queue[str] = asyncio.Queue()
    gateway.events.subscribe(lambda event: told.put_nowait(event.data["server"]) if event.name == name else None)
    return told


@pytest.mark.requirement("D-13")
def test_a_list_that_outlived_its_time_is_read_again_by_itself(tmp_path: Path) -> None:
    async def main() -> None:
        specs = (misbehaving_spec("brief", "--ttl", "1"), misbehaving_spec("lasting"))
        gateway = Gateway(Settings(servers=specs, home=tmp_path))
        async with gateway:
            gateway.upstreams._check_s = 0.01
            await gateway.build()
            told = updates(gateway, "upstream.listed")
            supervisors = (await gateway.pool())._supervisors
            brief, lasting = (supervisors[name].list_due_at or 0.0 for name in ("brief", "lasting"))
            assert 0.0 < brief < lasting  # a server that gives no time is read again, too, only later
            supervisors["brief"].list_due_at = 0.0
            assert await told.get() == "brief"
            assert (supervisors["brief"].list_due_at or 0.0) > 0.0

    run(main())


def test_an_outdated_list_that_cannot_be_read_is_noted_once_and_not_asked_for_without_end(tmp_path: Path) -> None:
    async def main() -> None:
        shop = MemoryUpstream("shop", [find_order], ttl_ms=1)
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            await gateway.build()
            told = updates(gateway, "catalogue.stale")
            (await gateway.pool())._supervisors["shop"].list_due_at = 0.0
            shop.list_error = UpstreamError("the shop is closed")
            assert await gateway.refresh() == ["shop"]
            assert await gateway.refresh() == []
            assert (told.qsize(), shop.listed) == (1, 2)
            assert (await gateway.catalogue.servers())[0].stale

    run(main())


@pytest.mark.requirement("G-01")
def test_a_build_reads_all_servers_side_by_side(tmp_path: Path) -> None:
    """Each waits until all have been asked: one after the other this would never end."""

    async def main() -> None:
        asked: set[str] = set()
        everybody = asyncio.Event()
        servers = [MemoryUpstream(f"server{number}", [find_order]) for number in range(20)]
        for server in servers:
            server.delay = everybody

        async with Gateway(Settings(home=tmp_path), upstreams=servers) as gateway:

            def listen(event: Event) -> None:
                if event.name == "upstream.opening":
                    asked.add(event.data["server"])
                    if len(asked) == len(servers):
                        everybody.set()

            gateway.events.subscribe(listen)
            build = await gateway.build()
            assert build.report.tools == 20

    run(main())


def test_a_failed_server_keeps_the_tools_of_its_last_good_reading(tmp_path: Path) -> None:
    async def main() -> None:
        shop = MemoryUpstream("shop", [find_order])
        failures: list[str] = []

        def told(name: str, found: Listing | UpstreamError) -> None:
            if isinstance(found, UpstreamError):
                failures.append(name)

        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            await gateway.build()
            shop.list_error = UpstreamError("the shop is closed")
            build = await gateway.build(on_server=told)
            assert failures == ["shop"]
            assert build.report.tools == 1
            assert build.report.servers[0].stale
            assert (await gateway.catalogue.tool("shop.find_order")).server == "shop"

    run(main())


def test_the_protocol_era_of_a_server_is_remembered_between_runs(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(servers=(misbehaving_spec("old", "--era", "legacy"),), home=tmp_path)
        async with Gateway(settings) as gateway:
            await gateway.build()
        async with Gateway(settings) as gateway:
            pool = await gateway.pool()
            assert pool._eras == {"old": "legacy"}

    run(main())


def test_a_state_folder_that_cannot_be_made_is_told_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError) as caught:
        run(Gateway(Settings(home=tmp_path / "file" / "home")).__aenter__())
    assert "--home" in caught.value.next_action


@pytest.mark.requirement("U-01")
def test_every_recorded_server_arrives_whole_through_a_real_process(tmp_path: Path, shared_data: Path) -> None:
    """All recorded servers replayed over stdio at once: every tool is in the registry as its server sent it."""
    files = sorted((shared_data / "servers").glob("*.json"))
    specs = tuple(misbehaving_spec(file.stem, "--era", "legacy", "--replay", str(file)) for file in files)

    async def main() -> None:
        async with Gateway(Settings(servers=specs, home=tmp_path)) as gateway:
            build = await gateway.build(index=False)
            assert [server.name for server in build.report.servers if server.error] == []
            assert build.report.tools == sum(len(recorded[file.stem]) for file in files)

    recorded = {file.stem: msgspec.json.decode(file.read_bytes())["tools"] or [] for file in files}
    run(main())
    registry = msgspec.json.decode((tmp_path / "tool_registry.json").read_bytes())
    arrived = {(tool["server"], tool["name"]): tool for tool in registry["tools"]}
    assert len(files) >= 88
    assert len(arrived) == sum(len(tools) for tools in recorded.values())
    for server, tools in recorded.items():
        for tool in tools:
            found = arrived[server, tool["name"]]
            assert msgspec.json.encode(found["input_schema"]) == msgspec.json.encode(tool["inputSchema"])
            assert found["description"] == tool.get("description", "")
            assert found["output_schema"] == tool.get("outputSchema")


def test_nothing_runs_on_after_the_gateway_is_closed(tmp_path: Path) -> None:
    async def main() -> list[int]:
        specs = tuple(misbehaving_spec(f"stubborn{number}", "--stubborn") for number in range(3))
        async with Gateway(Settings(servers=specs, home=tmp_path)) as gateway:
            await gateway.build()
            return [state.pid for state in (await gateway.pool()).states() if state.pid]

    pids = run(main())
    assert len(pids) == 3
    assert sys.platform != "linux" or not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not [pid for pid in pids if alive(pid)]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("steps", range(4))
async def test_nothing_starts_where_the_gateway_is_closed_while_a_build_begins(tmp_path: Path, steps: int) -> None:
    """The close comes before the build's first step, or after a few of them, before any server was started."""
    started: list[Event] = []
    gateway = Gateway(Settings(servers=(misbehaving_spec("shop"),), home=tmp_path))
    gateway.events.subscribe(started.append, only="upstream.ready")
    await gateway.__aenter__()
    build = asyncio.ensure_future(gateway.build())
    for _ in range(steps):
        await asyncio.sleep(0)
    await gateway.aclose()
    with pytest.raises(StoreError):
        await asyncio.wait_for(build, 60)
    assert not [event.data["pid"] for event in started if alive(event.data["pid"])]


async def test_a_gateway_that_was_closed_can_be_opened_again(tmp_path: Path) -> None:
    gateway = Gateway(
        Settings(home=tmp_path), upstreams=[MemoryUpstream("shop", [{"name": "find", "inputSchema": {}}])]
    )
    for _ in range(2):
        async with gateway:
            await gateway.build()
            assert (await gateway.expand_tool("shop.find"))["tool_id"] == "shop.find"
            assert not (await gateway.call_tool("shop.find", {})).is_error
    with pytest.raises(StoreError, match="not open"):
        await gateway.list()
