"""Which segments answer a request best: rare terms count most, near ones and those in the heading above count in part.

Three steps. The first adds up weights over all segments with numpy. The second looks at the text of the few hundred
best: words side by side, names of columns and keys, and how much of the request is covered. The third, where words
leave doubt, compares some dozens of passages by meaning, with the encoder of the search stage. Above: `answer.py`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.errors import ConfigError
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.request import STOP, ParsedRequest, Term, stem
from toolfold.outputs.local.segments import Segments
from toolfold.outputs.local.source import Offsets, sorted_unique
from toolfold.search.encoder import shared_encoder
from toolfold.words import split_identifier

ORDER_LAST = re.compile(r"\b(last|latest|newest|most recent|final)\b", re.IGNORECASE)
ORDERED = re.compile(ORDER_LAST.pattern + r"|\b(first|earliest|oldest)\b", re.IGNORECASE)
# Segments of at least this share of the best score count as equally good when a request asks for the first or last.
TIER = 0.75
CANDIDATES = 4000
# How many segments' text the second step reads.
READ = 400
# How much a term counts that stands so many segments away.
NEAR = (1.0, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
IN_HEADING = 0.6
IN_BLOCK = 0.35
# Segments of a block whose words count for all of it.
LONGEST_BLOCK = 150
WHOLE_WORD, HEADS, MOSTLY = 0.15, 0.5, 0.5
LINE = 200
# What stands in a heading besides its words.
MARKUP = re.compile(r"<[^>]{0,300}>|&\w+;|https?://\S+")
# A snake_case name stays one word here: whole words are compared.
WORDS = re.compile(r"[^\W_]+(?:_[^\W_]+)*")
Floats = npt.NDArray[np.float64]
PASSAGES = 48
# The share of the request's weight that the best passage holds, from which on the words are trusted.
SURE = 0.7
# What nearness counts beside the words.
SHARE = 0.5
# A name or number that stands in so few segments says where to look.
FEW_SEGMENTS = 6
AROUND, LENGTH = 3, 420
KINDS = frozenset({"text", "json", "json-lines", "table", "markdown-table"})
MARKS = re.compile(r"[\s{}\[\]\"|<>=*`#_\\]+")


class Ranked(Struct, frozen=True):
    """A segment and its score."""

    segment: int
    score: float


class WeightedTerm(Struct, frozen=True):
    """A term that the document holds: the segments, and how much it counts."""

    term: Term
    segments: Offsets
    weight: float

    def occurs_in(self, text: str) -> bool:
        return any(form in text for form in self.term.forms)


def weigh_terms(
    request: ParsedRequest,
    places: Mapping[str, Offsets],
    segments: Segments,
    allowed: Offsets | None,
    estimates: Mapping[str, int],
) -> list[WeightedTerm]:
    """The terms by how rare they are. Parts of an identifier that occurs whole hardly count."""
    count = len(segments)
    whole = {term.text for term in request.terms if term.kind in {"identifier", "phrase"} and len(places[term.text])}
    weighted = []
    for term in request.terms:
        holders = sorted_unique(segments.at(places[term.text]))
        if allowed is not None:
            holders = np.intersect1d(holders, allowed, assume_unique=True)
        if len(holders):
            often = min(count, max(len(holders), estimates.get(term.text, 0)))
            rarity = math.log(1 + (count - often + 0.5) / (often + 0.5))
            part = 0.3 if term.of and term.of in whole else 1.0
            weighted.append(WeightedTerm(term, holders, (rarity + 0.05) * term.weight * part))
    return weighted


def _candidates(weighted: Sequence[WeightedTerm], count: int) -> Offsets:
    """The segments with the greatest sums of weights."""
    total = np.zeros(count, dtype=np.float32)
    for item in weighted:
        total[item.segments] += item.weight
    holders = np.flatnonzero(total)
    if len(holders) <= CANDIDATES:
        return holders
    best = np.argpartition(total[holders], len(holders) - CANDIDATES)[-CANDIDATES:]
    return np.sort(holders[best])


def _proximity_scores(chosen: Offsets, weighted: Sequence[WeightedTerm], headings: Sequence[Offsets]) -> Floats:
    """Scores of the chosen segments: each term at its nearest place, or in the heading above."""
    score = np.zeros(len(chosen))
    decay = np.array([*NEAR, 0.0])
    for item in weighted:
        at = np.searchsorted(item.segments, chosen)
        after = np.abs(item.segments[np.minimum(at, len(item.segments) - 1)] - chosen)
        before = np.abs(chosen - item.segments[np.maximum(at - 1, 0)])
        value = decay[np.minimum(np.minimum(after, before), len(NEAR))]
        for level in headings:
            if len(level):
                value = np.maximum(value, IN_HEADING * _in_heading(chosen, item.segments, level))
                value = np.maximum(value, IN_BLOCK * _in_block(chosen, item.segments, level))
        score += item.weight * value
    return score


def _in_heading(chosen: Offsets, holders: Offsets, headings: Offsets) -> npt.NDArray[np.bool_]:
    """Whether the last heading before each segment, or the few segments right after it, hold the term."""
    index = np.searchsorted(headings, chosen, side="right") - 1
    heading = headings[np.maximum(index, 0)]
    at = np.searchsorted(holders, heading)
    first = holders[np.minimum(at, len(holders) - 1)]
    inside: npt.NDArray[np.bool_] = (index >= 0) & (first >= heading) & (first <= heading + 5) & (first <= chosen)
    return inside


def _in_block(chosen: Offsets, holders: Offsets, headings: Offsets) -> npt.NDArray[np.bool_]:
    """Whether the term stands anywhere between the heading before each segment and the next one."""
    index = np.searchsorted(headings, chosen, side="right") - 1
    start = headings[np.maximum(index, 0)]
    ends = np.append(headings[1:], headings[-1] + LONGEST_BLOCK)
    end = np.minimum(ends[np.maximum(index, 0)], start + LONGEST_BLOCK)
    within = np.searchsorted(holders, end) > np.searchsorted(holders, start)
    inside: npt.NDArray[np.bool_] = (index >= 0) & within & (chosen < end)
    return inside


def rank_segments(
    index: DocumentIndex,
    request: ParsedRequest,
    weighted: Sequence[WeightedTerm],
    allowed: Offsets | None,
) -> list[Ranked]:
    """The best segments, best first."""
    ranked = _rank_by_words(index, request, weighted)
    if not ranked and allowed is not None:
        ranked = [Ranked(int(segment), 1.0) for segment in allowed[:200]]
    if not ranked or not ORDERED.search(request.text):
        return _rerank(index, request, ranked, weighted)
    return _in_order(ranked, backwards=ORDER_LAST.search(request.text) is not None)


def _in_order(ranked: list[Ranked], *, backwards: bool) -> list[Ranked]:
    """The best ones in the order of the document."""
    tier = [item for item in ranked if item.score >= ranked[0].score * TIER]
    tier.sort(key=lambda item: item.segment, reverse=backwards)
    return [*tier, *ranked[len(tier) :]]


def _rank_by_words(index: DocumentIndex, request: ParsedRequest, weighted: Sequence[WeightedTerm]) -> list[Ranked]:
    chosen = _candidates(weighted, len(index.segments))
    if not len(chosen):
        return []
    levels = (index.outer, index.headings)
    score = _proximity_scores(chosen, weighted, levels)
    order = np.argsort(-score, kind="stable")[:READ]
    top = float(score[order[0]])
    pairs = _word_pairs(request)
    headings = {int(heading) for level in levels for heading in level[np.isin(level, chosen[order])]}
    ranked = []
    for at in order:
        segment, base = int(chosen[at]), float(score[at])
        if base < top * 0.15:
            break
        text = index.text(segment)
        if index.json is not None:
            # The names in a record's path count as if they stood in it.
            context = _path_words(index, segment)
            base += IN_HEADING * sum(item.weight for item in weighted if item.occurs_in(context))
            text = f"{context} {text}"
        base += _whole_word_bonus(text, request, weighted) + _name_share_bonus(text, weighted)
        if segment in headings:
            base += _heading_bonus(text, weighted)
        ranked.append(Ranked(segment, base + _count_pairs(text, pairs) * top * 0.04))
    ranked.sort(key=lambda item: -item.score)
    return ranked


def _path_words(index: DocumentIndex, segment: int) -> str:
    start = index.segments.span(segment)[0]
    return f"{index.path(start)} {' '.join(index.names_above(start))}".lower()


def _whole_word_bonus(text: str, request: ParsedRequest, weighted: Sequence[WeightedTerm]) -> float:
    """`wraps` means `wraps` rather than `wrapper`, where both are there."""
    low = text[:4000].lower()
    own = set(WORDS.findall(low))
    return WHOLE_WORD * sum(item.weight for item in weighted if request.originals.get(item.term.text, "") in own)


def _name_share_bonus(text: str, weighted: Sequence[WeightedTerm]) -> float:
    """More for a short text that is little else than the name that was asked for: `name: x`."""
    size = len(text.strip())
    if size > LINE:
        return 0.0
    low = text.lower()
    names = [item for item in weighted if item.term.kind in {"identifier", "phrase"} and not item.term.of]
    shares = [
        item.weight * max((len(form) for form in item.term.forms if form in low), default=0) / size for item in names
    ]
    return MOSTLY * max(shares, default=0.0)


def _heading_bonus(text: str, weighted: Sequence[WeightedTerm]) -> float:
    """More for a heading, the more of it the request names."""
    plain = MARKUP.sub(" ", text[:400])
    names = {stem(part.lower()) for part in split_identifier(plain)} - STOP
    if not names:
        return 0.0
    low = text.lower()
    named = [item for item in weighted if item.term.text in names or item.term.kind in {"identifier", "phrase"}]
    named = [item for item in named if item.occurs_in(low)]
    covered = len({item.term.text for item in named} & names) / len(names)
    return HEADS * sum(item.weight for item in named) * (0.4 + covered)


def _word_pairs(request: ParsedRequest) -> list[re.Pattern[str]]:
    """Pairs of neighbouring words, as they may stand in text, in a key or in a name."""
    words = [word for word in request.words if len(word) > 1]
    # Gaps are short and bounded: `page_size`, `page size`, `"page": size` all count as side by side.
    return [
        re.compile(re.escape(a) + r"[a-z]{0,4}['\"]?[\s_.:=/-]{0,3}['\"]?" + re.escape(b)) for a, b in pairwise(words)
    ][:12]


def _count_pairs(text: str, pairs: Sequence[re.Pattern[str]]) -> int:
    low = text[:4000].lower()
    return sum(1 for pair in pairs if pair.search(low))


def _rerank(
    index: DocumentIndex, request: ParsedRequest, ranked: list[Ranked], weighted: Sequence[WeightedTerm]
) -> list[Ranked]:
    """The same segments; the best ones in the order of words and meaning together."""
    if index.format.kind not in KINDS or len(ranked) < 2 or not _is_unsure(request, ranked[0], weighted):
        return ranked
    chosen = _spread_out(ranked)
    similarity = _similarity(request.text, [_passage(index, item.segment) for item in chosen])
    if similarity is None or similarity.max() <= similarity.min():
        return ranked
    closeness = similarity - similarity.min()
    spread = float(closeness.max())
    best = [
        Ranked(item.segment, item.score + SHARE * chosen[0].score * float(close) / spread)
        for item, close in zip(chosen, closeness, strict=True)
    ]
    best.sort(key=lambda item: -item.score)
    return _with_first(best, ranked)


def _with_first(best: list[Ranked], ranked: list[Ranked]) -> list[Ranked]:
    """The best ones, and behind them the others in their order."""
    taken = {item.segment for item in best}
    return [*best, *(item for item in ranked if item.segment not in taken)]


def _similarity(request: str, texts: list[str]) -> npt.NDArray[np.float32] | None:
    """How near each text is to the request by meaning; `None` without the encoder's runtime."""
    try:
        encoder = shared_encoder()
        vectors, question = encoder.tools(texts), encoder.queries([request[:600]])[0]
    except ConfigError:
        return None
    # Rounded: machines differ in the last digits, and the order of passages must not.
    similarity: npt.NDArray[np.float32] = np.round(vectors @ question, 4)
    return similarity


def _is_unsure(request: ParsedRequest, best: Ranked, weighted: Sequence[WeightedTerm]) -> bool:
    """Whether much of the request is missing from the best segment and its surroundings."""
    if any(_points_at(item, best.segment) for item in weighted):
        return False
    by_text = {item.term.text: item for item in weighted}
    heaviest = max((item.weight for item in weighted), default=1.0)
    total = near = 0.0
    for term in request.terms:
        if not term.is_named:
            continue
        item = by_text.get(term.text)
        if item is None:
            total += heaviest * 0.7 * term.weight
            continue
        total += item.weight
        near += item.weight if bool((np.abs(item.segments - best.segment) <= AROUND).any()) else 0.0
    return total > 0 and near < SURE * total


def _points_at(item: WeightedTerm, segment: int) -> bool:
    """Whether a term is a name or number that occurs in few segments, this one among them."""
    telling = item.term.kind in {"identifier", "phrase", "number"} and not item.term.of
    return telling and len(item.segments) <= FEW_SEGMENTS and segment in item.segments


def _spread_out(ranked: Sequence[Ranked]) -> list[Ranked]:
    """The best segments that are no neighbours of better ones."""
    chosen: list[Ranked] = []
    taken: set[int] = set()
    for item in ranked:
        if item.segment not in taken:
            chosen.append(item)
            taken |= {item.segment - 1, item.segment, item.segment + 1}
        if len(chosen) == PASSAGES:
            break
    return chosen


def _passage(index: DocumentIndex, segment: int) -> str:
    """What the encoder reads of a segment: its own text, and of short lines those around it."""
    text = index.text(segment)
    if index.format.kind == "text" and index.json is None:
        last = segment
        while len(text) < LENGTH and last + 1 < len(index.segments) and last - segment < AROUND:
            last += 1
            following = index.text(last)
            if not following.strip():
                break
            text += following
        if segment and len(text) < LENGTH:
            text = index.text(segment - 1) + text
    return MARKS.sub(" ", text[: LENGTH * 2])[:LENGTH]
