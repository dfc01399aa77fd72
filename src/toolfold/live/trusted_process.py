"""A session's process without a sandbox, for a person's own prompt: their folder, their environment, their terminal.

It has those methods of `sandbox.Child` that a session uses, so that a session drives both alike.
"""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Self

from toolfold.errors import SandboxError
from toolfold.sandbox.base import Ending, Exit
from toolfold.sandbox.frames import LENGTH, FrameError, frame_length

_FRAME_MAX_BYTES = 64 * 1024**2
_EXIT_GRACE_S = 5.0


class TrustedChild:
    """One unconfined process."""

    layers: tuple[str, ...] = ()

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._ending: Ending | None = None

    @classmethod
    async def start(cls, *, terminal: bool, cwd: Path | None = None) -> Self:
        """With `terminal` it shares the standard streams of this process; else it has none."""
        ours, theirs = socket.socketpair()
        stream = None if terminal else asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "toolfold.live.worker", str(theirs.fileno())),
                stdin=stream,
                stdout=stream,
                stderr=stream,
                pass_fds=(theirs.fileno(),),
                cwd=cwd,
                # A process group of its own keeps Ctrl-C of the host's terminal from it.
                process_group=None if terminal else 0,
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"no Python process could be started: {os.strerror(error.errno or 0)}") from error
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer)

    async def send(self, frame: bytes) -> None:
        try:
            self._writer.write(LENGTH.pack(len(frame)) + frame)
            await self._writer.drain()
        except OSError as error:
            raise SandboxError("the session's process is gone", next_action="start a new session") from error

    async def receive(self) -> bytes | None:
        try:
            length = frame_length(await self._reader.readexactly(LENGTH.size), _FRAME_MAX_BYTES)
            return await self._reader.readexactly(length)
        except FrameError as error:
            self.kill("protocol_violation")
            raise SandboxError(f"the session sent {error}", next_action="start a new session") from error
        except (asyncio.IncompleteReadError, OSError):
            return None

    def kill(self, ending: Ending = "killed") -> None:
        self._ending = self._ending or ending
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    async def wait(self) -> Exit:
        code = await self._process.wait()
        if code < 0:
            return Exit(ending=self._ending or "crashed", signal=-code)
        return Exit(ending=self._ending or ("finished" if code == 0 else "exited"), code=code)

    async def aclose(self) -> None:
        # At the end of the channel the supervisor ends what runs below it, and exits.
        if not self._writer.is_closing():
            self._writer.close()
            try:
                await self._writer.wait_closed()
            except OSError:
                self._ending = self._ending or "killed"
        try:
            async with asyncio.timeout(_EXIT_GRACE_S):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
