"""The answer to a request without a language model: exact where the request names its answer, else the best passages.

Every answer says how it was made and, where nothing matches, what was searched for. Above: `extraction.py`. Below: all
other modules of `local`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from toolfold import tokens
from toolfold.outputs.local.computed import compute
from toolfold.outputs.local.exact import ExactAnswer, describe_shape, find_exact
from toolfold.outputs.local.index import DocumentIndex, IndexCache
from toolfold.outputs.local.lookup import find_by_keys
from toolfold.outputs.local.query_words import FILLER, OPERATIONS
from toolfold.outputs.local.rank import ORDERED, rank_segments, weigh_terms
from toolfold.outputs.local.render import clip, render_passages, replace_controls
from toolfold.outputs.local.request import ParsedRequest, Term, parse_request
from toolfold.outputs.local.source import Offsets
from toolfold.outputs.local.time_range import TimeFilter, find_time_filter
from toolfold.words import split_identifier

# Tokens of passages where most words of the request are not in the document.
FAINT = 400
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
    time_filter = find_time_filter(index, request.text)
    computed = compute(index, request.text, budget // 3)
    allowed = _apply_time(time_filter, lead)
    request = _without_times(request) if allowed is not None else request
    places, estimates = _find_places(index, request, everywhere=allowed is not None)
    named = find_by_keys(index, request, budget * 2 // 5)
    lead += [*named, *filter(None, ("\n".join(computed.lines),))]
    head = f"{PREAMBLE} {_describe(index, binary)}"
    weighted = weigh_terms(request, places, index.segments, allowed, estimates)
    ranked = rank_segments(index, request, weighted, allowed, computed.segments)
    telling = [] if allowed is not None else _telling_terms(request, places)
    absent = [term for term in telling if _is_nowhere(term, request, places)]
    if not telling and computed.unplaced:
        absent = _absent_as(computed.unplaced, request, places)
    if time_filter is not None and allowed is None:
        ranked = []
    if not ranked or (computed.segments is None and 0 < len(absent) >= len(telling)):
        if computed.refused:
            lead += _not_there(absent, request)
        elif not named and not computed.claimed:
            lead.append(_no_match(index, absent or request.terms, request))
        return "\n".join([head, *lead])
    lead += _not_there(absent, request)
    room = budget - tokens.count(head) - tokens.count("\n".join(lead)) - 80
    faint = not (telling or computed.claimed) and _is_mostly_absent(request, places)
    return "\n\n".join([head, *lead, *render_passages(index, ranked, min(room, FAINT if faint else room), weighted)])


def _not_there(absent: Sequence[Term], request: ParsedRequest) -> list[str]:
    spoken = ", ".join(request.spoken(term)[:60] for term in absent[:8])
    return [f"Not in the document: {spoken}."] if absent else []


def _telling_terms(request: ParsedRequest, places: Mapping[str, Offsets]) -> list[Term]:
    """The terms that can only mean themselves; `zebra-utils` among them where a part of it does not occur at all."""
    partly = {term.of for term in request.terms if len(term.text) > 3 and not len(places[term.text])}
    return [term for term in request.terms if term.is_telling or (term.text in partly and not len(places[term.text]))]


def _absent_as(word: str, request: ParsedRequest, places: Mapping[str, Offsets]) -> list[Term]:
    """The term of a word that occurs nowhere, unless the document may say something else for it."""
    terms = [term for term in request.terms if request.spoken(term) == word.lower()]
    hinted = any(term.kind == "hint" and len(places[term.text]) for term in request.terms)
    return [] if hinted else [term for term in terms if not len(places[term.text])]


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
    words = ", ".join(word for word in spoken if word not in FILLER and word not in OPERATIONS)
    said = f"No match was found. Searched the whole document for: {words}."
    if index.json is not None:
        there = f"Its shape: {'; '.join(describe_shape(index, index.json.root.start))}"
    else:
        start, end = index.source.span_of_lines(1, 1)
        there = f"It begins: {index.source.text(start, min(end, start + 400))}"
    return f"{said if words else 'The request names nothing to look for.'}\n{clip(there, 600)}"
