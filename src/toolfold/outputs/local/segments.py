"""A document divided into segments: the pieces that are scored and quoted.

In text a segment is a line; a long line is divided where records, escaped newlines or sentences end. In JSON it is a
record: the largest container that is still small, with what stands between such containers in segments of its own.
Segments cover the document without gaps and without overlap. Above: `index.py`.
"""

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.outputs.local.json_index import JsonIndex
from toolfold.outputs.local.source import BLOCK, Offsets, Source, sorted_unique

# A longer line is divided.
LONG_LINE = 1200
# What a divided line's pieces measure, where no record or escaped newline ends earlier.
SHORTEST, LONGEST = 250, 1000
# What may stand before a record and still be its own: a comma and a key.
KEY = 200
# The largest container that is one segment.
RECORD = 4096


class Segments(Struct, frozen=True):
    """Where each segment begins; it ends where the next begins."""

    starts: Offsets
    size: int
    # For JSON: where each container opens, after its key.
    opens: Offsets | None = None

    def record_start(self, number: int) -> int:
        """For JSON: where the container opens that ends the segment; -1 where there is none."""
        return -1 if self.opens is None else int(self.opens[number])

    def __len__(self) -> int:
        return len(self.starts)

    def span(self, number: int) -> tuple[int, int]:
        end = int(self.starts[number + 1]) if number + 1 < len(self.starts) else self.size
        return int(self.starts[number]), end

    def at(self, offsets: Offsets) -> Offsets:
        """The segment that holds each offset."""
        return np.maximum(np.searchsorted(self.starts, offsets, side="right") - 1, 0)


def divide(source: Source, json: JsonIndex | None) -> Segments:
    """The segments of a JSON text, or of any other."""
    return _text_segments(source) if json is None else _json_segments(source, json)


def _text_segments(source: Source) -> Segments:
    """Lines, the long ones divided."""
    starts = np.concatenate([np.zeros(1, dtype=np.int64), source.newlines + 1])
    if len(starts) > 1 and int(starts[-1]) >= source.size:
        starts = starts[:-1]
    return Segments(_divide(source, starts), source.size)


def _json_segments(source: Source, json: JsonIndex) -> Segments:
    """Records and what stands between them."""
    begins, ends = [], []
    parents, is_large = np.full(1, -1, dtype=np.int64), np.ones(1, dtype=np.bool_)
    for level in json.levels:
        inside = is_large[np.maximum(np.searchsorted(parents, level.opens) - 1, 0)]
        small = inside & (level.closes - level.opens < RECORD)
        begins.append(level.opens[small])
        ends.append(level.closes[small] + 1)
        parents, is_large = level.opens, inside & ~small
        if not is_large.any():
            break
    begin, end = np.sort(np.concatenate(begins)), np.sort(np.concatenate(ends))
    starts = sorted_unique(np.concatenate([np.zeros(1, dtype=np.int64), begin, end[end < source.size]]))
    starts, opens = _join_keys(source, starts, begin)
    pieces = _divide(source, starts, opens >= 0)
    held = np.full(len(pieces), -1, dtype=np.int64)
    held[np.searchsorted(pieces, starts)] = opens
    return Segments(pieces, source.size, held)


def _join_keys(source: Source, starts: Offsets, begin: Offsets) -> tuple[Offsets, Offsets]:
    """Joins the little that stands before a record, a comma and its key, with the record."""
    sizes = np.diff(np.append(starts, source.size))
    is_record = np.isin(starts, begin, assume_unique=True)
    short = (sizes <= KEY) & ~is_record
    short[-1] = False
    joined = np.concatenate([[False], short[:-1]]) & is_record
    opens = np.where(is_record, starts, -1)
    first = np.flatnonzero(joined) - 1
    opens[first] = starts[first + 1]
    keep = ~joined
    return starts[keep], opens[keep]


def _divide(source: Source, starts: Offsets, whole: npt.NDArray[np.bool_] | None = None) -> Offsets:
    """The same segments with the long ones cut into pieces, except for those that stay whole."""
    sizes = np.diff(np.append(starts, source.size))
    long = np.flatnonzero((sizes > LONG_LINE) & ~whole if whole is not None else sizes > LONG_LINE)
    if source.size and len(long):
        pieces = [starts]
        for number in long:
            begin = int(starts[number])
            pieces.extend(_cut_points(source, begin, begin + int(sizes[number])))
        return sorted_unique(np.concatenate(pieces))
    return starts


def _cut_points(source: Source, begin: int, end: int) -> list[Offsets]:
    """Where to cut one long piece: after each record and each escaped newline, else between sentences or at blanks."""
    parts = []
    for at in range(begin, end, BLOCK):
        stop = min(at + BLOCK, end)
        text = np.frombuffer(source.read(at, stop), dtype=np.uint8)
        if len(text) < 3:
            break
        # As codes of characters: `},{` and `\\n` end a record or a line, `. ` a sentence, a blank or comma a word.
        a, b, c = text[:-2], text[1:-1], text[2:]
        closed = (a == 125) | (a == 93)
        strong = (
            np.flatnonzero((closed & (b == 44) & ((c == 123) | (c == 91) | (c == 32))) | ((a == 92) & (b == 110))) + 2
        )
        weak = np.flatnonzero(((a == 46) | (a == 33) | (a == 63) | (a == 59)) & (b == 32)) + 2
        blank = np.flatnonzero((text == 32) | (text == 44)) + 1
        parts.append(_readable_steps(strong, weak, blank, len(text)) + at)
    return parts


def _readable_steps(
    strong: npt.NDArray[np.intp], weak: npt.NDArray[np.intp], blank: npt.NDArray[np.intp], size: int
) -> Offsets:
    """Every strong place; between two of them far apart, weak ones or blanks in steps of readable size."""
    fixed = sorted_unique(np.concatenate([np.zeros(1, dtype=np.intp), strong, np.array([size], dtype=np.intp)]))
    gaps = np.flatnonzero(np.diff(fixed) > LONGEST)
    added: list[int] = []
    for gap in gaps:
        at, end = int(fixed[gap]), int(fixed[gap + 1])
        while end - at > LONGEST:
            at = _next_cut(weak, blank, at)
            added.append(at)
    return sorted_unique(np.concatenate([fixed[:-1], np.array(added, dtype=np.intp)])).astype(np.int64)


def _next_cut(weak: npt.NDArray[np.intp], blank: npt.NDArray[np.intp], at: int) -> int:
    for places in (weak, blank):
        index = int(np.searchsorted(places, at + SHORTEST))
        if index < len(places) and int(places[index]) <= at + LONGEST:
            return int(places[index])
    return at + LONGEST
