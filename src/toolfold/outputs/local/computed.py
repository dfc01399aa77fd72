"""Counts, sums, extremes, places and values, where a request is a query of the grammar; over every record, or none.

Each statement says the condition it was made with, over how many records, and how many have no value to compare. A
request that is no query gets no statement. Above: `answer.py`. Below: `query.py`, `records.py`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
from msgspec import Struct

from toolfold.outputs.local.conditions import Query
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.query import parse_query
from toolfold.outputs.local.query_words import OPERATIONS, NoQuery, name_words, phrases, to_number, tokenize
from toolfold.outputs.local.records import (
    TEXT,
    Moment,
    Record,
    UnreadableRecords,
    find_moment,
    read_lines,
    read_records,
)
from toolfold.outputs.local.render import clip, take_fitting
from toolfold.outputs.local.source import Offsets
from toolfold.outputs.local.token_reader import FieldFacts, RecordSet

# Without an operation, only documents up to this size are read for what the search finds as well.
LOOKUP_BYTES = 2 << 20
MAX_SETS, MAX_STATED = 400, 3
LISTED, QUOTED = 12, 100
LONGEST_VALUE = 200
MAX_KEPT, MAX_KEYS = 2_000_000, 500_000
NOUNS = {"table": "rows", "markdown-table": "rows", "log": "events", "json-lines": "records"}
COMPUTES = re.compile(
    rf"\b(?:{'|'.join(sorted(OPERATIONS, key=len, reverse=True))})\b|\d(?:st|nd|rd|th)\b", re.IGNORECASE
)
FILES_ASKED = re.compile(
    r"(?:please )?(?:(?:which|what|list|show|give|name|how many|names of|all|the|me|number of)\s+)+files?"
    r"(?: (?:are|were|was|is|have been|has been|got|did))?(?: (?:changed|touched|modified))"
    r"(?: (?:in|by) (?:this|the) (?:diff|patch|change|commit|output|document))?[\s.?]*",
    re.IGNORECASE,
)
DIFF_FILE = re.compile(r"diff --git a/(.+?) b/")


class _Computed(Struct, frozen=True):
    """What was computed, in words, and the segments it rests on."""

    lines: tuple[str, ...] = ()
    segments: Offsets | None = None
    claimed: bool = False
    # Whether something was to be computed, and was not.
    refused: bool = False
    # The one word that has no place, where no other word says which records are meant.
    unplaced: str = ""
    # A noun of the request that the document does not know.
    guessed: str = ""


def compute(index: DocumentIndex, request: str, budget: int = 600) -> _Computed:
    """What the request asks to be computed or looked up; nothing where it is no query. `budget`: for names of files."""
    if FILES_ASKED.fullmatch(request.strip()) and len(index.outer):
        return _changed_files(index, budget)
    asks = COMPUTES.search(request) is not None
    if index.format.kind == "binary" or (not asks and index.source.size > LOOKUP_BYTES):
        return _Computed()
    tokens = tokenize(request)
    try:
        return _of_sets(index, _record_sets(index, tokens), tokens, asks=asks)
    except UnreadableRecords as error:
        return _Computed((f"Nothing was computed: {error}.",) if asks else (), refused=asks)


def _of_sets(index: DocumentIndex, sets: list[RecordSet], tokens: list[str], *, asks: bool) -> _Computed:
    """What can be stated of the sets that the request is a query over; else why nothing can."""
    problem = unplaced = ""
    stated: list[list[_Computed]] = []
    for records in sets:
        try:
            stated.append(_statements(index, records, tokens))
        except NoQuery as error:
            problem = problem or str(error)
            unplaced = unplaced or _only_unplaced(tokens, records, error.words)
    guessed = next((own[0].guessed for own in stated if own[0].guessed), "")
    if guessed and len(stated) > 1:
        problem = f'"{guessed}" is the name of none of the kinds of records'
    elif stated:
        return _joined([one for own in stated for one in own])
    if asks and problem:
        return _Computed((f"Nothing was computed: {clip(problem, 160)}.", _fields_line(sets)), refused=True)
    return _Computed(unplaced=unplaced)


def _fields_line(sets: list[RecordSet]) -> str:
    """What could be asked for: the fields of the records of the first kind."""
    names = [clip(field, 40) for field in sets[0].fields if field != TEXT]
    more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"Fields of the {sets[0].count} {sets[0].noun}: {', '.join(names[:LISTED]) or 'none'}{more}."


def _joined(stated: list[_Computed]) -> _Computed:
    if len(stated) > MAX_STATED:
        return _Computed(("Nothing was computed: too many kinds of records fit. Name the one that is meant.",))
    segments = [one.segments for one in stated if one.segments is not None]
    lines = tuple(line for one in stated for line in one.lines)
    return _Computed(lines, np.concatenate(segments) if segments else None, claimed=True)


def _statements(index: DocumentIndex, records: RecordSet, tokens: list[str]) -> list[_Computed]:
    query = parse_query(tokens, records)
    _check_alone(records, query)
    stated = [_state(index, records, query)]
    while query.and_then is not None:
        query = query.and_then
        stated.append(_state(index, records, query))
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
    fields = {condition.field for condition in query.conditions} | {query.field}
    for inner in records.inner:
        if (query.taken_for and fields == {""}) or not fields.isdisjoint(inner.fields.keys() - {TEXT}):
            raise NoQuery(reason=f"elements of {inner.name} may be meant, too: name those that are")


def _record_sets(index: DocumentIndex, tokens: list[str]) -> list[RecordSet]:
    """The sets of records, those that the request names first, else the outermost and largest."""
    words = [token.lower() for token in tokens]
    sets = _gathered(index, read_records(index), frozenset(phrases(tokens)))
    if not {"line", "lines"}.isdisjoint(words) and sum(one.count for one in sets.values()) != index.source.lines:
        sets = _gathered(index, read_lines(index), frozenset())
    return _chosen(list(sets.values()), words)


def _gathered(index: DocumentIndex, source: Iterator[Record] | None, wanted: frozenset[str]) -> dict[str, RecordSet]:
    sets: dict[str, RecordSet] = {}
    for record in source or ():
        records = sets.get(record.of)
        if records is None:
            if len(sets) >= MAX_SETS:
                raise UnreadableRecords("it has too many kinds of records")
            key = next((field for field in record.values if field != TEXT), "")
            records = sets[record.of] = RecordSet(record.of, noun=_noun(index, record.of), key=key)
        _note(records, record.values, wanted)
    return sets


def _noun(index: DocumentIndex, name: str) -> str:
    if name == "lines":
        return "lines"
    structure = index.structure.kind if index.structure is not None else ""
    if structure in {"markup", "items"}:
        return f"<{name}> elements" if structure == "markup" else f"items of {name}"
    own = NOUNS.get(index.format.kind, "records")
    return f"elements of {name}" if index.format.kind == "json" else f"rows of {name}" if name else own


def _note(records: RecordSet, values: dict[str, Any], wanted: frozenset[str]) -> None:
    """Adds one record to the facts of its set."""
    records.count += 1
    if len(records.keys) == records.count - 1 < MAX_KEYS and isinstance(own := values.get(records.key), str):
        records.keys.add(own)
    for field, value in values.items():
        facts = records.fields.get(field)
        if facts is None:
            facts = records.fields[field] = FieldFacts()
        if isinstance(value, list):
            facts.lists += 1
        elif field != TEXT and not value.strip():
            facts.empty += 1
        elif field != TEXT:
            facts.present += 1
            if len(value) < 200:
                _note_value(records, field, facts, value, wanted)


def _note_value(records: RecordSet, field: str, facts: FieldFacts, value: str, wanted: frozenset[str]) -> None:
    low = value.strip().lower()
    if to_number(value) is not None:
        facts.numbers += 1
        facts.signs.update({"$", "€", "£", "%"}.intersection(value))
    facts.booleans += low in {"true", "false", "yes", "no"}
    if low in {"true", "yes"} and value not in facts.truths:
        facts.truths.append(value)
    facts.times += _may_be_time(field, value) and find_moment(value) is not None
    if low in wanted:
        spellings = records.hits.setdefault(low, {}).setdefault(field, [])
        if value not in spellings:
            spellings.append(value)


def _may_be_time(field: str, value: str) -> bool:
    """A guess that costs little: most values are none."""
    return len(value) < 40 and (field == "time" or (value[:1].isdigit() and ("-" in value or ":" in value)))


def _depth(records: RecordSet) -> int:
    return records.name.count("[]") + records.name.count(".")


def _chosen(sets: list[RecordSet], words: list[str]) -> list[RecordSet]:
    folded = {part for word in words for part in name_words(word)}
    named = [records for records in sets if (own := records.name_words()) and folded.issuperset(own)]
    if named:
        # The one `<parts>` that holds each `<part>` is not what is meant by them.
        several = {one.name_words() for one in named if one.count > 1}
        return [one for one in named if one.count > 1 or one.name_words() not in several]
    depth = min(map(_depth, sets), default=0)
    outer = [records for records in sets if _depth(records) == depth]
    # An element that is nothing but its text is a value of the one around it.
    fielded = [records for records in outer if set(records.fields) != {"text"}] or outer
    for records in fielded:
        records.inner = [other for other in sets if other not in outer]
    return sorted(fielded, key=lambda records: -records.count)[:8]


class _Selection(Struct):
    """The records that fit, as far as they are needed, and how many of all could not be compared."""

    count: int = 0
    kept: list[tuple[Record, str]] = []
    starts: list[int] = []
    without: dict[str, int] = {}
    lacking: int = 0


def _select(index: DocumentIndex, records: RecordSet, query: Query) -> _Selection:
    """Every record is read again and tested."""
    out = _Selection()
    source = read_lines(index) if records.name == "lines" else read_records(index)
    for record in source or ():
        if record.of != records.name:
            continue
        fits = True
        for condition in query.conditions:
            result = condition.test(record.values)
            if result is None and condition.field:
                out.without[condition.field] = out.without.get(condition.field, 0) + 1
            fits = fits and bool(result)
        if not fits:
            continue
        out.count += 1
        value = record.values.get(query.field) if query.field else ""
        if query.field and (not value or isinstance(value, list)):
            out.lacking += 1
        elif query.operation != "count" or query.field or len(out.kept) < QUOTED:
            out.kept.append((record, str(value)))
        if len(out.kept) > MAX_KEPT:
            raise UnreadableRecords("it has too many records")
        if len(out.starts) < QUOTED:
            out.starts.append(record.start)
    return out


def _state(index: DocumentIndex, records: RecordSet, query: Query) -> _Computed:
    selection = _select(index, records, query)
    if query.implied_text and not selection.count:
        raise NoQuery(reason="no record holds the text that is asked for")
    where = " and ".join(condition.words for condition in query.conditions)
    scope = f"{records.noun} where {where}" if where else records.noun
    notes = [f"of {records.count} {records.noun.partition(' of ')[0]}"] if where else []
    notes += [f"{count} with no {field} to compare" for field, count in selection.without.items() if field]
    if query.taken_for:
        notes.append(f'"{query.taken_for}" is taken to mean the {records.count} {records.noun}')
    lines, rows = STATEMENTS[query.operation](records, query, selection, scope, notes)
    starts = selection.starts if rows is None else [record.start for record in rows]
    return _Computed(tuple(lines), _segments(index, starts), guessed=query.taken_for)


def _segments(index: DocumentIndex, starts: list[int]) -> Offsets | None:
    if not starts or len(starts) >= QUOTED:
        return None
    return index.segments.at(np.array(starts, dtype=np.int64))


def _noted(notes: list[str]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""


Stated = tuple[list[str], list[Record] | None]


def _count(_: RecordSet, query: Query, selection: _Selection, scope: str, notes: list[str]) -> Stated:
    if not query.field:
        return [f"Count of {scope}: {selection.count}{_noted(notes)}."], None
    different = len({value for _, value in selection.kept})
    own = f"{len(selection.kept)} have a value of {query.field}, {different} different ones"
    return [f"Count of {scope}: {selection.count}; {own}{_noted(notes)}."], None


def _rows(records: RecordSet, query: Query, selection: _Selection, scope: str, notes: list[str]) -> Stated:
    if not selection.count:
        return [f"There are no {scope}{_noted(notes)}."], []
    lines = [f"{selection.count} {scope}{_noted(notes)}."]
    if query.wanted:
        lines += [_shown(records, query, record) for record, _ in selection.kept[:LISTED]]
        if selection.count > LISTED:
            lines.append(f"({selection.count - LISTED} further ones are not shown)")
    return lines, None


def _shown(records: RecordSet, query: Query, record: Record) -> str:
    """A record by its place, with the values that are asked for."""
    key = records.identifying_field()
    fields = [*query.wanted, *([key] if key and key not in query.wanted else [])]
    return f"{record.place}: {', '.join(f'{field}: {_quoted(record.values.get(field))}' for field in fields)}".rstrip(
        ": "
    )


def _quoted(value: Any) -> str:
    if value is None or value == "":
        return "no value"
    return f'"{clip(str(value), LONGEST_VALUE)}"' if not isinstance(value, list) else f"a list of {len(value)}"


def _total(_: RecordSet, query: Query, selection: _Selection, scope: str, notes: list[str]) -> Stated:
    numbers = [number for _, value in selection.kept if (number := to_number(value)) is not None]
    left_out = selection.count - len(numbers)
    notes = [*notes, *([f"{left_out} of them without a number there"] if left_out else [])]
    if not numbers:
        return [f"No {query.field} is a number in {scope}{_noted(notes)}."], None
    total = sum(numbers, Decimal(0))
    if query.operation == "sum":
        return [f"Sum of {query.field} over {len(numbers)} {scope}: {_plain(total)}{_noted(notes)}."], None
    mean = total / len(numbers)
    return [f"Mean of {query.field} over {len(numbers)} {scope}: {_plain(round(mean, 6))}{_noted(notes)}."], None


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _extreme(records: RecordSet, query: Query, selection: _Selection, scope: str, notes: list[str]) -> Stated:
    compared = _comparable(records, query, selection)
    left_out = selection.count - len(compared)
    notes = [*notes, *([f"{left_out} of them without a value to compare"] if left_out else [])]
    if not compared:
        return [f"No {query.field} can be compared in {scope}{_noted(notes)}."], []
    best = (max if query.operation == "greatest" else min)(key for key, _, _ in compared)
    winners = [(record, value) for key, record, value in compared if key == best]
    word = query.operation.capitalize()
    shared = f", shared by {len(winners)}" if len(winners) > 1 else ""
    lines = [f"{word} {query.field} of {len(compared)} {scope}: {winners[0][1]}{shared}{_noted(notes)}."]
    lines += [_shown(records, query, record) for record, _ in winners[:LISTED]]
    return lines, [record for record, _ in winners[:QUOTED]]


def _comparable(records: RecordSet, query: Query, selection: _Selection) -> list[tuple[Any, Record, str]]:
    """The values as numbers or as times. Times of several zones cannot be compared as they are written."""
    if not records.is_time(query.field):
        pairs = [(to_number(value), record, value) for record, value in selection.kept]
        return [pair for pair in pairs if pair[0] is not None]
    moments = [(find_moment(value) or Moment("", ""), record, value) for record, value in selection.kept]
    if len({(bool(moment.day), bool(moment.clock), moment.zone) for moment, _, _ in moments}) > 1:
        raise NoQuery(reason=f"{query.field} has times of several forms or zones")
    return moments


def _values(_: RecordSet, query: Query, selection: _Selection, scope: str, notes: list[str]) -> Stated:
    counter = Counter(value for _, value in selection.kept)
    notes = [*notes, *([f"{selection.lacking} of them without one"] if selection.lacking else [])]
    top = ", ".join(f"{_quoted(value)}: {count}" for value, count in counter.most_common(LISTED))
    more = f", and {len(counter) - LISTED} more values" if len(counter) > LISTED else ""
    return [f"Values of {query.field} in {scope}: {len(counter)} different{_noted(notes)}: {top}{more}."], None


def _place(records: RecordSet, query: Query, selection: _Selection, scope: str, notes: list[str]) -> Stated:
    kept = [record for record, _ in selection.kept]
    first = query.place if query.place >= 0 else len(kept) + query.place
    if query.limit > 1:
        first = max(0, len(kept) - query.limit) if query.place < 0 else 0
    chosen = kept[first : first + query.limit] if first >= 0 else []
    if not chosen:
        raise NoQuery(reason=f"there are {selection.count} {scope}")
    lines = []
    for number, record in enumerate(chosen[:LISTED], first + 1):
        among = f"{selection.count} {scope}" if query.conditions else str(selection.count)
        lines.append(f"By its place in the list, {number} of {among}: {_shown(records, query, record)}")
    if notes:
        lines[0] += _noted(notes)
    return lines, chosen


STATEMENTS = {
    "count": _count,
    "rows": _rows,
    "sum": _total,
    "mean": _total,
    "greatest": _extreme,
    "least": _extreme,
    "values": _values,
    "place": _place,
}


def _changed_files(index: DocumentIndex, budget: int) -> _Computed:
    """How many files a diff changes, and their names as far as the budget goes."""
    heads = (DIFF_FILE.search(index.text(int(segment))) for segment in index.outer)
    names = list(dict.fromkeys(head[1] for head in heads if head))
    if not names:
        return _Computed()
    listed = take_fitting(names, budget, 2)
    more = f", and {len(names) - len(listed)} more" if len(listed) < len(names) else ""
    line = f"Count of files that are changed: {len(names)}: {', '.join(listed)}{more}."
    return _Computed((line,), claimed=True)
