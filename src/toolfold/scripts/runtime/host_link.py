"""The child's link to the host: frames of JSON on one socket, answered in any order.

Calls wait in the event loop of the script; where the loop has nothing else to do, the call waits on the spot, which
spares the loop two turns. A large result is loaded piece by piece when the script looks into it, which happens in plain
attribute access and so blocks without a loop. Calls from threads beside the first loop block likewise. Whoever reads
from the socket hands on what is for others. Above: `functions.py`. Below: a socket.
"""

import asyncio
import select
import socket
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, encode

from toolfold import errors
from toolfold.sandbox.frames import LENGTH
from toolfold.scripts.runtime.records import StoredOutput

_READ_BYTES = 1 << 18
# How long a thread may wait before it looks whether another has read its answer from the socket.
_LOOK_MS = 20


class _Answer(Struct, frozen=True):
    """The host's answer: a result, a reference to a large one, a piece of it, or an error."""

    id: int
    result: dict[str, Any] = {}
    ref: int | None = None
    size: int = 0
    piece: str | None = None
    # Where the next piece begins.
    after: int = 0
    error: dict[str, Any] | None = None


_answer_decoder = Decoder(_Answer)


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
        # Held whenever the socket or what stands below is used, and never while something is waited for.
        self._lock = threading.RLock()
        self._number = 0
        self._pending: dict[int, asyncio.Future[_Answer]] = {}
        # Answers to those who block for them, by number; `None` until they come.
        self._blocking: dict[int, _Answer | None] = {}
        # Every read goes into one block: a fresh one for each would cost more than the read.
        self._block = memoryview(bytearray(_READ_BYTES))
        self._unparsed = bytearray()
        self._unsent = bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._idle_poll = _IdlePoll(channel.fileno())
        self._gate = asyncio.Semaphore(calls_at_once)
        self._listening = False
        channel.setblocking(False)

    async def call(self, tool_id: str, arguments: Any) -> _Answer:
        """Asks the host to call a tool. A few wait at once; the others queue here. Raises what the host answers."""
        return _checked(await self._call(tool_id, arguments))

    def load(self, ref: int | None, offset: int) -> tuple[str, int]:
        """A piece of a large result or of a stored output, and where the next begins. Blocks."""
        answer = _checked(self._ask({"op": "load", "ref": ref, "offset": offset}))
        return answer.piece or "", answer.after

    def open_output(self, handle: str) -> StoredOutput:
        """A stored tool result. Raises `UnknownHandle`."""
        answer = _checked(self._ask({"op": "open", "handle": str(handle)}))
        return StoredOutput(str(handle), answer.size, partial(self.load, answer.ref))

    async def _call(self, tool_id: str, arguments: Any) -> _Answer:
        loop = asyncio.get_running_loop()
        request = {"op": "call", "tool": tool_id, "args": arguments}
        if self._loop is not loop and not self._attach(loop):
            return self._ask(request)
        if self._pending or self._unsent or not self._idle_poll.is_idle():
            async with self._gate:
                return await self._wait(loop, self._request(request))
        number = self._request(request, blocking=True)
        return self._wait_on_the_spot(number) or await self._wait(loop, number)

    def _ask(self, request: dict[str, Any]) -> _Answer:
        """Sends a request and blocks for the answer. Answers to others that come meanwhile are handed on."""
        number = self._request(request, blocking=True)
        while True:
            poll = select.poll()
            with self._lock:
                self._flush()
                self._receive_all()
                if self._blocking[number] is not None:
                    return self._take(number)
                poll.register(self._channel, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            poll.poll(_LOOK_MS)

    def notify(self, message: dict[str, Any]) -> None:
        """Sends what has no answer, and blocks until it is sent."""
        with self._lock:
            self._channel.setblocking(True)
            self._channel.sendall(bytes(self._unsent) + _frame(encode(message)))
            self._unsent.clear()
            self._channel.setblocking(False)

    def _request(self, request: dict[str, Any], *, blocking: bool = False) -> int:
        """Sends a request under the next number: the host accepts them only in their order."""
        with self._lock:
            self._number = number = self._number + 1
            frame = encode({"id": number, **request})
            if len(frame) > self._frame_bytes:
                raise errors.InvalidArguments(
                    f"the arguments of {request['tool']} have {len(frame):,} bytes; {self._frame_bytes:,} is the most",
                    next_action="send less at once",
                )
            if blocking:
                self._blocking[number] = None
            self._send(_frame(frame))
        return number

    def _take(self, number: int) -> _Answer:
        answer = self._blocking.pop(number)
        assert answer is not None  # noqa: S101 - the caller has looked
        return answer

    def _wait_on_the_spot(self, number: int) -> _Answer | None:
        """Blocks as long as the loop would have nothing to do but wait. `None`: it has."""
        if self._unsent:
            return None
        self._listen(False)
        while self._idle_poll.wait_readable():
            with self._lock:
                answer = self._read_one(number)
                if answer is not None:
                    self._blocking.pop(number)
                    return answer
                if self._blocking[number] is not None:
                    return self._take(number)
        return None

    def _read_one(self, number: int) -> _Answer | None:
        """Most reads hold just the one answer, which then needs no copy into the buffer."""
        try:
            data = self._read()
        except BlockingIOError:  # another thread was faster
            return None
        if not self._unparsed and len(data) > 4 and LENGTH.unpack_from(data)[0] == len(data) - 4:
            answer = _answer_decoder.decode(data[4:])
            if answer.id == number:
                return answer
        self._receive(data)
        return None

    async def _wait(self, loop: asyncio.AbstractEventLoop, number: int) -> _Answer:
        with self._lock:
            answer = self._blocking.pop(number, None)
            if answer is not None:
                return answer
            future: asyncio.Future[_Answer] = loop.create_future()
            self._pending[number] = future
            self._listen(True)
        try:
            return await future
        finally:
            with self._lock:
                self._pending.pop(number, None)
                if not future.done() or future.cancelled():
                    self._send(_frame(encode({"id": number, "op": "cancel"})))

    def _attach(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Takes the loop that runs now: a script may run several, one after the other. False: another runs beside."""
        with self._lock:
            if self._loop is not None and self._loop.is_running():
                return False
            self._loop = loop
            self._thread = threading.get_ident()
            self._gate = asyncio.Semaphore(self._calls_at_once)
            self._idle_poll.attach(loop)
            self._pending.clear()
            self._listening = False
            if self._unsent:  # by the loop before
                loop.add_writer(self._channel, self._on_writable)
            return True

    def _listen(self, listening: bool) -> None:
        if listening != self._listening and self._loop is not None:
            self._listening = listening
            if listening:
                self._loop.add_reader(self._channel, self._on_readable)
            else:
                self._loop.remove_reader(self._channel)

    def _send(self, frame: bytes) -> None:
        waiting = bool(self._unsent)
        self._unsent += frame
        if not waiting:
            self._flush()
            if self._unsent and self._loop is not None and self._thread == threading.get_ident():
                self._loop.add_writer(self._channel, self._on_writable)

    def _flush(self) -> None:
        if self._unsent:
            try:
                del self._unsent[: self._channel.send(self._unsent)]
            except BlockingIOError:
                return

    def _on_writable(self) -> None:
        with self._lock:
            self._flush()
            if not self._unsent and self._loop is not None:
                self._loop.remove_writer(self._channel)

    def _on_readable(self) -> None:
        try:
            with self._lock:
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

    def _receive_all(self) -> None:
        try:
            while True:
                self._receive(self._read())
        except BlockingIOError:
            return

    def _receive(self, data: memoryview) -> None:
        """Hands on every complete answer: to the loop that waits for it, or to whoever blocks for it."""
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
            if future is not None:
                self._hand_over(_settle, future, answer)
            elif answer.id in self._blocking:
                self._blocking[answer.id] = answer
                self._hand_over()

    def _hand_over(self, deliver: Callable[..., None] = lambda: None, *arguments: Any) -> None:
        """Runs something in the loop's own thread. From another, that wakes it: it may wait for just this."""
        if self._thread == threading.get_ident() or self._loop is None:
            deliver(*arguments)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(deliver, *arguments)


def _checked(answer: _Answer) -> _Answer:
    if answer.error is not None:
        raise _exception_from(answer.error)
    return answer


def _settle(future: asyncio.Future[_Answer], answer: _Answer) -> None:
    if not future.done():
        future.set_result(answer)


def _frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def _exception_from(error: dict[str, Any]) -> errors.ToolfoldError:
    """The host's error as the exception of its own kind."""
    kind = _errors_by_code().get(str(error.get("code")), errors.ToolfoldError)
    # Some kinds take other arguments than these, which the host does not send.
    exception = kind.__new__(kind)
    errors.ToolfoldError.__init__(
        exception,
        str(error.get("message", "the host refused")),
        hints=error.get("hints") or (),
        next_action=str(error.get("next_action", "")),
    )
    return exception


@cache
def _errors_by_code() -> dict[str, type[errors.ToolfoldError]]:
    kinds = {errors.ToolfoldError.code: errors.ToolfoldError}
    stack = [errors.ToolfoldError]
    while stack:
        for kind in stack.pop().__subclasses__():
            kinds.setdefault(kind.code, kind)
            stack.append(kind)
    return kinds
