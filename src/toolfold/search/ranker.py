"""One request against one view: words and meaning, joined, best rows first, with the numbers behind each.

The only place where the lexical, the dense and the fused scores meet. It knows rows, not tools: `index.py` above turns
rows into hits, `calibrate.py` turns the numbers into a probability.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from toolfold.search import background as cohort
from toolfold.search import dense as fuse
from toolfold.search.arrays import Floats, Mask, Numbers, Rows
from toolfold.search.dense import EXACT, DenseScorer
from toolfold.search.encoder import Encoder
from toolfold.search.lexical import LexicalScorer, QueryTerm
from toolfold.search.snapshot import IndexSnapshot, top_rows
from toolfold.search.usage import Usage

SAMPLE = 1024
"""Rows that stand for a large catalogue where a mean over all would cost too much: those with the lowest id hashes."""
LEXICAL_CANDIDATES = 256


class Ranking(Struct, frozen=True):
    """Rows best first; the arrays run beside them."""

    rows: Rows
    score: Numbers
    lexical: Numbers
    """BM25, as it is."""
    lexical_z: Numbers
    near: Numbers
    """Cosine, the whole request and its nearest sentence taken together."""
    near_z: Numbers
    prior: Numbers
    """What earlier choices added to the score."""
    part: NDArray[np.int64]
    """Which text of the request came nearest; 0 is the whole."""
    texts: tuple[str, ...]
    terms: tuple[QueryTerm, ...]
    searched: int
    """How many rows were looked at."""
    foreign: float
    """How near the request comes to tools that are not here."""


class Ranker:
    """Everything computed once for a view."""

    def __init__(self, view: IndexSnapshot, encoder: Encoder, usage: Usage | None = None) -> None:
        self.view = view
        self._usage = usage
        self.lexical = LexicalScorer(view)
        self.dense = DenseScorer(view, encoder)
        self._sample: tuple[Floats, Numbers] | None = None

    def rank(self, query: str, mask: Mask, limit: int) -> Ranking:
        terms = tuple(self.lexical.terms(query))
        by_words = self.lexical.scores(terms)
        texts = (query, *fuse.split_sentences(query))
        asked = self.dense.encode(texts)
        searched = np.flatnonzero(mask)
        rows = self._candidates(asked, by_words, mask, searched)
        lifts = self._usage.lifts(asked[0]) if self._usage else {}
        if lifts and rows is not searched:
            rows = np.union1d(rows, self._chosen(lifts, mask))
        nearness = self.dense.nearness(asked, rows)
        near = fuse.best_similarity(nearness)
        lexical = by_words[rows].astype(np.float64)
        lexical_z = fuse.z_scores(lexical, by_words if len(searched) == len(by_words) else by_words[searched])
        near_z = fuse.z_scores(near, near if rows is searched else self._usual(asked, mask, searched))
        prior = self._prior(lifts, rows)
        score = fuse.fuse_scores(lexical_z, near_z) + prior
        kept = top_rows(score, np.arange(len(rows)), self.view.id_hash[rows], limit)
        return Ranking(
            rows[kept], score[kept], lexical[kept], lexical_z[kept], near[kept], near_z[kept], prior[kept],
            nearness[:, kept].argmax(axis=0) if len(kept) else np.zeros(0, dtype=np.int64),
            texts, terms, len(searched), cohort.background_similarity(self.dense, asked),
        )  # fmt: skip

    def _candidates(self, asked: Floats, by_words: Floats, mask: Mask, searched: Rows) -> Rows:
        if len(searched) <= EXACT:
            return searched
        near = self.dense.candidates(asked, mask)
        hold = searched[by_words[searched] > 0]
        worded = top_rows(by_words[hold].astype(np.float64), hold, self.view.id_hash, LEXICAL_CANDIDATES)
        return np.union1d(near, worded)

    def _chosen(self, lifts: dict[int, float], mask: Mask) -> Rows:
        keys = np.array(list(lifts), dtype=np.uint64)
        return np.flatnonzero(mask & np.isin(self.view.id_hash, keys))

    def _prior(self, lifts: dict[int, float], rows: Rows) -> Numbers:
        found = np.zeros(len(rows), dtype=np.float64)
        for key, gain in lifts.items():
            found[self.view.id_hash[rows] == np.uint64(key)] = round(gain, 5)
        return found

    def _usual(self, asked: Floats, mask: Mask, searched: Rows) -> Numbers:
        """Nearness of rows that stand for all that are searched."""
        sample = self._sample if mask is self.view.alive else None
        if sample is None:
            lowest = np.argpartition(self.view.id_hash[searched], SAMPLE)[:SAMPLE]
            sample = self.dense.gathered(np.sort(searched[lowest]))
            if mask is self.view.alive:
                self._sample = sample
        return fuse.best_similarity(self.dense.compared(asked, *sample))
