"""Fields of records and conditions on them: columns of a table, keys of JSON records, `key=value` in logs.

A field is read over the whole document when a request needs it, in one pass, and cached. A condition of the request
(`status = failed`, `amount over 100`, `failed orders`) says in words what it is, so that whoever reads a count can
check what was counted. Above: `aggregates.py`, `lookup.py`.
"""

import csv
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.outputs.local.formats import NARROW, WIDE
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.request import STOP, stem
from toolfold.outputs.local.source import BLOCK, Offsets, sorted_unique
from toolfold.words import split_identifier

SAMPLE_COUNT = 120
MAX_VALUES = 3_000_000
LOGFMT = re.compile(rb"(?<![\w.-])([A-Za-z_][\w.-]{0,40})=(?=[^=\s])")
LITERAL_KEY = re.compile(rb"['\"]([^'\"\\\n]{1,80})['\"]\s*:")
JSON_KEY = re.compile(rb'"((?:[^"\\\n]|\\.){1,80})"\s*:')

OPERATORS: dict[str, Callable[..., Any]] = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
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
# A field with more different values than this is none whose values a request would name in passing.
MAX_DISTINCT = 400


# A condition of the request in words, and the segments that fit it.
Condition = tuple[str, Offsets]


class Column(Struct, frozen=True):
    """The values of one field, as text, in the order of the document, each with the segment that holds it."""

    name: str
    values: tuple[str, ...]
    segments: Offsets

    def __len__(self) -> int:
        return len(self.values)

    def numbers(self) -> npt.NDArray[np.float64]:
        """The values as numbers; what is none is `nan`, which fits no comparison."""
        return np.array([_to_number(value) for value in self.values], dtype=np.float64)


def _field_names(index: DocumentIndex) -> list[str]:
    """The fields that records of the document have, as far as a sample shows."""
    return list(index.format.header) or index.cached("fields", lambda: _sampled_names(index))


def _sampled_names(index: DocumentIndex) -> list[str]:
    pattern = LITERAL_KEY if index.format.literal else JSON_KEY if index.is_records else LOGFMT
    counter: Counter[str] = Counter()
    for raw in _samples(index):
        # A dict, not a set: names that are equally frequent must stand in the same order in every process.
        counter.update([*dict.fromkeys(match[1].decode(errors="replace") for match in pattern.finditer(raw))])
    return [name for name, _ in counter.most_common(300)]


def _samples(index: DocumentIndex) -> Iterator[bytes]:
    """Pieces from all over the document."""
    size = index.source.size
    step = max(1, size // SAMPLE_COUNT)
    for at in range(0, size, max(step, 4096)):
        yield index.source.read(at, at + 8192)


def name_parts(name: str) -> tuple[str, ...]:
    """The words that a name is made of."""
    return tuple(stem(part.lower()) for part in split_identifier(name))


def mentioned_fields(index: DocumentIndex, request: str) -> list[str]:
    """The fields that a request names, those with most words first: `order id` names `orderId` and `order_id`."""
    words = set(name_parts(request))
    words |= {word.lower() for word in re.findall(r"\w+", request)}
    fields = [(name_parts(name), name) for name in _field_names(index)]
    named = [(parts, name) for parts, name in fields if parts and (words.issuperset(parts) or name.lower() in words)]
    return [name for _, name in sorted(named, key=lambda field: -len(field[0]))]


def read_column(index: DocumentIndex, name: str) -> Column:
    """One field, read over the whole document."""
    read = _table_column if index.format.header else _keyed_column
    return index.cached(f"column:{name}", lambda: read(index, name))


def _keyed_column(index: DocumentIndex, name: str) -> Column:
    """The values after `"name":` in JSON, or after `name=` elsewhere."""
    raw = re.escape(name.encode())
    if index.format.literal:
        quoted = rb"(?:'((?:[^'\\]|\\.){0,400}+)'|(\"(?:[^\"\\]|\\.){0,400}+\"|[^,\]}\s\"'{\[(]{1,60}))"
        pattern = re.compile(rb"['\"]" + raw + rb"['\"]\s*:\s*" + quoted)
    elif index.is_records:
        pattern = re.compile(rb'"' + raw + rb'"\s*:\s*(?:"((?:[^"\\]|\\.){0,400}+)"|([^,\]}\s"{\[]{1,60}))')
    else:
        pattern = re.compile(rb"(?<![\w.-])" + raw + rb'=(?:"([^"\n]{0,400})"|([^\s,;"]{1,200}))')
    values: list[str] = []
    places: list[int] = []
    for at, block in index.source.blocks(margin=1024):
        for match in pattern.finditer(block):
            if match.start() >= BLOCK or len(values) >= MAX_VALUES:
                break
            values.append((match[1] if match[1] is not None else match[2].strip(b'"')).decode(errors="replace"))
            places.append(at + match.start())
    return Column(name, tuple(values), index.segments.at(np.array(places, dtype=np.int64)))


def _rows(index: DocumentIndex) -> Iterator[tuple[int, list[str]]]:
    """Each row of a table after its header, with the number of its line."""
    fmt = index.format
    by_lines = fmt.kind == "markdown-table" or fmt.delimiter in {WIDE, NARROW}
    rows = _line_rows(index) if by_lines else _csv_rows(index)
    return ((number, row) for number, row in rows if number > fmt.header_lines and row)


def _line_rows(index: DocumentIndex) -> Iterator[tuple[int, list[str]]]:
    fmt = index.format
    with index.source.path.open(encoding="utf-8", errors="replace", newline="") as file:
        for number, line in enumerate(file, 1):
            bare = line.strip()
            if bare and (bare.startswith("|") or fmt.kind != "markdown-table"):
                yield number, fmt.split_row(line)


def _csv_rows(index: DocumentIndex) -> Iterator[tuple[int, list[str]]]:
    with index.source.path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader((line.replace("\0", "") for line in file), delimiter=index.format.delimiter)
        last = 0
        try:
            for row in reader:
                # A quoted cell may hold newlines: a row is known by its first line.
                first, last = last + 1, reader.line_num
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
    return Column(name, tuple(values), index.segments.at(starts.astype(np.int64)))


def find_conditions(index: DocumentIndex, request: str) -> list[Condition]:
    """What the request demands of fields, at most one condition for each."""
    conditions: dict[str, Condition] = {}
    named = mentioned_fields(index, request)
    for name in named:
        condition = _comparison(index, name, request) or _equality(index, name, request)
        if condition is not None:
            conditions.setdefault(name, condition)
    for name in _candidates(index, request, named):
        taken = {word for words, _ in conditions.values() for word in re.findall(r"\w+", words.lower())}
        if name not in conditions and (condition := _value_condition(index, name, request, taken)) is not None:
            conditions[name] = condition
    return list(conditions.values())


def _name_pattern(name: str) -> str:
    """A pattern for the field's name as a sentence may write it."""
    parts = [re.escape(part) for part in split_identifier(name)] or [re.escape(name)]
    return r"\b" + r"[\s_.-]{0,2}".join(parts) + r"(?:s|es)?\b"


def _comparison(index: DocumentIndex, name: str, request: str) -> Condition | None:
    for words, sign in WORDED:
        subject = _name_pattern(name) + r"\s{0,9}(?:of|is|was|value)?\s{0,9}"
        pattern = subject + "(?:" + words + r")\s{0,9}[$€£]?\s{0,9}" + NUMBER
        if match := re.search(pattern, request, re.IGNORECASE):
            column = read_column(index, name)
            fits = OPERATORS[sign](column.numbers(), float(match[1].replace(",", "")))
            return f"{name} {sign} {match[1]}", sorted_unique(column.segments[fits])
    return None


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
    words = next(part for part in match.groups() if part).lower().strip().split(" ")
    column = read_column(index, name)
    by_lower = {value.lower(): value for value in dict.fromkeys(column.values)}
    for length in range(len(words), 0, -1):
        value = by_lower.get(" ".join(words[:length]).rstrip(".?!,"))
        if value is not None and value.lower() not in STOP:
            return _equals(column, value)
    return None


def _equals(column: Column, value: str) -> Condition:
    low = value.lower()
    fits = np.array([other.lower() == low for other in column.values], dtype=np.bool_)
    return f"{column.name} = {value}", sorted_unique(column.segments[fits])


def _candidates(index: DocumentIndex, request: str, named: list[str]) -> list[str]:
    """Fields whose values a request may name without naming the field, judged from a sample."""
    names = [*named, *(name for name in _field_names(index)[:40] if name not in named)]
    words = {word.lower() for word in re.findall(r"\w+", request)}
    words |= {word[:-1] for word in words if word.endswith("s")}
    sampled = index.cached("sampled", lambda: _sample_values(index, names))
    return [name for name in names if sampled.get(name, set()) & words]


def _sample_values(index: DocumentIndex, names: list[str]) -> dict[str, set[str]]:
    """The words that values of each field begin with, in a sample."""
    words: dict[str, set[str]] = {name: set() for name in names}
    if index.format.header:
        for _, row in islice(_rows(index), 3000):
            for name, cell in zip(index.format.header, row, strict=False):
                words.setdefault(name, set()).add(_first_word(cell))
        return words
    for raw in _samples(index):
        text = raw.decode(errors="replace")
        for match in PAIR.finditer(text):
            if match[1] in words:
                words[match[1]].add(_first_word(match[2]))
    return words


def _first_word(text: str) -> str:
    match = re.match(r"\W*(\w+)", text[:80])
    return match[1].lower() if match else ""


def _value_condition(index: DocumentIndex, name: str, request: str, taken: set[str]) -> Condition | None:
    """A value of few that the request names without its field: `failed orders` where `failed` is a status."""
    column = read_column(index, name)
    distinct = index.cached(f"values:{name}", lambda: list(dict.fromkeys(column.values)))
    if not 0 < len(distinct) <= min(MAX_DISTINCT, max(12, len(column.values) // 2)):
        return None
    # Such a word says something else already: it belongs to the question, to another condition, to the field's name.
    excluded = STOP | taken | {"true", "false", "null", "none"}
    own_parts = set(name_parts(name))
    low = request.lower()
    for value in sorted(distinct, key=len, reverse=True):
        word = value.lower().strip()
        if len(word) < 2 or word in excluded or stem(word) in own_parts or word.replace(".", "").isdigit():
            continue
        if re.search(rf"(?<![\w-]){re.escape(word)}(?:s|es)?(?![\w-])", low):
            return _equals(column, value)
    return None
