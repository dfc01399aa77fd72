"""The bytes of a document, read a piece at a time, and the few facts that every step needs.

The file is never held whole in Python objects. Positions are byte offsets from 0; lines count from 1. Above:
everything in `local`. Below: `document.py`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from toolfold.outputs.document import open_regular_file

Offsets = npt.NDArray[np.int64]

BLOCK = 8 << 20
# What a block includes of its neighbour, so that nothing is missed at a border.
MARGIN = 512


def sorted_unique(values: npt.NDArray[np.integer[Any]]) -> Offsets:
    """The different values in order."""
    # np.unique hashes in newer versions of numpy, which is slow on millions; most values are sorted already.
    ordered = values if len(values) < 2 or bool((values[1:] >= values[:-1]).all()) else np.sort(values)
    keep = np.ones(len(ordered), dtype=np.bool_)
    keep[1:] = ordered[1:] != ordered[:-1]
    return ordered[keep].astype(np.int64, copy=False)


class Source:
    """One document on disk. The file is open inside `with source:` only, so that nothing keeps it alive after."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._file: BinaryIO | None = None
        self._newlines: Offsets | None = None

    def __enter__(self) -> Self:
        self._file = open_regular_file(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, fewer at the end of the file."""
        start, end = max(0, start), min(self.size, end)
        if end <= start or self._file is None:
            return b""
        self._file.seek(start)
        parts = []
        while start < end and (part := self._file.read(end - start)):
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def text(self, start: int, end: int) -> str:
        return self.read(start, end).decode(errors="replace")

    def blocks(self, *, margin: int = 0, before: int = 0) -> Iterator[tuple[int, bytes]]:
        """The document in blocks, each with its offset, `before` bytes of the one before and `margin` of the next."""
        for at in range(0, self.size, BLOCK):
            yield at, self.read(at - before, at + BLOCK + margin)

    @property
    def newlines(self) -> Offsets:
        """Where each newline is. Computed once."""
        if self._newlines is None:
            empty = np.zeros(0, dtype=np.int64)
            parts = [np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + at for at, block in self.blocks()]
            self._newlines = np.concatenate([empty, *parts])
        return self._newlines

    @property
    def lines(self) -> int:
        """How many lines there are; a last one without a newline counts."""
        count = len(self.newlines)
        return count + int(self.size > 0 and (count == 0 or int(self.newlines[-1]) != self.size - 1))

    def line_at(self, offset: int) -> int:
        """The number of the line that holds the byte at `offset`."""
        return int(np.searchsorted(self.newlines, offset, side="left")) + 1

    def span_of_lines(self, first: int, last: int) -> tuple[int, int]:
        """Where lines `first` to `last` begin and end, the newline left out."""
        newlines = self.newlines
        start = 0 if first <= 1 else int(newlines[min(first - 2, len(newlines) - 1)]) + 1
        end = int(newlines[last - 1]) if last - 1 < len(newlines) else self.size
        return start, max(start, end)
