"""Whether git tracks a file, read from its index: run in a folder of strangers, git itself runs what they configured.

Above: `acceptance.py`.
"""

import os
import re
from pathlib import Path

_MAX_INDEX = 256 << 20
_MAX_LINK = 4096
_HEADER = 12
# In the flags before a name: its length, and that two more bytes of flags stand between.
_LENGTH, _EXTENDED = 0xFFF, 0x4000
# From this version on names are written without what they share with the one before.
_SHORTENED = 4


def is_tracked(file: Path) -> bool:
    """Whether the file is in the index of the repository around it. What cannot be read is taken for tracked."""
    real = Path(os.path.realpath(file.parent), file.name)
    above = next((folder for folder in real.parents if (folder / ".git").exists()), None)
    if above is None:
        return False
    try:
        index = _git_folder(above / ".git") / "index"
        if not index.exists():  # nothing was ever added
            return False
        # A split index has most of its names in a second file.
        if index.stat().st_size > _MAX_INDEX or any(index.parent.glob("sharedindex.*")):
            return True
        return _holds(index.read_bytes(), os.fsencode(real.relative_to(above)))
    except (OSError, ValueError):
        return True


def _git_folder(entry: Path) -> Path:
    """`.git`; in a worktree and in a submodule it is a file that says where."""
    if entry.is_dir():
        return entry
    with entry.open("rb") as link:
        said = link.read(_MAX_LINK)
    return entry.parent / os.fsdecode(said.removeprefix(b"gitdir:").strip())


def _holds(index: bytes, name: bytes) -> bool:
    if index[:4] != b"DIRC" or int.from_bytes(index[4:8]) >= _SHORTENED or len(index) < _HEADER:
        return True
    return any(_is_entry(index, match.start(), len(name)) for match in re.finditer(re.escape(name + b"\0"), index))


def _is_entry(index: bytes, at: int, length: int) -> bool:
    """Whether a name begins here, and not in the middle of a longer one: its length stands before it."""
    short, wide = (int.from_bytes(index[at - back : at - back + 2]) for back in (2, 4))
    length = min(length, _LENGTH)
    return (short & _LENGTH == length and not short & _EXTENDED) or (wide & _LENGTH == length and wide & _EXTENDED > 0)
