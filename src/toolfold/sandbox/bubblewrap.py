"""The second way: bubblewrap builds the namespaces, where our own layers cannot all be had.

Each child gets a bubblewrap of its own, so that none sees another's folder. The filter and the limits are ours as ever.
Bubblewrap's own pid 1 keeps the environment it was started with, so it is started with none, and there is no `/proc`
inside. Above: `ways.py`. Below: the program `bwrap`.
"""

import os
import sys
from pathlib import Path

from toolfold.sandbox.nursery import ENVIRONMENT
from toolfold.sandbox.reading import DEVICES, readable_paths, real_and_links

FIXED = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox", "--chdir", "/"),
)
NEEDED_BY_ROOT = ("SETUID", "SETGID", "SETPCAP", "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "KILL")
"""Root needs no user namespace, and the zygote inside needs these to make each child another user without any."""


def arguments(program: str, folder: str, readable: list[str]) -> list[str]:
    """The command up to the interpreter. `folder` is the one thing that can be written inside."""
    interpreter = [sys.executable, str(Path(sys.prefix) / "pyvenv.cfg")]
    paths = [*readable_paths(readable), *(path for path in interpreter if Path(path).exists())]
    real, links = real_and_links(paths)
    command = [program, *FIXED]
    if os.geteuid() == 0:
        for name in NEEDED_BY_ROOT:
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
