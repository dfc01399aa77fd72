"""Fields of records: the columns of a table, the keys of JSON records, `key=value` in logs. Their values, exactly.

A field is read over the whole document when a request needs it, in one pass, and kept. `Column.units` ties each value
to the unit that holds it, so that conditions on several fields can be joined.
"""

import csv
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.outputs.local.formats import NARROW, WIDE, split_columns
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.request import PARTS, stem
from toolfold.outputs.local.source import BLOCK, Offsets, sorted_unique
from toolfold.outputs.local.vocabulary import STOP

SAMPLE_COUNT = 120
MAX_VALUES = 3_000_000
LOGFMT = re.compile(rb"(?<![\w.-])([A-Za-z_][\w.-]{0,40})=(?=[^=\s])")
LITERAL_KEY = re.compile(rb"['\"]([^'\"\\\n]{1,80})['\"]\s*:")
JSON_KEY = re.compile(rb'"((?:[^"\\\n]|\\.){1,80})"\s*:')


class Column(Struct, frozen=True):
    """The values of one field, as text, in the order of the document."""

    name: str
    values: tuple[str, ...]
    units: Offsets

    def __len__(self) -> int:
        return len(self.values)

    def counter(self) -> Counter[str]:
        return Counter(self.values)


def _field_names(index: DocumentIndex) -> list[str]:
    """The fields that records of the document have, as far as a sample shows."""
    return list(index.format.header) or index.kept("fields", lambda: _sampled_names(index))


def _sampled_names(index: DocumentIndex) -> list[str]:
    pattern = (
        LITERAL_KEY if index.format.literal else JSON_KEY if index.format.kind in {"json", "json-lines"} else LOGFMT
    )
    counted: Counter[str] = Counter()
    for raw in _samples(index):
        counted.update({match[1].decode(errors="replace") for match in pattern.finditer(raw)})
    return [name for name, _ in counted.most_common(300)]


def _samples(index: DocumentIndex) -> Iterator[bytes]:
    """Pieces from all over the document."""
    size = index.source.size
    step = max(1, size // SAMPLE_COUNT)
    for at in range(0, size, max(step, 4096)):
        yield index.source.read(at, at + 8192)


def name_parts(name: str) -> tuple[str, ...]:
    """The words that a name is made of."""
    return tuple(stem(part.lower()) for part in PARTS.findall(name))


def mentioned_fields(index: DocumentIndex, request: str) -> list[str]:
    """The fields that a request names, those with most words first: `order id` names `orderId` and `order_id`."""
    words = {stem(part.lower()) for part in PARTS.findall(request)}
    words |= {word.lower() for word in re.findall(r"\w+", request)}
    found = []
    for name in _field_names(index):
        parts = name_parts(name)
        if parts and (all(part in words for part in parts) or name.lower() in words):
            found.append((len(parts), name))
    return [name for _, name in sorted(found, key=lambda item: -item[0])]


def read_column(index: DocumentIndex, name: str) -> Column:
    """One field, read over the whole document."""
    read = _table_column if index.format.header else _keyed_column
    return index.kept(f"column:{name}", lambda: read(index, name))


def _keyed_column(index: DocumentIndex, name: str) -> Column:
    """The values after `"name":` in JSON, or after `name=` elsewhere."""
    raw = re.escape(name.encode())
    if index.format.literal:
        quoted = rb"(?:'((?:[^'\\]|\\.){0,400}+)'|(\"(?:[^\"\\]|\\.){0,400}+\"|[^,\]}\s\"'{\[(]{1,60}))"
        pattern = re.compile(rb"['\"]" + raw + rb"['\"]\s*:\s*" + quoted)
    elif index.format.kind in {"json", "json-lines"}:
        pattern = re.compile(rb'"' + raw + rb'"\s*:\s*(?:"((?:[^"\\]|\\.){0,400}+)"|([^,\]}\s"{\[]{1,60}))')
    else:
        pattern = re.compile(rb"(?<![\w.-])" + raw + rb'=(?:"([^"\n]{0,400})"|([^\s,;"]{1,200}))')
    values: list[str] = []
    places: list[int] = []
    for at in range(0, index.source.size, BLOCK):
        block = index.source.read(at, at + BLOCK + 1024)
        for match in pattern.finditer(block):
            if match.start() >= BLOCK or len(values) >= MAX_VALUES:
                break
            values.append((match[1] if match[1] is not None else match[2].strip(b'"')).decode(errors="replace"))
            places.append(at + match.start())
    return Column(name, tuple(values), index.units.of(np.array(places, dtype=np.int64)))


def _rows(index: DocumentIndex) -> Iterator[tuple[int, list[str]]]:
    """Each row of a table after its header, with the number of its line."""
    fmt = index.format
    if fmt.kind == "markdown-table":
        with index.source.path.open(encoding="utf-8", errors="replace", newline="") as file:
            for number, line in enumerate(file, 1):
                if number > fmt.header_lines and line.strip().startswith("|"):
                    yield number, [cell.strip() for cell in line.strip().strip("|").split("|")]
        return
    if fmt.delimiter in {WIDE, NARROW}:
        with index.source.path.open(encoding="utf-8", errors="replace", newline="") as file:
            for number, line in enumerate(file, 1):
                if number > fmt.header_lines and line.strip():
                    yield number, split_columns(line, fmt.delimiter, len(fmt.header))
        return
    with index.source.path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader((line.replace("\0", "") for line in file), delimiter=fmt.delimiter)
        last = 0
        try:
            for row in reader:
                first, last = last + 1, reader.line_num
                if first > fmt.header_lines and row:
                    yield first, row
        except csv.Error:
            return


def _table_column(index: DocumentIndex, name: str) -> Column:
    wanted = index.format.header.index(name)
    values: list[str] = []
    lines: list[int] = []
    for line, row in _rows(index):
        if len(row) > wanted and len(values) < MAX_VALUES:
            lines.append(line)
            values.append(row[wanted].strip())
    at = np.array(lines, dtype=np.int64)
    newlines = np.append(index.source.newlines, index.source.size)
    starts = np.where(at > 1, newlines[np.clip(at - 2, 0, len(newlines) - 1)] + 1, 0)
    return Column(name, tuple(values), index.units.of(starts.astype(np.int64)))


# --- Conditions in a request, tied to the fields of the document: `status = failed`, `amount over 100`, `failed ord

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
WORDED = (
    (r"(?:is |are )?(?:greater|more|higher|larger|bigger|longer) than|over|above|exceeds?|exceeding", ">"),
    (r"(?:is |are )?at least|no less than|>=|≥", ">="),
    (r"(?:is |are )?(?:less|lower|smaller|fewer|shorter) than|under|below", "<"),
    (r"(?:is |are )?at most|no more than|<=|≤", "<="),
    (r">", ">"),
    (r"<", "<"),
)
IS = r"\s{0,9}(?:==?|:|\b(?:is|was|equals?|of|set to|named)\b)?\s{0,9}"
VALUE = r"(?:\"([^\"]+)\"|'([^']+)'|`([^`]+)`|([\w@./:+-]+(?: [\w@./:+-]+){0,4}))"
NUMBER = r"(-?\d[\d,]*(?:\.\d+)?)"
PAIR = re.compile(r"[\"']?([\w.-]{1,80})[\"']?\s*[:=]\s*[\"']?([^\"',}\s][^\"',}\n]{0,60})")
MAX_DISTINCT = 400
"""A field with more different values than this is none whose values a request would name in passing."""


class Condition(Struct, frozen=True):
    """Which values of a column fit. `words` says it."""

    column: Column
    words: str
    fits: npt.NDArray[np.bool_]

    @property
    def units(self) -> npt.NDArray[np.int64]:
        return sorted_unique(self.column.units[self.fits])


def find_conditions(index: DocumentIndex, request: str) -> list[Condition]:
    """What the request demands of fields. None twice for one field."""
    found: dict[str, Condition] = {}
    named = mentioned_fields(index, request)
    for name in named:
        condition = _comparison(index, name, request) or _equality(index, name, request)
        if condition is not None:
            found.setdefault(name, condition)
    taken = {word for condition in found.values() for word in re.findall(r"\w+", condition.words.lower())}
    for name in _candidates(index, request, named):
        if name not in found and (condition := _value_condition(index, name, request, taken)) is not None:
            found[name] = condition
            taken |= set(re.findall(r"\w+", condition.words.lower()))
    return list(found.values())


def _name_pattern(name: str) -> str:
    """A pattern for the field's name as it may stand in a sentence."""
    parts = [re.escape(part) for part in PARTS.findall(name)] or [re.escape(name)]
    return r"\b" + r"[\s_.-]{0,2}".join(parts) + r"(?:s|es)?\b"


def _comparison(index: DocumentIndex, name: str, request: str) -> Condition | None:
    for words, sign in WORDED:
        pattern = (
            _name_pattern(name) + r"\s{0,9}(?:of|is|was|value)?\s{0,9}(?:" + words + r")\s{0,9}[$€£]?\s{0,9}" + NUMBER
        )
        match = re.search(pattern, request, re.IGNORECASE)
        if match:
            bound = float(match[1].replace(",", ""))
            numbers = as_numbers(read_column(index, name))
            test = OPERATORS[sign]
            return Condition(read_column(index, name), f"{name} {sign} {match[1]}", test(numbers, bound))  # type: ignore[arg-type]  # numpy compares element by element
    return None


def as_numbers(values: Column) -> npt.NDArray[np.float64]:
    """The values as numbers; what is none is `nan`, which fits no comparison."""
    return np.array([_to_number(value) for value in values.values], dtype=np.float64)


def _to_number(value: str) -> float:
    try:
        return float(value.replace(",", "").strip("$€£% "))
    except ValueError:
        return float("nan")


def _equality(index: DocumentIndex, name: str, request: str) -> Condition | None:
    """`status = failed`, `status is "in transit"`, `status: failed`, `with status failed`."""
    match = re.search(_name_pattern(name) + IS + VALUE, request, re.IGNORECASE)
    if match is None:
        return None
    said = next(part for part in match.groups() if part).lower().strip()
    values = read_column(index, name)
    known = {value.lower(): value for value in dict.fromkeys(values.values)}
    words = said.split(" ")
    for length in range(len(words), 0, -1):
        value = known.get(" ".join(words[:length]).rstrip(".?!,"))
        if value is not None and value.lower() not in STOP:
            return _equals(values, value)
    return None


def _equals(values: Column, value: str) -> Condition:
    low = value.lower()
    fits = np.array([other.lower() == low for other in values.values], dtype=np.bool_)
    return Condition(values, f"{values.name} = {value}", fits)


def _candidates(index: DocumentIndex, request: str, named: list[str]) -> list[str]:
    """Fields whose values a request may name without naming the field, judged from a sample."""
    names = [*named, *(name for name in _field_names(index)[:40] if name not in named)]
    words = {word.lower() for word in re.findall(r"\w+", request)}
    words |= {word[:-1] for word in words if word.endswith("s")}
    sampled = index.kept("sampled", lambda: _sample_values(index, names))
    return [name for name in names if sampled.get(name, set()) & words]


def _sample_values(index: DocumentIndex, names: list[str]) -> dict[str, set[str]]:
    """The words that values of each field begin with, in a sample."""
    found: dict[str, set[str]] = {name: set() for name in names}
    if index.format.header:
        for _, row in islice(_rows(index), 3000):
            for name, cell in zip(index.format.header, row, strict=False):
                found.setdefault(name, set()).add(_first_word(cell))
        return found
    for raw in _samples(index):
        text = raw.decode(errors="replace")
        for match in PAIR.finditer(text):
            if match[1] in found:
                found[match[1]].add(_first_word(match[2]))
    return found


def _first_word(text: str) -> str:
    match = re.match(r"\W*(\w+)", text[:80])
    return match[1].lower() if match else ""


def _value_condition(index: DocumentIndex, name: str, request: str, taken: set[str]) -> Condition | None:
    """A value of few that stands in the request: `failed orders` where `failed` is a status."""
    values = read_column(index, name)
    different = index.kept(f"values:{name}", lambda: list(dict.fromkeys(values.values)))
    if not different or len(different) > MAX_DISTINCT or len(different) > max(12, len(values.values) // 2):
        return None
    low = request.lower()
    own = set(name_parts(name))
    for value in sorted(different, key=len, reverse=True):
        plain = value.lower().strip()
        if len(plain) < 2 or plain in STOP or plain in taken or stem(plain) in own or plain.replace(".", "").isdigit():
            continue
        if plain in {"true", "false", "null", "none"}:
            continue
        if re.search(rf"(?<![\w-]){re.escape(plain)}(?:s|es)?(?![\w-])", low):
            return _equals(values, value)
    return None
