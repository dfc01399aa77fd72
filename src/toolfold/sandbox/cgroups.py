"""Control groups, where this user may make them: memory and processes of a child and all it starts, counted together.

The resource limits count each process alone; a group counts the family. Both versions of the interface are supported.
Standard library only. Above: `isolation.py`, and `zygote_handle.py` to sweep. Below: files under `/sys/fs/cgroup`.
"""

# The zygote does not import pathlib.
# ruff: noqa: PTH102, PTH106, PTH110, PTH123, PTH208

import contextlib
import os
import time
from typing import Any

_CGROUP_ROOT = "/sys/fs/cgroup"
_SWEEP_S = 2.0
_OPEN_FLAGS = os.O_DIRECTORY | os.O_RDONLY | os.O_CLOEXEC
# What a folder's groups count: in version 2 `both`, in version 1 one of the other two.
_LIMIT_FILES = {"both": ("memory.max", "pids.max"), "memory": ("memory.limit_in_bytes",), "pids": ("pids.max",)}


def _parent_groups(root: str = _CGROUP_ROOT, listed: str = "/proc/self/cgroup") -> list[tuple[str, str]]:
    """Lists the folders in which groups could be made: `(kind, path)`, with kind `both`, `memory` or `pids`.

    They lie within this process's own group, or within its parent where that was delegated to us: anywhere else
    children would escape the limits that somebody set for us.
    """
    try:
        with open(listed, encoding="utf-8") as file:
            own = {kinds: path for _, kinds, path in (line.rstrip("\n").split(":", 2) for line in file)}
    except (OSError, ValueError):
        return []
    if os.path.exists(f"{root}/cgroup.controllers"):
        group = own.get("", "/").rstrip("/")
        parent = f"{root}{group.rpartition('/')[0]}"
        return [("both", f"{root}{group}"), *([("both", parent)] if group and _is_delegated(parent) else [])]
    return [(kind, f"{root}/{kind}{own[kind]}".rstrip("/")) for kind in ("memory", "pids") if kind in own]


def _is_delegated(path: str) -> bool:
    """Whether systemd marked the group as delegated (`Delegate=yes`)."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(path, name) == b"1":
                return True
    return False


class CgroupSet:
    """The groups of one zygote's children. Without the right to make any, it is empty and does nothing."""

    def __init__(self, prefix: str, *, wanted: bool = True) -> None:
        self._prefix = prefix
        self._parents: list[tuple[str, int]] = []
        for kind, path in _parent_groups() if wanted else ():
            if any(kind in (other, "both") for other, _ in self._parents) or not _usable(kind, path, prefix):
                continue
            self._parents.append((kind, os.open(path, _OPEN_FLAGS)))

    def __bool__(self) -> bool:
        return bool(self._parents)

    @property
    def counts_tasks(self) -> bool:
        return any(kind in ("both", "pids") for kind, _ in self._parents)

    def join(self, number: int, limits: dict[str, Any]) -> int | None:
        """Moves this process into a new group. Returns a descriptor for `oom_killed`, where there is one."""
        memory = int(limits["memory_bytes"]) + int(limits["scratch_bytes"])
        # The shim and the child count, too.
        processes = int(limits["threads"]) + 3
        events = None
        for kind, parent in self._parents:
            name = f"{self._prefix}{number}"
            os.mkdir(name, 0o755, dir_fd=parent)
            for file in _LIMIT_FILES[kind]:
                _write(parent, f"{name}/{file}", processes if file == "pids.max" else memory)
            if kind == "both":
                with contextlib.suppress(OSError):
                    _write(parent, f"{name}/memory.swap.max", 0)
            if kind != "pids":
                file = "memory.events" if kind == "both" else "memory.oom_control"
                with contextlib.suppress(OSError):
                    events = os.open(f"{name}/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=parent)
            _write(parent, f"{name}/cgroup.procs", 0)
        return events

    def remove(self, number: int) -> None:
        """Removes the group of a child that is gone."""
        for _, parent in self._parents:
            with contextlib.suppress(OSError):
                os.rmdir(f"{self._prefix}{number}", dir_fd=parent)

    def sweep(self) -> None:
        """Removes every group of this zygote and closes the folders. Killed processes may take a moment to leave."""
        until = time.monotonic() + _SWEEP_S
        while self._remove_all() and time.monotonic() < until:
            time.sleep(0.005)
        for _, parent in self._parents:
            os.close(parent)
        self._parents = []

    def _remove_all(self) -> int:
        """Removes what can be removed and counts the rest."""
        left = 0
        for _, parent in self._parents:
            for name in os.listdir(parent):
                if name.startswith(self._prefix):
                    try:
                        os.rmdir(name, dir_fd=parent)
                    except OSError:
                        left += 1
        return left


def _usable(kind: str, path: str, prefix: str) -> bool:
    """Tries whether a group can be made there, and counts what it should."""
    trial = f"{path}/{prefix}trial"
    try:
        os.mkdir(trial, 0o755)
    except OSError:
        return False
    try:
        if kind == "both" and not os.path.exists(f"{trial}/memory.max"):
            # Refused where the folder holds processes of its own.
            with contextlib.suppress(OSError), open(f"{path}/cgroup.subtree_control", "w", encoding="ascii") as file:
                file.write("+memory +pids")
        return all(os.access(f"{trial}/{name}", os.W_OK) for name in (*_LIMIT_FILES[kind], "cgroup.procs"))
    finally:
        os.rmdir(trial)


def _write(parent: int, name: str, value: int) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.write(file, str(value).encode())
    finally:
        os.close(file)


def oom_killed(events: int) -> bool:
    """Whether the kernel killed a process of the group for want of memory."""
    try:
        words = os.pread(events, 4096, 0).split()
    except OSError:
        return False
    return b"oom_kill" in words and int(words[words.index(b"oom_kill") + 1]) > 0
