"""One running zygote, seen from the host: started, asked for forks, and ended with all its children.

It knows the process and the messages, not how many children should wait. Above: `zygote.py`. Below: `zygote_main.py`,
which runs in the process itself, and `child.py`.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import toolfold
from toolfold.errors import SandboxError
from toolfold.sandbox import cgroups, zygote_main
from toolfold.sandbox import control_messages as control
from toolfold.sandbox.base import ChildLimits
from toolfold.sandbox.child import ChildPipes, HostedChild
from toolfold.sandbox.output_capture import OutputCapture
from toolfold.sandbox.rmtree import remove_tree
from toolfold.sandbox.scratch import Scratch

# --- The users that children of a root process become: numbers that nobody has, another one for each child.

_FIRST_UID = 0x70000000
_UID_COUNT = 0x0F000000


def _first_uid() -> int | None:
    """Where a zygote's children start to count; nothing where it is not for us to choose."""
    if os.geteuid() != 0:
        return None
    try:
        lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    if not any(int(line.split()[2]) > 2 * _FIRST_UID for line in lines):
        return None
    return _FIRST_UID + secrets.randbelow(_UID_COUNT)


_START_S = 60.0
_EXIT_S = 5.0
_STDERR_BYTES = 16 * 1024
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",  # or each thread of a child reserves address space that counts against its memory
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


CommandWrapper = Callable[[str], list[str]]
"""From the folder that will hold scratch folders to the command that goes before ours."""


def no_wrapper(_folder: str) -> list[str]:
    return []


class ZygoteProcess:
    """Use `Nursery.start`. It is over when `alive` is false; its children are, too."""

    def __init__(self, configuration: control.Message, limits: ChildLimits, wrap: CommandWrapper) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._assembler = control.MessageAssembler()
        self._children: dict[int, HostedChild] = {}
        self._count = 0
        self._up: asyncio.Future[None] = self._loop.create_future()
        self._over = asyncio.Event()
        self._base = Path(tempfile.mkdtemp(prefix="toolfold-"))
        self._base.chmod(0o711)  # a child of another user must get through to its own folder
        self.problems: tuple[str, ...] = ()
        self._control, theirs = socket.socketpair()
        errors, their_errors = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*wrap(str(self._base)), *_interpreter_command(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=their_errors,
                env=ENVIRONMENT,
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            os.close(errors)
            self._control.close()
            self._base.rmdir()
            raise SandboxError(
                f"the interpreter {sys.executable} could not be started: {error}", next_action="run `toolfold doctor`"
            ) from error
        finally:
            os.close(their_errors)
            theirs.close()
        self._errors = OutputCapture(self._loop, errors, _STDERR_BYTES, lambda: None)
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._read)
        control.send(self._control, {**configuration, "base": str(self._base), "first_user": _first_uid()})

    @classmethod
    async def start(
        cls, configuration: control.Message, limits: ChildLimits, wrap: CommandWrapper = no_wrapper
    ) -> "ZygoteProcess":
        """A zygote that has imported everything. `wrap` gives the command that goes before ours."""
        nursery = cls(configuration, limits, wrap)
        try:
            async with asyncio.timeout(_START_S):
                await asyncio.shield(nursery._up)
        except TimeoutError:
            await nursery.aclose()
            raise SandboxError(
                f"the zygote was not up after {_START_S:.0f} s", next_action="check what its entry module imports"
            ) from None
        except BaseException:
            await nursery.aclose()
            raise
        return nursery

    @property
    def alive(self) -> bool:
        return not self._over.is_set()

    def fork(self) -> HostedChild:
        """Asks for a child; its `ready` tells when it is there."""
        self._count += 1
        number = self._count
        folder = self._base / str(number)
        folder.mkdir(mode=0o700)
        ours, theirs = socket.socketpair()
        out, their_out = os.pipe()
        err, their_err = os.pipe()
        status, their_status = socket.socketpair()
        child = HostedChild(ChildPipes(ours, out, err, status), self._limits, Scratch(folder))
        self._children[number] = child
        request = {"event": "fork", "id": number, "home": str(folder)}
        try:
            control.send(self._control, request, [theirs.fileno(), their_out, their_err, their_status.fileno()])
        except OSError as error:
            self._children.pop(number)
            child.refused(f"the zygote cannot be reached: {error}")
        finally:
            theirs.close()
            their_status.close()
            os.close(their_out)
            os.close(their_err)
        return child

    def _read(self) -> None:
        try:
            data, fds = control.receive(self._control)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._lost()
            return
        for message, descriptors in self._assembler.feed(data, fds):
            self._hear(message, descriptors)

    def _hear(self, message: control.Message, descriptors: list[int]) -> None:
        match message["event"]:
            case "up":
                self.problems = tuple(message["problems"])
                if not self._up.done():
                    self._up.set_result(None)
            case "broken":
                self._fail(f"the zygote could not import what children need: {message['why']}")
            case "forked":
                self._children.pop(message["id"]).forked(message, descriptors)
            case "failed":
                self._children.pop(message["id"]).refused(message["why"])

    def _fail(self, why: str) -> None:
        if not self._up.done():
            self._up.set_exception(SandboxError(why, next_action="make the entry importable, then try again"))
            self._up.exception()  # told to whoever started it, if still there

    def _lost(self) -> None:
        """The zygote is gone, and what waited for it must hear."""
        if self._over.is_set():
            return
        self._over.set()
        self._loop.remove_reader(self._control)
        self._control.close()
        self._assembler.close()
        said = bytes(self._errors.kept).decode(errors="replace").strip()
        self._fail(f"the zygote ended while it started. {said[-1500:]}")
        for child in self._children.values():
            child.refused("the zygote is gone")
        self._children.clear()

    async def aclose(self) -> None:
        self._lost()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, _EXIT_S)
        if self._process.returncode is None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        self._errors.close()
        await asyncio.to_thread(cgroups.CgroupSet(f"toolfold-{self._process.pid}-").sweep)
        await asyncio.to_thread(remove_tree, str(self._base))


def _interpreter_command(control_fd: int) -> list[str]:
    """The same interpreter, apart from its environment and the user's own packages."""
    script = str(Path(zygote_main.__file__).resolve())
    root = str(Path(toolfold.__file__).resolve().parents[1])
    return [sys.executable, "-I", "-B", "-X", "utf8", script, str(control_fd), root]
