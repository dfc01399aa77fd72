"""How children are confined on this machine: our own layers, bubblewrap, Seatbelt, or a refusal that says why.

The native backend is `isolation.py` and `confinement.py`. The other two wrap the command of the zygote in a program,
one for each child, so that none sees another's folder; limits are ours there, too, and on Linux the system-call filter.
Above: `zygote.py`. Below: the programs `bwrap` and `sandbox-exec`.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolfold.errors import SandboxError
from toolfold.sandbox import confinement, seccomp
from toolfold.sandbox.readable_paths import DEVICES, readable_paths, resolve_links
from toolfold.sandbox.zygote_process import ENVIRONMENT, CommandWrapper

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


class Backend(Struct, frozen=True):
    """`wrap` gives the command that goes before the interpreter's; a wrapped zygote serves one child only."""

    name: BackendName
    wrap: CommandWrapper = lambda folder: []

    @property
    def single(self) -> bool:
        return self.name in ("bubblewrap", "seatbelt")


def choose_backend(*, unsafe: bool = False, readable: list[str], prefer: BackendName | None = None) -> Backend:
    """Returns the first backend that works here. Raises `SandboxError` where none does: nothing runs bare unasked."""
    if unsafe:
        return Backend("unsafe")
    why = "another way was asked for"
    if prefer in (None, "native"):
        missing = confinement.missing_requirement(namespaced=True)
        if missing is None:
            return Backend("native")
        why = missing
    program = shutil.which("bwrap")
    if sys.platform == "linux" and program is not None and seccomp.audit_arch() is not None:
        return Backend("bubblewrap", lambda folder: _bubblewrap_command(program, folder, readable))
    if sys.platform == "darwin" and Path(_SANDBOX_EXEC).exists():
        return Backend("seatbelt", lambda folder: _seatbelt_command(folder, readable_paths(readable)))
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
