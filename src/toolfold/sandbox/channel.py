"""Frames over the host's end of a child's socket, in the event loop: one read and one write for most of them.

It knows nothing of what frames say. Above: `child.py`. Below: `frames.py` for the format, a socket.
"""

import asyncio
import socket
from collections.abc import Callable

from toolfold.errors import SandboxError
from toolfold.sandbox.frames import LENGTH, FrameError, frame_length

_BLOCK_BYTES = 256 * 1024
# How much may be queued in each direction before the other side has to wait.
HIGH_WATER_BYTES = 256 * 1024

# A frame; or, once, the end: `None` between two frames, else the error.
ReceivedFrame = bytes | SandboxError | None
FrameListener = Callable[[ReceivedFrame], None]


class Channel:
    """One socket. Frames go to a listener as they arrive, or are queued for `receive`."""

    # No asyncio transport: that closes both directions when a write fails, and the last frames of a child that is gone
    # would be lost.

    def __init__(self, sock: socket.socket, limit: int, on_violation: Callable[[], None]) -> None:
        """`limit` is the longest frame. `on_violation` is called for malformed bytes, before the listener."""
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._descriptor = sock.fileno()
        self._limit = limit
        self._on_violation = on_violation
        # Every read goes into one block: a fresh one for each read costs more than the read.
        self._block = bytearray(_BLOCK_BYTES)
        self._unparsed = bytearray()
        self._unsent = bytearray()
        self._queue: asyncio.Queue[ReceivedFrame] = asyncio.Queue()
        self._queued_bytes = 0
        self._drained = asyncio.Event()
        self._listener: FrameListener = self._enqueue
        self._reading = False
        self._held = False
        self._ended = False
        self._shutting = False
        self._broken = False
        sock.setblocking(False)
        self._update_reader()

    def listen(self, listener: FrameListener) -> None:
        """Passes frames to the listener from now on, queued ones at once."""
        self._listener = listener
        while not self._queue.empty():
            listener(self._queue.get_nowait())
        self._queued_bytes = 0
        self.hold(False)

    def hold(self, held: bool) -> None:
        """While held, nothing more is read, and the child has to wait."""
        if self._held != held:
            self._held = held
            if not held:
                self._parse()
            self._update_reader()

    async def receive(self) -> ReceivedFrame:
        """Returns the next frame, where there is no listener."""
        if self._ended and self._queue.empty():
            return None
        frame = await self._queue.get()
        self._queued_bytes -= len(frame) if isinstance(frame, bytes) else 0
        if self._queued_bytes <= HIGH_WATER_BYTES:
            self.hold(False)
        return frame

    def post(self, frame: bytes) -> bool:
        """Writes a frame, or queues what the socket does not take. Returns whether the sender should `drain`.

        Raises `OSError` when nobody reads any more.
        """
        if self._broken or self._shutting:
            raise BrokenPipeError("nothing can be sent any more")
        data: bytes | memoryview = LENGTH.pack(len(frame)) + frame
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            if sent == len(data):
                return False
            data = memoryview(data)[sent:]
            self._loop.add_writer(self._descriptor, self._on_writable)
        self._unsent += data
        if len(self._unsent) <= HIGH_WATER_BYTES:
            return False
        self._drained.clear()
        return True

    async def drain(self) -> None:
        """Waits until less is queued. Raises `OSError` when nobody reads any more."""
        while len(self._unsent) > HIGH_WATER_BYTES and not self._broken:
            await self._drained.wait()
        if self._broken:
            raise BrokenPipeError("nobody reads any more")

    def shut(self) -> None:
        """Sends no more; the peer reads the end once it has read what is queued."""
        self._shutting = True
        if not self._unsent and not self._broken:
            self._shutdown()

    def close(self) -> None:
        """Closes the socket. Safe to call twice."""
        self._break()
        self._finish(None)
        self._update_reader()
        self._socket.close()

    def _update_reader(self) -> None:
        wanted = not self._held and not self._ended
        if wanted and not self._reading:
            self._loop.add_reader(self._descriptor, self._on_readable)
        elif self._reading and not wanted:
            self._loop.remove_reader(self._descriptor)
        self._reading = wanted

    def _on_readable(self) -> None:
        try:
            size = self._socket.recv_into(self._block)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            size = 0
        if size:
            self._unparsed += memoryview(self._block)[:size]
            self._parse()
        elif self._unparsed:
            self._finish(
                SandboxError("the child left in the middle of a frame", next_action="`wait()` says how it ended")
            )
        else:
            self._finish(None)
        if self._held or self._ended:
            self._update_reader()

    def _parse(self) -> None:
        """Hands on every complete frame, as long as the listener wants any."""
        data, at = self._unparsed, 0
        try:
            while len(data) - at >= LENGTH.size and not self._held and not self._ended:
                start = at + LENGTH.size
                end = start + frame_length(bytes(data[at:start]), self._limit)
                if len(data) < end:
                    break
                at = end
                self._listener(bytes(memoryview(data)[start:end]))
        except FrameError as error:
            self._on_violation()
            self._finish(
                SandboxError(f"the child sent {error}", next_action="it was ended; start again with a fresh child")
            )
        if at:
            del data[:at]

    def _finish(self, last: SandboxError | None) -> None:
        if not self._ended:
            self._ended = True
            self._listener(last)

    def _enqueue(self, frame: ReceivedFrame) -> None:
        self._queue.put_nowait(frame)
        if isinstance(frame, bytes):
            self._queued_bytes += len(frame)
            if self._queued_bytes > HIGH_WATER_BYTES:
                self._held = True

    def _on_writable(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._break()
            return
        if len(self._unsent) <= HIGH_WATER_BYTES:
            self._drained.set()
        if not self._unsent:
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
            if self._unsent:
                self._loop.remove_writer(self._descriptor)
                self._unsent.clear()
            self._drained.set()
