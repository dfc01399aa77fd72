"""A child's one writable folder: made, kept within bounds, and removed however it was left.

Where a mount namespace holds it, it is a small file system in memory with a size of its own, and it is gone with the
child. Elsewhere it is a folder of the host, which the host measures a few times a second. Above: `child.py`.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

from toolfold.errors import SandboxError
from toolfold.sandbox.base import ChildLimits, Ending
from toolfold.sandbox.removing import remove_tree

LOOK_S = 0.1
MAX_DEPTH = 64


class Scratch:
    """`folder` is the host's; with `hold`, the child brought a file system of its own."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._held: int | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def path(self) -> Path:
        if self._held is not None:
            return Path(f"/proc/self/fd/{self._held}")
        if self._folder is None:
            raise SandboxError("this child has no scratch folder any more", next_action="read it before `aclose`")
        return self._folder

    def hold(self, descriptor: int) -> None:
        self._held = descriptor

    def watch(self, pid: int, limits: ChildLimits, kill: Callable[[Ending], None]) -> None:
        """Ends the child when its folder outgrows the limits. Not needed where the file system has a size."""
        if self._held is None and self._folder is not None:
            self._watching = asyncio.get_running_loop().create_task(self._look(self._folder, pid, limits, kill))

    async def _look(self, folder: Path, pid: int, limits: ChildLimits, kill: Callable[[Ending], None]) -> None:
        size, files = limits.scratch_bytes, limits.scratch_files
        while await asyncio.to_thread(within, folder, pid, size, files):  # noqa: ASYNC110 - nothing tells of growth
            await asyncio.sleep(LOOK_S)
        kill("killed")

    def unwatch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def remove(self) -> None:
        self.unwatch()
        if self._held is not None:
            os.close(self._held)
            self._held = None
        if self._folder is not None:
            await asyncio.to_thread(remove_tree, str(self._folder))
            self._folder = None


def unlinked(pid: int) -> int:
    """The bytes of files without a name that a process and its descendants hold open."""
    used = 0
    pending, seen = [pid], set()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        try:
            found = Path(f"/proc/{current}/task/{current}/children").read_text(encoding="ascii")
            pending += [int(each) for each in found.split()]
            for entry in Path(f"/proc/{current}/fd").iterdir():
                held = entry.stat()
                if stat.S_ISREG(held.st_mode) and held.st_nlink == 0:
                    used += held.st_blocks * 512
        except OSError:
            continue
    return used


def within(folder: Path, pid: int, max_bytes: int, max_files: int) -> bool:
    """Whether all that lies in a folder stays within the limits. It changes while we look, and that is no error."""
    files, used = 0, unlinked(pid)
    pending = [(os.fspath(folder), 0)]
    while pending:
        path, depth = pending.pop()
        if depth > MAX_DEPTH:
            return False
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    files += 1
                    if files > max_files:
                        return False
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    used += found.st_blocks * 512
                    if stat.S_ISDIR(found.st_mode):
                        pending.append((entry.path, depth + 1))
        except OSError:
            continue
        if used > max_bytes:
            return False
    return True
