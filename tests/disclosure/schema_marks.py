"""Reads summary lines back: which paths are listed, which are marked, and what the marks claim."""

import re
from typing import Any, NamedTuple

from toolfold.disclosure.fold import NOT_DECLARED
from toolfold.disclosure.inspector import inspect_schema

_HINT = r'inspect_tool_output\(\.\.\., field_path="(?P<path>[^"]*)"\)\)$'
_FOLD = re.compile(r"^(?P<line>.*?): (?P<type>\S+) \(contains (?P<count>\d+) sub-fields(?:, recursive: .*?)?; " + _HINT)
_OPEN = re.compile(
    r"^(?P<line>.*?): (?P<type>\S+) \((?P<why>unknown keys|unresolved reference|nested arrays).*?; " + _HINT
)
_OVERFLOW = re.compile(r"^(?P<line>.*)\* \(\+(?P<count>\d+) more fields; " + _HINT)
_PLAIN = re.compile(r"^(?P<line>\S+|\(root\)|.*'\]\S*): (?P<type>\S+)$", re.DOTALL)


class Mark(NamedTuple):
    kind: str
    path: str
    number: int


def mark_of(line: str) -> Mark | None:
    """The mark on a line, or `None` for a plain one. Fails on a line of no known form."""
    if found := _OVERFLOW.match(line):
        return Mark("overflow", found["path"], int(found["count"]))
    if found := _FOLD.match(line):
        return Mark("fold", found["path"], int(found["count"]))
    if found := _OPEN.match(line):
        return Mark("open", found["path"], 0)
    assert line == NOT_DECLARED or _PLAIN.match(line), f"a line of no known form: {line!r}"
    return None


def check_listing(schema: Any, lines: list[str], hidden: bool, limit: int) -> None:
    """What holds for every listing: bounded, nothing twice, marked exactly when hidden, and every mark is true."""
    assert len(lines) <= max(0, limit)
    assert len(set(lines)) == len(lines)
    starts = [line.partition(": ")[0] for line in lines]
    assert len(set(starts)) == len(starts)
    marks = [mark for line in lines if (mark := mark_of(line))]
    if limit > 0:
        assert hidden == bool(marks)
    for mark in marks:
        answer = inspect_schema(schema, mark.path)
        assert answer["field_path"] == mark.path
        total = answer["total_child_fields"]
        if mark.kind == "fold":
            assert total == mark.number
        elif mark.kind == "overflow":
            assert total >= mark.number > 0
        else:
            assert total <= 1
