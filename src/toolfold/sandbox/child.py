"""The host's side of one child: its frames, its output, its clock and its end.

All of it runs in the event loop. The clock and SIGKILL belong to the host, so nothing the child does can hold it up.
Above: `zygote.py`, which hands children out. Below: `nursery.py`, which asked for the fork, and `lifeline.py`.
"""

import asyncio
import os
import socket
from pathlib import Path
from typing import Protocol, Self

from msgspec import Struct

from toolfold.errors import SandboxError
from toolfold.sandbox import control_messages as control
from toolfold.sandbox.base import ChildLimits, Ending, Exit
from toolfold.sandbox.channel import Channel, FrameListener
from toolfold.sandbox.exit_status import decode_exit
from toolfold.sandbox.output_capture import OutputCapture
from toolfold.sandbox.scratch import Scratch
from toolfold.sandbox.status_channel import StatusChannel

_LINGER_S = 2.0
"""How long after a child's end its pipes may stay open, where something it started could escape."""


class ChildPipes(Struct, frozen=True):
    """The host's ends of what joins it to one child."""

    channel: socket.socket
    stdout: int
    stderr: int
    status: socket.socket


class _Companion(Protocol):
    async def aclose(self) -> None: ...


class HostedChild:
    """A `Child`. It exists from the request for a fork on; `ready` tells when it is confined and waits."""

    def __init__(self, ends: ChildPipes, limits: ChildLimits, scratch: Scratch) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._scratch = scratch
        self._socket = ends.channel
        self._channel: Channel | None = None
        self._layers: tuple[str, ...] = ()
        self._reason: Ending | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._began = self._loop.time()
        self._closing: asyncio.Task[None] | None = None
        self.companion: _Companion | None = None
        """What exists for this child alone and is closed with it."""
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[Exit] = self._loop.create_future()
        self._open = 3
        self._out = OutputCapture(self._loop, ends.stdout, limits.output_bytes, self._part_closed)
        self._err = OutputCapture(self._loop, ends.stderr, limits.output_bytes, self._part_closed)
        self._line = StatusChannel(self._loop, ends.status, self._on_ready, self._on_line_closed)

    @property
    def pid(self) -> int:
        return self._line.pid

    @property
    def layers(self) -> tuple[str, ...]:
        return self._layers

    @property
    def scratch(self) -> Path:
        return self._scratch.path

    @property
    def running(self) -> bool:
        return not self._ended.done() and not self._line.over

    @property
    def closed(self) -> bool:
        return self._closing is not None and self._closing.done()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def begin(self) -> None:
        """Starts the clock: from here on somebody uses the child."""
        self._channel = Channel(self._socket, self._limits.heard_bytes, lambda: self.kill("protocol_violation"))
        self._began = self._loop.time()
        self._clock = self._loop.call_later(self._limits.wall_s, self.kill, "timed_out")
        self._scratch.watch(self.pid, self._limits, self.kill)

    async def send(self, frame: bytes) -> None:
        if len(frame) > self._limits.frame_bytes or not frame:
            raise SandboxError(
                f"a frame of {len(frame)} bytes for a child that takes 1 to {self._limits.frame_bytes}",
                next_action="send the data in smaller parts",
            )
        if self._channel is None or self._ended.done():
            raise SandboxError("the child is gone", next_action="`wait()` says how it ended")
        try:
            if self._channel.post(frame):
                await self._channel.drain()
        except OSError as error:
            raise SandboxError("the child is gone", next_action="`wait()` says how it ended") from error

    def close_input(self) -> None:
        """The child reads the end of its input; it can still be heard."""
        if self._channel is not None:
            self._channel.shut()

    async def receive(self) -> bytes | None:
        heard = await self._channel.receive() if self._channel is not None else None
        if isinstance(heard, SandboxError):
            raise heard
        return heard

    def listen(self, listener: FrameListener) -> None:
        if self._channel is not None:
            self._channel.listen(listener)

    def hold(self, held: bool) -> None:
        if self._channel is not None:
            self._channel.hold(held)

    def kill(self, ending: Ending = "killed") -> None:
        if self.running:
            self._reason = self._reason or ending
            self._line.cut()

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

    # What the zygote and the child tell.

    def forked(self, message: control.Message, descriptors: list[int]) -> None:
        """The zygote made the process."""
        self._line.holds(message["pid"], descriptors)

    def refused(self, why: str) -> None:
        """The zygote could not make the process, or is gone."""
        if not self.ready.done():
            self.ready.set_exception(_start_error(why))
            self.ready.exception()  # whoever waits is told; nobody has to
        self._line.drop()

    def _on_ready(self, message: control.Message, descriptors: list[int]) -> None:
        if message["event"] == "unconfined":
            for descriptor in descriptors:
                os.close(descriptor)
            self.refused(message["why"])
            return
        if message["event"] == "scratch":
            self._scratch.hold(descriptors[0])
            return
        self._layers = tuple(message["layers"])
        if not self.ready.done():
            self.ready.set_result(None)

    def _on_line_closed(self) -> None:
        if not self.ready.done():
            self.refused("the process ended before it was ready")
        self._linger = self._loop.call_later(_LINGER_S, self._close_pipes)
        self._part_closed()

    def _close_pipes(self) -> None:
        self._out.close()
        self._err.close()

    def _part_closed(self) -> None:
        """Standard output, standard error and the lifeline: when all three are over, the child is."""
        self._open -= 1
        if self._open or self._ended.done():
            return
        for timer in (self._clock, self._linger):
            if timer is not None:
                timer.cancel()
        self._scratch.unwatch()
        self._ended.set_result(self._exit())

    def _exit(self) -> Exit:
        ending, code, number = decode_exit(self._line.report, self._limits.cpu_s)
        return Exit(
            ending=self._reason or ending,
            code=code,
            signal=number,
            stdout=bytes(self._out.kept),
            stderr=bytes(self._err.kept),
            output_dropped=self._out.dropped + self._err.dropped,
            seconds=self._loop.time() - self._began,
        )


def _start_error(why: str) -> SandboxError:
    return SandboxError(
        f"no confined process could be started: {why}",
        next_action="run `toolfold doctor` to see which layer is missing here, or allow running without a sandbox "
        "explicitly (`--unsafe`) if you trust the code",
    )
