"""Scores by words: BM25 over weighted counts, each word of the request counted once.

Takes a view and the words of a request, gives a number for each row. What the words of a tool weigh was decided when
its segment was built (`text.py`); how rare a word is, is counted over the living tools at each query.
"""

import math
from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from toolfold.search.arrays import Floats
from toolfold.search.segment import UNIT, hash64
from toolfold.search.snapshot import IndexSnapshot
from toolfold.words import STOP_WORDS, search_words, stem

SATURATION = 1.2
LENGTH = 0.75
MAX_TERMS = 64
"""Words of a request that are looked up; the rest of a very long one is not read."""
MAX_CHARACTERS = 8192


class QueryTerm(Struct, frozen=True):
    """A word of the request: as written, what finding it is worth, and the rows that hold it."""

    word: str
    idf: float
    known: bool
    """Whether any living tool holds it."""
    postings: tuple[tuple[int, NDArray[np.uint32], NDArray[np.uint16]], ...]
    """For each segment that holds it: its first row, rows inside it, weighted counts."""


def query_terms(text: str) -> dict[str, str]:
    """Stem and first spelling of each word that counts, in order. A request of stop words only keeps them."""
    found: dict[str, str] = {}
    spoken = search_words(text[:MAX_CHARACTERS])
    for word in [word for word in spoken if word not in STOP_WORDS] or spoken:
        found.setdefault(stem(word), word)
        if len(found) >= MAX_TERMS:
            break
    return found


class LexicalScorer:
    """BM25 on one view."""

    def __init__(self, view: IndexSnapshot) -> None:
        self._view = view
        ratio = view.lengths / np.float32(view.mean_length)
        self._damping = (SATURATION * (1 - LENGTH + LENGTH * ratio)).astype(np.float32)

    def terms(self, text: str) -> list[QueryTerm]:
        return [self._term(word, hash64(key)) for key, word in query_terms(text).items()]

    def _term(self, word: str, key: int) -> QueryTerm:
        view = self._view
        postings = []
        holders = 0
        for base, segment in zip(view.bases, view.segments, strict=False):
            rows, units = segment.postings(key)
            if len(rows):
                postings.append((base, rows, units))
                holders += len(rows) if view.whole else int(view.alive[base : base + segment.count][rows].sum())
        return QueryTerm(word, idf(view.count, holders), holders > 0, tuple(postings))

    def scores(self, terms: Iterable[QueryTerm]) -> Floats:
        """A score for every row, dead ones too."""
        found = np.zeros(self._view.total, dtype=np.float32)
        for term in terms:
            for base, rows, units in term.postings:
                found[base:][rows] += _gains(units, self._damping[base:][rows], term.idf)
        return found

    def held(self, terms: Iterable[QueryTerm], row: int) -> list[tuple[QueryTerm, float]]:
        """Which words a row holds and what each gave it: the same numbers that `scores` added up."""
        _, local = self._view.place(row)
        base = row - local
        found = []
        for term in terms:
            for first, rows, units in term.postings:
                at = int(rows.searchsorted(np.uint32(local))) if first == base else len(rows)
                if at < len(rows) and int(rows[at]) == local:
                    gain = _gains(units[at : at + 1], self._damping[row : row + 1], term.idf)
                    found.append((term, float(gain[0])))
        return found


def idf(count: int, holders: int) -> float:
    return math.log(1 + (count - holders + 0.5) / (holders + 0.5))


def _gains(units: NDArray[np.uint16], damping: Floats, worth: float) -> Floats:
    weight = units.astype(np.float32) * np.float32(UNIT)
    return np.float32(worth * (SATURATION + 1)) * weight / (weight + damping)
