"""A connection survives what real servers do wrong: each fault from a real child process."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from misbehaving_stdio import misbehaving
from msgspec import Raw
from wire_helpers import QUICK, names, opened, raw, text_of, value

from toolfold.errors import (
    FrameTooLarge,
    ProtocolViolation,
    RemoteError,
    ServerClosed,
    ServerTimeout,
    ServerUnavailable,
)
from toolfold.wire import Handlers, StdioTarget, WireOptions, connect

HARMLESS = (
    ("--noise",),
    ("--noise-inline",),
    ("--noise-stderr",),
    ("--bom",),
    ("--crlf",),
    ("--latin1",),
    ("--ids", "string"),
    ("--ids", "float"),
    ("--duplicate",),
    ("--stray",),
    ("--batch",),
    ("--split", "7"),
    ("--no-jsonrpc",),
    ("--both",),
    ("--ask-unasked",),
    ("--answer-delay", "0.05"),
    ("--noise", "--stray", "--batch", "--no-jsonrpc", "--bom", "--duplicate", "--latin1"),
)


@pytest.mark.requirement("G-01")
@pytest.mark.parametrize("era", ["legacy", "modern", "dual"])
@pytest.mark.parametrize("faults", HARMLESS, ids=" ".join)
def test_a_faulty_server_is_understood_all_the_same(faults: tuple[str, ...], era: str) -> None:
    async def main() -> None:
        async with opened(misbehaving("--era", era, *faults)) as connection:
            assert "echo" in await names(connection)
            for number in range(3):
                result = await connection.call_tool("echo", raw({"number": number, "text": "ünïcode"}))
                assert value(result)["structuredContent"] == {"number": number, "text": "ünïcode"}
            with pytest.raises(RemoteError) as caught:
                await connection.call_tool("fail", raw({}))
            assert caught.value.rpc_code == -32050
            assert caught.value.data == {"detail": 1}

    asyncio.run(main())


def test_noise_is_told_and_shortened() -> None:
    async def main() -> list[str]:
        told: list[str] = []
        async with opened(misbehaving("--noise"), handlers=Handlers(on_noise=told.append)):
            return told

    told = asyncio.run(main())
    assert "Starting up..." in told
    assert "INFO ready" in told
    assert all(len(text) <= 240 for text in told)


def test_stderr_is_told_line_by_line() -> None:
    async def main() -> list[str]:
        told: list[str] = []
        async with opened(misbehaving(), handlers=Handlers(on_stderr=told.append)) as connection:
            with pytest.raises(ServerClosed):
                await connection.call_tool("crash", raw({}))
        return told

    assert asyncio.run(main()) == ["about to crash"]


@pytest.mark.parametrize("ids", ["wrong", "null"])
def test_answers_with_the_wrong_ids_are_answers_to_nobody(ids: str) -> None:
    options = WireOptions(start_timeout_s=0.5, close_grace_s=0.2)
    with pytest.raises(ServerTimeout, match="not ready within"):
        asyncio.run(connect(misbehaving("--ids", ids), options=options))


def test_a_hung_request_times_out_and_the_next_one_works() -> None:
    async def main() -> None:
        async with opened(misbehaving("--hang", "tools/list")) as connection:
            with pytest.raises(ServerTimeout, match=r"tools/list within 0\.2 seconds"):
                await connection.request("tools/list", timeout_s=0.2)
            assert text_of(await connection.call_tool("big", raw({"bytes": 3}))) == "xxx"

    asyncio.run(main())


def test_a_server_that_dies_names_its_exit_code_and_its_last_words() -> None:
    async def main() -> None:
        reasons: list[str] = []
        async with opened(misbehaving(), handlers=Handlers(on_closed=reasons.append)) as connection:
            with pytest.raises(ServerClosed, match=r"exit code 3.*about to crash"):
                await connection.call_tool("crash", raw({}))
            assert connection.closed
            with pytest.raises(ServerClosed):
                await connection.list_tools()
        assert reasons == ["it ended with exit code 3"]

    asyncio.run(main())


def test_every_request_in_flight_fails_when_the_server_dies() -> None:
    async def main() -> None:
        async with opened(misbehaving()) as connection:
            waiting = [asyncio.ensure_future(connection.call_tool("sleep", raw({"seconds": 60}))) for _ in range(5)]
            await asyncio.sleep(0)
            crash = connection.call_tool("crash", raw({}))
            results = await asyncio.gather(crash, *waiting, return_exceptions=True)
            assert all(isinstance(result, ServerClosed) for result in results)

    asyncio.run(main())


def test_a_server_that_closes_in_the_middle_of_an_answer_is_gone() -> None:
    async def main() -> None:
        async with opened(misbehaving("--close-mid", "tools/list")) as connection:
            with pytest.raises(ServerClosed):
                await connection.list_tools()
            with pytest.raises(ServerClosed):
                await connection.call_tool("echo", raw({}))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fault", "error"), [("--neither", ProtocolViolation), ("--bare-error", RemoteError)], ids=["neither", "bare"]
)
def test_a_malformed_answer_fails_its_request_at_once(fault: str, error: type[Exception]) -> None:
    async def main() -> None:
        async with opened(misbehaving(fault, "tools/list")) as connection:
            with pytest.raises(error):
                await connection.list_tools()
            assert text_of(await connection.call_tool("big", raw({"bytes": 1}))) == "x"

    asyncio.run(main())


def test_entries_that_are_no_tools_are_left_out_and_said() -> None:
    async def main() -> None:
        async with opened(misbehaving("--bad-tools")) as connection:
            found = await connection.list_tools()
            shown = [value(tool)["name"] for tool in found.tools]
            assert shown[-1] == "bare"
            assert "" not in shown
            assert len(found.warnings) == 7  # of one without a schema, whoever reads its definition tells

    asyncio.run(main())


def test_pages_are_followed_to_the_end() -> None:
    async def main() -> None:
        async with opened(misbehaving("--tools", "100", "--pages", "7", "--ttl", "5000")) as connection:
            found = await connection.list_tools()
            assert len({bytes(tool) for tool in found.tools}) == len(found.tools) > 100
            assert (found.ttl_ms, found.cache_scope, found.warnings) == (5000, "public", ())

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["--pages-loop", "--pages-endless"])
def test_pages_without_an_end_are_stopped(fault: str) -> None:
    async def main() -> None:
        async with opened(misbehaving(fault), WireOptions(max_pages=20)) as connection:
            found = await connection.list_tools()
            shown = [value(tool)["name"] for tool in found.tools]
            assert len(shown) == len(set(shown)) > 5
            assert len(found.warnings) == 1

    asyncio.run(main())


def test_a_frame_of_many_megabytes_arrives_whole() -> None:
    async def main() -> None:
        async with opened(misbehaving()) as connection:
            result = await connection.call_tool("big", raw({"bytes": 32_000_000}))
            assert len(text_of(result)) == 32_000_000

    asyncio.run(main())


def test_a_frame_over_the_cap_fails_its_request_and_no_other() -> None:
    async def main() -> None:
        async with opened(misbehaving(), WireOptions(max_frame_bytes=100_000)) as connection:
            other = asyncio.ensure_future(connection.call_tool("sleep", raw({"seconds": 0.3})))
            with pytest.raises(FrameTooLarge, match="100000 bytes"):
                await connection.call_tool("big", raw({"bytes": 5_000_000}))
            assert text_of(await other) == "awake"
            tail = '{"result":{"x":"' + "y" * 200_000 + '"},"jsonrpc":"2.0","id":%d}'
            number = connection.next_number() + 1
            with pytest.raises(FrameTooLarge):
                await connection.call_tool("raw_answer", raw({"text": tail % number}))
            assert text_of(await connection.call_tool("big", raw({"bytes": 2}))) == "xx"

    asyncio.run(main())


def test_large_arguments_wait_for_a_slow_reader_without_blocking() -> None:
    async def main() -> None:
        async with opened(misbehaving("--start-delay", "0.2")) as connection:
            big = raw({"text": "z" * 3_000_000})
            results = await asyncio.gather(*(connection.call_tool("echo", big) for _ in range(4)))
            assert all(len(text_of(result)) > 3_000_000 for result in results)

    asyncio.run(main())


def test_arguments_with_line_breaks_travel_as_one_line() -> None:
    async def main() -> None:
        async with opened(misbehaving()) as connection:
            pretty = Raw(json.dumps({"a": [1, 2], "b": "line\nbreak"}, indent=2).encode())
            result = await connection.call_tool("echo", pretty, meta=Raw(b'{\n"traceparent": "00-1"\n}'))
            assert value(result)["structuredContent"] == {"a": [1, 2], "b": "line\nbreak"}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("command", "words"),
    [("no-such-command-here", "was not found"), ("/", "was not found"), ("/dev/null", "was not found")],
)
def test_a_command_that_cannot_be_started_says_so(command: str, words: str) -> None:
    with pytest.raises(ServerUnavailable, match=words) as caught:
        asyncio.run(connect(StdioTarget(command), options=QUICK))
    assert caught.value.next_action


def test_a_command_that_is_there_and_may_not_be_executed_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "tool.sh").write_text("#!/bin/sh\n")
    with pytest.raises(ServerUnavailable, match="may not be executed") as caught:
        asyncio.run(connect(StdioTarget(str(tmp_path / "tool.sh")), options=QUICK))
    assert "chmod +x" in caught.value.next_action


def test_a_missing_working_folder_is_named() -> None:
    with pytest.raises(ServerUnavailable, match="/no/such/folder does not exist"):
        asyncio.run(connect(StdioTarget("true", cwd="/no/such/folder"), options=QUICK))


def test_a_server_that_ends_at_once_is_unavailable_with_its_last_words() -> None:
    target = StdioTarget(sys.executable, ("-c", "import sys; sys.exit('no key was given')"))
    with pytest.raises(ServerUnavailable, match=r"exit code 1.*no key was given"):
        asyncio.run(connect(target, options=QUICK))
