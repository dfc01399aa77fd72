"""A child's one writable folder: measured while the child runs, and removed however it was left.

In a mount namespace it is a small file system in memory with a size of its own, and is gone with the child. Elsewhere
it is a folder of the host, which the host measures a few times a second. Above: `child.py`. Below: `rmtree.py`.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from toolfold.errors import SandboxError
from toolfold.sandbox.base import ChildLimits, Ending
from toolfold.sandbox.rmtree import remove_tree

_POLL_S = 0.1
_MAX_DEPTH = 64
_UNMEASURABLE = 1 << 62


class Scratch:
    """`folder` is on the host; with `mount`, the child brought a file system of its own."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._mounted: int | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def path(self) -> Path:
        if self._mounted is not None:
            return Path(f"/proc/self/fd/{self._mounted}")
        if self._folder is None:
            raise SandboxError("this child has no scratch folder any more", next_action="read it before `aclose`")
        return self._folder

    def mount(self, descriptor: int) -> None:
        self._mounted = descriptor

    def watch(self, pid: int, limits: ChildLimits, kill: Callable[[Ending], None]) -> None:
        """Kills the child when its folder outgrows the limits. Not needed where the file system has a size."""
        if self._mounted is None and self._folder is not None:
            self._watching = asyncio.get_running_loop().create_task(self._poll(self._folder, pid, limits, kill))

    async def _poll(self, folder: Path, pid: int, limits: ChildLimits, kill: Callable[[Ending], None]) -> None:
        size, files = limits.scratch_bytes, limits.scratch_files
        while await asyncio.to_thread(_within_limits, folder, pid, size, files):  # noqa: ASYNC110 - growth has no event
            await asyncio.sleep(_POLL_S)
        kill("killed")

    def unwatch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def remove(self) -> None:
        self.unwatch()
        if self._mounted is not None:
            os.close(self._mounted)
            self._mounted = None
        if self._folder is not None:
            await asyncio.to_thread(remove_tree, str(self._folder))
            self._folder = None


def _within_limits(folder: Path, pid: int, max_bytes: int, max_files: int) -> bool:
    """Measures a folder and the unlinked files of its processes. It changes meanwhile, and that is no error."""
    files, used = 0, _unlinked_files(pid, os.path.realpath(folder))
    pending = [(os.fspath(folder), 0)]
    while pending:
        path, depth = pending.pop()
        if depth > _MAX_DEPTH:
            return False
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                files += 1
                if files > max_files:
                    return False
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    # By inode: a file with two names counts once.
                    used[info.st_ino] = info.st_blocks * 512
                    if stat.S_ISDIR(info.st_mode):
                        pending.append((entry.path, depth + 1))
    return sum(used.values()) <= max_bytes


def _unlinked_files(pid: int, folder: str) -> dict[int, int]:
    """Sizes by inode of the files without a name that a process and its descendants hold in the folder.

    A script could hide any amount of data in them, since no listing of the folder shows them.
    """
    sizes: dict[int, int] = {}
    for process, _ in _family(pid):
        with contextlib.suppress(OSError):
            before = _open_files(process)
            # Listed again afterwards, or a file opened meanwhile would seem to be mapped only.
            sizes |= _mapped_files(process, folder) | before | _open_files(process)
    return sizes


def _family(pid: int) -> Iterator[tuple[Path, list[Path]]]:
    """A process and all that it started, each with its threads."""
    pending, visited = [pid], set()
    while pending:
        current = pending.pop()
        if current in visited:
            continue
        visited.add(current)
        process, tasks = Path(f"/proc/{current}"), []
        with contextlib.suppress(OSError):
            tasks = list((process / "task").iterdir())
        yield process, tasks
        for task in tasks:
            with contextlib.suppress(OSError):
                pending += map(int, (task / "children").read_text(encoding="ascii").split())


def _open_files(process: Path) -> dict[int, int]:
    sizes = {}
    for entry in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            info = entry.stat()
            if stat.S_ISREG(info.st_mode) and info.st_nlink == 0:
                sizes[info.st_ino] = info.st_blocks * 512
    return sizes


def _mapped_files(process: Path, folder: str) -> dict[int, int]:
    sizes = {}
    for line in (process / "maps").read_text(encoding="utf-8", errors="replace").split("\n"):
        if not line.endswith(" (deleted)"):
            continue
        addresses, _, _, _, inode, path = line.split(maxsplit=5)
        if path.startswith(f"{folder}/"):
            try:
                sizes[int(inode)] = (process / "map_files" / addresses).stat().st_blocks * 512
            except OSError:
                # Only root can measure a file that is mapped but not open. Python keeps open what it maps, so
                # nobody honest has such a file.
                sizes[int(inode)] = _UNMEASURABLE
    return sizes
