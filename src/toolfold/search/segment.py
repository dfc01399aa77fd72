"""A segment: the rows of some tools, built once, mapped, never changed. An index is a short list of them.

Holds, for each row, the tool's id and place, the postings of its words and its vector, each in a plain array. Knows how
to build such arrays from tools and how to join segments into one without reading any text again. It ranks nothing.
"""

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from toolfold.search.arrays import Columns, Floats, Hashes, Rows, Small
from toolfold.search.document import Document, weighted_terms

UNIT = 0.1
"""Weighted counts are stored in steps of this, in two bytes."""
MAX_UNITS = 65_535
LEVELS = 127
"""Vectors keep each number as one of -127 … 127, with one scale for each vector."""


def digest(text: str, size: int = 8) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


def hash64(text: str) -> int:
    """A word, an id or a place as the 64 bits under which it is stored."""
    return int.from_bytes(digest(text), "little")


def path_scope(path: Sequence[str]) -> str:
    return "path\x00" + "\x00".join(path)


def tag_scope(tag: str) -> str:
    return "tag\x00" + tag


class SegmentRow(Struct, frozen=True):
    """One tool on its way into a segment."""

    tool: Document
    content: bytes
    """Changes with anything that is stored of the tool."""
    text: bytes
    """Changes with the text the encoder reads, or with the encoder."""


def content_key(tool: Document) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(tool), digest_size=16).digest()


def quantise(vectors: Floats) -> tuple[Small, Floats]:
    peak = np.abs(vectors).max(axis=1, initial=1e-12)
    scale = (peak / LEVELS).astype(np.float32)
    return np.rint(vectors / scale[:, None]).astype(np.int8), scale


def sign_bits(vectors: Small) -> Hashes:
    """One bit for each number, words of 64 bits along the first axis: what the coarse pass compares."""
    packed = np.packbits(vectors > 0, axis=1, bitorder="little")
    width = -(-packed.shape[1] // 8) * 8
    padded = np.zeros((packed.shape[0], width), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return np.ascontiguousarray(padded.view(np.uint64).T)


def build_segment(rows: Sequence[SegmentRow], vectors: Small, scales: Floats) -> Columns:
    """All arrays of a segment. Vectors come in the order of the rows."""
    ids = [row.tool.tool_id.encode("utf-8", "surrogatepass") for row in rows]
    places = [msgspec.msgpack.encode(row.tool.paths) for row in rows]
    scopes = sorted({(hash64(scope), at) for at, row in enumerate(rows) for scope in _scopes(row.tool)})
    arrays: Columns = {
        "id_hash": np.fromiter((hash64(row.tool.tool_id) for row in rows), dtype=np.uint64, count=len(rows)),
        "content": _keys([row.content for row in rows]),
        "text": _keys([row.text for row in rows]),
        "scope": np.array([scope for scope, _ in scopes], dtype=np.uint64),
        "scope_row": np.array([at for _, at in scopes], dtype=np.uint32),
        "vector": vectors,
        "scale": scales,
        "sign": sign_bits(vectors),
        **_blob("id", ids),
        **_blob("place", places),
        **_postings(rows),
    }
    return arrays


def _scopes(tool: Document) -> list[str]:
    found = [tag_scope(tag) for tag in tool.tags]
    for path in tool.paths:
        found.extend(path_scope(path[:depth]) for depth in range(1, len(path) + 1))
    return found


def _keys(keys: Sequence[bytes]) -> Hashes:
    return np.frombuffer(b"".join(keys), dtype=np.uint64).reshape(len(keys), 2)


def _blob(name: str, pieces: Sequence[bytes]) -> Columns:
    start = np.zeros(len(pieces) + 1, dtype=np.uint64)
    start[1:] = np.cumsum([len(piece) for piece in pieces], dtype=np.uint64)
    return {f"{name}_start": start, f"{name}_bytes": np.frombuffer(b"".join(pieces), dtype=np.uint8)}


def _postings(rows: Sequence[SegmentRow]) -> Columns:
    numbers: dict[str, int] = {}
    term: list[int] = []
    row_of: list[int] = []
    weight: list[float] = []
    length = np.zeros(len(rows), dtype=np.float32)
    for at, row in enumerate(rows):
        counts = weighted_terms(row.tool)
        length[at] = round(sum(counts.values()), 3)
        for word, count in counts.items():
            term.append(numbers.setdefault(word, len(numbers)))
            row_of.append(at)
            weight.append(count)
    keys = np.fromiter((hash64(word) for word in numbers), dtype=np.uint64, count=len(numbers))
    units = np.minimum(np.rint(np.array(weight, dtype=np.float64) / UNIT), MAX_UNITS).astype(np.uint16)
    hashes = keys[np.array(term, dtype=np.int64)] if term else keys
    return {"length": length, **_sorted_postings(hashes, np.array(row_of, dtype=np.uint32), units)}


def _sorted_postings(term: Hashes, row: NDArray[np.uint32], weight: NDArray[np.uint16]) -> Columns:
    order = np.lexsort((row, term))
    found, first = np.unique(term[order], return_index=True)
    start = np.append(first, len(term)).astype(np.uint64)
    return {"term": found, "term_start": start, "post_row": row[order], "post_weight": weight[order]}


def merge_segments(parts: "Sequence[tuple[Segment, Rows]]") -> Columns:
    """The given rows of several segments as one."""
    plain = ("id_hash", "content", "text", "length", "vector", "scale")
    arrays: Columns = {name: np.concatenate([segment.arrays[name][rows] for segment, rows in parts]) for name in plain}
    arrays["sign"] = sign_bits(arrays["vector"])
    arrays.update(_blob("id", [segment.piece("id", row) for segment, rows in parts for row in rows.tolist()]))
    arrays.update(_blob("place", [segment.piece("place", row) for segment, rows in parts for row in rows.tolist()]))
    term, post_row, weight, scope, scope_row = [], [], [], [], []
    base = 0
    for segment, rows in parts:
        moved = np.full(segment.count, -1, dtype=np.int64)
        moved[rows] = np.arange(base, base + len(rows))
        base += len(rows)
        terms = np.repeat(segment.arrays["term"], segment.holders())
        to = moved[segment.arrays["post_row"]]
        term.append(terms[to >= 0])
        post_row.append(to[to >= 0].astype(np.uint32))
        weight.append(segment.arrays["post_weight"][to >= 0])
        to = moved[segment.arrays["scope_row"]]
        scope.append(segment.arrays["scope"][to >= 0])
        scope_row.append(to[to >= 0].astype(np.uint32))
    arrays.update(_sorted_postings(np.concatenate(term), np.concatenate(post_row), np.concatenate(weight)))
    scopes, scope_rows = np.concatenate(scope), np.concatenate(scope_row)
    order = np.lexsort((scope_rows, scopes))
    return {**arrays, "scope": scopes[order], "scope_row": scope_rows[order]}


class Segment:
    """The arrays of one file, with the few lookups everything above needs."""

    def __init__(self, name: str, arrays: Columns) -> None:
        self.name = name
        self.arrays = arrays
        self.count = len(arrays["id_hash"])

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
        """Rows that stand in a place or carry a tag."""
        column, wanted = self.arrays["scope"], np.uint64(scope)
        return self.arrays["scope_row"][column.searchsorted(wanted, "left") : column.searchsorted(wanted, "right")]
