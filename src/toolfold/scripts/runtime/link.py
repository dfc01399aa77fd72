"""The child's way to the host: frames of JSON on one socket, answered in any order.

Calls wait in the event loop of the script; a large result is loaded piece by piece when the script looks into it, which
happens in plain attribute access and so waits without a loop. One thread at a time.
"""

import asyncio
import socket
import struct
from typing import Any

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, encode

_LENGTH = struct.Struct(">I")
READ = 1 << 18


class Answer(Struct, frozen=True):
    """What the host says to a request: a result, a reference to a large one, a piece of it, or an error."""

    id: int
    result: Raw = Raw(b"{}")
    ref: int | None = None
    size: int = 0
    piece: str | None = None
    error: dict[str, Any] | None = None


_answer = Decoder(Answer)


class Link:
    """One per child."""

    def __init__(self, channel: socket.socket, at_once: int) -> None:
        self._channel = channel
        self._at_once = at_once
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._early: dict[int, Answer] = {}
        self._buffer = bytearray()
        self._out = bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate: asyncio.Semaphore | None = None
        channel.setblocking(False)

    async def call(self, tool_id: str, arguments: Any) -> Answer:
        """Asks the host to call a tool. So many wait at once; the others queue here."""
        gate = self._attached()
        async with gate:
            number, frame = self._request({"op": "call", "tool": tool_id, "args": arguments})
            future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._waiting[number] = future
            self._send(frame)
            try:
                return await future
            finally:
                self._waiting.pop(number, None)
                if not future.done() or future.cancelled():
                    self._send(_framed(encode({"id": number, "op": "cancel"})))

    def ask(self, request: dict[str, Any]) -> Answer:
        """Asks and waits on the spot. Answers to others that come meanwhile are handed on."""
        number, frame = self._request(request)
        self._channel.setblocking(True)
        try:
            self._channel.sendall(bytes(self._out) + frame)
            self._out.clear()
            while number not in self._early:
                self._take(self._channel.recv(READ), keep=number)
            return self._early.pop(number)
        finally:
            self._channel.setblocking(False)

    def tell(self, message: dict[str, Any]) -> None:
        """Says something that has no answer, and waits until it is sent."""
        self._channel.setblocking(True)
        self._channel.sendall(bytes(self._out) + _framed(encode(message)))
        self._out.clear()

    def _request(self, request: dict[str, Any]) -> tuple[int, bytes]:
        self._number += 1
        return self._number, _framed(encode({"id": self._number, **request}))

    def _attached(self) -> asyncio.Semaphore:
        """Listens in the loop that runs now: a script may run several, one after the other."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._gate is None:
            self._loop = loop
            self._gate = asyncio.Semaphore(self._at_once)
            self._waiting.clear()
            loop.add_reader(self._channel, self._readable)
        return self._gate

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
            self._take(self._channel.recv(READ))
        except BlockingIOError:
            return
        except (OSError, DecodeError) as error:
            if self._loop is not None:
                self._loop.remove_reader(self._channel)
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionError(f"the host cannot be understood: {error}"))

    def _take(self, data: bytes, keep: int = 0) -> None:
        if not data:
            raise ConnectionError("the host closed the connection")
        self._buffer += data
        while len(self._buffer) >= 4:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < 4 + length:
                return
            answer = _answer.decode(memoryview(self._buffer)[4 : 4 + length].tobytes())
            del self._buffer[: 4 + length]
            future = self._waiting.get(answer.id)
            if answer.id == keep:
                self._early[keep] = answer
            elif future is not None and not future.done():
                future.set_result(answer)


def _framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body
