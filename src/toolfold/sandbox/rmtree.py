"""Removes what a child left on disk, however deep, wide or locked it is. Standard library only: both sides use it."""

# Plain strings, no pathlib: there may be very many paths, and the zygote does not import it.
# ruff: noqa: PTH101, PTH104, PTH106, PTH108

import contextlib
import os


def remove_tree(top: str) -> None:
    """Removes a folder of any depth. What cannot be removed stays."""
    pending = [top]
    stuck: set[str] = set()
    count = 0
    while pending:
        path = pending[-1]
        nested = [name for name in _remove_files(path) if f"{path}/{name}" not in stuck]
        if not nested:
            pending.pop()
            try:
                os.rmdir(path)
            except OSError:
                stuck.add(path)
        for name in nested:
            count += 1
            # Nested folders move up first: a script can nest deeper than a path may be long.
            target = f"{top}/.gone{count}"
            try:
                os.rename(f"{path}/{name}", target)
            except OSError:
                target = f"{path}/{name}"
            pending.append(target)


def _remove_files(path: str) -> list[str]:
    """Removes the files of a folder and returns the names of its folders."""
    nested = []
    with contextlib.suppress(OSError):
        os.chmod(path, 0o700)
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                nested.append(entry.name)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
    return nested
