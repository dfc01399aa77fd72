"""Bytes from a pipe to lines, in time linear in the bytes, whatever the size of a line and of the pieces.

A line over the cap goes to a file where there is a place for it. Where there is none, only its beginning and its end
are kept, so that the request it belongs to can be told. Above: `stdio.py`. Below: `spill.py`. What a line means is not
known here.
"""

from collections.abc import Callable

from toolfold.wire.spill import EDGE, Spill, Spiller


class LineFramer:
    """Feed it pieces; it gives each whole line to `on_line` and the edges of each oversized one to `on_oversized`.

    With a `spiller` those go to `on_spilled` instead, whole.
    """

    def __init__(
        self,
        max_bytes: int,
        on_line: Callable[[bytes], None],
        on_oversized: Callable[[bytes, bytes, int], None],
        *,
        spiller: Spiller | None = None,
        on_spilled: Callable[[Spill], None] | None = None,
    ) -> None:
        self._max = max_bytes if spiller is None else spiller.threshold
        self._spiller = spiller
        self._on_spilled = on_spilled
        self._spill: Spill | None = None
        self._on_line = on_line
        self._on_oversized = on_oversized
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""
        self._skipping = False

    def feed(self, data: bytes) -> None:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._finish(data[start:end])
            start = end + 1
        if start < len(data):
            self._keep(data[start:] if start else data)

    def rest(self) -> bytes:
        """The pipe ended: what came after the last newline."""
        parts, self._parts, self._size, self._skipping = self._parts, [], 0, False
        return b"".join(parts)

    def rest_spilled(self) -> Spill | None:
        """The same, where it was too large to be held."""
        spill, self._spill = self._spill, None
        return spill

    def _finish(self, rest: bytes) -> None:
        if not self._size and len(rest) <= self._max:
            if rest:
                self._on_line(rest)
            return
        self._keep(rest)
        parts, size, self._parts, self._size = self._parts, self._size, [], 0
        if self._spill is not None and self._on_spilled is not None:
            spill, self._spill = self._spill, None
            self._on_spilled(spill)
        elif self._skipping:
            self._skipping = False
            head, tail, self._head, self._tail = self._head, self._tail, b"", b""
            self._on_oversized(head, tail, size)
        else:
            self._on_line(b"".join(parts))

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._spill is not None:
            self._spill.write(piece)
            return
        if self._skipping:
            self._tail = (self._tail + piece[-EDGE:])[-EDGE:]
            return
        self._parts.append(piece)
        if self._size <= self._max:
            return
        if self._spiller is not None:
            self._spill = self._spiller.open(self._parts)
        else:
            self._skipping = True
            self._head = _first(self._parts, EDGE)
            self._tail = _last(self._parts, EDGE)
        self._parts = []


def _first(parts: list[bytes], size: int) -> bytes:
    taken = b""
    for part in parts:
        taken += part[: size - len(taken)]
        if len(taken) >= size:
            break
    return taken


def _last(parts: list[bytes], size: int) -> bytes:
    taken = b""
    for part in reversed(parts):
        taken = part[-(size - len(taken)) :] + taken
        if len(taken) >= size:
            break
    return taken
