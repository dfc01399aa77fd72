"""One running zygote as the host sees it: started, asked for forks, and ended with all its children.

It knows the process and the messages, not how many children should be ready. Above: `zygote.py`. Below: `child.py`, and
`zygote_main.py`, which runs in the process itself.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import toolfold
from toolfold.errors import SandboxError
from toolfold.sandbox import zygote_main
from toolfold.sandbox.base import ChildLimits
from toolfold.sandbox.cgroups import CgroupSet
from toolfold.sandbox.child import ChildPipes, HostedChild
from toolfold.sandbox.control_messages import Message, MessageReader, send
from toolfold.sandbox.output_capture import OutputCapture
from toolfold.sandbox.rmtree import remove_tree
from toolfold.sandbox.scratch import Scratch

_START_S = 60.0
_EXIT_S = 5.0
_STDERR_BYTES = 16 * 1024
_PREFIX = "toolfold-sandbox-"
# A younger folder may belong to a process that has not locked it yet.
_FRESH_S = 60.0
# Nothing of the host's own environment: it may hold credentials.
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",  # or each thread of a child reserves address space that counts against its memory
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
# Numbers that no account has: each child of a root process becomes another user.
_FIRST_UID = 0x70000000
_UID_COUNT = 0x0F000000

# From the folder that will hold scratch folders to the command that goes before the interpreter's.
CommandWrapper = Callable[[str], list[str]]


class ZygoteHandle:
    """Use `ZygoteHandle.start`. Once `alive` is false, its children are gone, too."""

    def __init__(self, configuration: Message, limits: ChildLimits, wrap: CommandWrapper) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._forking: dict[int, HostedChild] = {}
        self._count = 0
        self._up: asyncio.Future[None] = self._loop.create_future()
        self._lost = False
        self._base = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._base.chmod(0o711)  # a child of another user must get through to its own folder
        # The lock goes with this process, however it ends: a folder without one is left over.
        self._lock = _lock(self._base)
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
            os.close(self._lock)
            raise SandboxError(
                f"the interpreter {sys.executable} could not be started: {error}", next_action="run `toolfold doctor`"
            ) from error
        finally:
            os.close(their_errors)
            theirs.close()
        self._stderr = OutputCapture(errors, _STDERR_BYTES)
        self._reader = MessageReader(self._control)
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._read)
        send(self._control, {**configuration, "base": str(self._base), "first_uid": _first_uid()})

    @classmethod
    async def start(cls, configuration: Message, limits: ChildLimits, wrap: CommandWrapper) -> "ZygoteHandle":
        """Starts a zygote and waits until it has imported everything."""
        asyncio.get_running_loop().run_in_executor(None, _sweep_leftovers)
        process = cls(configuration, limits, wrap)
        try:
            async with asyncio.timeout(_START_S):
                await asyncio.shield(process._up)
        except BaseException as error:
            await process.aclose()
            if isinstance(error, TimeoutError):
                raise SandboxError(
                    f"the zygote was not up after {_START_S:.0f} s", next_action="check what its entry module imports"
                ) from None
            raise
        return process

    @property
    def alive(self) -> bool:
        return not self._lost

    def fork(self) -> HostedChild:
        """Asks for a child; its `ready` is done when it is there."""
        self._count += 1
        number = self._count
        folder = self._base / str(number)
        folder.mkdir(mode=0o700)
        channel, their_channel = socket.socketpair()
        stdout, their_stdout = os.pipe()
        stderr, their_stderr = os.pipe()
        status, their_status = socket.socketpair()
        child = HostedChild(ChildPipes(channel, stdout, stderr, status), self._limits, Scratch(folder))
        self._forking[number] = child
        theirs = [their_channel.detach(), their_stdout, their_stderr, their_status.detach()]
        try:
            send(self._control, {"event": "fork", "id": number, "home": str(folder)}, theirs)
        except OSError as error:
            self._forking.pop(number)
            child.on_failed(f"the zygote cannot be reached: {error}")
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        return child

    def _read(self) -> None:
        messages = self._reader.read()
        if messages is None:
            self._on_lost()
        for message, descriptors in messages or ():
            match message["event"]:
                case "up":
                    self.problems = tuple(message["problems"])
                    if not self._up.done():
                        self._up.set_result(None)
                case "broken":
                    self._fail_start(f"the zygote could not import what children need: {message['why']}")
                case "forked":
                    self._forking.pop(message["id"]).on_forked(message, descriptors)
                case "failed":
                    self._forking.pop(message["id"]).on_failed(message["why"])

    def _fail_start(self, why: str) -> None:
        if not self._up.done():
            self._up.set_exception(SandboxError(why, next_action="make the entry importable, then try again"))
            self._up.exception()  # asyncio would log it where nobody waits

    def _on_lost(self) -> None:
        """The zygote is gone: whoever waits for it is told."""
        if self._lost:
            return
        self._lost = True
        self._loop.remove_reader(self._control)
        self._control.close()
        self._reader.close()
        stderr = bytes(self._stderr.data).decode(errors="replace").strip()
        self._fail_start(f"the zygote ended while it started. {stderr[-1500:]}")
        for child in self._forking.values():
            child.on_failed("the zygote is gone")
        self._forking.clear()

    async def aclose(self) -> None:
        self._on_lost()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, _EXIT_S)
        if self._process.returncode is None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        self._stderr.close()
        # The zygote removes both itself, unless it was killed.
        await asyncio.to_thread(CgroupSet(f"toolfold-{self._process.pid}-").sweep)
        await asyncio.to_thread(remove_tree, str(self._base))
        descriptor, self._lock = self._lock, -1
        if descriptor >= 0:
            os.close(descriptor)


def _lock(folder: Path) -> int:
    """A descriptor that holds the lock of a folder. Raises `OSError` where another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _sweep_leftovers() -> None:
    """Removes the folders of this user's processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # What goes wrong is that the folder is in use, is going away, or is not ours.
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < _FRESH_S:
                continue
            descriptor = _lock(folder)
            try:
                remove_tree(str(folder))
            finally:
                os.close(descriptor)


def _interpreter_command(control_fd: int) -> list[str]:
    """The same interpreter, isolated (`-I`) from its environment and the user's own packages."""
    script = str(Path(zygote_main.__file__).resolve())
    root = str(Path(toolfold.__file__).resolve().parents[1])
    return [sys.executable, "-I", "-B", "-X", "utf8", script, str(control_fd), root]


def _first_uid() -> int | None:
    """The first user number of a zygote's children; `None` where this process may not choose any.

    Where high numbers do not exist, as in many containers, children become `nobody` together.
    """
    if os.geteuid() != 0:
        return None
    try:
        lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    if not any(int(line.split()[2]) > 2 * _FIRST_UID for line in lines):
        return None
    return _FIRST_UID + secrets.randbelow(_UID_COUNT)
