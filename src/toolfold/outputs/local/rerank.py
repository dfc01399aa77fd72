"""The best passages ordered anew by meaning, with the encoder of the search stage, where words alone leave doubt.

Bounded: some dozens of passages, each cut short, whatever the size of the document. The encoder is loaded with the
first request that needs it. Without its runtime the order by words stays.
"""

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from toolfold.errors import ConfigError
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.rank import Ranked, WeightedTerm
from toolfold.outputs.local.request import ParsedRequest
from toolfold.search.encoder import Encoder

PASSAGES = 48
SURE = 0.7
"""The share of the request's weight that the best passage holds, from which on the words are trusted."""
SHARE = 0.5
"""What nearness counts beside the words."""
FEW = 6
"""A name or number that stands in so few units says where to look."""
NEAR, LENGTH = 3, 420
KINDS = frozenset({"text", "json", "json-lines", "table", "markdown-table"})
MARKS = re.compile(r"[\s{}\[\]\"|<>=*`#_\\]+")


@cache
def _encoder() -> Encoder:
    """One for the process: its weights are read once."""
    return Encoder()


def rerank(
    index: DocumentIndex, asked: ParsedRequest, ranked: list[Ranked], weighed: Sequence[WeightedTerm]
) -> list[Ranked]:
    """The same units; the best ones in the order of words and meaning together."""
    if index.format.kind not in KINDS or len(ranked) < 2 or not _is_unsure(asked, ranked[0], weighed):
        return ranked
    chosen = _spread_out(ranked)
    texts = [_passage(index, item.unit) for item in chosen]
    try:
        vectors = _encoder().tools(texts)
        question = _encoder().queries([asked.text[:600]])[0]
    except ConfigError:
        return ranked
    near = np.round(vectors @ question, 4)
    spread = float(near.max() - near.min())
    if spread <= 0:
        return ranked
    top = chosen[0].score
    scores = [
        item.score + SHARE * top * float(one - near.min()) / spread for item, one in zip(chosen, near, strict=True)
    ]
    order = sorted(range(len(chosen)), key=lambda at: (-scores[at], at))
    best = [Ranked(chosen[at].unit, scores[at]) for at in order]
    known = {item.unit for item in best}
    return [*best, *(item for item in ranked if item.unit not in known)]


def _is_unsure(asked: ParsedRequest, best: Ranked, weighed: Sequence[WeightedTerm]) -> bool:
    """Whether much of the request is missing from the best unit and its surroundings."""
    terms = [term for term in asked.terms if term.kind != "hint" and not term.of]
    telling = [item for item in weighed if item.term.kind in {"identifier", "phrase", "number"} and not item.term.of]
    if any(len(item.units) <= FEW and best.unit in item.units for item in telling):
        return False
    weights = {item.term.text: item for item in weighed}
    most = max((item.weight for item in weighed), default=1.0)
    total = held = 0.0
    for term in terms:
        item = weights.get(term.text)
        total += item.weight if item is not None else most * 0.7 * term.weight
        if item is not None and bool((np.abs(item.units - best.unit) <= NEAR).any()):
            held += item.weight
    return total > 0 and held < SURE * total


def _spread_out(ranked: Sequence[Ranked]) -> list[Ranked]:
    """The best units that are no neighbours of better ones."""
    chosen: list[Ranked] = []
    taken: set[int] = set()
    for item in ranked:
        if item.unit not in taken:
            chosen.append(item)
            taken |= {item.unit - 1, item.unit, item.unit + 1}
        if len(chosen) == PASSAGES:
            break
    return chosen


def _passage(index: DocumentIndex, unit: int) -> str:
    """What the encoder reads of a unit: its own text, and of short lines those around it."""
    text = index.text(unit)
    if index.format.kind == "text" and index.tape is None:
        last = unit
        while len(text) < LENGTH and last + 1 < len(index.units) and last - unit < NEAR:
            last += 1
            following = index.text(last)
            if not following.strip():
                break
            text += following
        if unit and len(text) < LENGTH:
            text = index.text(unit - 1) + text
    return MARKS.sub(" ", text[: LENGTH * 2])[:LENGTH]
