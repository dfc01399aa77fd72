"""One request against one snapshot: words and meaning, joined, best rows first, with the numbers behind each.

Words are scored by BM25 over weighted counts, each word of the request counted once. Meaning is the similarity of
vectors, which are whole numbers with a scale, so that a product is exact whatever the order of the sums; a large
catalogue is first thinned by comparing signs, and a request of several sentences is also compared sentence by sentence.

A score by itself says little: words are rare in one catalogue and common in another. So each becomes "how many standard
deviations above this catalogue's mean for this request", and the two are added with fixed weights. It knows rows, not
tools: `index.py` above turns rows into hits, `calibration.py` turns the numbers into a probability.
"""

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from toolfold.errors import ConfigError
from toolfold.search.array_file import Floats, Hashes, Mask, Numbers, Rows
from toolfold.search.encoder import Encoder
from toolfold.search.names import Names
from toolfold.search.segment import UNIT, IndexSnapshot, hash64, quantise, sign_bits, top_rows
from toolfold.search.usage import Usage
from toolfold.words import query_terms, search_terms

# Up to so many rows are all compared in full; of more, about so many pass the coarse comparison.
EXACT = 1024


class _DenseScorer:
    """Similarity on one snapshot."""

    def __init__(self, snapshot: IndexSnapshot, encoder: Encoder) -> None:
        self._snapshot = snapshot
        self._encoder = encoder

    def encode(self, texts: Sequence[str]) -> Floats:
        return self._encoder.queries(texts)

    def candidates(self, request: Floats, mask: Mask) -> Rows:
        """Rows worth an exact comparison, ascending: all when they are few."""
        rows = np.flatnonzero(mask)
        if len(rows) <= EXACT:
            return rows
        bits = sign_bits(quantise(request)[0])
        # Each sentence brings a quarter of what the whole request does.
        nearest = [
            self._nearest_by_sign(bits[:, at], mask, EXACT // (1 if at == 0 else 4)) for at in range(len(request))
        ]
        return nearest[0] if len(nearest) == 1 else np.unique(np.concatenate(nearest))

    def _nearest_by_sign(self, bits: Hashes, mask: Mask, wanted: int) -> Rows:
        distance = np.empty(self._snapshot.total, dtype=np.uint16)
        for base, segment in self._snapshot.parts():
            column = segment.arrays["sign"]
            total = np.zeros(segment.count, dtype=np.uint16)
            for word in range(len(bits)):
                total += np.bitwise_count(column[word] ^ bits[word])
            distance[base : base + segment.count] = total
        distance[~mask] = np.iinfo(np.uint16).max
        at_most = np.cumsum(np.bincount(distance[mask], minlength=1))
        return np.flatnonzero(distance <= int(np.searchsorted(at_most, wanted)))

    def similarities(self, request: Floats, rows: Rows) -> Numbers:
        """Cosine of each row with each text of the request: one line for each text."""
        return _cosines(request, *self.vectors(rows))

    def vectors(self, rows: Rows) -> tuple[Floats, Numbers]:
        """The vectors of rows as whole numbers, and their scales."""
        vectors = np.empty((len(rows), self._encoder.dims), dtype=np.float32)
        scales = np.empty(len(rows), dtype=np.float64)
        for base, segment in self._snapshot.parts():
            inside = np.flatnonzero((rows >= base) & (rows < base + segment.count))
            local = rows[inside] - base
            vectors[inside] = segment.arrays["vector"][local]
            scales[inside] = segment.arrays["scale"][local]
        return vectors, scales


def _cosines(request: Floats, vectors: Floats, scales: Numbers) -> Numbers:
    numbers, scale = quantise(request)
    # Not a matrix product: the threads of the matrix library would spin on every core.
    products = np.einsum("td,rd->tr", numbers.astype(np.float32), vectors)
    return np.asarray(products * (scale[:, None].astype(np.float64) * scales), dtype=np.float64)


def _best_similarity(similarities: Numbers) -> Numbers:
    """One similarity for each tool, from a line for the whole request and a line for each sentence: half and half the
    whole's and the best line's."""
    whole: Numbers = similarities[0]
    return whole if len(similarities) == 1 else (whole + similarities.max(axis=0)) / 2


# Tools that are not here, a small set that stands for all that tools do: a request nearer to them than to any tool of
# the catalogue asks for something else. Made by `training/background.py`, and worth nothing with another encoder.
BACKGROUND_FILE = "background.npz"
_NEAREST = 30


@cache
def _load_background(folder: Path, encoder: str) -> tuple[Floats, Numbers]:
    """Vectors as whole numbers, and their scales. `encoder` is the key of the one that asks."""
    try:
        with np.load(folder / BACKGROUND_FILE) as held:
            made_by = str(held["encoder"])
            vectors, scales = held["vectors"].astype(np.float32), held["scales"].astype(np.float64)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"the background tools of search cannot be read: {error}", next_action="install toolfold again"
        ) from error
    if made_by != encoder:
        raise ConfigError(
            f"the background tools of search were made with the encoder {made_by}, not with {encoder}",
            next_action="install toolfold again; after training, run training/background.py and training/calibrate.py",
        )
    return vectors, scales


def _background_similarity(encoder: Encoder, request: Floats) -> float:
    """The mean similarity of the thirty background tools that come nearest."""
    background = _load_background(encoder.folder, encoder.record.key)
    similarity = np.sort(_best_similarity(_cosines(request, *background)))
    return round(float(similarity[-_NEAREST:].mean()), 7)


# The usual constants of BM25.
SATURATION = 1.2
LENGTH = 0.75


class _QueryTerm(Struct, frozen=True):
    """A word of the request: as written, what finding it is worth, and the rows that hold it."""

    word: str
    idf: float
    postings: tuple[tuple[int, NDArray[np.uint32], NDArray[np.uint16]], ...]
    """For each segment that holds it: its first row, rows inside it, weighted counts."""


class _LexicalScorer:
    """BM25 on one snapshot. `among` are the rows that say how rare a word is: what is hidden must not show."""

    def __init__(self, snapshot: IndexSnapshot, among: Mask) -> None:
        self._snapshot = snapshot
        self._among = among
        self._count = int(among.sum())
        ratio = snapshot.lengths / np.float32(snapshot.mean_length(among))
        self._damping = (SATURATION * (1 - LENGTH + LENGTH * ratio)).astype(np.float32)

    def terms(self, text: str) -> list[_QueryTerm]:
        return [self._term(word, hash64(key)) for key, word in query_terms(text).items()]

    def _term(self, word: str, key: int) -> _QueryTerm:
        snapshot = self._snapshot
        postings = []
        holders = 0
        for base, segment in snapshot.parts():
            rows, units = segment.postings(key)
            if len(rows):
                postings.append((base, rows, units))
                holders += int(self._among[base : base + segment.count][rows].sum())
        return _QueryTerm(word, _idf(self._count, holders), tuple(postings))

    def scores(self, terms: Iterable[_QueryTerm]) -> Floats:
        """A score for every row, dead ones too."""
        scores = np.zeros(self._snapshot.total, dtype=np.float32)
        for term in terms:
            for base, rows, units in term.postings:
                scores[base:][rows] += _gains(units, self._damping[base:][rows], term.idf)
        return scores

    def matches(self, terms: Iterable[_QueryTerm], row: int) -> list[tuple[_QueryTerm, float]]:
        """Which words a row holds and what each gave it: the same numbers that `scores` added up."""
        _, local = self._snapshot.place(row)
        base = row - local
        matches = []
        for term in terms:
            for first, rows, units in term.postings:
                at = int(rows.searchsorted(np.uint32(local))) if first == base else len(rows)
                if at < len(rows) and int(rows[at]) == local:
                    gain = _gains(units[at : at + 1], self._damping[row : row + 1], term.idf)
                    matches.append((term, float(gain[0])))
        return matches


def _idf(count: int, holders: int) -> float:
    return math.log(1 + (count - holders + 0.5) / (holders + 0.5))


def _gains(units: NDArray[np.uint16], damping: Floats, worth: float) -> Floats:
    weight = units.astype(np.float32) * np.float32(UNIT)
    return np.float32(worth * (SATURATION + 1)) * weight / (weight + damping)


MAX_SENTENCES = 8

# The share of words in a score; meaning has the rest.
LEXICAL_WEIGHT = 0.2
# One rare word stands out by any number of standard deviations in a large catalogue; more than this is no more certain.
_MAX_LEXICAL = 12.0
_LEXICAL_CANDIDATES = 256
# Rows that stand for a large catalogue where a mean over all would cost too much: those with the lowest id hashes.
_SAMPLE = 1024
_MAX_CHARACTERS = 8192
# What a tool loses that does the opposite of what is asked, in standard deviations: enough to part two that differ in
# their verb alone. 0.5 to 2.0 measured alike.
_OPPOSITION = 1.0
_ABOVE_ALL = 1e6
_SENTENCE_END = re.compile("(?<=[.!?;])\\s+|\n+|(?<=[\u3002\uff01\uff1f])")


class Ranking(Struct, frozen=True, kw_only=True):
    """Rows best first; the arrays run beside them."""

    rows: Rows
    score: Numbers
    lexical_z: Numbers
    similarity: Numbers
    """Cosine, the whole request and its best sentence taken together."""
    dense_z: Numbers
    prior: Numbers
    """What earlier choices added to the score."""
    against: Numbers
    """What doing the opposite of what is asked took away."""
    request: Floats
    """The vector of the whole request."""
    part: NDArray[np.int64]
    """Which text of the request came nearest; 0 is the whole."""
    texts: tuple[str, ...]
    terms: tuple[_QueryTerm, ...]
    searched: int
    """How many rows were looked at."""
    background: float
    """How similar the request is to tools that are not here."""
    weights: Path
    """Where the encoder's weights lie, and what was fitted with them."""
    named: int = 0
    """How many of the first rows the request names."""


class Ranker:
    """Everything computed once for a snapshot."""

    def __init__(self, snapshot: IndexSnapshot, encoder: Encoder, usage: Usage | None = None) -> None:
        self.snapshot = snapshot
        self._usage = usage
        self._encoder = encoder
        self.lexical = _LexicalScorer(snapshot, snapshot.alive)
        self._dense = _DenseScorer(snapshot, encoder)
        self._sample: tuple[Floats, Numbers] | None = None

    def rank(self, query: str, mask: Mask, limit: int, visible: Mask | None = None, *, learned: bool = True) -> Ranking:
        """The first rows of `mask`; `visible` are all that the caller may see, where that is not everything. Without
        `learned` as if nothing had been chosen before."""
        names = Names(query)
        named = self.snapshot.named(names, mask)
        lexical = self.lexical if visible is None else _LexicalScorer(self.snapshot, visible)
        terms = tuple(lexical.terms(query))
        by_words = lexical.scores(terms)
        texts = (query, *_split_sentences(query))
        request = self._dense.encode(texts)
        searched = np.flatnonzero(mask)
        rows = self._candidates(request, by_words, mask, searched)
        lifts = self._usage.lifts(request[0]) if self._usage and learned else {}
        # What was chosen before, or is named, may lie outside of the candidates of a large catalogue.
        if rows is not searched:
            rows = np.unique(np.concatenate([rows, self._chosen_before(lifts, mask), *named]))
        similarities = self._dense.similarities(request, rows)
        similarity = _best_similarity(similarities)
        lexical_z = _z_scores(
            by_words[rows].astype(np.float64), by_words if len(searched) == len(by_words) else by_words[searched]
        )
        lexical_z = np.minimum(lexical_z, _MAX_LEXICAL)
        usual = similarity if rows is searched else self._usual_similarity(request, mask, searched)
        dense_z = _z_scores(similarity, usual)
        prior = self._prior(lifts, rows)
        against = np.where(self.snapshot.filed(names.opposed_scopes)[rows], _OPPOSITION, 0.0)
        score = np.round(LEXICAL_WEIGHT * lexical_z + (1 - LEXICAL_WEIGHT) * dense_z, 5) + prior - against
        top = top_rows(_names_first(score, rows, named), np.arange(len(rows)), self.snapshot.id_hash[rows], limit)
        return Ranking(
            rows=rows[top],
            score=score[top],
            lexical_z=lexical_z[top],
            similarity=similarity[top],
            dense_z=dense_z[top],
            prior=prior[top],
            against=against[top],
            request=request[0],
            part=similarities[:, top].argmax(axis=0) if len(top) else np.zeros(0, dtype=np.int64),
            texts=texts,
            terms=terms,
            searched=len(searched),
            background=_background_similarity(self._encoder, request),
            weights=self._encoder.folder,
            named=int(np.isin(rows[top], np.concatenate(named)).sum()) if named else 0,
        )

    def _candidates(self, request: Floats, by_words: Floats, mask: Mask, searched: Rows) -> Rows:
        if len(searched) <= EXACT:
            return searched
        holders = searched[by_words[searched] > 0]
        worded = top_rows(by_words[holders].astype(np.float64), holders, self.snapshot.id_hash, _LEXICAL_CANDIDATES)
        return np.union1d(self._dense.candidates(request, mask), worded)

    def _chosen_before(self, lifts: dict[int, float], mask: Mask) -> Rows:
        keys = np.array(list(lifts), dtype=np.uint64)
        return np.flatnonzero(mask & np.isin(self.snapshot.id_hash, keys))

    def _prior(self, lifts: dict[int, float], rows: Rows) -> Numbers:
        prior = np.zeros(len(rows), dtype=np.float64)
        for key, gain in lifts.items():
            prior[self.snapshot.id_hash[rows] == np.uint64(key)] = round(gain, 5)
        return prior

    def _usual_similarity(self, request: Floats, mask: Mask, searched: Rows) -> Numbers:
        """The similarity of rows that stand for all that are searched."""
        whole = mask is self.snapshot.alive
        sample = self._sample if whole else None
        if sample is None:
            lowest = np.argpartition(self.snapshot.id_hash[searched], _SAMPLE)[:_SAMPLE]
            sample = self._dense.vectors(np.sort(searched[lowest]))
            if whole:
                self._sample = sample
        return _best_similarity(_cosines(request, *sample))


def _split_sentences(text: str) -> list[str]:
    """The sentences of a request that hold at least two words of content; nothing if there is only one.

    A request is split nowhere else: a wrong split costs more than it gives.
    """
    pieces = (piece.strip() for piece in _SENTENCE_END.split(text[:_MAX_CHARACTERS]))
    sentences = [piece for piece in pieces if len(search_terms(piece[:512])) >= 2][:MAX_SENTENCES]
    return sentences if len(sentences) > 1 else []


def _names_first(score: Numbers, rows: Rows, named: Sequence[Rows]) -> Numbers:
    """The scores, such that rows which a request names stand before all others, those of the surest kind first."""
    level = np.zeros(len(rows), dtype=np.float64)
    for at, found in enumerate(reversed(named), start=1):
        level[np.isin(rows, found)] = at
    return score + level * _ABOVE_ALL


def _z_scores(values: Numbers, among: Numbers | Floats) -> Numbers:
    """Standard deviations above the mean of `among`."""
    if not len(among):
        return values * 0.0
    mean, spread = float(among.mean(dtype=np.float64)), float(among.std(dtype=np.float64))
    if spread < 1e-9:
        return values * 0.0
    # Rounded, so that the order in which numpy adds never shows in a ranking.
    return (values - round(mean, 7)) / round(spread, 7)
