"""Which units answer a request best: rare terms count most, near ones and those in the heading above count in part.

Two steps. The first adds up weights over all units with numpy. The second looks at the text of the few hundred best:
words side by side, names of columns and keys, and how much of the request is covered.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.outputs.local.headings import heading_words
from toolfold.outputs.local.request import ParsedRequest, Term, stem
from toolfold.outputs.local.segments import Segments
from toolfold.outputs.local.source import Offsets, sorted_unique
from toolfold.outputs.local.vocabulary import STOP

CANDIDATES = 4000
READ = 400
"""How many units' text the second step reads."""
NEAR = (1.0, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
"""What a term counts that stands so many units away."""
IN_HEADING = 0.6
IN_BLOCK = 0.35
LONGEST_BLOCK = 150
"""Units of a block whose words count for all of it."""
WHOLE_WORD, HEADS, MOSTLY = 0.15, 0.5, 0.5
LINE = 200

WORDS = re.compile(r"[^\W_]+(?:_[^\W_]+)*")

Floats = npt.NDArray[np.float64]


class Ranked(Struct, frozen=True):
    """A unit and its score."""

    unit: int
    score: float


class WeightedTerm(Struct, frozen=True):
    """A term that the document holds: the units, and how much it counts."""

    term: Term
    units: Offsets
    weight: float


def weigh_terms(
    asked: ParsedRequest,
    places: Mapping[str, Offsets],
    units: Segments,
    allowed: Offsets | None = None,
    estimates: Mapping[str, int] | None = None,
) -> list[WeightedTerm]:
    """The terms by how rare they are. Parts of an identifier that was found whole hardly count."""
    known = estimates or {}
    whole = {term.text for term in asked.terms if term.kind in {"identifier", "phrase"} and len(places[term.text])}
    found = []
    for term in asked.terms:
        held = sorted_unique(units.of(places[term.text]))
        if allowed is not None:
            held = np.intersect1d(held, allowed, assume_unique=True)
        if not len(held):
            continue
        count = len(units)
        often = min(count, max(len(held), known.get(term.text, 0)))
        rarity = math.log(1 + (count - often + 0.5) / (often + 0.5))
        part = 0.3 if term.of and term.of in whole else 1.0
        found.append(WeightedTerm(term, held, (rarity + 0.05) * term.weight * part))
    return found


def _candidates(weighed: Sequence[WeightedTerm], count: int) -> Offsets:
    """The units with the greatest sums of weights."""
    total = np.zeros(count, dtype=np.float32)
    for item in weighed:
        total[item.units] += item.weight
    held = np.flatnonzero(total)
    if len(held) <= CANDIDATES:
        return held
    best = np.argpartition(total[held], len(held) - CANDIDATES)[-CANDIDATES:]
    return np.sort(held[best])


def _proximity_scores(chosen: Offsets, weighed: Sequence[WeightedTerm], headings: Sequence[Offsets]) -> Floats:
    """Scores of the chosen units: each term at its nearest place, or in the heading above."""
    score = np.zeros(len(chosen))
    decay = np.array([*NEAR, 0.0])
    for item in weighed:
        at = np.searchsorted(item.units, chosen)
        after = np.abs(item.units[np.minimum(at, len(item.units) - 1)] - chosen)
        before = np.abs(chosen - item.units[np.maximum(at - 1, 0)])
        value = decay[np.minimum(np.minimum(after, before), len(NEAR))]
        for level in headings:
            if len(level):
                value = np.maximum(value, IN_HEADING * _in_heading(chosen, item.units, level))
                value = np.maximum(value, IN_BLOCK * _in_block(chosen, item.units, level))
        score += item.weight * value
    return score


def _in_heading(chosen: Offsets, held: Offsets, headings: Offsets) -> npt.NDArray[np.bool_]:
    """Whether the last heading before each unit, or the few units right after it, hold the term."""
    index = np.searchsorted(headings, chosen, side="right") - 1
    heading = headings[np.maximum(index, 0)]
    at = np.searchsorted(held, heading)
    first = held[np.minimum(at, len(held) - 1)]
    found: npt.NDArray[np.bool_] = (index >= 0) & (first >= heading) & (first <= heading + 5) & (first <= chosen)
    return found


def _in_block(chosen: Offsets, held: Offsets, headings: Offsets) -> npt.NDArray[np.bool_]:
    """Whether the term stands anywhere between the heading before each unit and the next one."""
    index = np.searchsorted(headings, chosen, side="right") - 1
    start = headings[np.maximum(index, 0)]
    ends = np.append(headings[1:], headings[-1] + LONGEST_BLOCK)
    end = np.minimum(ends[np.maximum(index, 0)], start + LONGEST_BLOCK)
    within = np.searchsorted(held, end) > np.searchsorted(held, start)
    found: npt.NDArray[np.bool_] = (index >= 0) & within & (chosen < end)
    return found


def rank_segments(
    asked: ParsedRequest,
    weighed: Sequence[WeightedTerm],
    units: Segments,
    text_of: Callable[[int], str],
    *,
    headings: Sequence[Offsets] = (),
    context_of: Callable[[int], str] | None = None,
) -> list[Ranked]:
    """The best units, best first. `context_of` gives words that count as if they stood in the unit: its path."""
    chosen = _candidates(weighed, len(units))
    if not len(chosen):
        return []
    score = _proximity_scores(chosen, weighed, headings)
    order = np.argsort(-score, kind="stable")[:READ]
    top = float(score[order[0]])
    pairs = _word_pairs(asked)
    heads = {int(head) for level in headings for head in level[np.isin(level, chosen[order])]}
    ranked = []
    for index in order:
        unit, base = int(chosen[index]), float(score[index])
        if base < top * 0.15:
            break
        text = text_of(unit)
        if context_of is not None:
            context = context_of(unit).lower()
            base += IN_HEADING * sum(w.weight for w in weighed if any(form in context for form in w.term.forms))
            text = f"{context} {text}"
        base += _whole_word_bonus(text, asked, weighed) + _name_share_bonus(text, weighed)
        if unit in heads:
            base += _heading_bonus(text, asked, weighed)
        ranked.append(Ranked(unit, base + (_count_pairs(text, pairs) * top * 0.04 if pairs else 0.0)))
    ranked.sort(key=lambda item: -item.score)
    return ranked


def _whole_word_bonus(text: str, asked: ParsedRequest, weighed: Sequence[WeightedTerm]) -> float:
    """`wraps` means `wraps` rather than `wrapper`, where both are there."""
    low = text[:4000].lower()
    own = set(WORDS.findall(low))
    return WHOLE_WORD * sum(item.weight for item in weighed if asked.said.get(item.term.text, "") in own)


def _name_share_bonus(text: str, weighed: Sequence[WeightedTerm]) -> float:
    """More for a short text that is little else than the name that was asked for: `name: x`."""
    size = len(text.strip())
    if size > LINE:
        return 0.0
    low = text.lower()
    names = [item for item in weighed if item.term.kind in {"identifier", "phrase"} and not item.term.of]
    shares = [
        item.weight * max((len(form) for form in item.term.forms if form in low), default=0) / size for item in names
    ]
    return MOSTLY * max(shares, default=0.0)


def _heading_bonus(text: str, asked: ParsedRequest, weighed: Sequence[WeightedTerm]) -> float:
    """More for a heading, the more of it the request names."""
    names = {stem(word) for word in heading_words(text[:400])} - STOP
    if not names:
        return 0.0
    held = [item for item in weighed if item.term.text in names or item.term.kind in {"identifier", "phrase"}]
    held = [item for item in held if any(form in text.lower() for form in item.term.forms)]
    covered = len({item.term.text for item in held} & names) / len(names)
    return HEADS * sum(item.weight for item in held) * (0.4 + covered)


def _word_pairs(asked: ParsedRequest) -> list[re.Pattern[str]]:
    """Pairs of neighbouring words, as they may stand in text, in a key or in a name."""
    words = [word for word in asked.words if len(word) > 1]
    return [
        re.compile(re.escape(a) + r"[a-z]{0,4}['\"]?[\s_.:=/-]{0,3}['\"]?" + re.escape(b)) for a, b in pairwise(words)
    ][:12]


def _count_pairs(text: str, pairs: Sequence[re.Pattern[str]]) -> int:
    low = text[:4000].lower()
    return sum(1 for pair in pairs if pair.search(low))
