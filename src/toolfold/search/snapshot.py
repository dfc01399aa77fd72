"""One state of the index, opened: segments, which rows live, and the counts that every query needs.

A view never changes; an update makes a new one. Global rows count through the segments in order. Floats do not depend
on how the rows lie in segments, so an index that grew and one built at once answer alike.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from toolfold.search.arrays import Floats, Hashes, Mask, Numbers, Rows
from toolfold.search.segment import Segment, hash64, path_scope, tag_scope

Allowed = Callable[[str], bool]
"""Whether the caller may see a tool. The same object must keep giving the same answers."""

CACHED_MASKS = 16
_KINDS = {"id_hash": np.uint64, "length": np.float32}


class Scope(Struct, frozen=True, kw_only=True):
    """Which tools a request is about: inside the path, with every tag, among the ids, not left out, allowed."""

    path: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    ids: Iterable[str] | None = None
    without: tuple[str, ...] = ()
    allowed: Allowed | None = None


class IndexSnapshot:
    """Segments with their dead rows."""

    def __init__(self, segments: Sequence[Segment], dead: Sequence[Rows]) -> None:
        self.segments = tuple(segments)
        self.bases = [0]
        for segment in self.segments:
            self.bases.append(self.bases[-1] + segment.count)
        self.total = self.bases[-1]
        alive = np.ones(self.total, dtype=np.bool_)
        for base, rows in zip(self.bases, dead, strict=False):
            alive[rows + base] = False
        self.alive: Mask = alive
        self.whole = bool(alive.all())
        self.count = int(alive.sum())
        self.id_hash: Hashes = self._column("id_hash")
        lengths: Floats = self._column("length")
        self.mean_length = float(round(float(lengths[alive].sum(dtype=np.float64)) / max(self.count, 1), 6)) or 1.0
        self.lengths = lengths
        self._masks: dict[Allowed, Mask] = {}

    def _column(self, name: str) -> NDArray[Any]:
        columns = [segment.arrays[name] for segment in self.segments]
        return np.concatenate(columns) if columns else np.zeros(0, dtype=_KINDS[name])

    def place(self, row: int) -> tuple[Segment, int]:
        """The segment of a global row, and the row inside it."""
        at = len(self.bases) - 2
        while self.bases[at] > row:
            at -= 1
        return self.segments[at], row - self.bases[at]

    def tool_id(self, row: int) -> str:
        segment, local = self.place(row)
        return segment.tool_id(local)

    def paths(self, row: int) -> tuple[tuple[str, ...], ...]:
        segment, local = self.place(row)
        return segment.paths(local)

    def find(self, tool_id: str) -> int | None:
        """The living row of a tool."""
        for row in np.flatnonzero((self.id_hash == np.uint64(hash64(tool_id))) & self.alive).tolist():
            if self.tool_id(row) == tool_id:
                return int(row)
        return None

    def mask(self, scope: Scope) -> Mask:
        """The rows a search may look at."""
        mask = self.alive
        places = [path_scope(scope.path)] if scope.path else []
        for place in (*places, *(tag_scope(tag) for tag in scope.tags)):
            mask = mask & self._within(hash64(place))
        if scope.ids is not None:
            mask = mask & self._named(scope.ids)
        if scope.without:
            mask = mask & ~self._named(scope.without)
        return mask if scope.allowed is None else mask & self._permitted(scope.allowed)

    def _named(self, ids: Iterable[str]) -> Mask:
        return np.isin(self.id_hash, np.array([hash64(tool_id) for tool_id in ids], dtype=np.uint64))

    def _within(self, scope: int) -> Mask:
        mask = np.zeros(self.total, dtype=np.bool_)
        for base, segment in zip(self.bases, self.segments, strict=False):
            mask[segment.within(scope).astype(np.int64) + base] = True
        return mask

    def _permitted(self, allowed: Allowed) -> Mask:
        """Asked once for each tool and kept; whoever returns hits asks again for those."""
        known = self._masks.get(allowed)
        if known is None:
            known = np.zeros(self.total, dtype=np.bool_)
            for row in np.flatnonzero(self.alive).tolist():
                known[row] = allowed(self.tool_id(row))
            while len(self._masks) >= CACHED_MASKS:
                self._masks.pop(next(iter(self._masks)))
            self._masks[allowed] = known
        return known


def top_rows(scores: Numbers, rows: Rows, id_hash: Hashes, limit: int) -> Rows:
    """The `limit` rows with the highest scores, best first. Ties go by the id's hash, wherever the rows lie."""
    if len(rows) > limit:
        edge = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        chosen = np.flatnonzero(scores >= edge)
        rows, scores = rows[chosen], scores[chosen]
    order = np.lexsort((id_hash[rows], -scores))[:limit]
    return rows[order]
