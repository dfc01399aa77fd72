"""The pool and MCP upstreams with real processes that behave and misbehave."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from misbehaving_stdio import misbehaving_spec
from msgspec.structs import replace
from tool_calls import CONTEXT, tool_call

from toolfold.errors import RemoteError, ServerClosed, ServerTimeout, ServerUnavailable, UpstreamError
from toolfold.events import Event, Events
from toolfold.types import Era, Listing, ServerSpec
from toolfold.upstream.base import Hooks
from toolfold.upstream.mcp import McpUpstream
from toolfold.upstream.pool import Pool, PoolLimits

QUICK = PoolLimits(first_pause_s=0.01, longest_pause_s=0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.requirement("G-01")
async def test_good_bad_dying_and_silent_servers_side_by_side_leave_no_process() -> None:
    specs = [
        misbehaving_spec("modern", "--era", "modern"),
        misbehaving_spec("legacy", "--era", "legacy", "--noise"),
        misbehaving_spec("dying", "--die-on", "tools/list"),
        replace(misbehaving_spec("silent", "--hang", "tools/list"), call_timeout_s=1.0, start_timeout_s=1.0),
        ServerSpec(name="missing", transport="stdio", command="no-such-program-anywhere"),
    ]
    pids: set[int] = set()
    events = Events()

    def note(event: Event) -> None:
        if event.data.get("pid"):
            pids.add(event.data["pid"])

    events.subscribe(note)
    async with Pool(specs, events=events, limits=QUICK) as pool:
        results = {name: result async for name, result in pool.listings()}
        states = {state.name: state for state in pool.states()}
    assert isinstance(results["modern"], Listing)
    assert isinstance(results["legacy"], Listing)
    assert (states["modern"].info.era, states["legacy"].info.era) == ("modern", "legacy")
    assert isinstance(results["dying"], UpstreamError)
    assert isinstance(results["silent"], ServerTimeout)
    assert isinstance(results["missing"], ServerUnavailable)
    assert all(error.server for error in results.values() if isinstance(error, UpstreamError))
    assert states["missing"].status == "failed"
    assert pids
    assert not [pid for pid in pids if alive(pid)]


async def test_a_crash_loses_the_call_and_the_next_one_finds_a_new_process() -> None:
    async with Pool([misbehaving_spec("one")], limits=QUICK) as pool:
        await pool.ensure("one")
        first = pool.state("one").pid
        with pytest.raises(ServerClosed) as caught:
            await pool.call(tool_call("crash", "one"), CONTEXT)
        assert caught.value.server == "one"
        outcome = await pool.call(tool_call("echo", "one", word="again"), CONTEXT)
        assert b"again" in bytes(outcome.result)
        assert pool.state("one").restarts == 1
        assert pool.state("one").pid != first


async def test_calls_and_listings_start_no_second_process() -> None:
    async with Pool([misbehaving_spec(f"s{n}") for n in range(4)]) as pool:
        async for _ in pool.listings():
            pass
        pids = [state.pid for state in pool.states()]
        await asyncio.gather(*(pool.call(tool_call("echo", f"s{n % 4}", n=n), CONTEXT) for n in range(40)))
        async for _ in pool.listings():
            pass
        assert [state.pid for state in pool.states()] == pids
        assert all(state.restarts == 0 for state in pool.states())


async def test_the_era_is_found_once_and_remembered() -> None:
    found: dict[str, Era] = {}
    specs = [misbehaving_spec("old", "--era", "legacy"), misbehaving_spec("new", "--era", "modern")]
    async with Pool(specs, remember_era=found.__setitem__) as pool:
        await asyncio.gather(pool.ensure("old"), pool.ensure("new"))
    assert found == {"old": "legacy", "new": "modern"}
    told: list[str] = []
    # What is known is not told again; what is wrong is found out anew.
    wrong: dict[str, Era] = {"old": "legacy", "new": "legacy"}
    async with Pool(specs, known_eras=wrong, remember_era=lambda name, era: told.append(f"{name} {era}")) as pool:
        await asyncio.gather(pool.ensure("old"), pool.ensure("new"))
    assert told == ["new modern"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_changed_list_is_told(era: str) -> None:
    async with Pool([misbehaving_spec("one", "--era", era)]) as pool:
        changed = asyncio.Event()
        pool.watch(lambda _: changed.set())
        await pool.listing("one")
        await pool.call(tool_call("change", "one"), CONTEXT)
        async with asyncio.timeout(30):
            await changed.wait()
        assert pool.due() == ["one"]


async def test_odd_tools_are_read_kindly_over_the_wire() -> None:
    async with Pool([misbehaving_spec("one", "--bad-tools", "--tools", "3", "--pages", "2")]) as pool:
        listing = await pool.listing("one")
        assert {"tool_0", "tool_1", "tool_2", "echo"} <= {tool.name for tool in listing.tools}
        assert listing.warnings
        assert pool.state("one").warnings == listing.warnings


async def test_errors_of_the_server_keep_their_code_and_get_its_name() -> None:
    async with Pool([misbehaving_spec("one")]) as pool:
        with pytest.raises(RemoteError) as caught:
            await pool.call(tool_call("fail", "one"), CONTEXT)
        assert caught.value.server == "one"
        assert caught.value.rpc_code


async def test_a_result_says_whether_it_is_an_error_and_keeps_its_bytes() -> None:
    async with Pool([misbehaving_spec("one", "--era", "legacy")]) as pool:

        async def result(text: str) -> tuple[bool, bytes]:
            outcome = await pool.call(tool_call("raw_result", "one", text=text), CONTEXT)
            return outcome.is_error, bytes(outcome.result)

        wrong = '{ "content": [ ], "isError" : true}'
        assert await result(wrong) == (True, wrong.encode())
        deeper = '{"content":[{"type":"text","text":"\\"isError\\": true"}],"meta":{"isError":true}}'
        assert await result(deeper) == (False, deeper.encode())
        assert (await result('{"content":[],"isError":"true"}'))[0] is False
        with pytest.raises(UpstreamError):
            await result("[1, 2]")


def test_what_a_server_wrote_explains_why_it_did_not_start_without_secrets(tmp_path: Path) -> None:
    script = tmp_path / "server.sh"
    script.write_text('echo "bad token $TOKEN: giving up" >&2\nexit 4\n')
    spec = ServerSpec(
        name="one",
        transport="stdio",
        command="sh",
        args=(str(script),),
        env={"TOKEN": "secret-token-9"},
        secrets=("secret-token-9",),
    )

    async def main() -> None:
        lines: list[str] = []
        upstream = McpUpstream(spec, Hooks(on_log=lambda name, line: lines.append(f"{name}: {line}")))
        with pytest.raises(UpstreamError) as caught:
            await upstream.open()
        await upstream.aclose()
        told = json.dumps(caught.value.as_dict())
        assert "bad token ***: giving up" in told
        assert "secret-token-9" not in told
        assert "one: bad token ***: giving up" in lines

    asyncio.run(main())


def test_a_recorded_server_arrives_whole_through_a_real_process(shared_data: Path) -> None:
    file = max((shared_data / "servers").glob("*.json"), key=lambda each: each.stat().st_size)

    async def main() -> None:
        async with Pool([misbehaving_spec("one", "--replay", str(file))]) as pool:
            listing = await pool.listing("one")
        assert [json.loads(bytes(tool.raw)) for tool in listing.tools] == json.loads(file.read_bytes())["tools"]

    asyncio.run(main())
