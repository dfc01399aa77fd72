"""The index in memory: segments, which never change, and a snapshot of several with their dead rows.

A segment holds, for each row, the tool's id and place, the postings of its words and its vector, each in a plain array,
usually mapped from a file; `updater.py` makes them. Global rows count through the segments of a snapshot in order.
Floats do not depend on how the rows lie in segments, so an index that grew and one built at once answer alike.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from toolfold.containers import BoundedDict
from toolfold.search.array_file import Columns, Floats, Hashes, Mask, Numbers, Rows, Small
from toolfold.search.document import Document
from toolfold.search.names import Names
from toolfold.types import Path

# Weighted counts are stored in steps of this, in two bytes.
UNIT = 0.1
# Vectors keep each number as one of -127 … 127, with one scale for each vector.
_LEVELS = 127
_CACHED_MASKS = 16
_NO_ROWS: Rows = np.zeros(0, dtype=np.int64)

# Whether the caller may see a tool. The same object must keep giving the same answers: masks are cached by it.
Allowed = Callable[[str], bool]


def hash64(text: str) -> int:
    """A word, an id or a place as the 64 bits under which it is stored."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _path_scope(path: Sequence[str]) -> str:
    return "path\x00" + "\x00".join(path)


def _tag_scope(tag: str) -> str:
    return "tag\x00" + tag


def quantise(vectors: Floats) -> tuple[Small, Floats]:
    peak = np.abs(vectors).max(axis=1, initial=1e-12)
    scale = (peak / _LEVELS).astype(np.float32)
    return np.rint(vectors / scale[:, None]).astype(np.int8), scale


def sign_bits(vectors: Small) -> Hashes:
    """One bit for each number, words of 64 bits along the first axis: what the coarse pass compares."""
    packed = np.packbits(vectors > 0, axis=1, bitorder="little")
    width = -(-packed.shape[1] // 8) * 8
    padded = np.zeros((packed.shape[0], width), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return np.ascontiguousarray(padded.view(np.uint64).T)


class Segment:
    """The arrays of one file, with the few lookups everything above needs."""

    def __init__(self, name: str, arrays: Columns) -> None:
        self.name = name
        self.arrays = arrays
        self.count = len(arrays["id_hash"])

    @staticmethod
    def scopes_of(tool: Document) -> list[str]:
        """The places, tags and names under which a tool is filed."""
        scopes = [*(_tag_scope(tag) for tag in tool.tags), *Names.scopes_of_tool(tool)]
        for path in tool.paths:
            scopes.extend(_path_scope(path[:depth]) for depth in range(1, len(path) + 1))
        return scopes

    def piece(self, name: str, row: int) -> bytes:
        start = self.arrays[f"{name}_start"]
        return bytes(self.arrays[f"{name}_bytes"][int(start[row]) : int(start[row + 1])])

    def tool_id(self, row: int) -> str:
        return self.piece("id", row).decode("utf-8", "surrogatepass")

    def paths(self, row: int) -> tuple[tuple[str, ...], ...]:
        return msgspec.msgpack.decode(self.piece("place", row), type=tuple[tuple[str, ...], ...])

    def holders(self) -> Rows:
        """For each word, how many rows hold it."""
        start = self.arrays["term_start"].astype(np.int64)
        counts: Rows = start[1:] - start[:-1]
        return counts

    def postings(self, term: int) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
        """Rows that hold the word, ascending, and their weighted counts in units."""
        column = self.arrays["term"]
        at = int(column.searchsorted(np.uint64(term)))
        if at >= len(column) or int(column[at]) != term:
            return self.arrays["post_row"][:0], self.arrays["post_weight"][:0]
        start = self.arrays["term_start"]
        first, last = int(start[at]), int(start[at + 1])
        return self.arrays["post_row"][first:last], self.arrays["post_weight"][first:last]

    def within(self, scope: int) -> NDArray[np.uint32]:
        """Rows that stand in a place, carry a tag or have a name."""
        column, wanted = self.arrays["scope"], np.uint64(scope)
        return self.arrays["scope_row"][column.searchsorted(wanted, "left") : column.searchsorted(wanted, "right")]


class Scope(Struct, frozen=True, kw_only=True):
    """Which tools a request is about: inside the path, with every tag, among the ids, not left out, allowed."""

    path: Path = ()
    tags: tuple[str, ...] = ()
    ids: Iterable[str] | None = None
    without: tuple[str, ...] = ()
    allowed: Allowed | None = None


class IndexSnapshot:
    """One state of the index: segments with their dead rows. An update makes a new one."""

    def __init__(self, segments: Sequence[Segment], dead: Sequence[Rows]) -> None:
        self.segments = tuple(segments)
        self._bases = [0]
        for segment in self.segments:
            self._bases.append(self._bases[-1] + segment.count)
        self.total = self._bases[-1]
        alive = np.ones(self.total, dtype=np.bool_)
        for base, rows in zip(self._bases, dead, strict=False):
            alive[rows + base] = False
        self.alive: Mask = alive
        self.count = int(alive.sum())
        self.id_hash: Hashes = self._column("id_hash", np.uint64)
        self.lengths: Floats = self._column("length", np.float32)
        self.twin: Hashes = self._column("twin", np.uint64)
        self._masks: BoundedDict[Allowed, Mask] = BoundedDict(_CACHED_MASKS)

    def mean_length(self, among: Mask) -> float:
        """How many weighted words a tool has."""
        total = float(self.lengths[among].sum(dtype=np.float64))
        return float(round(total / max(int(among.sum()), 1), 6)) or 1.0

    def _column(self, name: str, kind: type) -> NDArray[Any]:
        columns = [segment.arrays[name] for segment in self.segments]
        return np.concatenate(columns) if columns else np.zeros(0, dtype=kind)

    def parts(self) -> Iterator[tuple[int, Segment]]:
        """Each segment with its first global row."""
        return zip(self._bases, self.segments, strict=False)

    def place(self, row: int) -> tuple[Segment, int]:
        """The segment of a global row, and the row inside it."""
        at = len(self._bases) - 2
        while self._bases[at] > row:
            at -= 1
        return self.segments[at], row - self._bases[at]

    def tool_id(self, row: int) -> str:
        segment, local = self.place(row)
        return segment.tool_id(local)

    def paths(self, row: int) -> tuple[Path, ...]:
        segment, local = self.place(row)
        return segment.paths(local)

    def mask(self, scope: Scope) -> Mask:
        """The rows a search may look at."""
        mask = self.alive
        places = [_path_scope(scope.path)] if scope.path else []
        for place in (*places, *map(_tag_scope, scope.tags)):
            mask = mask & self._within(hash64(place))
        if scope.ids is not None:
            mask = mask & self._named(scope.ids)
        if scope.without:
            mask = mask & ~self._named(scope.without)
        return mask if scope.allowed is None else mask & self._permitted(scope.allowed)

    def named(self, names: Names, mask: Mask) -> list[Rows]:
        """The rows whose tools a request names, by how surely: nothing where it is no name."""
        found = [self._rows_named(name, mask) for name in names.requested]
        kinds = [np.concatenate(rows) for rows in zip(*found, strict=True)]
        return [rows for rows in kinds if len(rows)]

    def _rows_named(self, name: str, mask: Mask) -> list[Rows]:
        rows = [np.flatnonzero(self.filed([scope]) & mask) for scope in Names.scopes_of(name)]
        whole = [row for found in rows for row in found.tolist() if Names.is_id(name, self.tool_id(row))]
        # A whole id names one tool; without its separators it could be the name of another.
        return [np.array(whole, dtype=np.int64), *[_NO_ROWS] * (len(rows) - 1)] if whole else rows

    def twins_of(self, row: int, mask: Mask) -> Rows:
        """The rows of the same tool at other servers."""
        same: Rows = self._twins.get(int(self.twin[row]), _NO_ROWS)
        others: Rows = same[mask[same] & (same != row)]
        return others

    @cached_property
    def _twins(self) -> dict[int, Rows]:
        rows = np.flatnonzero(self.alive & (self.twin != 0))
        rows = rows[np.argsort(self.twin[rows], kind="stable")]
        keys, first, counts = np.unique(self.twin[rows], return_index=True, return_counts=True)
        several = counts > 1
        found = zip(keys[several].tolist(), first[several].tolist(), counts[several].tolist(), strict=True)
        return {key: rows[start : start + count] for key, start, count in found}

    @property
    def has_twins(self) -> bool:
        return bool(self._twins)

    def filed(self, scopes: Iterable[str]) -> Mask:
        """The rows that are filed under any of these."""
        mask = np.zeros(self.total, dtype=np.bool_)
        for scope in scopes:
            mask |= self._within(hash64(scope))
        return mask

    def _named(self, ids: Iterable[str]) -> Mask:
        return np.isin(self.id_hash, np.array([hash64(tool_id) for tool_id in ids], dtype=np.uint64))

    def _within(self, scope: int) -> Mask:
        mask = np.zeros(self.total, dtype=np.bool_)
        for base, segment in self.parts():
            mask[segment.within(scope).astype(np.int64) + base] = True
        return mask

    def _permitted(self, allowed: Allowed) -> Mask:
        """Asked once for each tool and cached; whoever returns hits asks again for those."""
        mask = self._masks.get(allowed)
        if mask is None:
            mask = np.zeros(self.total, dtype=np.bool_)
            for row in np.flatnonzero(self.alive).tolist():
                mask[row] = allowed(self.tool_id(row))
            self._masks[allowed] = mask
        return mask


def top_rows(scores: Numbers, rows: Rows, id_hash: Hashes, limit: int) -> Rows:
    """The `limit` rows with the highest scores, best first. Ties go by the id's hash, wherever the rows lie."""
    if len(rows) > limit:
        edge = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        chosen = np.flatnonzero(scores >= edge)
        rows, scores = rows[chosen], scores[chosen]
    order = np.lexsort((id_hash[rows], -scores))[:limit]
    return rows[order]
