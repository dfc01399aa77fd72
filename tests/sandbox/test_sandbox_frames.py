"""The frame boundary: a child that sends what is no frame is ended, with that as the reason, and the host goes on."""

import asyncio
import contextlib
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox_lab import CONFINED, ENTRY, Lab

from toolfold.errors import SandboxError
from toolfold.sandbox.base import ChildLimits, Ending
from toolfold.sandbox.frames import FrameError, read_frame, write_frame
from toolfold.sandbox.zygote import Zygote

BROKEN = {
    "length 2**32-1": b"\xff\xff\xff\xff",
    "a negative length": b"\x80\x00\x00\x00",
    "length zero": b"\x00\x00\x00\x00",
    "one over the limit": (1001).to_bytes(4, "big"),
    "text": b"HTTP/1.1 200 OK\r\n",
}
LIMITS = ChildLimits(wall_s=20, frame_bytes=2000, receive_bytes=1000)


def hear(data: str, *, frames: int = 1000) -> tuple[list[bytes | str | None], Ending]:
    """What the host hears of a child that writes raw bytes on its socket, up to so many frames."""

    async def main() -> tuple[list[bytes | str | None], Ending]:
        received: list[bytes | str | None] = []
        async with Zygote(ENTRY, limits=LIMITS, ready=0) as zygote, await zygote.take() as child:
            await child.send(b'{"code": "import os, time; ' + data.encode() + b'"}')
            try:
                while received[-1:] != [None] and len(received) < frames:
                    received.append(await child.receive())
            except SandboxError as error:
                received.append(error.message)
            child.close_input()
            return received, (await child.wait()).ending

    return asyncio.run(main())


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_frame_ends_the_child_as_a_violation(name: str) -> None:
    received, ending = hear(f"os.write(3, bytes.fromhex('{BROKEN[name].hex()}')); time.sleep(600)")
    assert len(received) == 1
    assert "the child sent a frame of" in str(received[0])
    assert ending == "protocol_violation"


def test_raw_bytes_between_two_frames_are_a_violation() -> None:
    received, ending = hear("channel.sendall(b'\\\\0\\\\0\\\\0\\\\1x{garbage}'); time.sleep(600)")
    assert received[0] == b"x"
    assert "the child sent a frame of" in str(received[1])
    assert ending == "protocol_violation"


def test_a_frame_in_single_bytes_is_a_frame() -> None:
    received, ending = hear("[channel.send(bytes([b])) for b in b'\\\\0\\\\0\\\\0\\\\5hello']; os._exit(0)")
    assert received == [b"hello", None]
    assert ending == "exited"


def test_a_child_that_leaves_in_the_middle_of_a_frame_is_told_by_its_end() -> None:
    received, ending = hear("channel.sendall(b'\\\\0\\\\0\\\\0\\\\5he'); os._exit(4)")
    assert received == ["the child left in the middle of a frame"]
    assert ending == "exited"


@pytest.mark.parametrize("to", ["channel", "socket.socketpair()[0]"])
def test_no_descriptor_can_be_sent_to_the_host_nor_to_itself(to: str) -> None:
    received, _ = hear(f"import socket; socket.send_fds({to}, [b'x'], [1, 2])", frames=1)
    assert b'"errno": 1' in (received[0] if isinstance(received[0], bytes) else b"")


@pytest.mark.parametrize("way", CONFINED)
def test_a_frame_of_many_megabytes_passes_both_ways(lab: Lab, way: str) -> None:
    answer = lab.attack(way, "result = 'x' * 20_000_000", "#" * 10_000_000 + "\nresult = 1").answers
    assert answer[0] is not None
    assert len(answer[0]["result"]) == 20_000_000
    assert answer[1] == {"result": 1}


async def test_the_host_refuses_to_send_what_the_child_could_not_read() -> None:
    async with Zygote(ENTRY, limits=LIMITS, ready=0) as zygote, await zygote.take() as child:
        for frame in (b"", b"x" * 2001):
            with pytest.raises(SandboxError, match="a frame of"):
                await child.send(frame)
        await child.send(b'{"code": "result = 1"}')
        assert await child.receive() == b'{"result": 1}'


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=20))
def test_frames_come_out_as_they_went_in(frames: list[bytes]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for frame in frames:
            write_frame(ours, frame)
        ours.shutdown(socket.SHUT_WR)
        assert [read_frame(theirs, 300) for _ in frames] == frames
        assert read_frame(theirs, 300) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_frames_or_an_error_and_never_more_than_the_limit(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        with contextlib.suppress(FrameError):
            while (frame := read_frame(theirs, 16)) is not None:
                assert 1 <= len(frame) <= 16
