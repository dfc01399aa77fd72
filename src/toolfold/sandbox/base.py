"""The contract of a confined process as the host sees it: take a child, exchange frames, learn how it ended.

The host holds everything of value; a child has one socket and a scratch folder. A frame is a four-byte big-endian
length and that many bytes of JSON. Above: `scripts` and `live`, which bring the function that runs in the child. Below:
`zygote.py`, the implementation.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, Self

from msgspec import Struct

from toolfold.errors import SandboxError

MIB = 1024**2


class ChildLimits(Struct, frozen=True, kw_only=True):
    """What one child may use. The host kills it at `wall_s`, whatever it does."""

    wall_s: float = 60.0
    cpu_s: int = 60
    memory_bytes: int = 1024 * MIB
    scratch_bytes: int = 64 * MIB
    scratch_files: int = 2000
    open_files: int = 64
    # Of standard output and of standard error, each; the rest is dropped and counted.
    output_bytes: int = MIB
    # The longest frame the host sends, and the longest it accepts from the child.
    frame_bytes: int = 64 * MIB
    receive_bytes: int = 64 * MIB
    threads: int = 64
    # Live sessions fork to inspect. The forks die with their session.
    may_fork: bool = False


# The entry returned, the child exited with a code, a signal ended it, or the host did.
Ending = Literal["finished", "exited", "crashed", "killed", "timed_out", "out_of_memory", "protocol_violation"]


class Exit(Struct, frozen=True, kw_only=True):
    """The end of a child, with what it printed. `output_dropped` counts the bytes over the limit."""

    ending: Ending
    code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    output_dropped: int = 0
    seconds: float = 0.0


class Child(Protocol):
    """One confined process, used once. Use it as `async with await zygote.take() as child`."""

    @property
    def pid(self) -> int: ...

    @property
    def scratch(self) -> Path:
        """Its one writable folder, removed when the child is closed."""

    @property
    def layers(self) -> tuple[str, ...]:
        """What confines it, such as `landlock`, `seccomp`, `rlimits`. Empty means nothing does (`unsafe`)."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def send(self, frame: bytes) -> None:
        """Sends one frame. Raises `SandboxError` when the child is gone."""

    async def receive(self) -> bytes | None:
        """Returns the next frame, `None` once the child closed its end. Raises `SandboxError` for malformed bytes."""

    def listen(self, listener: Callable[[bytes | SandboxError | None], None]) -> None:
        """Passes each frame to `listener` in the event loop, in place of `receive`; at the end `None` or the error."""

    def hold(self, held: bool) -> None:
        """While held, nothing more is read from the child."""

    def close_input(self) -> None:
        """Sends no more frames: the child reads the end of its input and may still answer."""

    def kill(self, ending: Ending = "killed") -> None:
        """Kills the child and everything it started, at once."""

    async def wait(self) -> Exit:
        """Waits for the end of the child. Any number of callers may wait."""

    async def aclose(self) -> None:
        """Kills what still runs and removes the scratch folder. Safe to call twice."""


class Children(Protocol):
    """A source of confined children that are ready before they are needed: see `toolfold.sandbox.zygote`."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def take(self) -> Child:
        """Returns a fresh child that waits for its first frame. Raises `SandboxError` where it cannot be confined."""
