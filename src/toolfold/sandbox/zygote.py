"""Children that are ready before they are needed: the one way to confined processes.

`async with Zygote("package.module:function") as zygote: async with await zygote.take() as child: …`. The function runs
in the child, after confinement, as `function(channel)`; its module and `preload` are imported once, in the zygote. It
keeps `ready` children waiting, hands each out once, and starts over when the zygote dies. Above: `scripts`, `live`.
Below: `zygote_handle.py`, one zygote at a time.
"""

import asyncio
import os
import shutil
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

import msgspec
from msgspec import Struct

from toolfold.errors import SandboxError
from toolfold.sandbox import confinement, seccomp
from toolfold.sandbox.base import Child, ChildLimits
from toolfold.sandbox.child import HostedChild
from toolfold.sandbox.readable_paths import DEVICES, readable_paths, resolve_links
from toolfold.sandbox.zygote_handle import ENVIRONMENT, CommandWrapper, ZygoteHandle

# How children are confined on this machine: our own layers, bubblewrap, Seatbelt, or a refusal that says why.

BackendName = Literal["native", "bubblewrap", "seatbelt", "unsafe"]

_BWRAP_OPTIONS = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox", "--chdir", "/"),
)
# Root needs no user namespace; the zygote inside needs these to give each child another user and no capability.
_BWRAP_ROOT_CAPABILITIES = ("SETUID", "SETGID", "SETPCAP", "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "KILL")

_SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_MACOS_READABLE = (
    *("/usr/lib", "/usr/share", "/System/Library", "/Library/Frameworks", "/private/var/db/dyld", "/dev/null"),
    *("/dev/random", "/dev/urandom", "/dev/zero", "/etc/localtime", "/private/etc/localtime"),
)


class _Backend(Struct, frozen=True):
    """`wrap` gives the command that goes before the interpreter's; a wrapped zygote serves one child only."""

    name: BackendName
    wrap: CommandWrapper = lambda folder: []

    @property
    def single(self) -> bool:
        return self.name in ("bubblewrap", "seatbelt")


def _choose_backend(*, unsafe: bool = False, readable: list[str], prefer: BackendName | None = None) -> _Backend:
    """Returns the first backend that works here. Raises `SandboxError` where none does: nothing runs bare unasked."""
    if unsafe:
        return _Backend("unsafe")
    why = "another way was asked for"
    if prefer in (None, "native"):
        missing = confinement.missing_requirement(namespaced=True)
        if missing is None:
            return _Backend("native")
        why = missing
    program = shutil.which("bwrap")
    if sys.platform == "linux" and program is not None and seccomp.audit_arch() is not None:
        return _Backend("bubblewrap", lambda folder: _bubblewrap_command(program, folder, readable))
    if sys.platform == "darwin" and Path(_SANDBOX_EXEC).exists():
        return _Backend("seatbelt", lambda folder: _seatbelt_command(folder, readable_paths(readable)))
    install = "boot a kernel with Landlock (5.13 or later), or install bubblewrap (`apt install bubblewrap`)"
    remedy = install if sys.platform == "linux" else "run toolfold on Linux or macOS, or in a Linux container"
    raise SandboxError(
        f"there is no sandbox here: {why}; and there is no bubblewrap, which would do instead",
        next_action=f"{remedy}, or allow running without a sandbox explicitly (`--unsafe`) if you trust the code",
    )


def _bubblewrap_command(program: str, folder: str, readable: list[str]) -> list[str]:
    """The command up to the interpreter. `folder` is the only writable place inside."""
    interpreter = [sys.executable, str(Path(sys.prefix) / "pyvenv.cfg")]
    real, links = resolve_links([*readable_paths(readable), *(path for path in interpreter if Path(path).exists())])
    command = [program, *_BWRAP_OPTIONS]
    if os.geteuid() == 0:
        for name in _BWRAP_ROOT_CAPABILITIES:
            command += ["--cap-add", f"CAP_{name}"]
    else:
        command += ["--unshare-user"]
    # No `--proc`: bubblewrap's own pid 1 would show the environment it was started with.
    for path in real:
        command += ["--ro-bind", path, path]
    for link, target in links.items():
        command += ["--symlink", target, link]
    for device in DEVICES:
        command += ["--dev-bind", device, device]
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    return [*command, "--bind", folder, folder, "--"]


def _seatbelt_command(folder: str, readable: Sequence[str]) -> list[str]:
    """The command up to the interpreter."""
    return [_SANDBOX_EXEC, "-p", _seatbelt_profile(folder, readable)]


def _seatbelt_profile(folder: str, readable: Sequence[str]) -> str:
    """Denies everything but what it names: no network, no programs, no files but the readable ones."""
    lines = [
        "(version 1)",
        "(deny default)",
        "(deny network*)",
        "(allow process-fork)",  # the zygote forks the shim and the child; the limit on processes bounds the rest
        f"(allow process-exec (literal {_quoted(str(Path(sys.executable).resolve()))}))",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow file-read-metadata)",
        *(f"(allow file-read* (subpath {_quoted(path)}))" for path in dict.fromkeys([*_MACOS_READABLE, *readable])),
        f"(allow file-read* file-write* (subpath {_quoted(folder)}))",
        '(allow file-write-data (literal "/dev/null"))',
    ]
    return "\n".join(lines) + "\n"


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_ATTEMPTS = 3
# How long after a child was taken the next is made: the first moments belong to the one that was taken.
_REFILL_S = 0.01
_DEFAULT_LIMITS = ChildLimits()


class Zygote:
    """A `Children`. With `unsafe`, children run unconfined, and their `layers` are empty."""

    def __init__(
        self,
        entry: str,
        *,
        preload: Sequence[str] = (),
        limits: ChildLimits = _DEFAULT_LIMITS,
        ready: int = 2,
        unsafe: bool = False,
        readable: Sequence[Path] = (),
        namespaces: bool = True,
        prefer: BackendName | None = None,
    ) -> None:
        """`namespaces=False` and `prefer` try what other machines would have to make do with."""
        self._limits = limits
        self._wanted = ready
        self._unsafe = unsafe
        self._prefer = prefer
        self._readable = [str(Path(path).resolve()) for path in readable]
        self._configuration = {
            "entry": entry,
            "preload": list(preload),
            "limits": msgspec.to_builtins(limits),
            "readable": self._readable,
            "namespaces": namespaces,
        }
        self._backend: _Backend | None = None
        self._process: ZygoteHandle | None = None
        self._problems: tuple[str, ...] = ()
        self._starting = asyncio.Lock()
        self._ready: deque[asyncio.Task[HostedChild]] = deque()
        self._taken: set[HostedChild] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Starts the zygote and its first children, so that the first `take` need not wait. Raises as `take` does."""
        self._refill()
        await asyncio.gather(*(asyncio.shield(task) for task in self._ready))

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be had here, though children are confined all the same."""
        return self._problems

    async def take(self) -> Child:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                child = await self._next_child()
            except SandboxError:
                if self._closed:
                    raise _closed_error() from None
                # Worth another attempt only where the zygote itself died.
                if attempt == _ATTEMPTS or (self._process is not None and self._process.alive):
                    raise
                continue
            self._taken = {other for other in self._taken if not other.closed} | {child}
            if child.running:
                child.begin()
                asyncio.get_running_loop().call_later(_REFILL_S, self._refill)
                return child
            await child.aclose()  # its zygote died while it was ready
        raise SandboxError(
            f"{_ATTEMPTS} children in a row died before they could be used", next_action="run `toolfold doctor`"
        )

    async def aclose(self) -> None:
        """Ends every child and the zygote. Safe to call twice."""
        self._closed = True
        while self._ready:
            try:
                self._taken.add(await self._ready.popleft())
            except SandboxError:
                continue  # it never started
        children, self._taken = list(self._taken), set()
        await asyncio.gather(*(child.aclose() for child in children))
        async with self._starting:
            await self._close_process()

    async def _next_child(self) -> HostedChild:
        task = self._ready.popleft() if self._ready else self._spawn()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._ready.appendleft(task)
            raise

    def _refill(self) -> None:
        while not self._closed and len(self._ready) < self._wanted:
            self._ready.append(self._spawn())

    def _spawn(self) -> asyncio.Task[HostedChild]:
        task = asyncio.create_task(self._create())
        # An error is for whoever takes the child. asyncio logs what nobody retrieves.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task

    async def _create(self) -> HostedChild:
        """Returns a child that is confined and waits."""
        if self._backend is None:
            self._backend = _choose_backend(unsafe=self._unsafe, readable=self._readable, prefer=self._prefer)
        backend = self._backend
        process = await (self._start_process(backend) if backend.single else self._shared_process(backend))
        child = process.fork()
        if backend.single:
            child.companion = process
        try:
            await child.ready
        except BaseException:
            await child.aclose()
            raise
        return child

    async def _start_process(self, backend: _Backend) -> ZygoteHandle:
        return await ZygoteHandle.start({**self._configuration, "backend": backend.name}, self._limits, backend.wrap)

    async def _shared_process(self, backend: _Backend) -> ZygoteHandle:
        """The running zygote, a new one if the last has died."""
        async with self._starting:
            if self._closed:
                raise _closed_error()
            if self._process is None or not self._process.alive:
                await self._close_process()
                self._process = await self._start_process(backend)
                self._problems = self._process.problems
            return self._process

    async def _close_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.aclose()


def _closed_error() -> SandboxError:
    return SandboxError(
        "the gateway was closed, and what it ran in the sandbox ended with it",
        next_action="run it again with a gateway that stays open",
    )
