"""Whether the script's event loop has nothing to do but wait, and waiting in its place.

A call that is alone need not go through the loop: it waits for its own socket and for everything that could wake the
loop, the next timer included, and gives way to any of it. So a script cannot tell the difference, but in time. It looks
at parts of asyncio's own loop that have no public name; a loop without them is never called idle.
"""

import asyncio
import select
import socket
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, encode

from toolfold.errors import InvalidArguments
from toolfold.sandbox.frames import LENGTH


class _IdlePoll:
    """The loop that runs now, as seen from one descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop: Any = None
        self._poll: Any = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        selector: Any = getattr(loop, "_selector", None)
        known = all(hasattr(loop, name) for name in ("_ready", "_scheduled", "_stopping"))
        self._poll = None
        if known and hasattr(selector, "fileno") and hasattr(select, "poll"):
            self._loop = loop
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLIN)
            # An epoll descriptor is readable when something that the loop watches is.
            self._poll.register(selector.fileno(), select.POLLIN)

    def now(self) -> bool:
        """Nothing waits to be run, and the task that asks was not told to end."""
        loop = self._loop
        if self._poll is None or loop._ready or loop._stopping:  # noqa: SLF001 - there is no public way to ask
            return False
        task = asyncio.current_task()
        return task is not None and not task.cancelling()

    def until_readable(self) -> bool:
        """Waits. True: the descriptor is readable; False: the loop has something to do, or may have."""
        loop = self._loop
        timers = loop._scheduled  # noqa: SLF001 - as above
        pause = max(0.0, timers[0].when() - loop.time()) * 1000 if timers else None
        ready = self._poll.poll(pause)
        return len(ready) == 1 and ready[0][0] == self._descriptor


# --- The child's way to the host: frames of JSON on one socket, answered in any order.

_READ_BYTES = 1 << 18


class Answer(Struct, frozen=True):
    """What the host says to a request: a result, a reference to a large one, a piece of it, or an error."""

    id: int
    result: dict[str, Any] = {}
    ref: int | None = None
    size: int = 0
    piece: str | None = None
    after: int = 0
    """Where the next piece begins."""
    error: dict[str, Any] | None = None


_answer_decoder = Decoder(Answer)


class HostLink:
    """One per child."""

    def __init__(self, channel: socket.socket, at_once: int, most: int) -> None:
        """`most` is the longest frame that the host takes."""
        self._channel = channel
        self._at_once = at_once
        self._most = most
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._early: dict[int, Answer] = {}
        # Every read goes into one block: a fresh one for each would cost more than the read.
        self._block = memoryview(bytearray(_READ_BYTES))
        self._buffer = bytearray()
        self._out = bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle = _IdlePoll(channel.fileno())
        self._gate = asyncio.Semaphore(at_once)
        self._listening = False
        channel.setblocking(False)

    async def call(self, tool_id: str, arguments: Any) -> Answer:
        """Asks the host to call a tool. So many wait at once; the others queue here."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._attach(loop)
        if self._waiting or self._out or not self._idle.now():
            async with self._gate:
                return await self._answered(loop, self._called(tool_id, arguments))
        number = self._called(tool_id, arguments)
        return self._on_the_spot(number) or await self._answered(loop, number)

    def _called(self, tool_id: str, arguments: Any) -> int:
        self._number = number = self._number + 1
        frame = encode({"op": "call", "id": number, "tool": tool_id, "args": arguments})
        if len(frame) > self._most:
            raise InvalidArguments(
                f"the arguments of {tool_id} have {len(frame):,} bytes; {self._most:,} is the most",
                next_action="send less at once",
            )
        self._send(_frame(frame))
        return number

    def _on_the_spot(self, number: int) -> Answer | None:
        """Waits as long as the loop would have nothing to do but wait. `None`: it has."""
        if self._out:
            return None
        if self._listening:
            self._listen(False)
        while self._idle.until_readable():
            data = self._read()
            if not self._buffer and len(data) > 4 and LENGTH.unpack_from(data)[0] == len(data) - 4:
                answer = _answer_decoder.decode(data[4:])
                if answer.id == number:
                    return answer
            self._take(data, keep=number)
            if number in self._early:
                return self._early.pop(number)
        return None

    async def _answered(self, loop: asyncio.AbstractEventLoop, number: int) -> Answer:
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting[number] = future
        if not self._listening:
            self._listen(True)
        try:
            return await future
        finally:
            self._waiting.pop(number, None)
            if not future.done() or future.cancelled():
                self._send(_frame(encode({"id": number, "op": "cancel"})))

    def ask(self, request: dict[str, Any]) -> Answer:
        """Asks and waits on the spot. Answers to others that come meanwhile are handed on."""
        self._number = number = self._number + 1
        frame = _frame(encode({"id": number, **request}))
        self._channel.setblocking(True)
        try:
            self._channel.sendall(bytes(self._out) + frame)
            self._out.clear()
            while number not in self._early:
                self._take(self._read(), keep=number)
            return self._early.pop(number)
        finally:
            self._channel.setblocking(False)

    def tell(self, message: dict[str, Any]) -> None:
        """Says something that has no answer, and waits until it is sent."""
        self._channel.setblocking(True)
        self._channel.sendall(bytes(self._out) + _frame(encode(message)))
        self._out.clear()

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the loop that runs now: a script may run several, one after the other."""
        self._loop = loop
        self._gate = asyncio.Semaphore(self._at_once)
        self._idle.attach(loop)
        self._waiting.clear()
        self._listening = False
        if self._out:  # what the loop before did not get to send
            loop.add_writer(self._channel, self._writable)

    def _listen(self, listening: bool) -> None:
        if listening != self._listening and self._loop is not None:
            self._listening = listening
            if listening:
                self._loop.add_reader(self._channel, self._readable)
            else:
                self._loop.remove_reader(self._channel)

    def _send(self, frame: bytes) -> None:
        if not self._out:
            try:
                sent = self._channel.send(frame)
            except BlockingIOError:
                sent = 0
            if sent == len(frame):
                return
            frame = frame[sent:]
            if self._loop is not None:
                self._loop.add_writer(self._channel, self._writable)
        self._out += frame

    def _writable(self) -> None:
        if self._out:
            try:
                del self._out[: self._channel.send(self._out)]
            except BlockingIOError:
                return
        if not self._out and self._loop is not None:
            self._loop.remove_writer(self._channel)

    def _readable(self) -> None:
        try:
            self._take(self._read())
        except BlockingIOError:
            return
        except (OSError, DecodeError) as error:
            self._listen(False)
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionError(f"the host cannot be understood: {error}"))

    def _read(self) -> memoryview:
        return self._block[: self._channel.recv_into(self._block)]

    def _take(self, data: memoryview, keep: int = 0) -> None:
        if not data:
            raise ConnectionError("the host closed the connection")
        self._buffer += data
        while len(self._buffer) >= 4:
            (length,) = LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < 4 + length:
                return
            answer = _answer_decoder.decode(memoryview(self._buffer)[4 : 4 + length].tobytes())
            del self._buffer[: 4 + length]
            future = self._waiting.get(answer.id)
            if answer.id == keep:
                self._early[keep] = answer
            elif future is not None and not future.done():
                future.set_result(answer)


def _frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body
