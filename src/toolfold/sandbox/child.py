"""The host's side of one child: its frames, its output, its clock and its end.

All of it runs in the event loop. The clock and SIGKILL belong to the host, so nothing the child does can delay them.
Above: `zygote.py`, which hands children out, and `zygote_handle.py`, which asks for the fork. Below: one module for
each thing that connects the two: `channel.py`, `status_channel.py`, `output_capture.py`, `scratch.py`.
"""

import asyncio
import os
import socket
from pathlib import Path
from typing import Protocol, Self

from msgspec import Struct

from toolfold.errors import SandboxError
from toolfold.sandbox.base import ChildLimits, Ending, Exit
from toolfold.sandbox.channel import Channel, FrameListener
from toolfold.sandbox.control_messages import Message
from toolfold.sandbox.exit_status import decode_exit
from toolfold.sandbox.output_capture import OutputCapture
from toolfold.sandbox.scratch import Scratch, _family
from toolfold.sandbox.status_channel import StatusChannel

# How long after a child's end its pipes may stay open: a process it started could hold them and escape the kill.
_LINGER_S = 2.0
# How often threads are counted that nothing else counts, and how many the shim and the interpreter have.
_COUNT_S = 0.05
_OWN_TASKS = 4


REMEDY = (
    "run toolfold as a user other than root, or as root with the capabilities that containers have by default; or "
    "allow running without a sandbox explicitly (`--unsafe`) if you trust the code"
)


class ChildPipes(Struct, frozen=True):
    """The host's ends of what connects it to one child."""

    channel: socket.socket
    stdout: int
    stderr: int
    status: socket.socket


class _Closeable(Protocol):
    async def aclose(self) -> None: ...


class HostedChild:
    """A `Child`. It exists from the request for a fork on; `ready` is done once it is confined and waits."""

    def __init__(self, pipes: ChildPipes, limits: ChildLimits, scratch: Scratch) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._scratch = scratch
        self._socket = pipes.channel
        self._channel: Channel | None = None
        self._reason: Ending | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._started = self._loop.time()
        self._closing: asyncio.Task[None] | None = None
        self._uncounted = False
        self._counting: asyncio.Task[None] | None = None
        self.layers: tuple[str, ...] = ()
        # What exists for this child alone and is closed with it.
        self.companion: _Closeable | None = None
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[Exit] = self._loop.create_future()
        # Standard output, standard error and the status channel: when all three are closed, the child is over.
        self._open_parts = 3
        self._stdout = OutputCapture(pipes.stdout, limits.output_bytes, self._on_part_closed)
        self._stderr = OutputCapture(pipes.stderr, limits.output_bytes, self._on_part_closed)
        self._status = StatusChannel(pipes.status, self._on_status, self._on_status_closed)

    @property
    def pid(self) -> int:
        return self._status.pid

    @property
    def scratch(self) -> Path:
        return self._scratch.path

    @property
    def running(self) -> bool:
        return not self._ended.done() and not self._status.child_ended

    @property
    def closed(self) -> bool:
        return self._closing is not None and self._closing.done()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def begin(self) -> None:
        """Starts the clock: from here on somebody uses the child."""
        self._channel = Channel(self._socket, self._limits.receive_bytes, lambda: self.kill("protocol_violation"))
        self._started = self._loop.time()
        self._timers.append(self._loop.call_later(self._limits.wall_s, self.kill, "timed_out"))
        self._scratch.watch(self.pid, self._limits, self.kill)
        if self._uncounted:
            self._counting = self._loop.create_task(self._count_tasks())

    async def send(self, frame: bytes) -> None:
        if len(frame) > self._limits.frame_bytes or not frame:
            raise SandboxError(
                f"a frame of {len(frame)} bytes for a child that takes 1 to {self._limits.frame_bytes}",
                next_action="send the data in smaller parts",
            )
        try:
            if self._channel is None or self._ended.done():
                raise BrokenPipeError
            if self._channel.post(frame):
                await self._channel.drain()
        except OSError as error:
            raise SandboxError("the child is gone", next_action="`wait()` says how it ended") from error

    def close_input(self) -> None:
        if self._channel is not None:
            self._channel.shut()

    async def receive(self) -> bytes | None:
        frame = await self._channel.receive() if self._channel is not None else None
        if isinstance(frame, SandboxError):
            raise frame
        return frame

    def listen(self, listener: FrameListener) -> None:
        if self._channel is not None:
            self._channel.listen(listener)

    def hold(self, held: bool) -> None:
        if self._channel is not None:
            self._channel.hold(held)

    def kill(self, ending: Ending = "killed") -> None:
        if self.running:
            self._reason = self._reason or ending
            self._status.cut()

    async def _count_tasks(self) -> None:
        """Ends the child when it has too many threads, where the kernel would let it have any number."""
        most = self._limits.threads + _OWN_TASKS
        while await asyncio.to_thread(_tasks_of, self.pid) <= most:  # noqa: ASYNC110 - a thread has no event
            await asyncio.sleep(_COUNT_S)
        self.kill()

    async def wait(self) -> Exit:
        return await asyncio.shield(self._ended)

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self.kill()
        await self.wait()
        if self._channel is not None:
            self._channel.close()
        self._socket.close()
        await self._scratch.remove()
        if self.companion is not None:
            await self.companion.aclose()

    def on_forked(self, message: Message, descriptors: list[int]) -> None:
        """The zygote made the process."""
        self._status.attach(message["pid"], descriptors)

    def on_failed(self, why: str) -> None:
        """The zygote could not make the process, or is gone."""
        if not self.ready.done():
            what_to_do = f"`toolfold doctor` names what is missing here; {REMEDY}"
            error = SandboxError(f"no confined process could be started: {why}", next_action=what_to_do)
            self.ready.set_exception(error)
            self.ready.exception()  # asyncio would log it where nobody waits
        self._status.abandon()

    def _on_status(self, message: Message, descriptors: list[int]) -> None:
        match message["event"]:
            case "unconfined":
                for descriptor in descriptors:
                    os.close(descriptor)
                self.on_failed(message["why"])
            case "scratch":
                self._scratch.mount(descriptors[0])
            case _:
                self.layers = tuple(message["layers"])
                self._uncounted = message["uncounted"]
                if not self.ready.done():
                    self.ready.set_result(None)

    def _on_status_closed(self) -> None:
        if not self.ready.done():
            self.on_failed("the process ended before it was ready")
        self._timers += [self._loop.call_later(_LINGER_S, pipe.close) for pipe in (self._stdout, self._stderr)]
        self._on_part_closed()

    def _on_part_closed(self) -> None:
        self._open_parts -= 1
        if self._open_parts or self._ended.done():
            return
        for timer in self._timers:
            timer.cancel()
        self._scratch.unwatch()
        if self._counting is not None:
            self._counting.cancel()
        ending, code, number = decode_exit(self._status.report, self._limits.cpu_s)
        self._ended.set_result(
            Exit(
                ending=self._reason or ending,
                code=code,
                signal=number,
                stdout=bytes(self._stdout.data),
                stderr=bytes(self._stderr.data),
                output_dropped=self._stdout.dropped + self._stderr.dropped,
                seconds=self._loop.time() - self._started,
            )
        )


def _tasks_of(pid: int) -> int:
    return sum(len(tasks) for _, tasks in _family(pid))
