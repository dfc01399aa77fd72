"""What kind of text a document is, judged from its beginning: JSON, lines of JSON, a table, a diff, a log, or prose.

A wrong guess costs little: every kind is searched the same way, the kind only says how it is divided and quoted. Above:
`index.py`.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from toolfold.outputs.local.source import HEAD, Source, is_binary

FormatKind = Literal["json", "json-lines", "table", "markdown-table", "diff", "log", "text", "binary"]

TIME = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d\d:\d\d:\d\d\b|\d\d/[A-Z][a-z]{2}/\d{4}:\d\d|^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d"
)
LEVEL = re.compile(rb"\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b", re.IGNORECASE)
DIFF = re.compile(rb"^(diff --git |--- \S.*\n\+\+\+ |@@ -\d+(,\d+)? \+\d+)", re.MULTILINE)
INTRODUCTION = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*+(?:[^\n{\[]{0,400}\n){0,4}[^\n{\[]{0,200}?"
    rb"(?=[{\[]\s*(?:[\"'(\[{}\]]|-?\d|true|false|null))"
)

# A text of Python literals is tokenised by a regular expression, which takes memory.
MAX_LITERAL_TEXT = 48 << 20
LITERAL_OPENING = re.compile(rb"[\[{(]\s*(?:[\[{(]\s*)?(?:'|\d+\s*,\s*'|\"(?:[^\"\\]|\\.){0,200}\"\s*,\s*')")
LITERAL_STRING = re.compile(rb"'(?:[^'\\\n]|\\.){0,200}'\s*[:,\]})]")
# Delimiters of tables that are aligned by blanks: at least two, or any number.
WIDE, NARROW = "  ", " "
# What no column is called: a number, a time, an address.
NO_NAME = re.compile(r"^[-+]?[\d.,:]+$|^\d{4}-\d\d-\d\d|\S@\S+\.|://")
_PLAIN_NAMES_TEXT = "id name date time day status state type kind key value amount price title email"
PLAIN_NAMES = frozenset(_PLAIN_NAMES_TEXT.split())
CAPITALS = re.compile(r"[A-Z%#][A-Z0-9_%#/().-]*")
# The line under the header of a table in Markdown.
RULE = re.compile(r"(?=[^-]*-)(?=[^|+]*[|+])[\s|:+-]*")
# A line of `ls -l`, and what its columns are.
LISTING = re.compile(r"[bcdlps-][rwxsStT-]{9}[.+@]?\s+\d+\s+\S+\s+\S+\s+\d+\s+\S+\s+\d+\s+[\d:]{4,5}\s+\S.*")
LISTING_TYPES = {"-": "file", "d": "directory", "l": "link"}
LISTING_COLUMNS = ("mode", "links", "owner", "group", "size", "month", "day", "time", "name")


# What stands below the header and the rows that a database prints.
FOOTER = re.compile(
    r"\s*-+(?:\+-+)+\s*|\(\d+ rows?\)\s*|\W*\d+ more rows?\W*"
    r"|\W*(?:showing|page|rows?|results?)\b[\s\d,to-]* of \d[\d,]*[\w\s.)]*",
    re.IGNORECASE,
)


class Format(Struct, frozen=True):
    """The kind, and what goes with it."""

    kind: FormatKind
    # For JSON: where it begins, after words of introduction.
    start: int = 0
    # For JSON: it is written as Python prints values, with single quotes.
    literal: bool = False
    delimiter: str = ""
    # For a table: the names of its columns.
    header: tuple[str, ...] = ()
    header_lines: int = 0
    # Whether the header stands in a remark: then there may be others, and the last cells of a row may be missing.
    remarked: bool = False

    def split_row(self, line: str) -> list[str]:
        """The cells of one line, for a table whose rows are lines each."""
        if self.kind == "markdown-table":
            return _split_markdown_row(line)
        return _split_columns(line, self.delimiter, len(self.header))


def detect_format(source: Source) -> Format:
    head = source.read(0, HEAD)
    if is_binary(head):
        return Format("binary")
    if json := _detect_json(source, head):
        return json
    if DIFF.search(head):
        return Format("diff")
    if listing := _detect_listing(head):
        return listing
    return _detect_table(head) or Format("log" if _is_log(head) else "text")


def _detect_listing(head: bytes) -> Format | None:
    """What `ls -l` prints of one folder."""
    lines = head.decode(errors="replace").split("\n")[:50]
    first = int(lines[0].startswith("total "))
    rows = [line for line in lines[first:-1] if line.strip()]
    if not rows or not all(map(LISTING.fullmatch, rows)):
        return None
    return Format("table", delimiter=NARROW, header=LISTING_COLUMNS, header_lines=first)


def _is_log(head: bytes) -> bool:
    lines = [line for line in head.split(b"\n")[:400] if line.strip()][:200]
    stamped = sum(1 for line in lines if TIME.search(line[:120]) or LEVEL.search(line[:120]))
    return len(lines) >= 3 and stamped >= len(lines) * 0.5


def _detect_json(source: Source, head: bytes) -> Format | None:
    """JSON, whole or cut off; or lines that are an object each."""
    match = INTRODUCTION.match(head)
    if match is None:
        return None
    start = match.end()
    # `sshd[1234]: …` is a line of a log, and no introduction to a list.
    before, text = head[:start].rpartition(b"\n")[2], head[start:]
    if (before.strip() and _is_log(head)) or _is_flow_list(before, text):
        return None
    if _is_json_lines(text, is_cut=len(head) == HEAD):
        return Format("json-lines", start)
    if _looks_literal(text[:4096], source.size):
        return Format("json", start, literal=True)
    if b"'" in text[:3] or source.size - start < 2:
        return None
    # Brackets begin other texts, too: `[12:00] started`. JSON closes or goes on with a key or a value.
    return Format("json", start) if _looks_like_json(text[:400]) else None


def _is_flow_list(before: bytes, text: bytes) -> bool:
    """Whether what looks like JSON is a value of YAML: `ports: ["80:80"]`, indented, or with other keys below."""
    if not re.fullmatch(rb"\s*(?:- )?[\w.-]+:\s*", before):
        return False
    below = text.partition(b"\n")[2]
    return before[:1].isspace() or re.match(rb"\s*(?:- )?[\w.-]+:(?:\s|$)", below) is not None


def _is_json_lines(text: bytes, *, is_cut: bool) -> bool:
    lines = [line.strip() for line in text.split(b"\n")[:20] if line.strip()]
    whole = lines[:-1] if is_cut else lines
    return len(whole) >= 2 and all(line.startswith(b"{") and line.endswith(b"}") for line in whole)


def _looks_literal(head: bytes, size: int) -> bool:
    """Whether a text is written as Python prints values."""
    return (
        size <= MAX_LITERAL_TEXT
        and LITERAL_OPENING.match(head) is not None
        and LITERAL_STRING.search(head[:600]) is not None
    )


def _looks_like_json(text: bytes) -> bool:
    quotes = re.search(rb'"(?:[^"\\\n]|\\.){0,200}"\s*[:,\]}]', text)
    numbers = re.match(rb"[\[\s]*(?:-?[\d.eE+-]+|true|false|null)\s*[,\]]", text)
    return quotes is not None or numbers is not None or text.strip() in {b"{}", b"[]"}


def _detect_table(head: bytes) -> Format | None:
    # Only a newline ends a line: a cell may hold a carriage return.
    lines = [line.removesuffix("\r") for line in head.decode(errors="replace").removesuffix("\n").split("\n")]
    # The last line of a head that was cut is not whole.
    lines = (lines[:-1] if len(head) == HEAD else lines)[:50]
    rows = [line for line in lines if line.strip() and not FOOTER.fullmatch(line)]
    if (table := _detect_markdown_table(lines)) or len(rows) < 3:
        return table
    if lines[0].startswith("#"):
        return _detect_remarked(lines)
    above = lines.index(rows[0])
    return _detect_delimited(rows, above) or _detect_columns(rows, above)


def _detect_remarked(lines: list[str]) -> Format | None:
    """A table cut at tabs below remarks, the last of which with a tab names its columns."""
    filled = [(number, line) for number, line in enumerate(lines) if line.strip()]
    rows = [line.split("\t") for _, line in filled if line[0] != "#"]
    above = next((number for number, line in filled if line[0] != "#"), 0)
    named = [line.lstrip("# ").split("\t") for line in lines[:above] if "\t" in line.strip()]
    header = tuple(map(str.strip, named[-1])) if named else ()
    if len(rows) < 3 or not header or not _are_column_names(header):
        return None
    fits = all(0 <= len(header) - len(row) < 2 for row in rows)
    return Format("table", delimiter="\t", header=header, header_lines=above, remarked=True) if fits else None


def _detect_delimited(rows: list[str], above: int) -> Format | None:
    """A table whose cells stand between signs, below so many blank lines."""
    for delimiter in ("\t", ",", ";", "|"):
        try:
            cells = list(csv.reader(rows, delimiter=delimiter))
        except csv.Error:  # a carriage return outside of quotes
            continue
        header = tuple(cell.strip() for cell in cells[0])
        if _mostly(len(header), map(len, cells)) and _are_column_names(header) and not _is_row(header, cells[1:]):
            return Format("table", delimiter=delimiter, header=header, header_lines=above + 1)
    return None


def _is_row(first: Sequence[str], rows: list[list[str]]) -> bool:
    """Whether the first row is one as the others, and no header: what stands in it stands below it, too."""
    if not PLAIN_NAMES.isdisjoint(map(str.lower, first)):
        return False
    others = [row for row in rows if len(row) == len(first) and [cell.strip() for cell in row] != list(first)]
    return len(first) < 2 or any(row[at].strip() == name for row in others for at, name in enumerate(first))


def _detect_columns(rows: list[str], above: int) -> Format | None:
    """A table that is aligned by blanks, as `ps`, `docker ps` and `pip list` print it, below so many blank lines."""
    ruled = _is_rule(rows[1])
    regular = not ruled and _has_numbers(rows)
    narrow = regular or (not ruled and _has_single_gaps(rows))
    for delimiter, least in ((NARROW, 3),) if narrow else ((WIDE, 3), (NARROW, 4)):
        header = _split_columns(rows[0], delimiter)
        wide = len(header) >= (2 if ruled else least)
        if wide and _heads_columns(header, rows[1 + ruled :], delimiter, clear=ruled or regular):
            return Format("table", delimiter=delimiter, header=tuple(header), header_lines=above + 1 + ruled)
    return None


def _has_numbers(rows: list[str]) -> bool:
    """Whether all rows have as many cells as the header, with a number in the same column of each."""
    width = len(_split_columns(rows[0], NARROW))
    cells = [_split_columns(row, NARROW) for row in rows[1:]]
    numbers = ({at for at, cell in enumerate(own) if re.fullmatch(r"[\d.,]+[%KMGTi]*", cell)} for own in cells)
    return all(len(own) == width for own in cells) and bool(set.intersection(*numbers))


def _is_rule(row: str) -> bool:
    return "-" in row and re.fullmatch(r"[-=\s+]{5,}", row) is not None


def _heads_columns(header: list[str], body: list[str], delimiter: str, *, clear: bool) -> bool:
    # Any prose is cut at single blanks: there only names in capitals, or what is below them, make a header.
    clear = clear or delimiter == WIDE or all(map(CAPITALS.fullmatch, header))
    sizes = (len(_split_columns(row, delimiter, len(header))) for row in body)
    return clear and _are_column_names(header) and _mostly(len(header), sizes)


def _has_single_gaps(rows: list[str]) -> bool:
    """Whether names in capitals with one blank between them, `PID %CPU`, head columns that are apart below, too."""
    names = [match.span() for match in re.finditer(r"\S+", rows[0])]
    if not all(CAPITALS.fullmatch(rows[0][start:end]) for start, end in names):
        return False
    gaps = [(end, last) for (_, end), (start, last) in pairwise(names) if start == end + 1]
    body = [row for row in rows[1:] if row.strip()]
    return any(_are_mostly_apart(body, gap, last) for gap, last in gaps)


def _are_mostly_apart(body: list[str], gap: int, last: int) -> bool:
    """Whether most rows are blank at the gap and have something between it and the end of the name behind."""
    return sum(row[gap : gap + 1] == " " and bool(row[gap:last].strip()) for row in body) * 2 > len(body)


def _mostly(width: int, widths: Iterable[int]) -> bool:
    """Whether there are rows, and nine of ten have so many cells."""
    equal = [other == width for other in widths]
    return len(equal) >= 2 and sum(equal) >= len(equal) * 0.9


def _split_columns(line: str, delimiter: str, limit: int = 0) -> list[str]:
    """The cells of a line that is aligned by blanks: cut at two or more of them, or at each run."""
    if line.endswith(" Mounted on"):  # the one header of two words that `df` prints
        line = line.replace(" Mounted on", " Mounted")
    return re.split(r"\s{2,}|\t" if delimiter == WIDE else r"\s+", line.strip(), maxsplit=max(0, limit - 1))


def _split_markdown_row(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _are_column_names(cells: Sequence[str]) -> bool:
    """Whether a row looks like names of columns: short, no numbers, not two alike."""
    return (
        len(set(cells)) == len(cells)
        and all(0 < len(cell) <= 60 and len(cell.split()) <= 6 for cell in cells)
        and not any(NO_NAME.search(cell) for cell in cells)
    )


def _detect_markdown_table(lines: list[str]) -> Format | None:
    """A table between signs with a rule below its header, in Markdown or as a database prints it."""
    for number, line in enumerate(lines[:-1]):
        if line.strip().startswith("|") and RULE.fullmatch(lines[number + 1][:2000]):
            if number > 3:
                return None
            header = tuple(_split_markdown_row(line))
            return Format("markdown-table", delimiter="|", header=header, header_lines=number + 2)
    return None
