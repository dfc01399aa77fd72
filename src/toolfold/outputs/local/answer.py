"""The answer to a request without a language model: exact where the request names its answer, else the best passages.

Every answer says how it was made and, where nothing was found, what was searched for.
"""

import re
from collections.abc import Callable
from pathlib import Path

from toolfold import tokens
from toolfold.outputs.local.aggregates import Aggregate, aggregate
from toolfold.outputs.local.counts import changed_files
from toolfold.outputs.local.exact import find_exact
from toolfold.outputs.local.index import DocumentIndex, IndexCache
from toolfold.outputs.local.key_lookup import find_by_keys
from toolfold.outputs.local.ordinals import find_by_ordinal
from toolfold.outputs.local.rank import Ranked, WeightedTerm, rank_segments, weigh_terms
from toolfold.outputs.local.render import fit_budget, render_records, render_text, replace_controls
from toolfold.outputs.local.request import ParsedRequest, parse_request
from toolfold.outputs.local.rerank import rerank
from toolfold.outputs.local.shape import describe_shape
from toolfold.outputs.local.source import Offsets
from toolfold.outputs.local.time_range import SegmentTimes, TimeRange, parse_time_range, read_times, segments_in_range

PREAMBLE = "Made without a language model, by searching the document."
ORDER_LAST = re.compile(r"\b(last|latest|newest|most recent|final)\b", re.IGNORECASE)
ORDER_FIRST = re.compile(r"\b(first|earliest|oldest)\b", re.IGNORECASE)
ORDERED = re.compile(f"{ORDER_LAST.pattern}|{ORDER_FIRST.pattern}", re.IGNORECASE)
TIER = 0.75
"""Units of at least this share of the best score count as equally good when a request asks for the first or last."""


def answer(indexes: IndexCache, path: Path, request: str, budget: int, *, binary: str = "") -> str:
    """Answers one request about one file inside `budget` tokens. `binary`: the type of what is known to be no text."""
    with indexes.of(path) as index:
        if not index.source.size:
            return f"{PREAMBLE}\n\nThe document is empty."
        exact = find_exact(index, request, budget - 60)
        if exact is not None and exact.whole:
            return replace_controls(f"{PREAMBLE}\n\n" + "\n".join(exact.lines))
        lead = list(exact.lines) if exact is not None else []
        return replace_controls(_search(index, parse_request(request), budget, lead, binary))


def exact_answer(indexes: IndexCache, path: Path, request: str, budget: int) -> str | None:
    """Only what the request names by path, range or pattern; `None` where it names nothing, or more than that."""
    with indexes.of(path) as index:
        exact = find_exact(index, request, budget - 60) if index.source.size else None
        return replace_controls(f"{PREAMBLE}\n\n" + "\n".join(exact.lines)) if exact and exact.whole else None


def _search(index: DocumentIndex, asked: ParsedRequest, budget: int, lead: list[str], binary: str) -> str:
    times, window = _times_for(index, asked.text)
    counted = aggregate(index, asked, window, times)
    allowed = segments_in_range(times, window) if times is not None and window is not None else None
    if allowed is not None and not len(allowed):
        lead.append(f"Nothing in the document has a time of {window}.")
        allowed = None
    elif allowed is not None:
        lead.append(f"Only what has a time of {window} was searched: {len(allowed)} units.")
    terms = [term for term in asked.terms if allowed is None or ":" not in term.text]
    searched = ParsedRequest(asked.text, tuple(terms), asked.words, asked.said)
    near = allowed is None and not ORDERED.search(asked.text)
    places, estimates = index.places_near(searched.terms) if near else (index.places(searched.terms), {})
    weighed = weigh_terms(searched, places, index.units, allowed, estimates)
    ranked = _order(index, searched, weighed, allowed, counted)
    lead += find_by_ordinal(index, asked.text, [form for term in asked.terms for form in term.forms], budget // 3)
    lead += find_by_keys(index, searched, budget * 2 // 5)
    lead += [*counted.lines, *changed_files(index, asked.text, budget // 3)]
    head = f"{PREAMBLE} {_describe(index, binary)}"
    room = budget - tokens.count(head) - tokens.count("\n".join(lead)) - 80
    if not ranked:
        return "\n\n".join([head, *lead, _no_match(index, searched, room)])
    shown = fit_budget(_render(index, ranked, room, weighed), room)
    named = [term.text for term in searched.terms if term.kind != "hint" and not term.of]
    absent = [text for text in named if not len(places[text])]
    note = f"Not in the document: {', '.join(absent[:8])}." if absent else ""
    return "\n\n".join(part for part in (head, *lead, note, *shown) if part)


def _times_for(index: DocumentIndex, request: str) -> tuple[SegmentTimes | None, TimeRange | None]:
    """The times of the document's units and the stretch asked for, where there are both."""
    window = parse_time_range(request)
    if window is None or index.format.kind not in {"log", "text", "table", "json-lines"}:
        return None, None
    kept = index.kept("times", lambda: read_times(index.source, index.units))
    if (kept.seconds >= 0).mean() < 0.2:
        return None, None
    return kept, window


def _order(
    index: DocumentIndex, asked: ParsedRequest, weighed: list[WeightedTerm], allowed: Offsets | None, counted: Aggregate
) -> list[Ranked]:
    """The ranking, with what the request singles out in front: units of a count, the first, the last."""
    ranked = rank_segments(
        asked, weighed, index.units, index.text, headings=(index.outer, index.headings), context_of=_path_context(index)
    )
    if not ranked and allowed is not None:
        ranked = [Ranked(int(unit), 1.0) for unit in allowed[:200]]
    if counted.units is not None and len(counted.units):
        front = [Ranked(int(unit), 1e6 - number) for number, unit in enumerate(counted.units[:100])]
        known = {item.unit for item in front}
        return [*front, *(item for item in ranked if item.unit not in known)]
    if ranked and not ORDERED.search(asked.text):
        return rerank(index, asked, ranked, weighed)
    if ranked and ((last := ORDER_LAST.search(asked.text)) or ORDER_FIRST.search(asked.text)):
        tier = [item for item in ranked if item.score >= ranked[0].score * TIER]
        tier.sort(key=lambda item: -item.unit if last else item.unit)
        return [*tier, *ranked[len(tier) :]]
    return ranked


def _path_context(index: DocumentIndex) -> Callable[[int], str] | None:
    """For JSON: the path of a unit, whose names count as if they stood in it."""
    if index.tape is None:
        return None

    def context(unit: int) -> str:
        start = index.units.span(unit)[0]
        return f"{index.path(start)} {' '.join(index.named(start))}"

    return context


def _render(index: DocumentIndex, ranked: list[Ranked], room: int, weighed: list[WeightedTerm]) -> list[str]:
    if index.tape is not None and index.tape.levels:
        order = sorted(weighed, key=lambda item: -item.weight)
        forms = [form for item in order for form in item.term.forms]
        return render_records(index, ranked, room, forms)
    header = []
    if index.format.header_lines:
        start, end = index.source.span_of_lines(1, index.format.header_lines)
        names = index.source.read(start, min(end, start + 2000)).decode(errors="replace").strip()
        header = [f"Header [line 1]\n{names}"]
        room -= tokens.count(header[0])
        ranked = [item for item in ranked if index.units.span(item.unit)[0] > 0]
    return [*header, *render_text(index, ranked, room)]


def _describe(index: DocumentIndex, binary: str = "") -> str:
    """One sentence on what the document is."""
    fmt, source = index.format, index.source
    if binary:
        return f"The document is no text but binary data ({binary}) of {source.size} bytes."
    names = {"json": "JSON", "json-lines": "lines of JSON", "table": "a table", "markdown-table": "a table in Markdown"}
    kind = names.get(fmt.kind, {"diff": "a diff", "log": "a log", "binary": "binary data"}.get(fmt.kind, "text"))
    return f"The document is {kind} of {source.size} bytes and {source.lines} lines."


def _no_match(index: DocumentIndex, asked: ParsedRequest, room: int) -> str:
    """What was searched for in vain, and what there is instead."""
    words = ", ".join(term.text[:60] for term in asked.terms[:20] if term.kind != "hint")
    words = words or "nothing, since the request names nothing to look for"
    lines = [f"No match was found. Searched the whole document for: {words}."]
    if index.tape is not None and index.tape.levels:
        lines += ["Its shape:", *describe_shape(index, int(index.tape.levels[0].opens[0]))]
    else:
        start, end = index.source.span_of_lines(1, min(5, index.source.lines))
        text = index.source.read(start, min(end, start + 1500)).decode(errors="replace")
        lines += ["It begins:", text if tokens.count(text) < max(200, room) else text[:400]]
    return "\n".join(lines)
