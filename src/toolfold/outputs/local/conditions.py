"""Queries and their conditions: what is demanded of a field, in words, and its test. Above: `query.py`."""

import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal, Self

from msgspec import Struct

from toolfold.outputs.local.moments import Moment, find_moment
from toolfold.outputs.local.query_words import NoQuery, Operation, to_number
from toolfold.outputs.local.records import TEXT

Test = Callable[[dict[str, Any]], bool | None]
_Bounds = list[tuple[str, Moment]]
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
}


class Condition(Struct, frozen=True):
    """A condition in words, the field it is about, and its test, which gives `None` where the field has no value."""

    words: str
    field: str
    test: Test
    # The words of its contrary.
    contrary: str = ""
    # Whether it demands a value: no second one can be demanded of the same field.
    values: bool = False
    is_text: bool = False
    # Whether numbers are compared: then all values of the field must be numbers of one form.
    is_numeric: bool = False
    # The field whose presence it is about, where there is nothing to compare.
    presence: str = ""
    # The field that it is compared with.
    other: str = ""

    @property
    def about(self) -> str:
        return self.field or self.presence

    @classmethod
    def of_window(cls, field: str, bounds: _Bounds, others: _Bounds) -> Self:
        """That a time lies within bounds, each a sign and a moment; `others` hold besides."""
        clocks = sorted((bound for bound in (*bounds, *others) if not bound[1].day), reverse=True)
        if others and clocks and _is_over_midnight(clocks):
            raise NoQuery(reason="over midnight, a time needs its day at both ends, or neither: between 23:00 and 1:00")
        joint = " or " if _is_over_midnight(bounds) else " and "
        words = joint.join(f"{field} {sign} {_spoken_moment(moment)}" for sign, moment in bounds)
        return cls(f"({words})" if joint == " or " else words, field, _window_test(field, bounds))

    @classmethod
    def of_number(cls, field: str, sign: str, number: Decimal) -> Self:
        return cls(f"{field} {sign} {number}", field, _number_test(field, sign, number), is_numeric=True)

    @classmethod
    def of_fields(cls, field: str, sign: str, other: str, *, numeric: bool) -> Self:
        """That one field compares so with another."""
        test = _fields_test(field, sign, other, numeric=numeric)
        return cls(f"{field} {sign} {other}", field, test, is_numeric=numeric, other=other)

    @classmethod
    def of_range(cls, field: str, first: Decimal, last: Decimal) -> Self:
        """That a number lies between two, both of which belong to it."""
        test = _both(_number_test(field, ">=", first), _number_test(field, "<=", last))
        return cls(f"{field} >= {first} and {field} <= {last}", field, test, is_numeric=True)

    @classmethod
    def of_values(cls, field: str, values: list[str], *, numeric: bool = False) -> Self:
        """That a field has one of some values, whatever the case of letters; `numeric`: 9 is 9.0."""
        said = ", ".join(f'"{value}"' for value in values)
        test = _values_test(field, values, numeric=numeric)
        numeric = numeric and any(to_number(value) is not None for value in values)
        if len(values) == 1:
            return cls(f"{field} = {said}", field, test, f"{field} != {said}", values=True, is_numeric=numeric)
        contrary = f"{field} is none of {said}"
        return cls(f"{field} is one of {said}", field, test, contrary, values=True, is_numeric=numeric)

    @classmethod
    def of_members(cls, field: str, values: list[str]) -> Self:
        """That a list has one of some members."""
        said = " or ".join(f'"{value}"' for value in values)
        test = _members_test(field, values)
        return cls(f"{field} has {said}", field, test, f"{field} does not have {said}", values=True)

    @classmethod
    def of_presence(cls, field: str, *, present: bool, marker: bool = False) -> Self:
        """That a field has a value; of a `marker`, which never has one, that it is there."""
        if marker:
            return cls(f"{field} is {'' if present else 'not '}there", "", lambda values: (field in values) is present)
        words = f"{field} has a value" if present else f"{field} has no value"
        return cls(words, "", lambda values: _has_value(values.get(field)) is present, presence=field)

    @classmethod
    def of_amount(cls, field: str, *, present: bool) -> Self:
        """That a number has a value, where 0 counts as none."""
        words = f"{field} has a value other than 0" if present else f"{field} has no value or is 0"
        return cls(words, "", lambda values: bool(to_number(values.get(field) or "0")) is present, presence=field)

    @classmethod
    def of_text(cls, field: str, how: str, text: str, other: str = "") -> Self:
        """That a field, or the whole record, holds a text. `other`: the same in the singular, which counts, too."""
        forms = list(dict.fromkeys(filter(None, (text, other))))
        said = " or ".join(f'"{form}"' for form in forms)
        # Said as it is: `ERROR_PAGE` does not have the word `error`.
        spoken = {"contains": f"has {said} as a whole word", "holds": f"has {said} in any place"}.get(
            how, f"{how} {said}"
        )
        return cls(f"{field or 'the text'} {spoken}", field, _text_test(field, how, forms), is_text=True)

    def negated(self) -> Self:
        def test(values: dict[str, Any]) -> bool | None:
            fits = self.test(values)
            return None if fits is None else not fits

        return type(self)(self.contrary or f"not ({self.words})", self.field, test, self.words, other=self.other)


class Query(Struct):
    """What is to be computed."""

    operation: Operation = "rows"
    field: str = ""
    # For an extreme: of each value of this field the sum or the mean of the other; `per` is empty where either the
    # records or their sums may be meant.
    group: str = ""
    per: Literal["", "sum", "mean"] = ""
    # Whether one figure is asked for each value of `group`, or for each stretch of its times.
    each: bool = False
    period: str = ""
    # For an extreme: how many stand before it, as one does before the second highest.
    rank: int = 0
    # For `share`: how many of the conditions say of what.
    base: int = 0
    # For `place`: from 0, or from the end where negative; and how many.
    place: int = 0
    limit: int = 1
    wanted: list[str] = []
    conditions: list[Condition] = []
    # A noun of the request that the document does not know: what a record is taken for.
    taken_for: str = ""
    # What is asked besides, or may be meant instead: `order number 7` by its value, a second field.
    and_then: "Query | None" = None
    # It is a second reading: told where it leads to other records.
    is_reading: bool = False
    # A condition on the text is not said to be one: where nothing fits it, nothing is claimed.
    implied_text: bool = False
    # The bounds of times by their field.
    bounds: dict[str, _Bounds] = {}


def _has_value(own: Any) -> bool:
    return bool(own.strip() if isinstance(own, str) else own)


def _members_test(field: str, values: list[str]) -> Test:
    wanted = {value.strip().lower() for value in values}
    # Of an empty list it is known that it has none; where there is no list, nothing is.
    above = field.rpartition("[].")[0]

    def test(record: dict[str, Any]) -> bool | None:
        own = record.get(field, record.get(above) if above else None)
        members = own if isinstance(own, list) or own is None else [own]
        return None if members is None else any(str(member).strip().lower() in wanted for member in members)

    return test


def _spoken_moment(moment: Moment) -> str:
    clock = moment.clock.removesuffix(":00") if moment.clock.count(":") == 2 else moment.clock
    clock = f"{clock}:00 to {clock}:59" if len(clock) == 2 else clock
    return f"{moment.day} {clock}".strip()


def _is_over_midnight(bounds: _Bounds) -> bool:
    """Whether a time of the day ends before it begins: `between 23:30 and 00:30`."""
    (_, first), (_, last) = bounds[0], bounds[-1]
    return not (first.day or last.day) and first.clock > last.clock


def _window_test(field: str, bounds: _Bounds) -> Test:
    every = any if _is_over_midnight(bounds) else all

    def test(values: dict[str, Any]) -> bool | None:
        own = find_moment(values.get(field) or "")
        return None if own is None else every(_moment_fits(own, sign, bound) for sign, bound in bounds)

    return test


def _is_more_exact(bound: Moment, own: Moment) -> bool:
    """Whether the bound has a day, a year or a clock that the document's time lacks."""
    lacks_day = bool(bound.day) and (not own.day or own.day[0] == "-" != bound.day[0])
    return lacks_day or (bool(bound.clock) and not own.clock)


def _moment_fits(own: Moment, sign: str, bound: Moment) -> bool | None:
    """Compares as exactly as the bound is written: a day with a day, a minute's end with its beginning."""
    if _is_more_exact(bound, own):
        raise NoQuery(reason=f"{_spoken_moment(bound)} is more exact than the times of the document")
    left = f"{own.day if bound.day else ''} {own.clock if bound.clock else ''}".strip()
    right = f"{bound.day} {bound.clock}".strip()
    # `after 2020` begins when the year is over.
    left = left if bound.clock else left[: len(right)]
    if sign == "=":
        return left.startswith(right)
    if sign == "<=":
        return left[: len(right)] <= right
    full = right if not bound.clock or bound.clock.count(":") == 2 else f"{right}:00"
    return _COMPARE[sign](left, full)


def _number_test(field: str, sign: str, number: Decimal) -> Test:
    def test(values: dict[str, Any]) -> bool | None:
        own = to_number(values.get(field) or "")
        if own is None:
            return None
        return _COMPARE[sign](own, number)

    return test


def _both(first: Test, second: Test) -> Test:
    def test(values: dict[str, Any]) -> bool | None:
        one, two = first(values), second(values)
        return None if one is None or two is None else one and two

    return test


def _fields_test(field: str, sign: str, other: str, *, numeric: bool) -> Test:
    def test(values: dict[str, Any]) -> bool | None:
        own, two = ((values.get(name) or "").strip() for name in (field, other))
        if not numeric:
            return (own.lower() == two.lower()) is (sign == "=") if own and two else None
        bound = to_number(two)
        return None if bound is None else _number_test(field, sign, bound)(values)

    return test


def _values_test(field: str, values: list[str], *, numeric: bool) -> Test:
    wanted = {value.strip().lower() for value in values}
    numbers = {number for value in values if (number := to_number(value)) is not None}

    def test(record: dict[str, Any]) -> bool | None:
        own = (record.get(field) or "").strip()
        if not own:
            return None
        if own.lower() in wanted or not numbers or to_number(own) not in numbers:
            return own.lower() in wanted
        if not numeric:  # 007 may be meant by 7, and version 1.10 is not 1.1
            raise NoQuery(reason=f'whether "{own}" of {field} is meant by {values[0]} is not said')
        return True

    return test


def _text_test(field: str, how: str, forms: list[str]) -> Test:
    # A number is no part of a longer one.
    whole = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, forms))})(?!\w|[.,]\d)", re.IGNORECASE)
    low = forms[0].lower()

    def test(values: dict[str, Any]) -> bool | None:
        own = values.get(field or TEXT)
        if own is None and not field:
            own = "\n".join(value for value in values.values() if isinstance(value, str))
        if not own:
            return None
        if how in {"contains", "holds"}:
            return whole.search(own) is not None if how == "contains" else low in own.lower()
        edge: bool = own.lower().startswith(low) if how == "starts with" else own.lower().endswith(low)
        return edge

    return test
