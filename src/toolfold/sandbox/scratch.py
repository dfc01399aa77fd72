"""A child's one writable folder: made, kept within bounds, and removed however it was left.

Where a mount namespace holds it, it is a small file system in memory with a size of its own, and it is gone with the
child. Elsewhere it is a folder of the host, which the host measures a few times a second. Above: `child.py`.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from toolfold.errors import SandboxError
from toolfold.sandbox.base import ChildLimits, Ending
from toolfold.sandbox.rmtree import remove_tree

_POLL_S = 0.1
_MAX_DEPTH = 64
_UNMEASURABLE = 1 << 62


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
        while await asyncio.to_thread(_within_limits, folder, pid, size, files):  # noqa: ASYNC110 - nothing tells of growth
            await asyncio.sleep(_POLL_S)
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


def _unlinked_files(pid: int, folder: str) -> dict[int, int]:
    """Files of the folder without a name that a process and its descendants hold: their bytes, by inode.

    One that is mapped but not open can be measured by root only. Python keeps open what it maps, so nobody honest has
    such a file, and it counts as too large.
    """
    found: dict[int, int] = {}
    pending, seen = [pid], set()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        process = Path(f"/proc/{current}")
        with contextlib.suppress(OSError):
            first = _open_files(process)
            # Looked at twice, or a file that was opened meanwhile would seem to be mapped only.
            found |= _mapped_files(process, folder) | first | _open_files(process)
            for task in (process / "task").iterdir():
                with contextlib.suppress(OSError):
                    pending += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def _open_files(process: Path) -> dict[int, int]:
    found = {}
    for entry in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            held = entry.stat()
            if stat.S_ISREG(held.st_mode) and held.st_nlink == 0:
                found[held.st_ino] = held.st_blocks * 512
    return found


def _mapped_files(process: Path, folder: str) -> dict[int, int]:
    found = {}
    for line in (process / "maps").read_text(encoding="utf-8", errors="replace").split("\n"):
        if not line.endswith(" (deleted)"):
            continue
        where, _, _, _, inode, path = line.split(maxsplit=5)
        if path.startswith(f"{folder}/"):
            try:
                found[int(inode)] = (process / "map_files" / where).stat().st_blocks * 512
            except OSError:
                found[int(inode)] = _UNMEASURABLE
    return found


def _within_limits(folder: Path, pid: int, max_bytes: int, max_files: int) -> bool:
    """Whether all that lies in a folder stays within the limits. It changes while we look, and that is no error."""
    files, used = 0, _unlinked_files(pid, os.path.realpath(folder))
    pending = [(os.fspath(folder), 0)]
    while pending:
        path, depth = pending.pop()
        if depth > _MAX_DEPTH:
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
                    used[found.st_ino] = found.st_blocks * 512
                    if stat.S_ISDIR(found.st_mode):
                        pending.append((entry.path, depth + 1))
        except OSError:
            continue
    return sum(used.values()) <= max_bytes
