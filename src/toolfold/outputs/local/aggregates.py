"""Counts, sums, extremes and distributions, where a request asks for one. Exact, over the whole document.

Every statement says what it was computed from. A request that was misunderstood loses nothing: passages follow. Above:
`answer.py`. Below: `fields.py`, `time_range.py`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial, reduce
from itertools import compress

import numpy as np
from msgspec import Struct

from toolfold.outputs.local.fields import Column, Condition, find_conditions, mentioned_fields, read_column
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.render import take_fitting
from toolfold.outputs.local.request import ParsedRequest, Term
from toolfold.outputs.local.source import BLOCK, Offsets, sorted_unique
from toolfold.outputs.local.term_search import ALNUM, find_all
from toolfold.outputs.local.time_range import DAY, TimeFilter

COUNTING = frozenset(["number", "count", "how", "often", "total", "amount", "many", "exist", "there"])
HEADING_MARK = re.compile(r"\s*(#{1,6}|<[\w:.-]+|- |\[\[?|(?:async )?\w+)")
MARKED_KINDS = frozenset({"markdown", "markup", "page", "items", "code"})
NOUNS = {"items": "items", "markup": "elements", "page": "elements", "code": "definitions", "markdown": "headings"}
# Repetitions are bounded: a line may be a megabyte of digits.
MEASURED = re.compile(
    r"(?:\b([A-Za-z_][\w.-]{0,80}+)[\s:=(]{1,3})?(?<![\w.:/-])(-?\d{1,40}(?:\.\d+)?)(?![\d:/-])\s?"
    r"(ms|µs|us|ns|seconds|secs?|s|minutes|min|hours|bytes|[KMG]i?B|kb|mb|gb|%)?(?![\w.-])"
)
MAX_READ = 20_000
MAX_LISTED = 4
ASKS_FOR_FILES = re.compile(
    r"\b(?:which|what|list|all|how many|name|names of)\b[^.?]{0,30}\bfiles?\b"
    r"|\bfiles? (?:\w+ ){0,3}(?:changed|touched|modified)",
    re.IGNORECASE,
)
DIFF_FILE = re.compile(r"diff --git a/(.+?) b/")
COUNT = re.compile(r"\bhow many\b|\bhow often\b|\bnumber of\b|\bcount\b|\btotal number\b", re.IGNORECASE)
SUM = re.compile(r"\bsum\b|\btotal\b|\baltogether\b|\badd up\b|\bcombined\b", re.IGNORECASE)
AVERAGE = re.compile(r"\baverage\b|\bmean\b", re.IGNORECASE)
MOST = re.compile(r"\b(?:highest|largest|maximum|max|greatest|biggest|most|longest|slowest|top)\b", re.IGNORECASE)
LEAST = re.compile(r"\b(?:lowest|smallest|minimum|min|least|cheapest|shortest|fastest)\b", re.IGNORECASE)
DISTRIBUTION = re.compile(
    r"\bmost (?:common|frequent|often)\b|\b(?:per|each|by|different|distinct|unique|distribution)\b", re.IGNORECASE
)
NUMBERS = re.compile("|".join(pattern.pattern for pattern in (SUM, AVERAGE, MOST, LEAST)), re.IGNORECASE)
QUESTIONS = {"count": COUNT, "numbers": NUMBERS, "distribution": DISTRIBUTION}
LEVELS = {
    "error": ("error", "err"),
    "warning": ("warning", "warn"),
    "fatal": ("fatal", "critical", "crit", "emerg"),
    "critical": ("critical", "crit", "fatal"),
    "info": ("info",),
    "debug": ("debug",),
    "trace": ("trace",),
    "notice": ("notice",),
}
LEVEL_WORD = re.compile(r"\b(error|warning|warn|fatal|critical|info|debug|trace|notice)s?\b", re.IGNORECASE)
# A level word further inside a log line belongs to its message.
LEVEL_REACH = 100


class _Statements(Struct):
    """What was computed, in words, and the segments to quote for it."""

    lines: list[str] = []
    quoted: list[int] = []


def aggregate(
    index: DocumentIndex, request: ParsedRequest, time_filter: TimeFilter | None
) -> tuple[list[str], Offsets | None]:
    """What the request asks to be counted or computed, and the segments it rests on; `None`: none in particular."""
    asks = {what for what, pattern in QUESTIONS.items() if pattern.search(request.text)}
    if not asks:
        return [], None
    words, scope = _scope(index, request, time_filter)
    names = mentioned_fields(index, request.text)[:4]
    out = _Statements()
    if "count" in asks:
        _add_counts(out, index, request, words, scope)
    if "numbers" in asks:
        _add_numbers(out, index, request, names, scope)
    if "distribution" in asks or ("count" in asks and scope is None):
        out.lines += _distributions(index, names[:3], scope)
    return out.lines, np.array(out.quoted, np.int64) if out.quoted else scope


def _scope(
    index: DocumentIndex, request: ParsedRequest, time_filter: TimeFilter | None
) -> tuple[list[str], Offsets | None]:
    """The conditions of the request in words, and the segments that fit them all; `None` where it names none."""
    conditions = find_conditions(index, request.text)
    conditions += _level_conditions(index, request.text, conditions)
    if time_filter is not None:
        conditions.append((f"time {time_filter.range}", time_filter.segments))
    covered = " ".join(words for words, _ in conditions).lower()
    conditions += _text_conditions(index, request, covered, timed=time_filter is not None)
    segments = reduce(np.intersect1d, [segments for _, segments in conditions]) if conditions else None
    return [words for words, _ in conditions], segments


def _level_conditions(index: DocumentIndex, text: str, others: list[Condition]) -> Iterator[Condition]:
    """The level of a log that the request names, where no field says it."""
    match = LEVEL_WORD.search(text)
    if match and index.format.kind == "log" and not any("level" in words.lower() for words, _ in others):
        word = match[1].lower()
        names = LEVELS["warning" if word == "warn" else word]
        yield f"level {'/'.join(names)}", _segments_of_level(index, names)


def _text_conditions(index: DocumentIndex, request: ParsedRequest, covered: str, *, timed: bool) -> Iterator[Condition]:
    """Phrases and identifiers that no other condition covers, and that the document holds."""
    for term in request.terms:
        is_time = timed and (":" in term.text or DAY.match(term.text))
        if term.kind in {"phrase", "identifier"} and term.text not in covered and not is_time:
            segments = sorted_unique(index.segments.at(index.places([term])[term.text]))
            if len(segments):
                yield f"the text {term.text!r}", segments


def _segments_of_level(index: DocumentIndex, names: tuple[str, ...]) -> Offsets:
    """Segments whose first level word is one of `names`."""
    every = sorted({name for group in LEVELS.values() for name in group})
    places = {name: index.cached(f"level:{name}", partial(_find_level, index, name)) for name in every}
    earliest = np.full(len(index.segments), np.iinfo(np.int64).max)
    for segments, offsets in places.values():
        np.minimum.at(earliest, segments, offsets)
    matching = [segments[earliest[segments] == offsets] for segments, offsets in map(places.__getitem__, names)]
    return sorted_unique(np.concatenate(matching))


def _find_level(index: DocumentIndex, name: str) -> tuple[Offsets, Offsets]:
    """Segments that hold the word near their beginning, and where."""
    parts = [np.zeros(0, np.int64)]
    for at, block in index.source.blocks(margin=16, before=1):
        hits = np.array(find_all(block.lower(), name.encode()), dtype=np.int64)
        if len(hits):
            lead = min(at, 1)
            text = np.frombuffer(block + b"\0", dtype=np.uint8)
            before = np.where(hits > 0, text[np.maximum(hits - 1, 0)], 0)
            hits = hits[~ALNUM[before] & ~ALNUM[text[np.minimum(hits + len(name), len(text) - 1)]]] - lead
            parts.append(hits[(hits >= 0) & (hits < BLOCK)] + at)
    offsets = np.concatenate(parts)
    segments = index.segments.at(offsets)
    near = offsets - index.segments.starts[segments] < LEVEL_REACH
    return segments[near], offsets[near]


def _add_counts(
    out: _Statements, index: DocumentIndex, request: ParsedRequest, conditions: list[str], scope: Offsets | None
) -> None:
    """How many segments fit the conditions; without any, how many of everything there are."""
    if scope is None:
        out.lines += [*_totals(index), *_structure_counts(index, request)]
        _add_matches(out, index, request)
        return
    kind = "records" if index.is_records else "rows" if index.format.header else "lines"
    out.lines.append(f"Exact count: {len(scope)} {kind} with {' and '.join(conditions)}.")


def _totals(index: DocumentIndex) -> list[str]:
    if index.format.header:
        return [f"Exact count: {max(0, index.source.lines - index.format.header_lines)} rows in the table."]
    if index.json is None:
        return [f"Exact count: {index.source.lines} lines in the document."]
    lines = []
    for array in index.json.arrays(4, 3):
        where = index.path(array.start) if array.depth else "the root"
        lines.append(f"Exact count: {array.count} elements in {where}.")
    return lines[:6]


def _add_numbers(
    out: _Statements, index: DocumentIndex, request: ParsedRequest, names: list[str], scope: Offsets | None
) -> None:
    """Sums, means and extremes of fields; without a field to quote from, an extreme of the numbers in lines."""
    for name in names:
        _add_column(out, read_column(index, name), scope, request.text)
    greatest, least = MOST.search(request.text), LEAST.search(request.text)
    if (greatest or least) and not (out.quoted or index.format.header):
        _add_extreme(out, index, request, greatest=greatest is not None)


def _add_column(out: _Statements, column: Column, scope: Offsets | None, text: str) -> None:
    numbers = column.numbers()
    keep = ~np.isnan(numbers)
    if scope is not None:
        keep &= np.isin(column.segments, scope)
    # A field of which less than half is numbers is none to compute with.
    if keep.sum() < max(1, 0.5 * (len(numbers) if scope is None else keep.sum())):
        return
    numbers, segments = numbers[keep], column.segments[keep]
    for pattern, word, total in ((SUM, "Sum", np.sum), (AVERAGE, "Mean", np.mean)):
        if pattern.search(text):
            value = _format_number(float(total(numbers)))
            out.lines.append(f"{word} of {column.name}: {value} over {len(numbers)} values.")
    for pattern, word, pick in ((MOST, "Greatest", np.argmax), (LEAST, "Least", np.argmin)):
        if pattern.search(text):
            at = int(pick(numbers))
            value = _format_number(float(numbers[at]))
            out.lines.append(f"{word} {column.name}: {value} of {len(numbers)} values, quoted below.")
            out.quoted.append(int(segments[at]))


def _format_number(number: float) -> str:
    return str(int(number)) if abs(number) < 1e15 and number == int(number) else f"{number:.6f}".rstrip("0").rstrip(".")


def _distributions(index: DocumentIndex, names: list[str], scope: Offsets | None) -> Iterator[str]:
    """The most frequent values of each field."""
    for column in (read_column(index, name) for name in names):
        values = column.values if scope is None else compress(column.values, np.isin(column.segments, scope))
        counter = Counter(values)
        if not counter or (len(counter) > 2000 and counter.most_common(1)[0][1] < 3):
            continue
        top = ", ".join(f"{value[:60]}: {count}" for value, count in counter.most_common(12))
        more = f", and {len(counter) - 12} more values" if len(counter) > 12 else ""
        yield f"Values of {column.name} ({len(counter)} different): {top}{more}."


def _add_matches(out: _Statements, index: DocumentIndex, request: ParsedRequest) -> None:
    """How many segments hold the words of the request, and which hold all of them."""
    matches = _matches(index, request)
    if not matches:
        return
    kind = "records" if index.json is not None else "lines"
    together = reduce(np.intersect1d, [segments for _, segments in matches])
    if len(matches) > 1 and len(together):
        words = ", ".join(request.spoken(term) for term, _ in matches)
        out.lines.append(f"Exact count: {len(together)} {kind} hold all of: {words}.")
    for term, segments in matches[:MAX_LISTED]:
        out.lines.append(f"Exact count: {len(segments)} {kind} hold {request.spoken(term)!r}.")
    if len(together) < len(index.segments) // 4:
        out.quoted += [int(segment) for segment in together[:3]]


def _counted_terms(request: ParsedRequest) -> list[Term]:
    """The terms that say what is to be counted."""
    return [term for term in request.terms if term.is_named and request.spoken(term) not in COUNTING][:8]


def _matches(index: DocumentIndex, request: ParsedRequest) -> list[tuple[Term, Offsets]]:
    """Those terms, each with the segments that hold it."""
    terms = _counted_terms(request)
    places = index.places(terms)
    return [(term, sorted_unique(index.segments.at(places[term.text]))) for term in terms if len(places[term.text])]


def _structure_counts(index: DocumentIndex, request: ParsedRequest) -> list[str]:
    """Headings and items by their marks, and tags that the request names."""
    if index.structure is None:
        return []
    kind = index.structure.kind
    what = NOUNS.get(kind, "sections")
    tagged = _counted_terms(request)[:4] if kind in {"markup", "page"} else []
    lines = [line for term in tagged if (line := _count_tags(index, term))]
    if what == "items":
        return [*lines, f"Exact count: {len(index.outer)} outermost {what}."]
    counter = Counter(_heading_mark(index, int(segment), kind) for segment in index.headings[:50_000])
    counts = [f"{count} {what}{mark and f' that begin with {mark!r}'}" for mark, count in counter.most_common(5)]
    return [*lines, f"Exact count: {', '.join(counts)}."]


def _heading_mark(index: DocumentIndex, segment: int, kind: str) -> str:
    match = HEADING_MARK.match(index.text(segment)[:80]) if kind in MARKED_KINDS else None
    return match[1].strip() if match else ""


def _count_tags(index: DocumentIndex, term: Term) -> str:
    """How often an element of this name opens."""
    if not term.text.isalnum():
        return ""
    pattern = re.compile(rb"<(" + re.escape(term.text.encode()) + rb"(?:e?s|ies|y|e)?)(?=[\s>/])", re.IGNORECASE)
    counter: Counter[bytes] = Counter()
    for _, block in index.source.blocks():
        counter.update(match[1].lower() for match in pattern.finditer(block))
    return "".join(f"Exact count: {count} <{name.decode()}> elements." for name, count in counter.most_common(1))


def _add_extreme(out: _Statements, index: DocumentIndex, request: ParsedRequest, *, greatest: bool) -> None:
    """The line with the greatest or least number of its kind, among the lines that hold the words of the request."""
    matches = [segments for _, segments in _matches(index, request) if len(segments) > 2]
    if index.json is not None or not matches:
        return
    groups = _measured_numbers(index, reduce(_narrow, matches))
    if not groups:
        return
    word, measure = max(groups, key=lambda key: (bool(key[1]), len(groups[key])))
    numbers = groups[word, measure]
    value, segment = (max if greatest else min)(numbers, key=lambda item: item[0])
    name = f"`{word} … {measure}`".replace(" … `", "`") if word else f"`… {measure}`"
    plain = f"{value:g}" if value != int(value) else str(int(value))
    rank = "Greatest" if greatest else "Least"
    out.lines.append(f"{rank} number in {name} of {len(numbers)} lines: {plain}, quoted below.")
    out.quoted.append(segment)


def _narrow(scope: Offsets, segments: Offsets) -> Offsets:
    both = np.intersect1d(scope, segments, assume_unique=True)
    return both if len(both) > 2 else scope


def _measured_numbers(index: DocumentIndex, scope: Offsets) -> dict[tuple[str, str], list[tuple[float, int]]]:
    """The numbers in some lines, by the word before and the unit behind them. Only groups with several values."""
    groups: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for segment in scope[:MAX_READ]:
        for word, number, measure in MEASURED.findall(index.text(int(segment))[:1000]):
            groups.setdefault((word.lower(), measure.lower()), []).append((float(number), int(segment)))
    return {key: numbers for key, numbers in groups.items() if any(key) and len({value for value, _ in numbers}) > 2}


def changed_files(index: DocumentIndex, request: str, budget: int) -> list[str]:
    """How many files a diff changes, and their names as far as the budget goes, where a request asks for them."""
    if not ASKS_FOR_FILES.search(request) or not len(index.outer):
        return []
    heads = (DIFF_FILE.search(index.text(int(segment))) for segment in index.outer[:20_000])
    names = list(dict.fromkeys(head[1] for head in heads if head))
    if not names:
        return []
    listed = take_fitting(names, budget, 2)
    more = f", and {len(names) - len(listed)} more" if len(listed) < len(names) else ""
    return [f"Exact count: {len(names)} files are changed: {', '.join(listed)}{more}."]
