"""Scores by meaning: how near each tool's vector lies to the request's.

Vectors are whole numbers between -127 and 127 with a scale; so is the request's, and a product of two is a whole
number that a float holds exactly: the same result whatever the order of the sums. (`einsum`, since the threads of the
matrix library would spin on every core.) Large catalogues are first thinned by comparing signs only. A request of
several sentences is as near to a tool as its nearest sentence.
"""

import re
from collections.abc import Sequence

import numpy as np

from toolfold.search.arrays import Floats, Hashes, Mask, Numbers, Rows
from toolfold.search.encoder import Encoder
from toolfold.search.segment import quantise, sign_bits
from toolfold.search.snapshot import IndexSnapshot
from toolfold.words import search_terms

EXACT = 1024
"""Up to so many rows are all compared in full; of more, about so many pass the coarse comparison."""


class DenseScorer:
    """Nearness on one view. Asks the encoder once for each request."""

    def __init__(self, view: IndexSnapshot, encoder: Encoder) -> None:
        self._view = view
        self._encoder = encoder

    @property
    def key(self) -> str:
        """Whose vectors these are."""
        return self._encoder.record.key

    def encode(self, texts: Sequence[str]) -> Floats:
        return self._encoder.queries(texts)

    def candidates(self, asked: Floats, mask: Mask) -> Rows:
        """Rows worth an exact comparison, ascending: all when they are few."""
        rows = np.flatnonzero(mask)
        if len(rows) <= EXACT:
            return rows
        bits = sign_bits(quantise(asked)[0])
        kept = [self._nearest_by_sign(bits[:, at], mask, EXACT // (1 if at == 0 else 4)) for at in range(len(asked))]
        return kept[0] if len(kept) == 1 else np.unique(np.concatenate(kept))

    def _nearest_by_sign(self, bits: Hashes, mask: Mask, wanted: int) -> Rows:
        apart = np.empty(self._view.total, dtype=np.uint16)
        for base, segment in zip(self._view.bases, self._view.segments, strict=False):
            column = segment.arrays["sign"]
            total = np.zeros(segment.count, dtype=np.uint16)
            for word in range(len(bits)):
                total += np.bitwise_count(column[word] ^ bits[word])
            apart[base : base + segment.count] = total
        apart[~mask] = np.iinfo(np.uint16).max
        at_most = np.cumsum(np.bincount(apart[mask], minlength=1))
        return np.flatnonzero(apart <= int(np.searchsorted(at_most, wanted)))

    def nearness(self, asked: Floats, rows: Rows) -> Numbers:
        """Cosine of each row with each text of the request: one line for each text."""
        return self.compared(asked, *self.gathered(rows))

    def gathered(self, rows: Rows) -> tuple[Floats, Numbers]:
        """The vectors of rows as whole numbers, and their scales."""
        segments = self._view.segments
        if len(segments) == 1:
            arrays = segments[0].arrays
            return arrays["vector"][rows].astype(np.float32), arrays["scale"][rows].astype(np.float64)
        vectors = np.empty((len(rows), self._encoder.dims), dtype=np.float32)
        scales = np.empty(len(rows), dtype=np.float64)
        for base, segment in zip(self._view.bases, segments, strict=False):
            inside = np.flatnonzero((rows >= base) & (rows < base + segment.count))
            local = rows[inside] - base
            vectors[inside] = segment.arrays["vector"][local]
            scales[inside] = segment.arrays["scale"][local]
        return vectors, scales

    def compared(self, asked: Floats, vectors: Floats, scales: Numbers) -> Numbers:
        numbers, scale = quantise(asked)
        products = np.einsum("td,rd->tr", numbers.astype(np.float32), vectors)
        return np.asarray(products * (scale[:, None].astype(np.float64) * scales), dtype=np.float64)


# --- Joins words and meaning: each score measured against the whole catalogue's, then mixed.

LEXICAL = 0.25
"""The share of words; meaning has the rest."""
MAX_SENTENCES = 8
MAX_CHARACTERS = 8192

_END = re.compile("(?<=[.!?;])\\s+|\n+|(?<=[\u3002\uff01\uff1f])")


def split_sentences(text: str) -> list[str]:
    """The sentences of a request that hold at least two words of content; nothing if there is only one."""
    pieces = (piece.strip() for piece in _END.split(text[:MAX_CHARACTERS]))
    found = [piece for piece in pieces if len(search_terms(piece[:512])) >= 2][:MAX_SENTENCES]
    return found if len(found) > 1 else []


def z_scores(values: Numbers, among: Numbers | Floats) -> Numbers:
    """Standard deviations above the mean of `among`. Rounded, so that the order of a sum never shows."""
    if not len(among):
        return values * 0.0
    mean, spread = float(among.mean(dtype=np.float64)), float(among.std(dtype=np.float64))
    if spread < 1e-9:
        return values * 0.0
    return (values - round(mean, 7)) / round(spread, 7)


def best_similarity(nearness: Numbers) -> Numbers:
    """One nearness for each tool, from a line for the whole request and a line for each sentence: half and half the
    whole's and the nearest line's."""
    whole: Numbers = nearness[0]
    return whole if len(nearness) == 1 else (whole + nearness.max(axis=0)) / 2


def fuse_scores(lexical: Numbers, dense: Numbers) -> Numbers:
    return np.round(LEXICAL * lexical + (1 - LEXICAL) * dense, 5)
