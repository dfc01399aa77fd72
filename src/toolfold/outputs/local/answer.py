"""The answer to a request without a language model: exact where the request names its answer, else the best passages.

Every answer says how it was made and, where nothing matches, what was searched for. Above: `extraction.py`. Below: all
other modules of `local`.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from toolfold import tokens
from toolfold.outputs.local.aggregates import aggregate, changed_files
from toolfold.outputs.local.exact import ExactAnswer, describe_shape, find_exact
from toolfold.outputs.local.index import DocumentIndex, IndexCache
from toolfold.outputs.local.lookup import find_by_keys, find_by_ordinal
from toolfold.outputs.local.rank import ORDERED, rank_segments, weigh_terms
from toolfold.outputs.local.render import render_passages, replace_controls
from toolfold.outputs.local.request import ParsedRequest, parse_request
from toolfold.outputs.local.source import Offsets
from toolfold.outputs.local.time_range import TimeFilter, find_time_filter

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
    forms = request.forms
    time_filter = find_time_filter(index, request.text)
    computed, singled_out = aggregate(index, request, time_filter)
    allowed = _apply_time(time_filter, lead)
    if allowed is not None:
        # The time has selected the segments: it is not searched for as a word, too.
        terms = tuple(term for term in request.terms if ":" not in term.text)
        request = msgspec.structs.replace(request, terms=terms)
    # For the first or the last one, every place must be known.
    near = allowed is None and not ORDERED.search(request.text)
    places, estimates = index.places_near(request.terms) if near else (index.places(request.terms), {})
    weighted = weigh_terms(request, places, index.segments, allowed, estimates)
    ranked = rank_segments(index, request, weighted, allowed, singled_out)
    lead += find_by_ordinal(index, request.text, forms, budget // 3)
    lead += find_by_keys(index, request, budget * 2 // 5)
    lead += [*computed, *changed_files(index, request.text, budget // 3)]
    head = f"{PREAMBLE} {_describe(index, binary)}"
    room = budget - tokens.count(head) - tokens.count("\n".join(lead)) - 80
    if not ranked:
        return "\n\n".join([head, *lead, _no_match(index, request, room)])
    passages = render_passages(index, ranked, room, weighted)
    return "\n\n".join(filter(None, (head, *lead, _absent_note(request, places), *passages)))


def _absent_note(request: ParsedRequest, places: Mapping[str, Offsets]) -> str:
    absent = [term.text for term in request.terms if term.is_named and not len(places[term.text])]
    return f"Not in the document: {', '.join(absent[:8])}." if absent else ""


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
    return f"The document is {kind} of {source.size} bytes and {source.lines} lines."


def _no_match(index: DocumentIndex, request: ParsedRequest, room: int) -> str:
    """What was searched for in vain, and what there is instead."""
    words = ", ".join(term.text[:60] for term in request.terms[:20] if term.kind != "hint")
    words = words or "nothing, since the request names nothing to look for"
    lines = [f"No match was found. Searched the whole document for: {words}."]
    if index.json is not None:
        lines += ["Its shape:", *describe_shape(index, index.json.root.start)]
    else:
        start, end = index.source.span_of_lines(1, min(5, index.source.lines))
        text = index.source.text(start, min(end, start + 1500))
        lines += ["It begins:", text if tokens.count(text) < max(200, room) else text[:400]]
    return "\n".join(lines)
