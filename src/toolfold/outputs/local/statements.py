"""What was computed, in words: each statement says its field, its condition, and over how many records it was made.

Above: `computed.py`. Below: `conditions.py`, `records.py`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import islice
from statistics import median
from typing import Any

from msgspec import Struct, structs

from toolfold.outputs.local.conditions import Query
from toolfold.outputs.local.facts import RecordSet
from toolfold.outputs.local.markup import Record
from toolfold.outputs.local.moments import Moment, find_moment
from toolfold.outputs.local.query_words import MONEY, PRICES, TITLES, NoQuery, name_words, to_number
from toolfold.outputs.local.records import TEXT
from toolfold.outputs.local.render import clip

LISTED, QUOTED, FEW, MOST_GROUPS = 12, 100, 6, 40
LONGEST_VALUE = 200
_MONEY = MONEY | PRICES
_UNIT_NAMES = frozenset({"currency", "unit", "ccy", "uom"})


class Selection(Struct):
    """The records that fit, as far as they are needed, and how many of all could not be compared."""

    count: int = 0
    kept: list[tuple[Record, str]] = []
    starts: list[int] = []
    without: dict[str, int] = {}
    lacking: int = 0
    # For a share: the values of all that it is a share of.
    base: list[str] = []


def _noted(notes: list[str]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""


Stated = tuple[list[str], list[Record] | None]


def _count(_: RecordSet, query: Query, selection: Selection, scope: str, notes: list[str]) -> Stated:
    if not query.field:
        return [f"Count of {scope}: {selection.count}{_noted(notes)}."], None
    counter = _counted(value for _, value in selection.kept)
    own = f"{len(selection.kept)} of {selection.count} have a value there"
    return [f"Count of different values of {query.field} in {scope}: {len(counter)}; {own}{_noted(notes)}."], None


def _rows(records: RecordSet, query: Query, selection: Selection, scope: str, notes: list[str]) -> Stated:
    if not selection.count:
        return [f"There are no {scope}{_noted(notes)}."], []
    scope = (
        re.sub(r"\b(row|event|record|element|item|commit|mail|user|group|service|file)s\b", r"\1", scope, count=1)
        if selection.count == 1
        else scope
    )
    lines = [f"{selection.count} {scope}{_noted(notes)}."]
    key = records.identifying_field()
    if key and not query.wanted and selection.count <= QUOTED:
        lines.append(f"Their {key}: {', '.join(_quoted(record.values.get(key)) for record, _ in selection.kept)}.")
    elif query.wanted:
        lines += [_shown(records, query, record) for record, _ in selection.kept[:LISTED]]
        if selection.count > LISTED:
            lines.append(f"({selection.count - LISTED} further ones are not shown)")
    return [*lines, *_sum_of_rows(records, query, selection)], None


def _sum_of_rows(records: RecordSet, query: Query, selection: Selection) -> list[str]:
    """`the revenue of the North in May` may be asked of each row, or of all."""
    if len(query.wanted) != 1 or selection.count < 2 or not records.is_number(own := query.wanted[0]):
        return []
    values = [(record, str(record.values.get(own, ""))) for record, _ in selection.kept]
    whole = len(_numbers([value for _, value in values])) == selection.count
    return [f"Sum of {own} over them{_figured(records, 'sum', own, values)}."] if whole else []


def _shown(records: RecordSet, query: Query, record: Record) -> str:
    """A record by its place, with the values that are asked for, and what it is called; of a log its first line."""
    named = [*filter(None, (records.identifying_field(), _title_of(record)))]
    fields = list(dict.fromkeys([*query.wanted, *named]))
    if not named and TEXT not in record.values:
        fields = list(dict.fromkeys([*fields, *list(record.values)[:FEW]]))
    values = [f"{field}: {_said(records, record, field)}" for field in fields]
    if TEXT in record.values:
        values.append(clip(record.values[TEXT].partition("\n")[0], LONGEST_VALUE))
    return f"{record.place}: {', '.join(values)}".rstrip(": ")


def _title_of(record: Record) -> str:
    return next((field for field in record.values if field != TEXT and TITLES.intersection(name_words(field)[-1:])), "")


def _said(records: RecordSet, record: Record, field: str) -> str:
    if field in records.fields and records.is_marker(field):
        return "there" if field in record.values else "not there"
    return _quoted(record.values.get(field))


def _quoted(value: Any) -> str:
    if value is None or value == "":
        return "no value"
    return f'"{clip(str(value), LONGEST_VALUE)}"' if not isinstance(value, list) else f"a list of {len(value)}"


def _numbers(values: list[str]) -> list[Decimal]:
    return [number for value in values if (number := to_number(value)) is not None]


def _total(records: RecordSet, query: Query, selection: Selection, scope: str, notes: list[str]) -> Stated:
    numbers = _numbers([value for _, value in selection.kept])
    left_out = selection.count - len(numbers)
    notes = [*notes, *([f"{left_out} of them without a number there"] if left_out else [])]
    notes += [f"in {sign}" for sign in records.fields[query.field].signs if sign]
    if not numbers:
        return [f"No {query.field} is a number in {scope}{_noted(notes)}."], None
    name, figure = query.operation.capitalize(), _figured(records, query.operation, query.field, selection.kept)
    return [f"{name} of {query.field} over {len(numbers)} {scope}{figure}{_noted(notes)}."], None


def _figured(records: RecordSet, operation: str, field: str, kept: list[tuple[Record, str]]) -> str:
    """`: 12`; of several currencies those of each before that of all."""

    def figure(own: list[Decimal]) -> str:
        return _plain(_FIGURES[operation](own))

    whole = figure(_numbers([value for _, value in kept]))
    unit, each = _by_unit(records, field, kept)
    figures = ", ".join(f"{_quoted(name)}: {figure(own)}" for name, own in each.items())
    return f", per {unit}: {figures}; of all as bare numbers {whole}" if unit else f": {whole}"


def _by_unit(records: RecordSet, field: str, kept: list[tuple[Record, str]]) -> tuple[str, dict[str, list[Decimal]]]:
    """The field that says in what currency or unit a number is, and the numbers of each, where there are several."""
    for unit in _unit_fields(records, field):
        numbers: dict[str, list[Decimal]] = {}
        for record, value in kept:
            if (number := to_number(value)) is not None:
                numbers.setdefault(str(record.values.get(unit) or "none"), []).append(number)
        if len(numbers) > 1:
            return unit, numbers
    return "", {}


def _unit_fields(records: RecordSet, field: str) -> list[str]:
    paid = [own for own in records.fields if records.is_number(own) and not _MONEY.isdisjoint(name_words(own))]
    # A number that is no money is in no currency, and `weight.unit` is that of `weight.value` alone.
    meant = _UNIT_NAMES if not paid or field in paid else _UNIT_NAMES - {"currency", "ccy"}
    units = [own for own in records.fields if not meant.isdisjoint(name_words(own)[-1:])]
    return [own for own in units if f"{field}.".startswith(own[: own.rfind(".") + 1])]


# Decimals are rounded in 28 digits: of a larger number there is nothing to round.
_MAX_ROUNDED = 20


def _mean(numbers: list[Decimal]) -> Decimal:
    mean = sum(numbers, Decimal(0)) / len(numbers)
    return mean if mean.adjusted() > _MAX_ROUNDED else round(mean, 6)


_FIGURES: dict[str, Callable[[list[Decimal]], Decimal]] = {
    "count": lambda own: Decimal(len(own)),
    "sum": lambda own: sum(own, Decimal(0)),
    "mean": _mean,
    "median": median,
    "greatest": max,
    "least": min,
}


def _share(records: RecordSet, query: Query, selection: Selection, scope: str, notes: list[str]) -> Stated:
    """What part of the records, or of the sum of a field, those are that fit."""
    of = " and ".join(condition.words for condition in query.conditions[: query.base])
    whole = f"{len(selection.base)} {records.noun}{f' where {of}' if of else ''}"
    part, all_ = Decimal(selection.count), Decimal(len(selection.base))
    said = f"Share of {scope}: {{}} ({selection.count} of {whole}"
    if query.field:
        part, all_ = (
            sum(_numbers(own), Decimal(0)) for own in ([value for _, value in selection.kept], selection.base)
        )
        said = f"Share of {query.field} in {scope}: {{}} ({_plain(part)} of {_plain(all_)}, the sum over {whole}"
    if not all_:
        raise NoQuery(reason=f"there are no {whole}")
    lacking = "; ".join(notes[1:])
    figure = f"{_plain(round(100 * part / all_, 2))}%"
    return [f"{said.format(figure)}{f'; {lacking}' if lacking else ''})."], None


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _extreme(records: RecordSet, query: Query, selection: Selection, scope: str, notes: list[str]) -> Stated:
    compared = _comparable(records, query, selection)
    left_out = selection.count - len(compared)
    notes = [*notes, *([f"{left_out} of them without a value to compare"] if left_out else [])]
    unit, each = _by_unit(records, query.field, selection.kept)
    notes += [f"as bare numbers, though of several {unit}: {', '.join(map(_quoted, each))}"] if unit else []
    if not compared:
        return [f"No {query.field} can be compared in {scope}{_noted(notes)}."], []
    groups = _groups(records, query, compared, scope, notes)
    if groups and query.per:
        return groups, None
    if query.per:
        query = structs.replace(query, wanted=[query.group])
    lines, rows = _best(records, query, compared, f"{len(compared)} {scope}", notes)
    return [*lines, *groups], rows


def _ordered(query: Query, compared: list[Any]) -> list[Any]:
    """The greatest or least first; where a place among them is asked for, those from it on."""
    ordered = sorted(compared, key=lambda one: one[0], reverse=query.operation == "greatest")
    first = ordered[: query.rank + 2] if query.rank else ordered[:1]
    if len(ordered) <= query.rank or len({one[0] for one in first}) < len(first):
        raise NoQuery(reason=f"{query.field} has too few values, or some that are shared, for a place among them")
    return ordered[query.rank :]


def _best(records: RecordSet, query: Query, compared: list[Any], scope: str, notes: list[str]) -> Stated:
    ordered = _ordered(query, compared)
    best = [one for one in ordered if one[0] == ordered[0][0]]
    word = f"Number {query.rank + 1} by {query.operation}" if query.rank else query.operation.capitalize()
    shared = f", shared by {len(best)}" * (len(best) > 1)
    lines = [f"{word} {query.field} of {scope}: {best[0][2]}{shared}{_noted(notes)}."]
    if query.limit > 1:
        last = ordered[: query.limit][-1][0]
        best = [*ordered[: query.limit], *(one for one in ordered[query.limit :] if one[0] == last)]
        query = structs.replace(query, wanted=list(dict.fromkeys([query.field, *query.wanted])))
    lines += [_shown(records, query, record) for _, record, _ in best[: max(LISTED, query.limit)]]
    if len(best) > query.limit > 1:
        lines.append(f"(the last of {query.limit} is shared: {len(best)} in all)")
    return lines, [record for _, record, _ in best[:QUOTED]]


def _groups(records: RecordSet, query: Query, compared: list[Any], scope: str, notes: list[str]) -> list[str]:
    """The sums or means of each value of another field; nothing where each record has its own value of it."""
    if not query.group or query.rank or records.is_time(query.field):
        return []
    numbers = _by_group(query.group, compared)
    if not numbers or (len(numbers) == len(compared) and query.per != "mean"):
        return []
    figures = _figures(query, numbers)
    name = f"{query.operation} {query.per or 'sum'} of {query.field}"
    lead = name.capitalize() if query.per else f"If the sums of each {query.group} are meant, {name}"
    shown = ", ".join(f"{_quoted(own)}: {_plain(figure)}" for figure, own in figures[: max(LISTED, query.limit)])
    return [f"{lead} per {query.group} in {len(compared)} {scope}{_noted(notes)}: {shown}."]


def _by_group(group: str, compared: list[Any], period: str = "") -> dict[str, list[Decimal]]:
    numbers: dict[str, list[Decimal]] = {}
    spelled: dict[str, str] = {}
    for number, record, _ in compared:
        own = record.values.get(group, "")
        if isinstance(own, str):
            own = _period_of(own, period) if period and own else own
            numbers.setdefault(spelled.setdefault(own.strip().lower(), own.strip()), []).append(number)
    return numbers


def _figures(query: Query, numbers: dict[str, list[Decimal]]) -> list[tuple[Decimal, str]]:
    """Sum or mean of each group, the one that is asked for first."""
    figures = ((_mean(own) if query.per == "mean" else sum(own, Decimal(0)), name) for name, own in numbers.items())
    return sorted(figures, reverse=query.operation == "greatest")


def state_each(records: RecordSet, query: Query, selection: Selection, scope: str, notes: list[str]) -> Stated:
    """One figure for each value of a field, or for each day, month or year of its times."""
    known = _figured_pairs(records, query, selection)
    left_out = selection.count - len(known)
    notes = [*notes, *([f"{left_out} of them without a number there"] if left_out else [])]
    groups = _by_group(query.group, known, query.period)
    figures = {own: _FIGURES[query.operation](numbers) for own, numbers in groups.items()}
    ordered = sorted(figures.items(), key=lambda pair: pair[0] if query.period else -pair[1])
    shown = ", ".join(f"{_quoted(own)}: {_plain(figure)}" for own, figure in ordered[:MOST_GROUPS])
    more = f", and {len(ordered) - MOST_GROUPS} more" if len(ordered) > MOST_GROUPS else ""
    of = f" of {query.field}" if query.field else ""
    per = f"{query.period} of {query.group}" if query.period else query.group
    return [
        f"{query.operation.capitalize()}{of} per {per} in {len(known)} {scope}{_noted(notes)}: {shown}{more}."
    ], None


def _figured_pairs(records: RecordSet, query: Query, selection: Selection) -> list[Any]:
    """The numbers of the records, or 1 of each where they are counted."""
    if not query.field:
        return [(Decimal(1), record, value) for record, value in selection.kept]
    if records.is_time(query.field) or _by_unit(records, query.field, selection.kept)[0]:
        raise NoQuery(reason=f"{query.field} is no number, or of several currencies or units")
    pairs = [(to_number(value), record, value) for record, value in selection.kept]
    return [pair for pair in pairs if pair[0] is not None]


def _period_of(value: str, period: str) -> str:
    """The day, month, year or hour of a time, as far as it is written."""
    moment = find_moment(value) or Moment("", "")
    day = {"year": moment.day[:-6], "month": moment.day[:-3]}.get(period, moment.day)
    size = {"hour": 2, "minute": 5}.get(period, 0)
    if not day or (size and not moment.clock):
        raise NoQuery(reason=f'"{value}" has no {period}')
    return f"{day} {moment.clock[:size]}{':00' if size == 2 else ''}".strip()


def _comparable(records: RecordSet, query: Query, selection: Selection) -> list[tuple[Any, Record, str]]:
    """The values as numbers or as times. Times of several zones cannot be compared as they are written."""
    if not records.is_time(query.field):
        pairs = [(to_number(value), record, value) for record, value in selection.kept]
        return [pair for pair in pairs if pair[0] is not None]
    moments = [(find_moment(value) or Moment("", ""), record, value) for record, value in selection.kept]
    if len({(bool(moment.day), bool(moment.clock), moment.zone) for moment, _, _ in moments}) > 1:
        raise NoQuery(reason=f"{query.field} has times of several forms or zones")
    return moments


def _counted(values: Iterable[str]) -> dict[str, int]:
    """How often each value is there, most often first, whatever the case of letters; as it is mostly written."""
    written = Counter(value.strip() for value in values)
    folded: dict[str, list[str]] = {}
    for value, _ in written.most_common():
        folded.setdefault(value.lower(), []).append(value)
    sums = {own[0]: sum(map(written.__getitem__, own)) for own in folded.values()}
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _values(_: RecordSet, query: Query, selection: Selection, scope: str, notes: list[str]) -> Stated:
    counter = _counted(value for _, value in selection.kept)
    cased = len({value.strip() for _, value in selection.kept}) > len(counter)
    notes = [*notes, *(["whatever the case of letters"] if cased else [])]
    notes = [*notes, *([f"{selection.lacking} of them without one"] if selection.lacking else [])]
    top = ", ".join(f"{_quoted(value)}: {count}" for value, count in islice(counter.items(), LISTED))
    more = f", and {len(counter) - LISTED} more values" if len(counter) > LISTED else ""
    return [f"Values of {query.field} in {scope}: {len(counter)} different{_noted(notes)}: {top}{more}."], None


def _place(records: RecordSet, query: Query, selection: Selection, scope: str, notes: list[str]) -> Stated:
    kept = [record for record, _ in selection.kept]
    first = query.place if query.place >= 0 else len(kept) + query.place - query.limit + 1
    first = max(0, first) if query.limit > 1 else first
    chosen = kept[first : first + query.limit] if first >= 0 else []
    if not chosen:
        raise NoQuery(reason=f"there are {selection.count} {scope}")
    among = f"{selection.count} {scope}" if query.conditions else str(selection.count)
    lines = [
        f"By its place in the list, {number} of {among}: {_shown(records, query, record)}"
        for number, record in enumerate(chosen[:LISTED], first + 1)
    ]
    lines[0] += _noted(notes)
    return _also_by_time(records, query, kept, lines, chosen) if query.place in {0, -1} else (lines, chosen)


def _also_by_time(
    records: RecordSet, query: Query, kept: list[Record], lines: list[str], chosen: list[Record]
) -> tuple[list[str], list[Record]]:
    """What was found by its place, and by each time what is the first or last by that, where it is another."""
    word = f"{'latest' if query.place else 'earliest'} {'are' if query.limit > 1 else 'is'}"
    for field in records.fields:
        timed = _by_time(query, field, kept) if field != TEXT and records.is_time(field) else []
        if {record.start for record in timed} - {record.start for record in chosen}:
            shown = structs.replace(query, wanted=list(dict.fromkeys([field, *query.wanted])))
            said = "; ".join(_shown(records, shown, record) for record in timed[:LISTED])
            lines.append(f"Not in the order of {field}: by that the {word} {said}")
            chosen = [*chosen, *timed]
    return lines, chosen


def _by_time(query: Query, field: str, kept: list[Record]) -> list[Record]:
    """The first or last ones by a time; nothing where its forms cannot be compared."""
    found = [(find_moment(str(record.values.get(field, ""))), at) for at, record in enumerate(kept)]
    moments = sorted((own, at) for own, at in found if own is not None)
    if len({(own.zone, len(own.day)) for own, _ in moments}) > 1:
        return []
    return [kept[at] for _, at in (moments[-query.limit :] if query.place else moments[: query.limit])]


STATEMENTS = {
    "count": _count,
    "rows": _rows,
    "sum": _total,
    "mean": _total,
    "median": _total,
    "share": _share,
    "greatest": _extreme,
    "least": _extreme,
    "values": _values,
    "place": _place,
}
