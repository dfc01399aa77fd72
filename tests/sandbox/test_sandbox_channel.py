"""The host's end of a child's socket: frames in order, in both directions, with neither side buried by the other."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolfold.errors import SandboxError
from toolfold.sandbox.channel import HIGH_WATER_BYTES, Channel, ReceivedFrame
from toolfold.sandbox.frames import read_frame

LIMIT = 1 << 20


def joined(work: Callable[[Channel, socket.socket], Awaitable[None]]) -> list[str]:
    """Runs `work` with a channel and the socket of its peer; gives the violations it was told of."""
    violations: list[str] = []

    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            channel = Channel(ours, LIMIT, lambda: violations.append("told"))
            try:
                async with asyncio.timeout(20):
                    await work(channel, theirs)
            finally:
                channel.close()

    asyncio.run(main())
    return violations


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came")


@settings(max_examples=30)
@given(st.lists(st.binary(min_size=1, max_size=2000), max_size=30), st.integers(1, 5000))
def test_frames_arrive_whole_and_in_order_however_they_are_cut(frames: list[bytes], piece: int) -> None:
    async def work(channel: Channel, peer: socket.socket) -> None:
        received: list[ReceivedFrame] = []
        channel.listen(received.append)
        data = b"".join(map(framed, frames))
        for at in range(0, len(data), piece):
            peer.sendall(data[at : at + piece])
            await asyncio.sleep(0)
        peer.close()
        await until(lambda: received[-1:] == [None])
        assert received == [*frames, None]

    assert joined(work) == []


def test_while_it_is_held_nothing_is_told_and_nothing_is_lost() -> None:
    async def work(channel: Channel, peer: socket.socket) -> None:
        received: list[ReceivedFrame] = []

        def one_at_a_time(frame: ReceivedFrame) -> None:
            received.append(frame)
            channel.hold(True)

        channel.listen(one_at_a_time)
        peer.sendall(b"".join(framed(b"%d" % number) for number in range(5)))
        for count in range(1, 6):
            await until(partial(lambda wanted: len(received) >= wanted, count))
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(received) == count
            channel.hold(False)
        assert received == [b"0", b"1", b"2", b"3", b"4"]

    assert joined(work) == []


def test_a_peer_that_does_not_read_makes_the_sender_wait_and_loses_nothing() -> None:
    body = b"x" * (HIGH_WATER_BYTES // 2)

    async def work(channel: Channel, peer: socket.socket) -> None:
        sent = 0
        while not channel.post(body):
            sent += 1
        waiting = asyncio.ensure_future(channel.drain())
        await asyncio.sleep(0)
        assert not waiting.done()
        got = [await asyncio.to_thread(read_frame, peer, LIMIT) for _ in range(sent + 1)]
        assert got == [body] * (sent + 1)
        await waiting

    assert joined(work) == []


def test_a_sender_that_waits_is_told_when_the_peer_leaves() -> None:
    async def work(channel: Channel, peer: socket.socket) -> None:
        await until(lambda: channel.post(b"x" * HIGH_WATER_BYTES))
        waiting = asyncio.ensure_future(channel.drain())
        await asyncio.sleep(0)
        peer.close()
        with pytest.raises(OSError, match="reads"):
            await waiting
        with pytest.raises(OSError, match="sent"):
            channel.post(b"x")

    assert joined(work) == []


def test_what_is_no_frame_is_told_before_anybody_hears_of_it() -> None:
    async def work(channel: Channel, peer: socket.socket) -> None:
        peer.sendall(framed(b"good") + b"\xff\xff\xff\xff")
        assert await channel.receive() == b"good"
        assert isinstance(await channel.receive(), SandboxError)
        assert await channel.receive() is None

    assert joined(work) == ["told"]


def test_whoever_waits_for_a_frame_is_told_that_the_channel_is_closed() -> None:
    async def work(channel: Channel, peer: socket.socket) -> None:
        waiting = asyncio.ensure_future(channel.receive())
        await asyncio.sleep(0)
        channel.close()
        assert await waiting is None
        peer.close()

    assert joined(work) == []
