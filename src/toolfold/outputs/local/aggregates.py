"""Counts, sums, extremes and distributions, where a request asks for one. Exact, over the whole document.

Every statement says what it was made from. A request that was misunderstood loses nothing: passages follow.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from toolfold.outputs.local.counts import count_matches, find_extreme
from toolfold.outputs.local.fields import Column, Condition, as_numbers, find_conditions, mentioned_fields, read_column
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.request import ParsedRequest
from toolfold.outputs.local.source import BLOCK, Offsets, sorted_unique
from toolfold.outputs.local.term_search import ALNUM, find_all
from toolfold.outputs.local.time_range import DAY, SegmentTimes, TimeRange, segments_in_range

# --- Levels of log lines: which one a request asks for, and which units carry it near their beginning.

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
NEAR_START = 100


def _requested_level(request: str) -> tuple[str, ...]:
    match = LEVEL_WORD.search(request)
    if match is None:
        return ()
    word = match[1].lower()
    return LEVELS["warning" if word == "warn" else word]


def _segments_of_level(index: DocumentIndex, names: tuple[str, ...]) -> Offsets:
    """Units whose first level word is one of `names`."""
    every = {name for group in LEVELS.values() for name in group}
    first: dict[str, tuple[Offsets, Offsets]] = {name: _level_places(index, name) for name in sorted(every)}
    earliest = np.full(len(index.units), np.iinfo(np.int64).max)
    for units, at in first.values():
        np.minimum.at(earliest, units, at)
    held = [units[earliest[units] == at] for name, (units, at) in first.items() if name in names]
    return sorted_unique(np.concatenate(held)) if held else np.zeros(0, np.int64)


def _level_places(index: DocumentIndex, name: str) -> tuple[Offsets, Offsets]:
    """Units that hold the word near their beginning, and where."""
    return index.kept(f"level:{name}", lambda: _find_level(index, name))


def _find_level(index: DocumentIndex, name: str) -> tuple[Offsets, Offsets]:
    found = [np.zeros(0, np.int64)]
    for at in range(0, index.source.size, BLOCK):
        lead = index.source.read(at - 1, at)
        raw = lead + index.source.read(at, at + BLOCK + 16)
        hits = np.array(find_all(raw.lower(), name.encode()), dtype=np.int64)
        if len(hits):
            text = np.frombuffer(raw + b"\0", dtype=np.uint8)
            before = np.where(hits > 0, text[np.maximum(hits - 1, 0)], 0)
            hits = hits[~ALNUM[before] & ~ALNUM[text[np.minimum(hits + len(name), len(text) - 1)]]]
            hits = hits[(hits >= len(lead)) & (hits < BLOCK + len(lead))]
            found.append(hits - len(lead) + at)
    at_all = np.concatenate(found)
    units = index.units.of(at_all)
    near = at_all - index.units.starts[units] < NEAR_START
    return units[near], at_all[near]


COUNT = re.compile(r"\bhow many\b|\bhow often\b|\bnumber of\b|\bcount\b|\btotal number\b", re.IGNORECASE)
SUM = re.compile(r"\bsum\b|\btotal\b|\baltogether\b|\badd up\b|\bcombined\b", re.IGNORECASE)
AVERAGE = re.compile(r"\baverage\b|\bmean\b", re.IGNORECASE)
MOST = re.compile(r"\b(?:highest|largest|maximum|max|greatest|biggest|most|longest|slowest|top)\b", re.IGNORECASE)
LEAST = re.compile(r"\b(?:lowest|smallest|minimum|min|least|cheapest|shortest|fastest)\b", re.IGNORECASE)
DISTRIBUTION = re.compile(
    r"\bmost (?:common|frequent|often)\b|\b(?:per|each|by|different|distinct|unique|distribution)\b", re.IGNORECASE
)


class Aggregate(Struct, frozen=True):
    """Statements, and the units they rest on, to be quoted first; `None`: no unit in particular."""

    lines: tuple[str, ...] = ()
    units: Offsets | None = None


def aggregate(
    index: DocumentIndex, asked: ParsedRequest, window: TimeRange | None, times: SegmentTimes | None
) -> Aggregate:
    """What the request asks to be counted or computed; nothing where it asks for none."""
    text = asked.text
    wants_numbers = any(pattern.search(text) for pattern in (SUM, AVERAGE, MOST, LEAST))
    if not (COUNT.search(text) or wants_numbers or DISTRIBUTION.search(text)):
        return Aggregate()
    scope, words = _scope(index, asked, window, times)
    lines: list[str] = []
    best: list[int] = []
    if COUNT.search(text) and words:
        kind = "records" if index.format.kind in {"json", "json-lines"} else "rows" if index.format.header else "lines"
        lines.append(f"Exact count: {len(scope)} {kind} with {' and '.join(words)}.")
    elif COUNT.search(text):
        counted, units = count_matches(index, asked)
        lines += [*_totals(index), *counted]
        best += [] if units is None else [int(unit) for unit in units[:3]]
    named = mentioned_fields(index, text)[:4]
    for name in named if wants_numbers else ():
        made, unit = _number_facts(read_column(index, name), scope if words else None, text)
        lines += made
        best += unit
    if wants_numbers and not best and not index.format.header and (MOST.search(text) or LEAST.search(text)):
        made, unit = find_extreme(index, asked, most=MOST.search(text) is not None)
        lines += made
        best += unit
    if DISTRIBUTION.search(text) or (COUNT.search(text) and not words):
        lines += [
            line for name in named[:3] for line in _distribution(read_column(index, name), scope if words else None)
        ]
    return Aggregate(tuple(lines), np.array(best, np.int64) if best else (scope if words and len(scope) else None))


def _scope(
    index: DocumentIndex, asked: ParsedRequest, window: TimeRange | None, times: SegmentTimes | None
) -> tuple[Offsets, list[str]]:
    """The units that fit every condition of the request, and the conditions in words."""
    words: list[str] = []
    sets: list[Offsets] = []
    conditions: Sequence[Condition] = find_conditions(index, asked.text)
    for condition in conditions:
        words.append(condition.words)
        sets.append(condition.units)
    named = any("level" in word.lower() for word in words)
    if index.format.kind == "log" and not named and (level := _requested_level(asked.text)):
        words.append(f"level {'/'.join(level)}")
        sets.append(_segments_of_level(index, level))
    if window is not None and times is not None:
        words.append(f"time {window}")
        sets.append(segments_in_range(times, window))
    said = " ".join(words).lower()
    for term in asked.terms:
        timed = window is not None and (":" in term.text or DAY.match(term.text))
        if term.kind in {"phrase", "identifier"} and term.text not in said and not timed:
            held = sorted_unique(index.units.of(index.places([term])[term.text]))
            if len(held):
                words.append(f"the text {term.text!r}")
                sets.append(held)
    if not sets:
        return np.zeros(0, np.int64), []
    scope = sets[0]
    for other in sets[1:]:
        scope = np.intersect1d(scope, other)
    return scope, words


def _totals(index: DocumentIndex) -> list[str]:
    """How many of everything there are."""
    if index.format.header:
        return [f"Exact count: {max(0, index.source.lines - index.format.header_lines)} rows in the table."]
    if index.tape is not None and index.tape.levels:
        lines = []
        for number, level in enumerate(index.tape.levels[:4]):
            for at in np.flatnonzero(level.is_array)[:3]:
                start, end = int(level.opens[at]), int(level.closes[at])
                inner = int(np.searchsorted(level.commas, end) - np.searchsorted(level.commas, start))
                empty = not index.source.read(start + 1, min(end, start + 200)).strip()
                where = index.path(start) if number else "the root"
                lines.append(f"Exact count: {0 if empty else inner + 1} elements in {where}.")
        return lines[:6]
    return [f"Exact count: {index.source.lines} lines in the document."]


def _number_facts(values: Column, scope: Offsets | None, text: str) -> tuple[list[str], list[int]]:
    """Sum, mean and extremes of a field, as asked for."""
    found = as_numbers(values)
    keep = ~np.isnan(found)
    if scope is not None:
        keep &= np.isin(values.units, scope)
    if keep.sum() < max(1, 0.5 * (len(found) if scope is None else keep.sum())):
        return [], []
    held, units = found[keep], values.units[keep]
    lines, best = [], []
    if SUM.search(text):
        lines.append(f"Sum of {values.name}: {_format_number(float(held.sum()))} over {len(held)} values.")
    if AVERAGE.search(text):
        lines.append(f"Mean of {values.name}: {_format_number(float(held.mean()))} over {len(held)} values.")
    for pattern, pick, word in ((MOST, np.argmax, "Greatest"), (LEAST, np.argmin, "Least")):
        if pattern.search(text):
            at = int(pick(held))
            lines.append(
                f"{word} {values.name}: {_format_number(float(held[at]))} of {len(held)} values, quoted below."
            )
            best.append(int(units[at]))
    return lines, best


def _format_number(number: float) -> str:
    return str(int(number)) if abs(number) < 1e15 and number == int(number) else f"{number:.6f}".rstrip("0").rstrip(".")


def _distribution(values: Column, scope: Offsets | None) -> list[str]:
    counted: Counter[str]
    if scope is None:
        counted = values.counter()
    else:
        keep = np.isin(values.units, scope)
        counted = Counter(value for value, kept in zip(values.values, keep, strict=True) if kept)
    if not counted or (len(counted) > 2000 and counted.most_common(1)[0][1] < 3):
        return []
    top = ", ".join(f"{value[:60]}: {count}" for value, count in counted.most_common(12))
    more = f", and {len(counted) - 12} more values" if len(counted) > 12 else ""
    return [f"Values of {values.name} ({len(counted)} different): {top}{more}."]
