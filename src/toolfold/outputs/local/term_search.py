"""Where the terms of a request occur in a document, found at the speed of `bytes.find`.

No regular expression runs here, so no request can make it slow. In a large document only the parts that can hold a word
are read: a filter with a bit for every run of four letters says which those are. Words that occur everywhere are only
looked for around the rare ones. Above: `index.py`.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.outputs.local.request import Term
from toolfold.outputs.local.source import BLOCK, MARGIN, Offsets, Source, sorted_unique

PART = 1 << 16
NGRAM = 4
BITS = 1 << 16
MAX_NGRAMS = 10
FOLDED = np.arange(256, dtype=np.uint32)
FOLDED[65:91] += 32
# Of one spelling in one block; a word that stands more often says nothing.
MAX_HITS = 2_000_000
# The longest spelling that is found across a border.
REACH = 256
SAMPLES, SAMPLE = 12, 64 * 1024
POINT = ord(".")
ALNUM = np.zeros(256, dtype=np.bool_)
ALNUM[[*range(48, 58), *range(65, 91), *range(97, 123), *range(128, 256)]] = True
DIGIT = np.zeros(256, dtype=np.bool_)
DIGIT[48:58] = True
UPPER = np.zeros(256, dtype=np.bool_)
UPPER[65:91] = True
LOWER = np.zeros(256, dtype=np.bool_)
LOWER[97:123] = True


class NgramFilter(Struct, frozen=True):
    """A row of bits for each part of `PART` bytes."""

    rows: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, source: Source) -> Self:
        """Made once, in half a second for 100 MB, and an eighth of the document's size."""
        rows = []
        for _, raw in source.blocks(margin=MARGIN):
            block = np.frombuffer(raw, dtype=np.uint8)
            for start in range(0, min(BLOCK, len(block)), PART):
                bits = np.zeros(BITS, dtype=np.bool_)
                bits[_hash_ngrams(block[start : start + PART + MARGIN])] = True
                rows.append(np.packbits(bits))
        return cls(np.stack(rows))

    def parts(self, form: bytes) -> npt.NDArray[np.bool_] | None:
        """The parts in which `form` may begin; `None` where any may, since it is too short to tell."""
        if len(form) < NGRAM:
            return None
        wanted = _hash_ngrams(np.frombuffer(form, dtype=np.uint8))
        possible = np.ones(len(self.rows), dtype=np.bool_)
        for gram in wanted[:: max(1, len(wanted) // MAX_NGRAMS)][:MAX_NGRAMS]:
            possible &= (self.rows[:, gram >> 3] & (0x80 >> (int(gram) & 7))) != 0
        return possible


def _hash_ngrams(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """A number below `BITS` for each run of four bytes, letters folded."""
    low = FOLDED[text]
    runs = low[:-3] | (low[1:-2] << np.uint32(8)) | (low[2:-1] << np.uint32(16)) | (low[3:] << np.uint32(24))
    hashes: npt.NDArray[np.uint32] = (runs * np.uint32(2654435761)) >> np.uint32(16)
    return hashes


def _encoded_forms(terms: Sequence[Term]) -> list[tuple[Term, bytes]]:
    return [(term, form.encode()) for term in terms for form in term.forms if form]


def find_terms(source: Source, terms: Sequence[Term], ngrams: NgramFilter | None = None) -> dict[str, Offsets]:
    """The places of each term, by its text, sorted."""
    places: dict[str, list[Offsets]] = {term.text: [np.zeros(0, np.int64)] for term in terms}
    forms = _encoded_forms(terms)
    possible = [None if ngrams is None else ngrams.parts(form) for _, form in forms]
    for at in range(0, source.size, BLOCK):
        here = [(term, form, _parts_in(parts, at)) for (term, form), parts in zip(forms, possible, strict=True)]
        # An empty list: no part of the block can hold the spelling.
        if any(parts != [] for _, _, parts in here):
            _search_block(source, at, here, places)
    return _joined(places)


def _parts_in(parts: npt.NDArray[np.bool_] | None, at: int) -> list[int] | None:
    """The parts of a block, counted from its beginning; `None` for all of it."""
    if parts is None:
        return None
    own = parts[at // PART : (at + BLOCK) // PART]
    chosen = np.flatnonzero(own)
    # Where many parts can hold the spelling, one pass over the whole block is quicker.
    return None if len(chosen) * 3 > len(own) else [int(part) for part in chosen]


def _joined(places: dict[str, list[Offsets]]) -> dict[str, Offsets]:
    return {text: sorted_unique(np.concatenate(parts)) for text, parts in places.items()}


def _search_block(
    source: Source, at: int, spellings: Sequence[tuple[Term, bytes, list[int] | None]], places: dict[str, list[Offsets]]
) -> None:
    """Looks for all spellings in one block, each in some parts of it or in all."""
    before = source.read(at - 1, at)
    raw = source.read(at, at + BLOCK + REACH)
    low = raw.lower()
    text = np.frombuffer(before + raw + b"\0", dtype=np.uint8)
    for term, form, parts in spellings:
        # Only ASCII is folded: other spellings of a word are forms of their own.
        where = low if form.isascii() else raw
        if parts is None:
            hits = find_all(where, form)
        else:
            hits = [hit for part in parts for hit in _find_between(where, form, part * PART, (part + 1) * PART)]
        if hits:
            offsets = np.array(hits, dtype=np.int64)
            offsets = offsets[offsets < BLOCK]
            places[term.text].append(offsets[_is_bounded(text, offsets + len(before), term, len(form))] + at)


def find_all(text: bytes, form: bytes) -> list[int]:
    """Every place of `form`, not overlapping."""
    return _find_between(text, form, 0, len(text))


def _find_between(text: bytes, form: bytes, start: int, end: int) -> list[int]:
    """Those that begin from `start` to before `end`."""
    places: list[int] = []
    step, last = len(form), min(len(text), end + len(form) - 1)
    at = text.find(form, start, last)
    while at >= 0 and len(places) < MAX_HITS:
        places.append(at)
        at = text.find(form, at + step, last)
    return places


def estimate_counts(source: Source, terms: Sequence[Term]) -> dict[str, int]:
    """About how often each term stands in a large document, from a few samples."""
    counts = dict.fromkeys((term.text for term in terms), 0)
    step = max(SAMPLE, source.size // SAMPLES)
    for at in range(0, source.size, step):
        low = source.read(at, at + SAMPLE).lower()
        for term in terms:
            counts[term.text] += sum(low.count(form.encode()) for form in term.forms)
    return {text: count * step // SAMPLE for text, count in counts.items()}


def find_terms_near(source: Source, terms: Sequence[Term], centres: Offsets, reach: int) -> dict[str, Offsets]:
    """The places of terms within `reach` bytes of some places."""
    places: dict[str, list[Offsets]] = {term.text: [np.zeros(0, np.int64)] for term in terms}
    end = 0
    for centre in centres:
        start, stop = max(end, int(centre) - reach), min(source.size, int(centre) + reach)
        if stop <= start:
            continue
        before = source.read(start - 1, start)
        raw = source.read(start, stop)
        low, text = raw.lower(), np.frombuffer(before + raw + b"\0", dtype=np.uint8)
        for term in terms:
            for form in term.forms:
                if hits := find_all(low if form.isascii() else raw, form.encode()):
                    offsets = np.array(hits, dtype=np.int64)
                    keep = _is_bounded(text, offsets + len(before), term, len(form.encode()))
                    places[term.text].append(offsets[keep] + start)
        end = stop
    return _joined(places)


def _is_bounded(text: npt.NDArray[np.uint8], at: Offsets, term: Term, length: int) -> npt.NDArray[np.bool_]:
    """Which places are the term rather than a part of something longer."""
    every = np.ones(len(at), dtype=np.bool_)
    if not len(at) or term.kind == "phrase":
        return every
    before = np.where(at > 0, text[np.maximum(at - 1, 0)], 0)
    first = text[at]
    after = text[np.minimum(at + length, len(text) - 1)]
    if term.kind == "number":
        every &= ~DIGIT[before] & ~DIGIT[after]
        if "." not in term.text:
            # 4321 is not 4321.99, and not the end of 0.4321.
            every &= ~((after == POINT) & DIGIT[text[np.minimum(at + length + 1, len(text) - 1)]])
            every &= ~((before == POINT) & (at > 1) & DIGIT[text[np.maximum(at - 2, 0)]])
        return every
    if term.kind == "identifier":
        # `svc-1` is not `svc-10`: where the edge is a digit, no digit may follow.
        last = text[np.minimum(at + length - 1, len(text) - 1)]
        every &= ~(DIGIT[last] & DIGIT[after]) & ~(DIGIT[first] & DIGIT[before])
        return every
    if not ALNUM[first].all():
        return every
    begins = ~ALNUM[before] | (LOWER[before] & UPPER[first]) | (DIGIT[before] != DIGIT[first])
    # An escaped newline or tab may stand before it.
    begins |= ((before == ord("n")) | (before == ord("t"))) & (text[np.maximum(at - 2, 0)] == ord("\\"))
    if length <= 2:
        every &= begins & (~ALNUM[after] | UPPER[after] | DIGIT[after])
        return every
    every &= begins | (length > 5)
    return every
