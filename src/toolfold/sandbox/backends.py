"""Which way children are confined on this machine: our own layers, bubblewrap, Seatbelt, or a refusal that says why.

Above: `zygote.py`, `probing.py`. Below: `confinement.py`, `bubblewrap.py`, `seatbelt.py`.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolfold.errors import SandboxError
from toolfold.sandbox import confinement, seccomp
from toolfold.sandbox.readable_paths import DEVICES, readable_paths, resolve_links
from toolfold.sandbox.zygote_process import ENVIRONMENT, CommandWrapper, no_wrapper

# --- The second way: bubblewrap builds the namespaces, where our own layers cannot all be had.

_BWRAP_OPTIONS = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox", "--chdir", "/"),
)
_BWRAP_ROOT_CAPABILITIES = ("SETUID", "SETGID", "SETPCAP", "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "KILL")
"""Root needs no user namespace, and the zygote inside needs these to make each child another user without any."""


def _bubblewrap_command(program: str, folder: str, readable: list[str]) -> list[str]:
    """The command up to the interpreter. `folder` is the one thing that can be written inside."""
    interpreter = [sys.executable, str(Path(sys.prefix) / "pyvenv.cfg")]
    paths = [*readable_paths(readable), *(path for path in interpreter if Path(path).exists())]
    real, links = resolve_links(paths)
    command = [program, *_BWRAP_OPTIONS]
    if os.geteuid() == 0:
        for name in _BWRAP_ROOT_CAPABILITIES:
            command += ["--cap-add", f"CAP_{name}"]
    else:
        command += ["--unshare-user"]
    for path in real:
        command += ["--ro-bind", path, path]
    for link, target in links.items():
        command += ["--symlink", target, link]
    for device in DEVICES:
        command += ["--dev-bind", device, device]
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    return [*command, "--bind", folder, folder, "--"]


# --- macOS: a Seatbelt profile, as text, for `sandbox-exec`. No network, no programs, no files but the readable one

_SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_MACOS_SYSTEM_PATHS = (
    "/usr/lib",
    "/usr/share",
    "/System/Library",
    "/Library/Frameworks",
    "/private/var/db/dyld",
    "/dev/null",
)
_MACOS_READABLE = ("/dev/random", "/dev/urandom", "/dev/zero", "/etc/localtime", "/private/etc/localtime")


def _seatbelt_profile(folder: str, readable: Sequence[str]) -> str:
    """Everything is denied but what stands here."""
    read = dict.fromkeys([*_MACOS_SYSTEM_PATHS, *_MACOS_READABLE, *readable])
    lines = [
        "(version 1)",
        "(deny default)",
        "(deny network*)",
        "(allow process-fork)",  # the zygote forks the shim and the child; the limit on processes bounds the rest
        f"(allow process-exec (literal {_quoted(str(Path(sys.executable).resolve()))}))",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow file-read-metadata)",
        *(f"(allow file-read* (subpath {_quoted(path)}))" for path in read),
        f"(allow file-read* file-write* (subpath {_quoted(folder)}))",
        '(allow file-write-data (literal "/dev/null"))',
    ]
    return "\n".join(lines) + "\n"


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _seatbelt_command(folder: str, readable: Sequence[str]) -> list[str]:
    """The command up to the interpreter."""
    return [_SANDBOX_EXEC, "-p", _seatbelt_profile(folder, readable)]


BackendName = Literal["native", "bubblewrap", "seatbelt", "unsafe"]


class Backend(Struct, frozen=True):
    """`wrap` gives the command before ours; a wrapped zygote serves one child only."""

    name: BackendName
    wrap: CommandWrapper = no_wrapper

    @property
    def single(self) -> bool:
        return self.name in ("bubblewrap", "seatbelt")


def choose_backend(*, unsafe: bool = False, readable: list[str], prefer: BackendName | None = None) -> Backend:
    """The first way that works here. Raises `SandboxError` where none does: nothing ever runs bare unasked."""
    if unsafe:
        return Backend("unsafe")
    why = confinement.missing_requirement(apart=True) if prefer in (None, "native") else "another way was asked for"
    if why is None:
        return Backend("native")
    program = shutil.which("bwrap")
    if sys.platform == "linux" and program is not None and seccomp.audit_arch() is not None:
        return Backend("bubblewrap", lambda folder: _bubblewrap_command(program, folder, readable))
    if sys.platform == "darwin" and Path(_SANDBOX_EXEC).exists():
        return Backend("seatbelt", partial(_wrap_seatbelt, readable))
    raise SandboxError(
        f"there is no sandbox here: {why}; and there is no bubblewrap, which would do instead",
        next_action=_remedy(),
    )


def _wrap_seatbelt(readable: list[str], folder: str) -> list[str]:
    return _seatbelt_command(folder, readable_paths(readable))


def _remedy() -> str:
    install = "boot a kernel with Landlock (5.13 or later), or install bubblewrap (`apt install bubblewrap`)"
    first = {"linux": install}.get(sys.platform, "run toolfold on Linux or macOS, or in a Linux container")
    return f"{first}, or allow running without a sandbox explicitly (`--unsafe`) if you trust the code"
