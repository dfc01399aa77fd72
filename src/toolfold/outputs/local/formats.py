"""What kind of text a document is, judged from its beginning: JSON, lines of JSON, a table, a diff, a log, or prose.

A wrong guess costs little: every kind is searched the same way, the kind only says how it is divided and quoted.
"""

import csv
import re
from typing import Literal

from msgspec import Struct

from toolfold.outputs.local.json_index import looks_literal
from toolfold.outputs.local.source import Source

FormatKind = Literal["json", "json-lines", "table", "markdown-table", "diff", "log", "text", "binary"]

HEAD = 64 * 1024
TIME = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d\d:\d\d:\d\d\b|\d\d/[A-Z][a-z]{2}/\d{4}:\d\d|^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d"
)
LEVEL = re.compile(rb"\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b", re.IGNORECASE)
DIFF = re.compile(rb"^(diff --git |--- \S.*\n\+\+\+ |@@ -\d+(,\d+)? \+\d+)", re.MULTILINE)
INTRODUCTION = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*+(?:[^\n{\[]{0,400}\n){0,4}[^\n{\[]{0,200}?"
    rb"(?=[{\[]\s*(?:[\"'(\[{}\]]|-?\d|true|false|null))"
)


WIDE, NARROW = "  ", " "
"""Delimiters of tables that are aligned by blanks: at least two, or any number."""
RULE = re.compile(r"(?=[^-]*-)(?=[^|]*\|)[\s|:-]*")
"""The line under the header of a table in Markdown."""


class Format(Struct, frozen=True):
    """The kind, and what goes with it."""

    kind: FormatKind
    start: int = 0
    """For JSON: where it begins, after words of introduction."""
    literal: bool = False
    """For JSON: it is written as Python prints values, with single quotes."""
    delimiter: str = ""
    header: tuple[str, ...] = ()
    """For a table: the names of its columns."""
    header_lines: int = 0


def detect_format(source: Source) -> Format:
    head = source.read(0, HEAD)
    if is_binary(head):
        return Format("binary")
    if found := _detect_json(source, head):
        return found
    lines = [line for line in head.split(b"\n")[:400] if line.strip()]
    if DIFF.search(head):
        return Format("diff")
    if found := _detect_table(head):
        return found
    sample = lines[:200]
    stamped = sum(1 for line in sample if TIME.search(line[:120]) or LEVEL.search(line[:120]))
    if len(sample) >= 3 and stamped >= len(sample) * 0.5:
        return Format("log")
    return Format("text")


def is_binary(head: bytes) -> bool:
    return head.count(b"\0") > len(head) // 100


def _detect_json(source: Source, head: bytes) -> Format | None:
    """JSON, whole or cut off; or lines that are an object each."""
    match = INTRODUCTION.match(head)
    if match is None:
        return None
    start = match.end()
    lines = [line for line in head[start:].split(b"\n")[:20] if line.strip()]
    full = lines[:-1] if len(head) == HEAD or len(lines) > 20 else lines
    if len(full) >= 2 and all(line.lstrip()[:1] == b"{" and line.rstrip()[-1:] == b"}" for line in full):
        return Format("json-lines", start)
    if looks_literal(head[start : start + 4096], source.size):
        return Format("json", start, literal=True)
    if b"'" in head[start : start + 3] or source.size - start < 2:
        return None
    # Brackets begin other texts, too: `[12:00] started`. JSON closes or goes on with a key or a value.
    return Format("json", start) if _looks_like_json(head[start : start + 400]) else None


def _looks_like_json(text: bytes) -> bool:
    quotes = len(re.findall(rb'"(?:[^"\\\n]|\\.){0,200}"\s*[:,\]}]', text))
    numbers = re.match(rb"[\[\s]*(?:-?[\d.eE+-]+|true|false|null)\s*[,\]]", text)
    return quotes >= 1 or numbers is not None or text.strip() in {b"{}", b"[]"}


def _detect_table(head: bytes) -> Format | None:
    lines = head.decode(errors="replace").splitlines()
    lines = lines[:-1] if len(head) == HEAD else lines
    lines = lines[:50]
    if found := _detect_markdown_table(lines):
        return found
    rows = [line for line in lines if line.strip()]
    if len(rows) < 3:
        return None
    above = next(number for number, line in enumerate(lines) if line.strip())
    for delimiter in ("\t", ",", ";", "|"):
        widths = [len(row) for row in csv.reader(rows, delimiter=delimiter)]
        width = widths[0]
        if width >= 2 and sum(1 for other in widths if other == width) >= len(widths) * 0.9:
            header = next(csv.reader(rows[:1], delimiter=delimiter))
            if _are_column_names(header):
                cells = tuple(cell.strip() for cell in header)
                return Format("table", delimiter=delimiter, header=cells, header_lines=above + 1)
    return _detect_columns(rows, above)


def _detect_columns(rows: list[str], above: int) -> Format | None:
    """A table that is aligned by blanks, as `ps`, `docker ps` and `pip list` print it, below so many blank lines."""
    ruled = bool(re.fullmatch(r"[-=\s+]{5,}", rows[1])) and "-" in rows[1]
    body = rows[2:] if ruled else rows[1:]
    lines = above + (2 if ruled else 1)
    wide = split_columns(rows[0], WIDE)
    if len(wide) >= (2 if ruled else 3) and _are_column_names(wide) and _is_aligned(body, WIDE, len(wide)):
        return Format("table", delimiter=WIDE, header=tuple(wide), header_lines=lines)
    narrow = split_columns(rows[0], NARROW)
    loud = all(re.fullmatch(r"[A-Z%#][A-Z0-9_%#/().-]*", cell) for cell in narrow) or ruled
    if (
        len(narrow) >= (2 if ruled else 4)
        and loud
        and _are_column_names(narrow)
        and _is_aligned(body, NARROW, len(narrow))
    ):
        return Format("table", delimiter=NARROW, header=tuple(narrow), header_lines=lines)
    return None


def split_columns(line: str, delimiter: str, most: int = 0) -> list[str]:
    """The cells of a line that is aligned by blanks: cut at two or more of them, or at each run."""
    return re.split(r"\s{2,}|\t" if delimiter == WIDE else r"\s+", line.strip(), maxsplit=max(0, most - 1))


def _is_aligned(rows: list[str], delimiter: str, width: int) -> bool:
    widths = [len(split_columns(row, delimiter, width)) for row in rows]
    return len(widths) >= 2 and sum(1 for other in widths if other == width) >= len(widths) * 0.9


def _are_column_names(cells: list[str]) -> bool:
    """Whether a row looks like names of columns: short, no numbers, not two alike."""
    plain = [cell.strip() for cell in cells]
    return (
        len(set(plain)) == len(plain)
        and all(0 < len(cell) <= 60 and len(cell.split()) <= 6 for cell in plain)
        and not any(re.fullmatch(r"[-+]?[\d.,:]+", cell) for cell in plain)
    )


def _detect_markdown_table(lines: list[str]) -> Format | None:
    for number, line in enumerate(lines[:-1]):
        if line.strip().startswith("|") and RULE.fullmatch(lines[number + 1][:2000]):
            if number > 3:
                return None
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            return Format("markdown-table", delimiter="|", header=tuple(cells), header_lines=number + 2)
    return None
