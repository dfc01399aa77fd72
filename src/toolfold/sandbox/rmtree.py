"""Removes what a child left on disk, however deep, wide or locked it is. Standard library only: both sides use it."""

import contextlib
import os


def remove_tree(top: str) -> None:
    """Removes a folder of any depth: folders inside are first moved up, so that no path grows long."""
    pending = [top]
    stuck: set[str] = set()
    count = 0
    while pending:
        path = pending[-1]
        nested = [name for name in _remove_files(path) if f"{path}/{name}" not in stuck]
        if not nested:
            pending.pop()
            try:
                os.rmdir(path)  # noqa: PTH106 - plain strings throughout: there may be very many
            except OSError:
                stuck.add(path)
        for name in nested:
            count += 1
            target = f"{top}/.gone{count}"
            try:
                os.rename(f"{path}/{name}", target)  # noqa: PTH104 - as above
            except OSError:
                target = f"{path}/{name}"
            pending.append(target)


def _remove_files(path: str) -> list[str]:
    """Removes the files of a folder and names its folders."""
    with contextlib.suppress(OSError):
        os.chmod(path, 0o700)  # noqa: PTH101 - as above
    nested = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    nested.append(entry.name)
                else:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)  # noqa: PTH108 - as above
    except OSError:
        return []
    return nested
