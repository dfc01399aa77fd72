"""Control groups, where this user may make them: memory and processes of a child and all it starts, counted together.

The resource limits count each process alone; a group counts the family. Both versions of the interface are known.
Standard library only. Above: `surroundings.py`, and `nursery.py` to sweep. Below: files under `/sys/fs/cgroup`.
"""

import contextlib
import os
import time
from typing import Any

_CGROUP_ROOT = "/sys/fs/cgroup"
_SWEEP_S = 2.0
_OPEN_FLAGS = os.O_DIRECTORY | os.O_RDONLY | os.O_CLOEXEC


def _parent_groups(root: str = _CGROUP_ROOT, listed: str = "/proc/self/cgroup") -> list[tuple[str, str]]:
    """Folders in which groups could be made: `(kind, path)`, with kind `both`, `memory` or `pids`.

    They lie within this process's own group, or within the one around it where that was handed to us: anywhere else
    children would be out of the limits that somebody set for us.
    """
    try:
        with open(listed, encoding="utf-8") as file:  # noqa: PTH123 - no pathlib in the zygote
            own = {kinds: path for _, kinds, path in (line.rstrip("\n").split(":", 2) for line in file)}
    except (OSError, ValueError):
        return []
    if os.path.exists(f"{root}/cgroup.controllers"):  # noqa: PTH110 - as above
        place = own.get("", "/").rstrip("/")
        around = f"{root}{place.rpartition('/')[0]}"
        return [("both", f"{root}{place}"), *([("both", around)] if place and _is_delegated(around) else [])]
    return [(kind, f"{root}/{kind}{own[kind]}".rstrip("/")) for kind in ("memory", "pids") if kind in own]


def _is_delegated(path: str) -> bool:
    """Whether systemd marked the group as delegated (`Delegate=yes`)."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(path, name) == b"1":
                return True
    return False


class CgroupSet:
    """The groups of one zygote's children. Without the right to make any, it does nothing."""

    def __init__(self, prefix: str, *, wanted: bool = True) -> None:
        self._prefix = prefix
        self._parents: list[tuple[str, int]] = []
        for kind, path in _parent_groups() if wanted else ():
            if any(kind in (other, "both") for other, _ in self._parents) or not _usable(kind, path, prefix):
                continue
            self._parents.append((kind, os.open(path, _OPEN_FLAGS)))

    def __bool__(self) -> bool:
        return bool(self._parents)

    def join(self, number: int, limits: dict[str, Any]) -> int | None:
        """Puts this process into a new group. Gives a descriptor by which to learn of a kill for want of memory."""
        memory = int(limits["memory_bytes"]) + int(limits["scratch_bytes"])
        events = None
        for kind, parent in self._parents:
            name = f"{self._prefix}{number}"
            os.mkdir(name, 0o755, dir_fd=parent)
            if kind == "both":
                _write(parent, f"{name}/memory.max", memory)
                with contextlib.suppress(OSError):
                    _write(parent, f"{name}/memory.swap.max", 0)
            elif kind == "memory":
                _write(parent, f"{name}/memory.limit_in_bytes", memory)
            if kind != "memory":
                _write(parent, f"{name}/pids.max", int(limits["threads"]) + 3)
            if kind != "pids":
                file = "memory.events" if kind == "both" else "memory.oom_control"
                with contextlib.suppress(OSError):
                    events = os.open(f"{name}/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=parent)
            _write(parent, f"{name}/cgroup.procs", 0)
        return events

    def remove(self, number: int) -> None:
        """All that was in it is gone."""
        for _, parent in self._parents:
            with contextlib.suppress(OSError):
                os.rmdir(f"{self._prefix}{number}", dir_fd=parent)

    def sweep(self) -> None:
        """Removes every group of this zygote, and lets go of the folders. Those that were killed may take a moment."""
        until = time.monotonic() + _SWEEP_S
        while self._left() and time.monotonic() < until:
            time.sleep(0.005)
        for _, parent in self._parents:
            os.close(parent)
        self._parents = []

    def _left(self) -> int:
        """Removes what can be removed, and counts the rest."""
        left = 0
        for _, parent in self._parents:
            for name in os.listdir(parent):  # noqa: PTH208 - of a descriptor
                if name.startswith(self._prefix):
                    try:
                        os.rmdir(name, dir_fd=parent)
                    except OSError:
                        left += 1
        return left


def _usable(kind: str, path: str, prefix: str) -> bool:
    """Whether a group can be made there, and counts what it should."""
    trial = f"{path}/{prefix}trial"
    files = {"both": ("memory.max", "pids.max"), "memory": ("memory.limit_in_bytes",), "pids": ("pids.max",)}[kind]
    try:
        os.mkdir(trial, 0o755)  # noqa: PTH102 - no pathlib in the zygote
    except OSError:
        return False
    try:
        if kind == "both" and not os.path.exists(f"{trial}/memory.max"):  # noqa: PTH110 - as above
            _enable(path)
        return all(os.access(f"{trial}/{file}", os.W_OK) for file in (*files, "cgroup.procs"))
    finally:
        os.rmdir(trial)  # noqa: PTH106 - as above


def _enable(path: str) -> None:
    """Has the groups in a folder count. Refused where the folder holds processes of its own."""
    with contextlib.suppress(OSError), open(f"{path}/cgroup.subtree_control", "w", encoding="ascii") as file:  # noqa: PTH123 - as above
        file.write("+memory +pids")


def _write(parent: int, name: str, value: int) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.write(file, str(value).encode())
    finally:
        os.close(file)


def oom_killed(events: int) -> bool:
    """Whether the kernel killed somebody in the group for want of memory."""
    try:
        words = os.pread(events, 4096, 0).split()
    except OSError:
        return False
    return b"oom_kill" in words and int(words[words.index(b"oom_kill") + 1]) > 0
