"""The answer to a request without a language model: exact where the request names its answer, else the best passages.

Every answer says how it was made and, where nothing matches, what was searched for. Above: `extraction.py`. Below: all
other modules of `local`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from toolfold import tokens
from toolfold.outputs.local.computed import ADDS_UP, Computed, compute
from toolfold.outputs.local.exact import ExactAnswer, describe_shape, find_exact
from toolfold.outputs.local.index import DocumentIndex, IndexCache
from toolfold.outputs.local.key_lookup import find_by_keys
from toolfold.outputs.local.query_words import COMPARISONS, FILLER, OPERATIONS
from toolfold.outputs.local.rank import ORDERED, Ranked, WeightedTerm, rank_segments, weigh_terms
from toolfold.outputs.local.render import clip, count_quoted, render_passages, replace_controls
from toolfold.outputs.local.request import STOP, ParsedRequest, Term, parse_request
from toolfold.outputs.local.source import Offsets, sorted_unique
from toolfold.outputs.local.time_filter import TimeFilter, find_time_filter
from toolfold.words import split_identifier

# A number that is compared with need not stand anywhere.
_BOUND = re.compile(rf"(?:{'|'.join(map(re.escape, COMPARISONS))})\s+[$€£]?(\d[\d.,]*)", re.IGNORECASE)
# A name in so few segments says where to look: in them, and so many segments around.
FEW_NAMED, AROUND_NAME = 12, 6
# Tokens of passages where most words of the request are not in the document, and where something was to be computed,
# but could not be: passages do not hold a number that is found by reading everything.
FAINT, REFUSED, UNCOUNTED, MOST = 240, 240, 100, 1 << 30
PREAMBLE = "Made without a language model, by searching the document."


def answer(indexes: IndexCache, path: Path, request: str, budget: int, *, binary: str = "") -> str:
    """Answers one request about one file inside `budget` tokens. `binary`: the media type of what is no text."""
    with indexes.of(path) as index:
        if not index.source.size:
            return f"{PREAMBLE}\n\nThe document is empty."
        exact = find_exact(index, request, budget - 60)
        if exact is not None and exact.whole:
            return _whole_answer(exact)
        lead = list(exact.lines) if exact is not None else []
        return replace_controls(_search(index, parse_request(request), budget, lead, binary))


def exact_answer(indexes: IndexCache, path: Path, request: str, budget: int) -> str | None:
    """Only what the request names by path, range or pattern; `None` where it names nothing, or more than that."""
    with indexes.of(path) as index:
        exact = find_exact(index, request, budget - 60) if index.source.size else None
        return _whole_answer(exact) if exact is not None and exact.whole else None


def _whole_answer(exact: ExactAnswer) -> str:
    return replace_controls("\n".join([f"{PREAMBLE}\n", *exact.lines]))


def _search(index: DocumentIndex, request: ParsedRequest, budget: int, lead: list[str], binary: str) -> str:
    head = f"{PREAMBLE} {_describe(index, binary)}"
    computed = compute(index, request.text, budget // 3)
    if computed.claimed and (computed.segments is None or len(computed.segments)):
        head = "\n\n".join([head, *lead, "\n".join(computed.lines)])
        return _with_records(index, request, computed, budget, head)
    return _by_words(index, request, computed, budget, [head, *lead])


class _WordHits(Struct, frozen=True):
    """Where the words of a request stand, what each weighs, and the segments by rank."""

    request: ParsedRequest
    places: Mapping[str, Offsets]
    weighted: Sequence[WeightedTerm]
    ranked: list[Ranked]

    def forms(self) -> list[str]:
        """What is marked in a passage, the most telling first."""
        order = sorted(self.weighted, key=lambda item: -item.weight)
        return [form for item in order for form in item.term.forms]


def _by_words(index: DocumentIndex, request: ParsedRequest, computed: Computed, budget: int, lead: list[str]) -> str:
    """The best passages, behind why nothing was computed."""
    time_filter = find_time_filter(index, request.text)
    allowed = _apply_time(time_filter, lead)
    hits = _find_words(index, request, time_filter, allowed)
    named = find_by_keys(index, hits.request, budget * 2 // 5)
    lead += named
    telling = [] if allowed is not None else _telling_terms(hits.request, hits.places)
    absent = _absent_terms(hits, telling, computed)
    if not hits.ranked or (not computed.claimed and 0 < len(absent) >= len(telling)):
        return "\n".join([*lead, *_nothing_found(index, hits.request, computed, absent, named=bool(named))])
    lead += _why_passages(computed)
    room, ranked = budget - tokens.count("\n".join(lead)) - 80, hits.ranked
    if not computed.claimed:
        lead += _not_there(absent, hits.request)
        uncounted = computed.refused and len(computed.lines) > 1
        room = min(room, _worth(hits.request, hits.places, telling, uncounted=uncounted))
        ranked = _near_name(index, ranked, telling, hits.places)
    return "\n\n".join([*lead, *render_passages(index, ranked, room, hits.forms())])


def _find_words(
    index: DocumentIndex, request: ParsedRequest, time_filter: TimeFilter | None, allowed: Offsets | None
) -> _WordHits:
    request = _without_times(request) if allowed is not None else request
    places, estimates = _find_places(index, request, everywhere=allowed is not None)
    weighted = weigh_terms(request, places, index.segments, allowed, estimates)
    # Where nothing has the time that was asked for, no passage is an answer.
    nothing = time_filter is not None and allowed is None
    ranked = [] if nothing else rank_segments(index, request, weighted, allowed)
    return _WordHits(request, places, weighted, ranked)


def _absent_terms(hits: _WordHits, telling: list[Term], computed: Computed) -> list[Term]:
    """The terms of which it can be said that the document does not hold them."""
    if not telling and computed.unplaced:
        return _absent_as(computed.unplaced, hits.request, hits.places)
    return [term for term in telling if _is_nowhere(term, hits.request, hits.places)]


def _why_passages(computed: Computed) -> list[str]:
    fits = "none of which fits" if computed.claimed and not computed.count else "not tested whether they fit"
    return ["\n".join(computed.lines), f"Passages by their words, {fits}:"] if computed.lines else []


def _nothing_found(
    index: DocumentIndex, request: ParsedRequest, computed: Computed, absent: list[Term], *, named: bool
) -> list[str]:
    """Why nothing was computed, and which words do not occur."""
    stated = "\n".join(computed.lines)
    if computed.refused or computed.claimed:
        return [stated, *_not_there(absent, request)]
    reason = [stated] if stated and _BOUND.search(request.text) else []
    return [*reason, *([] if named else [_no_match(index, absent or request.terms, request)])]


def _with_records(index: DocumentIndex, request: ParsedRequest, computed: Computed, budget: int, head: str) -> str:
    """What was computed, and of the document only the records that it rests on."""
    if computed.segments is None:
        return head
    segments = [int(segment) for segment in computed.segments[:100]]
    ranked = [Ranked(segment, 1e6 - number) for number, segment in enumerate(dict.fromkeys(segments))]
    room = budget - tokens.count(head) - 80
    passages = render_passages(index, ranked, room, request.forms, alone=True)
    quoted = count_quoted(index, segments, passages)
    note = [f"({quoted} of {computed.rests_on} are quoted here)"] if quoted < computed.rests_on else []
    return "\n\n".join([head, *note, *passages])


def _worth(request: ParsedRequest, places: Mapping[str, Offsets], telling: list[Term], *, uncounted: bool) -> int:
    """How many tokens of passages a request may be worth that nothing was computed for."""
    if telling:
        return MOST
    if uncounted:
        return UNCOUNTED if ADDS_UP.search(request.text) else REFUSED
    return FAINT if _is_mostly_absent(request, places) else MOST


def _near_name(
    index: DocumentIndex, ranked: list[Ranked], telling: list[Term], places: Mapping[str, Offsets]
) -> list[Ranked]:
    """Where the one name or number of a request stands in few places: these, and not what only resembles it."""
    if len(telling) != 1 or telling[0].is_name:
        return ranked
    holders = sorted_unique(index.segments.at(places[telling[0].text]))
    if not 0 < len(holders) <= FEW_NAMED:
        return ranked
    return [item for item in ranked if np.abs(holders - item.segment).min() <= AROUND_NAME] or ranked


def _not_there(absent: Sequence[Term], request: ParsedRequest) -> list[str]:
    spoken = ", ".join(request.spoken(term)[:60] for term in absent[:8])
    return [f"Not in the document as written: {spoken}."] if absent else []


def _telling_terms(request: ParsedRequest, places: Mapping[str, Offsets]) -> list[Term]:
    """The terms that can only mean themselves; `zebra-utils` among them where a part of it does not occur at all."""
    bounds = set(_BOUND.findall(request.text))
    partly = {term.of for term in request.terms if len(term.text) > 3 and not len(places[term.text])}
    terms = [term for term in request.terms if term.text not in bounds]
    return [term for term in terms if term.is_telling or (term.text in partly and not len(places[term.text]))]


def _absent_as(word: str, request: ParsedRequest, places: Mapping[str, Offsets]) -> list[Term]:
    """The term of a word that occurs nowhere, unless the document may say something else for it."""
    terms = [term for term in request.terms if request.spoken(term) == word.lower()]
    hinted = any(term.kind == "hint" and len(places[term.text]) for term in request.terms)
    return [] if hinted else [term for term in terms if not len(places[term.text]) and term.text not in STOP]


def _is_nowhere(term: Term, request: ParsedRequest, places: Mapping[str, Offsets]) -> bool:
    """Whether neither a term occurs nor all of its parts: `order-9123` may stand as 9123 in a list of orders."""
    there = [part for part in request.terms if part.of == term.text and len(places[part.text])]
    return not len(places[term.text]) and len(there) < max(2, len(split_identifier(term.text)))


def _find_places(
    index: DocumentIndex, request: ParsedRequest, *, everywhere: bool
) -> tuple[dict[str, Offsets], dict[str, int]]:
    # For the first or the last one, every place must be known.
    if everywhere or ORDERED.search(request.text):
        return index.places(request.terms), {}
    return index.places_near(request.terms)


def _is_mostly_absent(request: ParsedRequest, places: Mapping[str, Offsets]) -> bool:
    words = [term for term in request.terms if term.is_named]
    return 2 * sum(1 for term in words if not len(places[term.text])) >= len(words) > 1


def _without_times(request: ParsedRequest) -> ParsedRequest:
    """Where a time has selected the segments, it is not searched for as a word, too."""
    terms = tuple(term for term in request.terms if ":" not in term.text)
    return msgspec.structs.replace(request, terms=terms)


def _apply_time(time_filter: TimeFilter | None, lead: list[str]) -> Offsets | None:
    """The segments that may be quoted; `None` for all. Says so in `lead`."""
    if time_filter is None:
        return None
    if not len(time_filter.segments):
        lead.append(f"Nothing in the document has a time of {time_filter.range}.")
        return None
    lead.append(f"Only what has a time of {time_filter.range} was searched: {len(time_filter.segments)} units.")
    return time_filter.segments


def _describe(index: DocumentIndex, binary: str = "") -> str:
    """One sentence on what the document is."""
    fmt, source = index.format, index.source
    if binary:
        return f"The document is no text but binary data ({binary}) of {source.size} bytes."
    names = {"json": "JSON", "json-lines": "lines of JSON", "table": "a table", "markdown-table": "a table in Markdown"}
    kind = names.get(fmt.kind, {"diff": "a diff", "log": "a log", "binary": "binary data"}.get(fmt.kind, "text"))
    kind += f" in {source.encoding.upper()}" if source.encoding != "utf-8" else ""
    return f"The document is {kind} of {source.size} bytes and {source.lines} lines."


def _no_match(index: DocumentIndex, terms: Sequence[Term], request: ParsedRequest) -> str:
    """What was searched for in vain, and what there is instead: two lines."""
    spoken = (request.spoken(term)[:60] for term in terms[:20] if term.is_named)
    words = ", ".join(word for word in spoken if word not in FILLER | OPERATIONS.keys() | COMPARISONS.keys())
    said = f"No match was found for the words: {words}. Their meaning was not looked for, and nothing was computed."
    if index.json is not None:
        there = f"Its shape: {'; '.join(describe_shape(index, index.json.root.start))}"
    else:
        start, end = index.source.span_of_lines(1, 1)
        there = f"It begins: {index.source.text(start, min(end, start + 400))}"
    return f"{said if words else 'The request names nothing to look for.'}\n{clip(there, 600)}"
