"""The kernel's own counters: processor time, memory, file size, descriptors, threads. Standard library only.

They hold for one process, or for one user in one user namespace. What they cannot count, the host watches. Above:
`confinement.py`, `isolation.py`.
"""

import contextlib
import os
import resource
import sys
from typing import Any

_PAGE = resource.getpagesize()
_STACK_BYTES = 8 * 1024 * 1024
_MIN_MEMORY_BYTES = 32 * 1024 * 1024


def compute(limits: dict[str, Any], *, mapped_bytes: int, tasks: int) -> dict[int, int]:
    """Returns the limits by number. `mapped_bytes` is what the zygote brought, `tasks` what already counts."""
    values = {
        resource.RLIMIT_CPU: int(limits["cpu_s"]),
        resource.RLIMIT_AS: mapped_bytes + max(int(limits["memory_bytes"]), _MIN_MEMORY_BYTES),
        resource.RLIMIT_FSIZE: int(limits["scratch_bytes"]),
        resource.RLIMIT_NOFILE: int(limits["open_files"]),
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_STACK: _STACK_BYTES,
        resource.RLIMIT_NPROC: tasks + int(limits["threads"]),
    }
    for name, value in (("MEMLOCK", 0), ("MSGQUEUE", 0), ("SIGPENDING", 256), ("RTPRIO", 0), ("NICE", 0)):
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            values[number] = value
    return values


def apply(values: dict[int, int]) -> None:
    """Sets soft and hard limits, never above the ones in force."""
    for number, value in values.items():
        # SIGXCPU comes at the soft limit, SIGKILL at the hard one.
        hard = value + 1 if number == resource.RLIMIT_CPU else value
        _, ceiling = resource.getrlimit(number)
        pair = (value, hard)
        if ceiling != resource.RLIM_INFINITY:
            pair = (min(value, ceiling), min(hard, ceiling))
        try:
            resource.setrlimit(number, pair)
        except (OSError, ValueError):
            if sys.platform == "linux":
                raise  # elsewhere some of them exist in name only


def mapped_bytes(proc: int | None = None) -> int:
    """The address space this process has mapped. `proc` is a descriptor of `/proc` where it has no path."""
    try:
        file = os.open("self/statm" if proc is not None else "/proc/self/statm", os.O_RDONLY, dir_fd=proc)
    except OSError:
        return 512 * 1024 * 1024  # cannot be known here: room enough for what a zygote imports
    try:
        return int(os.read(file, 100).split()[0]) * _PAGE
    finally:
        os.close(file)


def count_user_tasks() -> int:
    """Counts the threads of this user, for where no namespace counts a child's apart."""
    uid, count = os.getuid(), 0
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - no pathlib in the zygote
    except OSError:
        return 4096
    for name in names:
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == uid:  # noqa: PTH116 - as above
                count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208 - as above
    return count
