"""What a confined process looks like from the host: take a child, exchange frames with it, learn how it ended.

The host holds everything of worth; a child has one socket and a scratch folder. A frame is four bytes of length, big
end first, and that many bytes of JSON. Above: `scripts` and `live`, which each bring the function that runs in the
child. Below: the operating system.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, Self

from msgspec import Struct

from toolfold.errors import SandboxError

MIB = 1024**2


class ChildLimits(Struct, frozen=True, kw_only=True):
    """What one child may use. The host ends it at `wall_s`, whatever it does."""

    wall_s: float = 60.0
    cpu_s: int = 60
    memory_bytes: int = 1024 * MIB
    scratch_bytes: int = 64 * MIB
    scratch_files: int = 2000
    open_files: int = 64
    output_bytes: int = MIB
    """Of standard output and of standard error, each; more is dropped and told."""
    frame_bytes: int = 64 * MIB
    heard_bytes: int = 64 * MIB
    """The longest frame that the host sends, and the longest that it takes from the child."""
    threads: int = 64
    may_fork: bool = False
    """Live sessions fork to inspect. Their children die with them."""


Ending = Literal["finished", "exited", "crashed", "killed", "timed_out", "out_of_memory", "protocol_violation"]
"""How a child ended: its function returned, it left by itself with a code, a signal took it, or the host did."""


class Exit(Struct, frozen=True, kw_only=True):
    """The end of a child, with what it printed."""

    ending: Ending
    code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    output_dropped: int = 0
    """Bytes of output over the limit."""
    seconds: float = 0.0


class Child(Protocol):
    """One confined process, used once. Use it as `async with await zygote.take() as child`."""

    @property
    def pid(self) -> int: ...

    @property
    def scratch(self) -> Path:
        """Its one writable folder, removed when it is closed."""

    @property
    def layers(self) -> tuple[str, ...]:
        """What confines it here, such as `landlock`, `seccomp`, `rlimits`; empty: nothing does (`unsafe`)."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def send(self, frame: bytes) -> None:
        """Raises `SandboxError` when the child is gone."""

    async def receive(self) -> bytes | None:
        """The next frame; `None` when the child closed its end. Raises `SandboxError` for a frame that is none."""

    def listen(self, listener: Callable[[bytes | SandboxError | None], None]) -> None:
        """Tells each frame as it comes, in the event loop, in place of `receive`; and once the end, as it would."""

    def hold(self, held: bool) -> None:
        """While held, nothing more is read of what the child sends."""

    def close_input(self) -> None:
        """No more frames will be sent: the child reads the end, and can still be heard."""

    def kill(self, ending: Ending = "killed") -> None:
        """Ends it and all it started, at once."""

    async def wait(self) -> Exit:
        """How it ended, once it did. Any number of callers may wait."""

    async def aclose(self) -> None:
        """Kills what still runs, removes the scratch folder. Safe to call twice."""


class Children(Protocol):
    """A source of confined children that are ready before they are needed: see `toolfold.sandbox.zygote`."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def take(self) -> Child:
        """A fresh child that waits for its first frame. Raises `SandboxError` where it cannot be confined."""
