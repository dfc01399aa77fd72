"""The kernel's own counters: processor time, memory, file size, descriptors, threads. Standard library only.

They hold for one process, or for one user in one user namespace. What they cannot count, the host watches. Above:
`confinement.py`.
"""

import os
import resource
import sys
from typing import Any

_PAGE = resource.getpagesize()
_STACK_BYTES = 8 * 1024 * 1024
_MIN_MEMORY_BYTES = 32 * 1024 * 1024


def compute(limits: dict[str, Any], *, mapped_bytes: int, tasks: int) -> dict[int, tuple[int, int]]:
    """The limits by number, soft and hard. `mapped_bytes` is what the zygote brought, `tasks` what already counts."""
    memory = mapped_bytes + max(int(limits["memory_bytes"]), _MIN_MEMORY_BYTES)
    threads = tasks + int(limits["threads"])
    values = {
        resource.RLIMIT_CPU: (int(limits["cpu_s"]), int(limits["cpu_s"]) + 1),
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_FSIZE: (int(limits["scratch_bytes"]),) * 2,
        resource.RLIMIT_NOFILE: (int(limits["open_files"]),) * 2,
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_STACK: (_STACK_BYTES, _STACK_BYTES),
        resource.RLIMIT_NPROC: (threads, threads),
    }
    for name, value in (("MEMLOCK", 0), ("MSGQUEUE", 0), ("SIGPENDING", 256), ("RTPRIO", 0), ("NICE", 0)):
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            values[number] = (value, value)
    return values


def apply(values: dict[int, tuple[int, int]]) -> None:
    """Never more than there is already."""
    for number, (soft, hard) in values.items():
        pair = (soft, hard)
        _, ceiling = resource.getrlimit(number)
        if ceiling != resource.RLIM_INFINITY:
            pair = (min(soft, ceiling), min(hard, ceiling))
        try:
            resource.setrlimit(number, pair)
        except (OSError, ValueError):
            if sys.platform == "linux":
                raise  # elsewhere some of them exist in name only


def mapped_bytes(proc: int | None = None) -> int:
    """The address space this process has mapped, in bytes."""
    try:
        file = os.open("self/statm" if proc is not None else "/proc/self/statm", os.O_RDONLY, dir_fd=proc)
    except OSError:
        return 512 * 1024 * 1024  # cannot be known here: room enough for what a zygote imports
    try:
        return int(os.read(file, 100).split()[0]) * _PAGE
    finally:
        os.close(file)


def count_user_tasks() -> int:
    """How many threads count against this user, where no namespace counts a child's apart."""
    mine, count = os.getuid(), 0
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - no pathlib in the zygote
    except OSError:
        return 4096
    for name in names:
        try:
            if os.stat(f"/proc/{name}").st_uid == mine:  # noqa: PTH116 - as above
                count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208 - as above
        except OSError:
            continue
    return count
