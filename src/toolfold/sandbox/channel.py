"""Frames over the host's end of a child's socket, in the event loop: one read and one write for most of them.

It reads into one block that it keeps, since a fresh block for each read costs more than the read, and it writes at
once where the socket takes it. It knows nothing of what frames say. Above: `child.py`. Below: `frames.py`, a socket.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from toolfold.errors import SandboxError
from toolfold.sandbox.frames import LENGTH, FrameError, frame_length

_BLOCK_BYTES = 256 * 1024
HIGH_WATER_BYTES = 256 * 1024
"""How much may wait, in each direction, before the other side has to."""

ReceivedFrame = bytes | SandboxError | None
"""A frame; or, once, the end: `None` between two frames, else what was wrong."""
FrameListener = Callable[[ReceivedFrame], None]


class Channel:
    """One socket. Frames go to a listener as they come, or wait for `receive`."""

    def __init__(self, sock: socket.socket, limit: int, on_violation: Callable[[], None]) -> None:
        """`limit` is the longest frame. `on_violation` is told of bytes that are none, before anybody else."""
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._descriptor = sock.fileno()
        self._limit = limit
        self._on_violation = on_violation
        self._block = bytearray(_BLOCK_BYTES)
        self._rest = bytearray()
        self._out = bytearray()
        self._queue: deque[ReceivedFrame] = deque()
        self._queued = 0
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._listener: FrameListener = self._keep
        self._reading = False
        self._held = False
        self._ended = False
        self._shutting = False
        self._broken = False
        sock.setblocking(False)
        self._watch()

    def listen(self, listener: FrameListener) -> None:
        """Frames go to the listener from now on, those that wait at once."""
        self._listener = listener
        while self._queue:
            listener(self._queue.popleft())
        self._queued = 0
        self.hold(False)

    def hold(self, held: bool) -> None:
        """While held, nothing more is read, and the child has to wait."""
        if self._held == held:
            return
        self._held = held
        if not held:
            self._parse()
        self._watch()

    async def receive(self) -> ReceivedFrame:
        """The next frame, where there is no listener."""
        while not self._queue:
            if self._ended:
                return None
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        heard = self._queue.popleft()
        self._queued -= len(heard) if isinstance(heard, bytes) else 0
        if self._held and self._queued <= HIGH_WATER_BYTES:
            self.hold(False)
        return heard

    def post(self, frame: bytes) -> bool:
        """Writes a frame, or keeps what the socket does not take. True: so much waits that the sender should `drain`.

        Raises `OSError` when nobody reads any more.
        """
        if self._broken or self._shutting:
            raise BrokenPipeError("nothing can be sent any more")
        data: bytes | memoryview = LENGTH.pack(len(frame)) + frame
        if not self._out:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            if sent == len(data):
                return False
            data = memoryview(data)[sent:]
            self._loop.add_writer(self._descriptor, self._writable)
        self._out += data
        return len(self._out) > HIGH_WATER_BYTES

    async def drain(self) -> None:
        """Waits until less waits to be sent. Raises `OSError` when nobody reads any more."""
        while len(self._out) > HIGH_WATER_BYTES and not self._broken:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
        if self._broken:
            raise BrokenPipeError("nobody reads any more")

    def shut(self) -> None:
        """No more is sent; the peer reads the end once it has read the rest."""
        self._shutting = True
        if not self._out and not self._broken:
            self._shutdown()

    def close(self) -> None:
        """Lets go of the socket. Safe to call twice."""
        self._break()
        self._finish(None)
        self._watch()
        self._socket.close()

    def _watch(self) -> None:
        wanted = not self._held and not self._ended
        if wanted and not self._reading:
            self._loop.add_reader(self._descriptor, self._readable)
        elif self._reading and not wanted:
            self._loop.remove_reader(self._descriptor)
        self._reading = wanted

    def _readable(self) -> None:
        try:
            size = self._socket.recv_into(self._block)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            size = 0
        if size:
            self._rest += memoryview(self._block)[:size]
            self._parse()
        else:
            self._finish(_truncated_frame() if self._rest else None)
        if self._held or self._ended:
            self._watch()

    def _parse(self) -> None:
        """Hands on every whole frame, as long as the listener wants any."""
        rest, at = self._rest, 0
        try:
            while len(rest) - at >= LENGTH.size and not self._held and not self._ended:
                start = at + LENGTH.size
                end = start + frame_length(bytes(rest[at:start]), self._limit)
                if len(rest) < end:
                    break
                at = end
                self._listener(bytes(memoryview(rest)[start:end]))
        except FrameError as error:
            self._on_violation()
            self._finish(
                SandboxError(f"the child sent {error}", next_action="it was ended; start again with a fresh child")
            )
        if at:
            del rest[:at]

    def _finish(self, last: SandboxError | None) -> None:
        if not self._ended:
            self._ended = True
            self._listener(last)

    def _keep(self, heard: ReceivedFrame) -> None:
        self._queue.append(heard)
        if isinstance(heard, bytes):
            self._queued += len(heard)
            if self._queued > HIGH_WATER_BYTES:
                self._held = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _writable(self) -> None:
        try:
            del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            return
        except OSError:
            self._break()
            return
        if len(self._out) <= HIGH_WATER_BYTES:
            self._wake()
        if not self._out:
            self._loop.remove_writer(self._descriptor)
            if self._shutting:
                self._shutdown()

    def _shutdown(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._broken = True  # the child went first

    def _break(self) -> None:
        if not self._broken:
            self._broken = True
            if self._out:
                self._loop.remove_writer(self._descriptor)
                self._out.clear()
            self._wake()

    def _wake(self) -> None:
        if self._drained is not None:
            drained, self._drained = self._drained, None
            if not drained.done():
                drained.set_result(None)


def _truncated_frame() -> SandboxError:
    return SandboxError("the child left in the middle of a frame", next_action="`wait()` says how it ended")
