"""What is known of the records before a request is read: their fields, what the values of each are, and what is odd.

Whoever compares or adds up must know that all values of a field have one form: `problem` says what forbids it. Above:
`token_reader.py`, `computed.py`. Below: `records.py`, `query_words.py`.
"""

import re
from functools import lru_cache
from typing import Any

from msgspec import Struct

from toolfold.outputs.local.moments import find_moment
from toolfold.outputs.local.query_words import NoQuery, Wanted, name_words, to_number
from toolfold.outputs.local.records import TEXT
from toolfold.outputs.local.request import MONTHS

# Different values of a field that are gathered before they are looked at.
_MAX_SEEN, _MAX_KEYS = 10_000, 500_000
TRUTHS, FALSITIES = frozenset({"true", "yes", "on", "1", "t", "y"}), frozenset({"false", "no", "off", "0", "f", "n"})
FLAGS = frozenset({"true", "false", "yes", "no", "y", "n"})
# What a date may begin with.
_DATE_LEADS = {*MONTHS, "mon", "tue", "wed", "thu", "fri", "sat", "sun"}
_STATE = re.compile(r"(?:ed|able|ive)$|^(?:is|has|can)[_A-Z]")
# What is written where there is no value, and what may be written there.
_BLANKS = frozenset({"n/a", "#n/a", "null", "nil", "nan", "-", "--", "---", "\u2013", "\u2014", "(null)", "<null>"})
_MAYBE_BLANKS = frozenset({"none", "na", "unknown", "?", "tbd"})
_TOTAL = re.compile(
    r"[*_\s]*(?:(?:\w+[ -])?(?:sub[ -]?)?totals?[*_:\s]*(?:\([^)]*\)|(?:19|20)\d\d|for\s.*)?|sub[ -]?totals?\s.*)",
    re.IGNORECASE,
)
# What the last rows may be called where they add up the others, or are of all of them.
_MAYBE_TOTAL = re.compile(
    r"\W*(?:(?:sub)?total(?:s|e|en)?\b.*|(?:sum|summe|gesamt\w*|insgesamt|overall|all|everything|average|avg|mean|median"
    r"|durchschnitt|mittelwert|max|maximum|min|minimum|count|anzahl|net|netto|balance|saldo|somme|suma|totaal|\u03c3|\u2211)"
    r"[^\w]*(?:\d{4}|\(.*)?)\W*",
    re.IGNORECASE | re.DOTALL,
)
# A longer text is no label; and of fewer rows the last is often the sum of the others.
_LONGEST_LABEL, _FEW_ROWS = 40, 4
PAGES = frozenset({"cursor", "next", "more", "page", "token", "has", "previous", "url"})
# Where a record says what it is.
_KINDS = ("object", "kind", "@type", "__typename", "resourceType", "_type")
_VERSIONS = frozenset({"version", "release", "ver", "semver"})
# 01/02/2024 has two readings; so have 01.02.24 and 1-2-2024.
_UNCLEAR_DAY = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2,4}\b(?!-)")
_COMMA_DECIMAL = re.compile(r"[-+\u2212]?\s?[$€£]?\s?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+(?:\s?(?:[$€£%]|[a-z]{2,3}))?")
_GROUPED = re.compile(r"[-+]?\d{1,3}[.,]\d{3}")
# What stands beside a number: a currency, a unit.
_SIGNS = re.compile(r"[$€£%]|[A-Za-zµ]+$")


class FieldFacts(Struct):
    """What a field's values are, over all records."""

    present: int = 0
    # How often it is there without a value, as `<sold/>` is, or with one that says so; and how that is written.
    empty: int = 0
    blanks: set[str] = set()
    # A value that may say that there is none.
    maybe_blank: str = ""
    numbers: int = 0
    booleans: int = 0
    # How `true` and `false` are written.
    truths: list[str] = []
    falsities: list[str] = []
    times: int = 0
    lists: int = 0
    # The signs beside its numbers: $, %; an empty one for numbers without.
    signs: set[str] = set()
    # The length of its longest value: a word inside of a long text says little.
    longest: int = 0
    # Where its values are times: the years, days and zones they are in, up to two.
    years: set[str] = set()
    days: set[str] = set()
    zones: set[str] = set()
    # A value with digits that is no number, a day of two readings, a number that begins with 0, one with a point.
    odd: str = ""
    unclear_day: str = ""
    zero_led: str = ""
    pointed: bool = False
    # Numbers such as 1.234, which is one or a thousand, and whether another value tells which.
    grouped: str = ""
    # A number with a decimal comma, which is not read.
    comma: str = ""
    ungrouped: bool = False
    # The value that all records have.
    constant: str = ""
    seen: dict[str, int] = {}


class RecordSet(Struct):
    """The records of one kind: how many, their fields, and where words of the request are values."""

    name: str
    count: int = 0
    fields: dict[str, FieldFacts] = {}
    # Phrase of the request → field → its values that read so but for the case of letters.
    hits: dict[str, dict[str, list[str]]] = {}
    # Root of a word of the request → field → its values of one word with this root.
    roots: dict[str, dict[str, list[str]]] = {}
    # Word of the request → the fields with values that hold it among others.
    parts: dict[str, set[str]] = {}
    # What a record is called: rows, records, lines.
    noun: str = "records"
    # The first field, and its values as long as all records differ in it.
    key: str = ""
    keys: set[str] = set()
    # Records inside of these that the request does not tell apart from them.
    inner: "list[RecordSet]" = []
    # Where totals stand, which are no records.
    totals: list[str] = []
    # Where the last rows of a table stand that may be totals.
    maybe_totals: list[str] = []
    last: dict[str, Any] = {}
    last_place: str = ""
    # Whether decimals may be written with a comma.
    comma: bool = False
    # What the document says of more records than it holds.
    part: str = ""

    def identifying_field(self) -> str:
        """The first field, where each record has another value of it."""
        return self.key if len(self.keys) == self.count else ""

    def kind_words(self) -> tuple[str, ...]:
        """What each record says that it is: `"object": "charge"`."""
        kinds = (self.fields[field].constant for field in _KINDS if field in self.fields)
        return next((name_words(kind) for kind in kinds if kind), ())

    def name_words(self) -> tuple[str, ...]:
        """What the records are called by the document: `orders[]`, `<order>`; a table has no such name."""
        return () if " " in self.name else name_words(self.name.rstrip("[].*").rpartition(".")[2])

    def is_number(self, field: str) -> bool:
        """Whether most values are numbers. `007` and version 1.10 are none: 7 and 1.1 are others."""
        facts = self.fields[field]
        named = facts.zero_led or (facts.pointed and not _VERSIONS.isdisjoint(name_words(field)))
        return facts.numbers * 2 > facts.present and not facts.lists and not named

    def problem(self, field: str) -> str:
        """Why the numbers of a field can be neither compared nor added up; empty where they can."""
        facts = self.fields[field]
        if facts.comma:
            return f'{field} may be written with a decimal comma ("{facts.comma[:40]}"), which is not read'
        if facts.odd:
            return f'{field} holds "{facts.odd[:40]}" among its numbers'
        if len(facts.signs) > 1:
            return f"{field} is in {' and '.join(sorted(sign or 'bare numbers' for sign in facts.signs))}"
        if facts.grouped and self.comma and not facts.ungrouped:
            return f'whether "{facts.grouped}" of {field} is a thousand is not said'
        return ""

    def check_number(self, field: str) -> None:
        if problem := self.problem(field):
            raise NoQuery(reason=problem)

    def check_alike(self, field: str, other: str) -> None:
        self.check_number(other)
        if self.fields[field].signs != self.fields[other].signs:
            raise NoQuery(reason=f"{field} and {other} are not in the same unit")

    def is_time(self, field: str) -> bool:
        facts = self.fields[field]
        return facts.times == facts.present > 0 and not facts.lists

    def blank_fields(self) -> list[tuple[str, set[str]]]:
        """The fields in which some values say that there is none, and how they say it."""
        return [(field, facts.blanks) for field, facts in self.fields.items() if facts.blanks]

    def is_marker(self, field: str) -> bool:
        """Whether a field never has a value, as `<sold/>` has none: that it is there says all."""
        facts = self.fields[field]
        return facts.empty > 0 and not (facts.present or facts.lists or facts.blanks)

    def is_boolean(self, field: str) -> bool:
        facts = self.fields[field]
        return facts.booleans == facts.present > 0 and not facts.lists

    def note(self, values: dict[str, Any], place: str, wanted: Wanted) -> None:
        """Adds one record."""
        if is_no_record(values):
            self.totals.append(place)
            return
        self.count += 1
        if self._is_table:
            self._note_last(values, place)
        if len(self.keys) == self.count - 1 < _MAX_KEYS and isinstance(own := values.get(self.key), str):
            self.keys.add(own)
        for field, value in values.items():
            facts = self.fields.get(field)
            if facts is None:
                facts = self.fields[field] = FieldFacts()
            if isinstance(value, list):
                facts.lists += 1
                self._note_members(field, value, wanted)
            elif field != TEXT:
                seen = facts.seen
                seen[value] = seen.get(value, 0) + 1
                if len(seen) > _MAX_SEEN:
                    self._look_at(field, facts, wanted)

    def _note_last(self, values: dict[str, Any], place: str) -> None:
        """The last rows of a table may be totals of the others."""
        self.maybe_totals = [*self.maybe_totals[-9:], place] if _may_be_total(values) else []
        self.last, self.last_place = values, place

    def finish(self, wanted: Wanted) -> None:
        """Looks at the values that were gathered: each different one once."""
        if self._is_table and not self.maybe_totals and self._last_adds_up():
            self.maybe_totals = [self.last_place]
        for field, facts in self.fields.items():
            facts.constant = next(iter(facts.seen)) if list(facts.seen.values()) == [self.count] else ""
            self._look_at(field, facts, wanted)

    @property
    def _is_table(self) -> bool:
        return self.noun.startswith("rows")

    def _last_adds_up(self) -> bool:
        """Whether each number of the last row is the sum of those above it, of three or more."""
        numbers = {field: number for field, own in self.last.items() if (number := to_number(str(own))) is not None}
        if self.count < _FEW_ROWS or not any(numbers.values()):
            return False
        for field, number in numbers.items():
            seen = self.fields[field].seen
            values = [(to_number(value), times) for value, times in seen.items()]
            if sum(own * times for own, times in values if own is not None) != 2 * number:
                return False
        return True

    def _look_at(self, field: str, facts: FieldFacts, wanted: Wanted) -> None:
        for value, times in facts.seen.items():
            low = value.strip().lower()
            if not low or low in _BLANKS:
                facts.empty += times
                facts.blanks |= {value} if low else set()
                continue
            facts.present += times
            facts.longest = max(facts.longest, len(value))
            if len(value) < 200:
                _note_form(field, facts, value, low, times)
                self._note_wanted(field, value, low, wanted)
        facts.seen = {}

    def _note_members(self, field: str, members: list[Any], wanted: Wanted) -> None:
        """Notes which words of the request are members of a list."""
        for member in members:
            if isinstance(member, (str, int, float)) and (low := str(member).strip().lower()) in wanted.phrases:
                _note_spelling(self.hits, low, field, str(member))

    def _note_wanted(self, field: str, value: str, low: str, wanted: Wanted) -> None:
        """Notes where words of the request are values, or stand in them. `page views` may be `page_view`."""
        if low in wanted.phrases:
            _note_spelling(self.hits, low, field, value)
        elif "_" in low and (spaced := low.replace("_", " ")) in wanted.phrases:
            _note_spelling(self.hits, spaced, field, value)
        elif (root := Wanted.root_of(low)) and root in wanted.roots:
            _note_spelling(self.roots, root, field, value)
        elif wanted.words is not None:
            for word in wanted.words.findall(low):
                self.parts.setdefault(word, set()).add(field)


def is_no_record(values: dict[str, Any]) -> bool:
    """Whether it is a total or subtotal, which adds others up, or only says where the next page is."""
    first = next((value for value in values.values() if value), "")
    if isinstance(first, str) and len(first) < _LONGEST_LABEL and _TOTAL.fullmatch(first) is not None:
        return True
    return len(values) < 4 and _is_cursor(tuple(values))


def _may_be_total(values: dict[str, Any]) -> bool:
    """Whether a row is called like a total, or has nothing but numbers behind an empty first cell."""
    label = str(next(iter(values.values()), "")).strip()
    if not label:
        cells = [own for value in values.values() if (own := str(value).strip())]
        if all(to_number(cell) is not None for cell in cells):
            return True
        label = cells[0]
    return len(label) < _LONGEST_LABEL and _MAYBE_TOTAL.fullmatch(label) is not None


@lru_cache(maxsize=256)
def _is_cursor(fields: tuple[str, ...]) -> bool:
    words = {word for field in fields for word in name_words(field)}
    return words <= PAGES and not words.isdisjoint({"cursor", "next", "more"})


def _note_form(field: str, facts: FieldFacts, value: str, low: str, times: int) -> None:
    """Notes what a value is: a number, true or false, a time."""
    if to_number(value) is not None:
        facts.numbers += times
        facts.signs.add("".join(sorted(set(_SIGNS.findall(value)))))
        _note_digits(facts, low)
    elif _COMMA_DECIMAL.fullmatch(low):
        facts.numbers += times
        facts.comma = value
    elif low in _MAYBE_BLANKS:
        facts.maybe_blank = value
    elif any(map(str.isdigit, low)):
        facts.odd = facts.odd or value
    _note_flag(field, facts, value, low, times)
    _note_time(field, facts, value, times)


def _note_flag(field: str, facts: FieldFacts, value: str, low: str, times: int) -> None:
    # `1` is true only of what is named like a state: `deprecated`, `is_admin`.
    if low in FLAGS or (low in TRUTHS | FALSITIES and _STATE.search(field) is not None):
        facts.booleans += times
        spellings = facts.truths if low in TRUTHS else facts.falsities
        spellings += [value] if value not in spellings else []


def _note_digits(facts: FieldFacts, low: str) -> None:
    digits = low.lstrip("-+")
    if digits[:1] == "0" and digits[1:2].isdigit():
        facts.zero_led = low
    if "." in low or "," in low:
        facts.pointed = facts.pointed or "." in low
        if _GROUPED.fullmatch(low):
            facts.grouped = low
        else:
            facts.ungrouped = True


def _note_time(field: str, facts: FieldFacts, value: str, times: int) -> None:
    # A guess that costs little: most values are none.
    if len(value) >= 40 or not (field == "time" or value[:1].isdigit() or value[:3].lower() in _DATE_LEADS):
        return
    if _UNCLEAR_DAY.match(value):
        facts.unclear_day = value
    elif not value.isdecimal() and (moment := find_moment(value)) is not None:
        facts.times += times
        # Two are enough to know that there are several.
        for kept, own in ((facts.years, moment.day[:-6]), (facts.days, moment.day), (facts.zones, moment.zone)):
            if len(kept) < 2:
                kept.add(own)


def _note_spelling(hits: dict[str, dict[str, list[str]]], key: str, field: str, value: str) -> None:
    spellings = hits.setdefault(key, {}).setdefault(field, [])
    if value not in spellings:
        spellings.append(value)
