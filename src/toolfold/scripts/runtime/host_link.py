"""The child's link to the host: frames of JSON on one socket, answered in any order.

Calls wait in the event loop of the script; where the loop has nothing else to do, the call waits on the spot, which
spares the loop two turns. A large result is loaded piece by piece when the script looks into it, which happens in plain
attribute access and so blocks without a loop. One thread at a time. Above: `functions.py`. Below: a socket.
"""

import asyncio
import select
import socket
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, encode

from toolfold.errors import InvalidArguments
from toolfold.sandbox.frames import LENGTH

_READ_BYTES = 1 << 18


class Answer(Struct, frozen=True):
    """The host's answer: a result, a reference to a large one, a piece of it, or an error."""

    id: int
    result: dict[str, Any] = {}
    ref: int | None = None
    size: int = 0
    piece: str | None = None
    # Where the next piece begins.
    after: int = 0
    error: dict[str, Any] | None = None


_answer_decoder = Decoder(Answer)


class _IdlePoll:
    """Whether the running event loop has nothing to do but wait, and waiting in its place.

    A call that is alone need not go through the loop: it polls its own socket and everything that could wake the loop,
    the next timer included, and gives way to any of it. So a script cannot tell the difference, but in time. It reads
    parts of asyncio's own loop that have no public name; a loop without them is never called idle.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop: Any = None
        self._poll: Any = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        selector: Any = getattr(loop, "_selector", None)
        supported = all(hasattr(loop, name) for name in ("_ready", "_scheduled", "_stopping"))
        self._poll = None
        if supported and hasattr(selector, "fileno") and hasattr(select, "poll"):
            self._loop = loop
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLIN)
            # An epoll descriptor is readable when something that the loop watches is.
            self._poll.register(selector.fileno(), select.POLLIN)

    def is_idle(self) -> bool:
        """Whether nothing waits to be run, and the current task was not cancelled."""
        loop = self._loop
        if self._poll is None or loop._ready or loop._stopping:  # noqa: SLF001 - there is no public way to ask
            return False
        task = asyncio.current_task()
        return task is not None and not task.cancelling()

    def wait_readable(self) -> bool:
        """Blocks. True: the descriptor is readable; False: the loop has something to do, or may have."""
        loop = self._loop
        timers = loop._scheduled  # noqa: SLF001 - as above
        pause = max(0.0, timers[0].when() - loop.time()) * 1000 if timers else None
        ready = self._poll.poll(pause)
        return len(ready) == 1 and ready[0][0] == self._descriptor


class HostLink:
    """One per child."""

    def __init__(self, channel: socket.socket, calls_at_once: int, frame_bytes: int) -> None:
        """`frame_bytes` is the longest frame that the host accepts."""
        self._channel = channel
        self._calls_at_once = calls_at_once
        self._frame_bytes = frame_bytes
        self._number = 0
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        # Answers to those who block for them, by number.
        self._blocking: dict[int, Answer] = {}
        # Every read goes into one block: a fresh one for each would cost more than the read.
        self._block = memoryview(bytearray(_READ_BYTES))
        self._unparsed = bytearray()
        self._unsent = bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle_poll = _IdlePoll(channel.fileno())
        self._gate = asyncio.Semaphore(calls_at_once)
        self._listening = False
        channel.setblocking(False)

    async def call(self, tool_id: str, arguments: Any) -> Answer:
        """Asks the host to call a tool. A few wait at once; the others queue here."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._attach(loop)
        if self._pending or self._unsent or not self._idle_poll.is_idle():
            async with self._gate:
                return await self._wait(loop, self._request(tool_id, arguments))
        number = self._request(tool_id, arguments)
        return self._wait_on_the_spot(number) or await self._wait(loop, number)

    def ask(self, request: dict[str, Any]) -> Answer:
        """Sends a request and blocks for the answer. Answers to others that come meanwhile are handed on."""
        self._number = number = self._number + 1
        frame = _frame(encode({"id": number, **request}))
        self._channel.setblocking(True)
        try:
            self._channel.sendall(bytes(self._unsent) + frame)
            self._unsent.clear()
            while number not in self._blocking:
                self._receive(self._read(), blocking=number)
            return self._blocking.pop(number)
        finally:
            self._channel.setblocking(False)

    def notify(self, message: dict[str, Any]) -> None:
        """Sends what has no answer, and blocks until it is sent."""
        self._channel.setblocking(True)
        self._channel.sendall(bytes(self._unsent) + _frame(encode(message)))
        self._unsent.clear()

    def _request(self, tool_id: str, arguments: Any) -> int:
        self._number = number = self._number + 1
        frame = encode({"op": "call", "id": number, "tool": tool_id, "args": arguments})
        if len(frame) > self._frame_bytes:
            raise InvalidArguments(
                f"the arguments of {tool_id} have {len(frame):,} bytes; {self._frame_bytes:,} is the most",
                next_action="send less at once",
            )
        self._send(_frame(frame))
        return number

    def _wait_on_the_spot(self, number: int) -> Answer | None:
        """Blocks as long as the loop would have nothing to do but wait. `None`: it has."""
        if self._unsent:
            return None
        self._listen(False)
        while self._idle_poll.wait_readable():
            data = self._read()
            # Most reads hold just the one answer, which then needs no copy into the buffer.
            if not self._unparsed and len(data) > 4 and LENGTH.unpack_from(data)[0] == len(data) - 4:
                answer = _answer_decoder.decode(data[4:])
                if answer.id == number:
                    return answer
            self._receive(data, blocking=number)
            if number in self._blocking:
                return self._blocking.pop(number)
        return None

    async def _wait(self, loop: asyncio.AbstractEventLoop, number: int) -> Answer:
        future: asyncio.Future[Answer] = loop.create_future()
        self._pending[number] = future
        self._listen(True)
        try:
            return await future
        finally:
            self._pending.pop(number, None)
            if not future.done() or future.cancelled():
                self._send(_frame(encode({"id": number, "op": "cancel"})))

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the loop that runs now: a script may run several, one after the other."""
        self._loop = loop
        self._gate = asyncio.Semaphore(self._calls_at_once)
        self._idle_poll.attach(loop)
        self._pending.clear()
        self._listening = False
        if self._unsent:  # by the loop before
            loop.add_writer(self._channel, self._on_writable)

    def _listen(self, listening: bool) -> None:
        if listening != self._listening and self._loop is not None:
            self._listening = listening
            if listening:
                self._loop.add_reader(self._channel, self._on_readable)
            else:
                self._loop.remove_reader(self._channel)

    def _send(self, frame: bytes) -> None:
        if not self._unsent:
            try:
                sent = self._channel.send(frame)
            except BlockingIOError:
                sent = 0
            if sent == len(frame):
                return
            frame = frame[sent:]
            if self._loop is not None:
                self._loop.add_writer(self._channel, self._on_writable)
        self._unsent += frame

    def _on_writable(self) -> None:
        if self._unsent:
            try:
                del self._unsent[: self._channel.send(self._unsent)]
            except BlockingIOError:
                return
        if not self._unsent and self._loop is not None:
            self._loop.remove_writer(self._channel)

    def _on_readable(self) -> None:
        try:
            self._receive(self._read())
        except BlockingIOError:
            return
        except (OSError, DecodeError) as error:
            self._listen(False)
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(ConnectionError(f"the host cannot be understood: {error}"))

    def _read(self) -> memoryview:
        return self._block[: self._channel.recv_into(self._block)]

    def _receive(self, data: memoryview, blocking: int = 0) -> None:
        """Hands on every complete answer; the one with the number `blocking` goes to whoever blocks for it."""
        if not data:
            raise ConnectionError("the host closed the connection")
        self._unparsed += data
        while len(self._unparsed) >= 4:
            (length,) = LENGTH.unpack_from(self._unparsed)
            if len(self._unparsed) < 4 + length:
                return
            answer = _answer_decoder.decode(memoryview(self._unparsed)[4 : 4 + length].tobytes())
            del self._unparsed[: 4 + length]
            future = self._pending.get(answer.id)
            if answer.id == blocking:
                self._blocking[blocking] = answer
            elif future is not None and not future.done():
                future.set_result(answer)


def _frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body
