"""macOS: a Seatbelt profile, as text, for `sandbox-exec`. No network, no programs, no files but the readable ones.

Each child gets a process of its own under it. The limits are ours; there is no system-call filter on this system.
Above: `ways.py`. Below: the program `sandbox-exec`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM = "/usr/bin/sandbox-exec"
SYSTEM = ("/usr/lib", "/usr/share", "/System/Library", "/Library/Frameworks", "/private/var/db/dyld", "/dev/null")
ALSO_READ = ("/dev/random", "/dev/urandom", "/dev/zero", "/etc/localtime", "/private/etc/localtime")


def profile(folder: str, readable: Sequence[str]) -> str:
    """Everything is denied but what stands here."""
    read = dict.fromkeys([*SYSTEM, *ALSO_READ, *readable])
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


def arguments(folder: str, readable: Sequence[str]) -> list[str]:
    """The command up to the interpreter."""
    return [PROGRAM, "-p", profile(folder, readable)]
