"""Messages that are too large to be held go to a file without a name, and mean the same as if they had been held."""

import asyncio
import json
import os
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from misbehaving_stdio import misbehaving
from msgspec import Raw
from wire_helpers import QUICK, names, opened, raw, text_of, value

from toolfold.errors import FrameTooLarge, OutputFull, RemoteError, ServerTimeout
from toolfold.wire import Handlers, WireOptions
from toolfold.wire.pipes import LineFramer
from toolfold.wire.spill import Spill, SpillPolicy
from toolfold.wire.sse import SseParser


def spilling(folder: Path, **options: int) -> WireOptions:
    """Everything but the smallest messages goes to a file."""
    return msgspec.structs.replace(QUICK, spill_directory=str(folder), spill_bytes=100, **options)


def content(spill: Spill) -> bytes:
    return spill.read()


@pytest.mark.requirement("O-14")
@given(st.lists(st.binary(max_size=60).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.integers(1, 30))
def test_lines_come_out_whole_and_in_order_whatever_the_pieces(lines: list[bytes], size: int) -> None:
    found: list[bytes] = []
    framer = LineFramer(
        1000,
        found.append,
        lambda edges: pytest.fail("nothing is skipped"),
        policy=SpillPolicy("/tmp", 20, 1000, 1000),
        on_spilled=lambda spill: found.append(content(spill)),
    )
    data = b"".join(line + b"\n" for line in lines)
    for start in range(0, len(data), size):
        framer.feed(data[start : start + size])
    assert found == [line for line in lines if line]
    assert framer.rest() == b""
    assert framer.rest_spilled() is None


@pytest.mark.requirement("O-14")
@given(
    st.lists(st.lists(st.text("abc: {}", max_size=40), min_size=1, max_size=3), max_size=4),
    st.integers(1, 30),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_events_come_out_whole_and_in_order_whatever_the_pieces(events: list[list[str]], size: int, end: str) -> None:
    lines = []
    for number, event in enumerate(events):
        lines += [f"id: {number}", *(f"data: {line}" for line in event), "retry: 5", ""]
    data = "".join(line + end for line in lines).encode()
    found: list[tuple[str | None, bytes]] = []
    parser = SseParser(1000, SpillPolicy("/tmp", 20, 1000, 1000))
    for start in range(0, len(data), size):
        for one in parser.feed(data[start : start + size]):
            assert not one.oversized
            found.append((one.id, one.data if one.spill is None else content(one.spill)))
    parser.close()
    assert found == [(str(number), "\n".join(event).encode()) for number, event in enumerate(events)]


@pytest.mark.requirement("O-14")
@pytest.mark.parametrize(
    "faults", [(), ("--ids", "string"), ("--split", "7"), ("--no-jsonrpc",), ("--noise",), ("--batch",)]
)
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_is_understood_the_same_when_its_messages_are_not_held(
    tmp_path: Path, faults: tuple[str, ...], era: str
) -> None:
    async def main() -> None:
        async with opened(misbehaving("--era", era, *faults), spilling(tmp_path)) as connection:
            assert "echo" in await names(connection)
            result = await connection.call_tool("big", raw({"bytes": 300_000}))
            assert len(text_of(result)) == 300_000
            with pytest.raises(RemoteError):
                await connection.call_tool("fail", raw({"message": "x" * 5000}))

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("O-14")
def test_a_call_that_takes_it_gets_a_large_answer_as_a_file(tmp_path: Path) -> None:
    async def main() -> None:
        files: list[BinaryIO] = []
        options = spilling(tmp_path, max_frame_bytes=200_000)
        async with opened(misbehaving(), options) as connection:
            result = await connection.call_tool("big", raw({"bytes": 1_000_000}), on_spilled=files.append)
            assert bytes(result) == b"{}"
            with files.pop() as file:
                assert len(text_of(Raw(json.dumps(json.loads(file.read())["result"]).encode()))) == 1_000_000
                assert os.fstat(file.fileno()).st_nlink == 0
            small = await connection.call_tool("echo", raw({"a": 1}), on_spilled=files.append)
            assert value(small) == {}
            files.pop().close()
            with pytest.raises(FrameTooLarge, match="200000") as caught:
                await connection.call_tool("big", raw({"bytes": 1_000_000}))
            assert "handle" in caught.value.next_action
            assert not files

    asyncio.run(main())


@pytest.mark.requirement("O-14")
def test_an_answer_over_what_may_be_stored_is_refused_and_the_connection_lives_on(tmp_path: Path) -> None:
    async def main() -> None:
        files: list[BinaryIO] = []
        options = spilling(tmp_path, max_frame_bytes=1000, max_output_bytes=50_000)
        async with opened(misbehaving(), options) as connection:
            with pytest.raises(FrameTooLarge) as caught:
                await connection.call_tool("big", raw({"bytes": 1_000_000}), on_spilled=files.append)
            assert "max_output_bytes" in caught.value.next_action
            assert value(await connection.call_tool("echo", raw({"a": 1})))
            assert not files

    asyncio.run(main())


def test_a_place_that_cannot_be_written_is_told_and_the_connection_lives_on(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "file").write_text("")
        files: list[BinaryIO] = []
        options = spilling(tmp_path / "file" / "below", max_frame_bytes=500_000)
        async with opened(misbehaving(), options) as connection:
            held = await connection.call_tool("big", raw({"bytes": 400_000}), on_spilled=files.append)
            assert len(text_of(held)) == 400_000
            with pytest.raises(OutputFull) as caught:
                await connection.call_tool("big", raw({"bytes": 1_000_000}), on_spilled=files.append)
            assert "outputs.directory" in caught.value.next_action
            assert value(await connection.call_tool("echo", raw({"a": 1})))
            assert not files

    asyncio.run(main())


def test_a_large_answer_that_nobody_waits_for_any_more_is_no_noise_and_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        noise: list[str] = []
        files: list[BinaryIO] = []
        handlers = Handlers(on_noise=noise.append)
        target = misbehaving("--answer-delay", "0.3")
        async with opened(target, spilling(tmp_path), handlers) as connection:
            with pytest.raises(ServerTimeout):
                await connection.call_tool("big", raw({"bytes": 9000}), timeout_s=0.05, on_spilled=files.append)
            assert value(await connection.call_tool("echo", raw({"a": 1})))
        assert not files
        assert not [line for line in noise if "nobody" in line]

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []
