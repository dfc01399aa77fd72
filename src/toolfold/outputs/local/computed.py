"""Counts, sums, extremes, places and values, where a request is a query of the grammar; over every record, or none.

Each statement says the condition it was made with, over how many records, and how many have no value to compare. A
request that is no query gets no statement. Above: `answer.py`. Below: `query.py`, `records.py`.
"""

import re
from collections.abc import Iterator
from itertools import islice

import numpy as np
from msgspec import Struct

from toolfold.outputs.local.blocks import NAMES as BLOCK_NAMES
from toolfold.outputs.local.conditions import Condition, Query
from toolfold.outputs.local.facts import RecordSet, is_no_record
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.markup import Record, UnreadableRecords
from toolfold.outputs.local.partial import find_part
from toolfold.outputs.local.query import parse_query
from toolfold.outputs.local.query_words import (
    NUMERIC,
    OPERATIONS,
    NoQuery,
    Wanted,
    name_words,
    tokenize,
)
from toolfold.outputs.local.records import (
    TEXT,
    UNKNOWN,
    read_records,
)
from toolfold.outputs.local.render import clip, take_fitting
from toolfold.outputs.local.source import Offsets
from toolfold.outputs.local.statements import LISTED, QUOTED, STATEMENTS, Selection, state_each
from toolfold.outputs.local.suggestion import suggest

# Without an operation, only documents up to this size are read for what the search finds as well.
LOOKUP_BYTES = 2 << 20
MAX_SETS, MAX_STATED = 400, 3
MAX_KEPT = 2_000_000
NOUNS = {"table": "rows", "markdown-table": "rows", "log": "events", "json-lines": "records"}
COMPUTES = re.compile(
    rf"\b(?:{'|'.join(sorted(OPERATIONS, key=len, reverse=True))})\b|\d(?:st|nd|rd|th)\b|\b(?:top|bottom) \d",
    re.IGNORECASE,
)
_NUMBERS = sorted((phrase for phrase, name in OPERATIONS.items() if name in NUMERIC), key=len, reverse=True)
ADDS_UP = re.compile(rf"\b(?:{'|'.join(_NUMBERS)})\b", re.IGNORECASE)
FILES_ASKED = re.compile(
    r"(?:please )?(?:(?:which|what|list|show|give|name|how many|names of|all|the|me|number of)\s+)+files?"
    r"(?: (?:are|were|was|is|have been|has been|got|did))?(?: (?:changed|touched|modified))"
    r"(?: (?:in|by) (?:this|the) (?:diff|patch|change|commit|output|document))?[\s.?]*",
    re.IGNORECASE,
)
DIFF_FILE = re.compile(r"diff --git a/(.+?) b/")


class Computed(Struct, frozen=True):
    """What was computed, in words, and the segments it rests on: none where it rests on all records."""

    lines: tuple[str, ...] = ()
    segments: Offsets | None = None
    claimed: bool = False
    # Whether something was to be computed, and was not.
    refused: bool = False
    # The one word that has no place, where no other word says which records are meant.
    unplaced: str = ""
    # How many records fit.
    count: int = 0
    # How many records it rests on, of which some may be quoted.
    rests_on: int = 0
    # The word without a place at which reading stopped first.
    stopped_at: str = ""
    # A noun of the request that the document does not know.
    guessed: str = ""


def compute(index: DocumentIndex, request: str, budget: int = 600) -> Computed:
    """What the request asks to be computed or looked up; nothing where it is no query. `budget`: for names of files."""
    if FILES_ASKED.fullmatch(request.strip()) and len(index.outer):
        return _changed_files(index, budget)
    asks = COMPUTES.search(request) is not None
    if index.format.kind == "binary" or (not asks and index.source.size > LOOKUP_BYTES):
        return Computed()
    try:
        return _of_request(index, request, asks=asks)
    except UnreadableRecords as error:
        return Computed((f"Nothing was computed: {error}.",) if asks else (), refused=asks)


def _of_request(index: DocumentIndex, request: str, *, asks: bool) -> Computed:
    computed = _of_tokens(index, tokenize(request), asks=asks)
    # `from France (FR)` is `from FR`, where France has no place.
    aside = re.compile(rf"\b{re.escape(computed.stopped_at)} \(([^()]{{1,80}})\)")
    if not computed.stopped_at or not aside.search(request):
        return computed
    other = _of_tokens(index, tokenize(aside.sub(r"\1", request)), asks=asks)
    return other if other.claimed else computed


def _of_tokens(index: DocumentIndex, tokens: list[str], *, asks: bool) -> Computed:
    sets, others = _record_sets(index, tokens)
    if asks and not sets:
        return Computed(("Nothing was computed: the text has no records that can be told apart.",), refused=True)
    computed = _of_sets(index, sets, tokens, asks=asks)
    # `issues with the label bug` names the labels, and is about what has them.
    other = _of_sets(index, others, tokens, asks=asks) if others and not computed.claimed else computed
    return other if other.claimed else computed


def _stated_and_failed(
    index: DocumentIndex, sets: list[RecordSet], tokens: list[str]
) -> tuple[list[Computed], list[tuple[RecordSet, NoQuery]]]:
    stated: list[Computed] = []
    failed: list[tuple[RecordSet, NoQuery]] = []
    for records in sets:
        try:
            stated += _statements(index, records, tokens)
        except NoQuery as error:
            failed.append((records, error))
    return stated, failed


def _guessed(sets: list[RecordSet], stated: list[Computed]) -> str:
    """The first word that was taken for the name of one kind of records, where there are several kinds."""
    return next((one.guessed for one in stated if one.guessed), "") if len(sets) > 1 else ""


def _doubts(failed: list[tuple[RecordSet, NoQuery]]) -> list[str]:
    return [f"{error}, among the {own.count} {own.noun}" for own, error in failed if error.doubt]


def _unnamed(guessed: str, sets: list[RecordSet]) -> list[str]:
    return [f'"{guessed}" is the name of none of the {len(sets)} kinds of records'] if guessed else []


def _of_sets(index: DocumentIndex, sets: list[RecordSet], tokens: list[str], *, asks: bool) -> Computed:
    """What can be stated of the sets that the request is a query over; else why nothing can."""
    stated, failed = _stated_and_failed(index, sets, tokens)
    guessed = _guessed(sets, stated)
    # Of several kinds one is meant where the request names something of it, and no other kind may be meant.
    stated = [one for one in stated if not (guessed and one.guessed)]
    doubts = _doubts(failed)
    if stated and not doubts:
        return _joined(stated)
    problems = [*(doubts if stated or guessed else ()), *_unnamed(guessed, sets), *(str(error) for _, error in failed)]
    return _refusal(index, sets, tokens, problems[0], failed, asks=asks) if problems else Computed()


def _refusal(
    index: DocumentIndex,
    sets: list[RecordSet],
    tokens: list[str],
    problem: str,
    failed: list[tuple[RecordSet, NoQuery]],
    *,
    asks: bool,
) -> Computed:
    problem = clip(problem, 160)
    why = f"Nothing was computed: {problem}{'' if problem.endswith(('.', '?', '!')) else '.'}"
    stopped_at = next((error.words for _, error in failed if error.words), "")
    if asks:
        ways = filter(None, (suggest(tokens, own) for own, _ in failed[:MAX_STATED]))
        return Computed((" ".join([why, *islice(ways, 1)]), _fields_line(sets)), refused=True, stopped_at=stopped_at)
    unplaced = filter(None, (_only_unplaced(tokens, own, error.words) for own, error in failed))
    # A text with a table in it is mostly asked for something else.
    prose = index.structure is not None and index.structure.kind in {"markdown", "page"}
    return Computed(() if prose else (why,), stopped_at=stopped_at, unplaced=next(unplaced, ""))


def _fields_line(sets: list[RecordSet]) -> str:
    """What could be asked for: the fields of the records of the first kind."""
    names = [clip(field, 40) for field in sets[0].fields if field != TEXT]
    more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"Fields of the {sets[0].count} {sets[0].noun}: {', '.join(names[:LISTED]) or 'none'}{more}."


def _joined(stated: list[Computed]) -> Computed:
    if len(stated) > MAX_STATED:
        return Computed(("Nothing was computed: too many kinds of records fit. Name the one that is meant.",))
    segments = [one.segments for one in stated if one.segments is not None]
    lines = tuple(line for one in stated for line in one.lines)
    count = sum(one.count for one in stated)
    rests_on = sum(one.rests_on for one in stated)
    joined = np.concatenate(segments) if segments else None
    return Computed(lines, joined, claimed=True, count=count, rests_on=rests_on)


def _statements(index: DocumentIndex, records: RecordSet, tokens: list[str]) -> list[Computed]:
    query = parse_query(tokens, records)
    _check_alone(records, query)
    stated = [_state(index, records, query)]
    while query.and_then is not None:
        query = query.and_then
        other = _state(index, records, query)
        stated += [] if query.is_reading and other.count == stated[0].count else [other]
    return stated


def _only_unplaced(tokens: list[str], records: RecordSet, word: str) -> str:
    """The word, where without it the request is one of the grammar, and demands nothing of a record."""
    rest = [token for token in tokens if token != word]
    try:
        demands = len(rest) == len(tokens) or bool(parse_query(rest, records).conditions)
    except NoQuery as error:
        demands = bool(error.words)
    return "" if demands else word


def _check_alone(records: RecordSet, query: Query) -> None:
    """Where records inside of these may be meant as well, as in a tree of files, nothing is claimed of these alone."""
    fields = {condition.about for condition in query.conditions} | {query.field}
    for inner in records.inner:
        if (query.taken_for and fields == {""}) or not fields.isdisjoint(inner.fields.keys() - {TEXT}):
            raise NoQuery(reason=f"elements of {inner.name} may be meant, too: name those that are")


def _record_sets(index: DocumentIndex, tokens: list[str]) -> tuple[list[RecordSet], list[RecordSet]]:
    """The sets of records that the request names, and those around them; else the outermost and largest."""
    words = [token.lower() for token in tokens]
    sets = _gathered(index, read_records(index), Wanted.of(tokens))
    if not {"line", "lines"}.isdisjoint(words) and sum(one.count for one in sets.values()) != index.source.lines:
        sets = _gathered(index, read_records(index, lines=True), Wanted())
    return _chosen(list(sets.values()), words)


def _gathered(index: DocumentIndex, source: Iterator[Record] | None, wanted: Wanted) -> dict[str, RecordSet]:
    sets: dict[str, RecordSet] = {}
    for record in source or ():
        records = sets.get(record.of)
        if records is None:
            if len(sets) >= MAX_SETS:
                raise UnreadableRecords("it has too many kinds of records")
            key = next((field for field in record.values if field != TEXT), "")
            records = sets[record.of] = RecordSet(record.of, noun=_noun(index, record.of), key=key)
            records.comma = index.format.delimiter == ";"
        records.note(record.values, record.place, wanted)
    for records in sets.values():
        records.finish(wanted)
        records.part = find_part(index, records.count, records.name)
    return {name: records for name, records in sets.items() if records.count}


def _noun(index: DocumentIndex, name: str) -> str:
    if name in {"lines", *BLOCK_NAMES}:
        return name
    structure = index.structure.kind if index.structure is not None else ""
    if structure in {"markup", "items"}:
        return f"<{name}> elements" if structure == "markup" else f"items of {name.removesuffix('[]')}"
    own = NOUNS.get(index.format.kind, "records")
    return f"elements of {name}" if index.format.kind == "json" or "[]" in name else f"rows of {name}" if name else own


def _depth(records: RecordSet) -> int:
    return records.name.count("[]") + records.name.count(".")


def _chosen(sets: list[RecordSet], words: list[str]) -> tuple[list[RecordSet], list[RecordSet]]:
    folded = {part for word in words for part in name_words(word)}
    sets = _without_values(sets)
    named = [records for records in sets if (own := records.name_words()) and folded.issuperset(own)]
    if not named:
        return _outermost(sets), []
    around = [one for one in sets if one.name and any(own.name.startswith(f"{one.name}.") for own in named)]
    return _without_holders(named), [one for one in around if one not in named]


def _without_holders(named: list[RecordSet]) -> list[RecordSet]:
    """The one `<parts>` that holds each `<part>` is not what is meant by them."""
    several = {one.name_words() for one in named if one.count > 1}
    return [one for one in named if one.count > 1 or one.name_words() not in several]


def _without_values(sets: list[RecordSet]) -> list[RecordSet]:
    """An element that is nothing but its text is a value of the one around it."""
    fields = {field for records in sets for field in records.fields}
    return [records for records in sets if set(records.fields) != {"text"} or records.name not in fields]


def _outermost(sets: list[RecordSet]) -> list[RecordSet]:
    depth = min(map(_depth, sets), default=0)
    outer = [records for records in sets if _depth(records) == depth]
    for records in outer:
        records.inner = [other for other in sets if other not in outer]
    return sorted(outer, key=lambda records: -records.count)[:8]


def _records_of(index: DocumentIndex, records: RecordSet) -> Iterator[Record]:
    for record in read_records(index, lines=records.name == "lines") or ():
        if record.of == records.name and not is_no_record(record.values):
            yield record


def _empty_blanks(record: Record, blank: list[tuple[str, set[str]]]) -> None:
    """A value that says that there is none is empty."""
    for field, blanks in blank:
        own = record.values.get(field, "")
        record.values[field] = "" if isinstance(own, str) and own in blanks else own


def _select(index: DocumentIndex, records: RecordSet, query: Query) -> Selection:
    """Every record is read again and tested."""
    out = Selection()
    blank = records.blank_fields()
    for record in _records_of(index, records):
        _empty_blanks(record, blank)
        results = [_tested(condition, record, out.without) for condition in query.conditions]
        whole = all(results[: query.base] if query.operation == "share" else results)
        if whole and record.place in records.maybe_totals and _counts(query):
            raise NoQuery(reason=f"{record.place} may be a total of the other {records.noun}")
        if query.operation == "share" and whole:
            out.base.append(str(record.values.get(query.field, "")))
        if not all(results):
            continue
        out.count += 1
        _keep(out, query, record)
    return out


def _counts(query: Query) -> bool:
    """Whether it matters how many records there are: not for one by its place, or by a value of it."""
    named = query.operation == "rows" and any(condition.values for condition in query.conditions)
    return query.operation != "place" and not named


def _tested(condition: Condition, record: Record, without: dict[str, int]) -> bool | None:
    result = condition.test(record.values)
    if result is None and condition.field:
        field = condition.other if condition.other and record.values.get(condition.field) else condition.field
        without[field] = without.get(field, 0) + 1
    return result


def _keep(out: Selection, query: Query, record: Record) -> None:
    value = record.values.get(query.field) if query.field else ""
    if query.field and (not value or isinstance(value, list)):
        out.lacking += 1
    elif query.operation not in {"count", "share"} or any((query.field, query.each, len(out.kept) < QUOTED)):
        out.kept.append((record, str(value)))
    if len(out.kept) > MAX_KEPT:
        raise UnreadableRecords("it has too many records")
    if len(out.starts) < QUOTED:
        out.starts.append(record.start)


def _text_asked(query: Query) -> str:
    return next(condition.words for condition in query.conditions if condition.is_text)


def _starts(query: Query, selection: Selection, rows: list[Record] | None) -> list[int]:
    """Where the records begin that a statement rests on; empty where it rests on all."""
    if rows is None:
        return selection.starts if query.conditions else []
    return [record.start for record in rows]


def _state(index: DocumentIndex, records: RecordSet, query: Query) -> Computed:
    selection = _select(index, records, query)
    if query.implied_text and not selection.count:
        raise NoQuery(reason=f"in none of the {records.noun} {_text_asked(query)}; it may be worded otherwise")
    where = " and ".join(condition.words for condition in query.conditions[query.base :])
    scope = f"{records.noun} where {where}" if where else records.noun
    notes = [f"of {records.count} {records.noun.partition(' of ')[0]}"] if where else []
    notes += _notes(records, query, selection)
    state = state_each if query.each else STATEMENTS[query.operation]
    lines, rows = state(records, query, selection, scope, notes)
    starts = _starts(query, selection, rows)
    placed = [start for start in starts if start != UNKNOWN]
    segments = None
    if placed or (query.conditions and not starts):
        segments = index.segments.at(np.array(placed, dtype=np.int64))
    rests_on = selection.count if rows is None else len(rows)
    return Computed(tuple(lines), segments, guessed=query.taken_for, count=selection.count, rests_on=rests_on)


def _notes(records: RecordSet, query: Query, selection: Selection) -> list[str]:
    notes = [f"{count} with no {field} to compare" for field, count in selection.without.items()]
    notes += [f'"{query.taken_for}" is taken to mean the {records.count} {records.noun}'] if query.taken_for else []
    return [*notes, *_clock_notes(records, query), *_record_notes(records, query)]


def _record_notes(records: RecordSet, query: Query) -> list[str]:
    """What is no record or no value of those that are computed on, and whether there are more elsewhere."""
    notes = [f"{', '.join(records.totals[:3])} left out as no record"] if records.totals else []
    fields = {query.field, query.group, *(condition.about for condition in query.conditions)} - {""}
    blanks = sorted(set().union(*(records.fields[field].blanks for field in fields)))
    notes += [f"{', '.join(map(repr, blanks[:6]))} taken for no value"] if blanks else []
    repeats = query.operation in {"count", "sum", "mean"} and {"id", "uuid"} & set(name_words(records.key))
    if repeats and 0 < len(records.keys) < min(records.count, 400_000):
        notes.append(f"{records.key} repeats")
    return [*notes, *([f"only of what is here, as the document says {records.part}"] if records.part else [])]


def _clock_notes(records: RecordSet, query: Query) -> list[str]:
    """A clock without a day is of every day: that is said where there are several."""
    dated = [field for field, bounds in query.bounds.items() if any(moment.day for _, moment in bounds)]
    several = [field for field in query.bounds if len(records.fields[field].days) > 1 and field not in dated]
    return [f"{field} has several days, and the clock is that of each" for field in several]


def _changed_files(index: DocumentIndex, budget: int) -> Computed:
    """How many files a diff changes, and their names as far as the budget goes."""
    heads = (DIFF_FILE.search(index.text(int(segment))) for segment in index.outer)
    names = list(dict.fromkeys(head[1] for head in heads if head))
    if not names:
        return Computed()
    listed = take_fitting(names, budget, 2)
    more = f", and {len(names) - len(listed)} more" if len(listed) < len(names) else ""
    line = f"Count of files that are changed: {len(names)}: {', '.join(listed)}{more}."
    return Computed((line,), claimed=True)
