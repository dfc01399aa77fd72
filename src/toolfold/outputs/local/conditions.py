"""Conditions in a request, tied to the fields of the document: `status = failed`, `amount over 100`, `failed orders`.

Each condition says what it is in words, so that whoever reads a count can check what was counted.
"""

import operator
import re
from collections.abc import Callable
from itertools import islice

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.outputs.local.fields import Column, column, field_names, mentioned, parts_of, rows, samples
from toolfold.outputs.local.index import Index
from toolfold.outputs.local.request import PARTS, stem
from toolfold.outputs.local.source import distinct
from toolfold.outputs.local.vocabulary import STOP

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
FEW = 400
"""A field with more different values than this is none whose values a request would name in passing."""


class Condition(Struct, frozen=True):
    """Which values of a column fit. `words` says it."""

    column: Column
    words: str
    fits: npt.NDArray[np.bool_]

    @property
    def units(self) -> npt.NDArray[np.int64]:
        return distinct(self.column.units[self.fits])


def find_conditions(index: Index, request: str) -> list[Condition]:
    """What the request demands of fields. None twice for one field."""
    found: dict[str, Condition] = {}
    named = mentioned(index, request)
    for name in named:
        condition = compared(index, name, request) or equal(index, name, request)
        if condition is not None:
            found.setdefault(name, condition)
    taken = {word for condition in found.values() for word in re.findall(r"\w+", condition.words.lower())}
    for name in candidates(index, request, named):
        if name not in found and (condition := by_value(index, name, request, taken)) is not None:
            found[name] = condition
            taken |= set(re.findall(r"\w+", condition.words.lower()))
    return list(found.values())


def spelled(name: str) -> str:
    """A pattern for the field's name as it may stand in a sentence."""
    parts = [re.escape(part) for part in PARTS.findall(name)] or [re.escape(name)]
    return r"\b" + r"[\s_.-]{0,2}".join(parts) + r"(?:s|es)?\b"


def compared(index: Index, name: str, request: str) -> Condition | None:
    for words, sign in WORDED:
        pattern = spelled(name) + r"\s{0,9}(?:of|is|was|value)?\s{0,9}(?:" + words + r")\s{0,9}[$€£]?\s{0,9}" + NUMBER
        match = re.search(pattern, request, re.IGNORECASE)
        if match:
            bound = float(match[1].replace(",", ""))
            numbers = as_numbers(column(index, name))
            test = OPERATORS[sign]
            return Condition(column(index, name), f"{name} {sign} {match[1]}", test(numbers, bound))  # type: ignore[arg-type]  # numpy compares element by element
    return None


def as_numbers(values: Column) -> npt.NDArray[np.float64]:
    """The values as numbers; what is none is `nan`, which fits no comparison."""
    return np.array([to_number(value) for value in values.values], dtype=np.float64)


def to_number(value: str) -> float:
    try:
        return float(value.replace(",", "").strip("$€£% "))
    except ValueError:
        return float("nan")


def equal(index: Index, name: str, request: str) -> Condition | None:
    """`status = failed`, `status is "in transit"`, `status: failed`, `with status failed`."""
    match = re.search(spelled(name) + IS + VALUE, request, re.IGNORECASE)
    if match is None:
        return None
    said = next(part for part in match.groups() if part).lower().strip()
    values = column(index, name)
    known = {value.lower(): value for value in dict.fromkeys(values.values)}
    words = said.split(" ")
    for length in range(len(words), 0, -1):
        value = known.get(" ".join(words[:length]).rstrip(".?!,"))
        if value is not None and value.lower() not in STOP:
            return exactly(values, value)
    return None


def exactly(values: Column, value: str) -> Condition:
    low = value.lower()
    fits = np.array([other.lower() == low for other in values.values], dtype=np.bool_)
    return Condition(values, f"{values.name} = {value}", fits)


def candidates(index: Index, request: str, named: list[str]) -> list[str]:
    """Fields whose values a request may name without naming the field, judged from a sample."""
    names = [*named, *(name for name in field_names(index)[:40] if name not in named)]
    words = {word.lower() for word in re.findall(r"\w+", request)}
    words |= {word[:-1] for word in words if word.endswith("s")}
    sampled = index.kept("sampled", lambda: sample_values(index, names))
    return [name for name in names if sampled.get(name, set()) & words]


def sample_values(index: Index, names: list[str]) -> dict[str, set[str]]:
    """The words that values of each field begin with, in a sample."""
    found: dict[str, set[str]] = {name: set() for name in names}
    if index.format.header:
        for _, row in islice(rows(index), 3000):
            for name, cell in zip(index.format.header, row, strict=False):
                found.setdefault(name, set()).add(first_word(cell))
        return found
    for raw in samples(index):
        text = raw.decode(errors="replace")
        for match in PAIR.finditer(text):
            if match[1] in found:
                found[match[1]].add(first_word(match[2]))
    return found


def first_word(text: str) -> str:
    match = re.match(r"\W*(\w+)", text[:80])
    return match[1].lower() if match else ""


def by_value(index: Index, name: str, request: str, taken: set[str]) -> Condition | None:
    """A value of few that stands in the request: `failed orders` where `failed` is a status."""
    values = column(index, name)
    different = index.kept(f"values:{name}", lambda: list(dict.fromkeys(values.values)))
    if not different or len(different) > FEW or len(different) > max(12, len(values.values) // 2):
        return None
    low = request.lower()
    own = set(parts_of(name))
    for value in sorted(different, key=len, reverse=True):
        plain = value.lower().strip()
        if len(plain) < 2 or plain in STOP or plain in taken or stem(plain) in own or plain.replace(".", "").isdigit():
            continue
        if plain in {"true", "false", "null", "none"}:
            continue
        if re.search(rf"(?<![\w-]){re.escape(plain)}(?:s|es)?(?![\w-])", low):
            return exactly(values, value)
    return None
