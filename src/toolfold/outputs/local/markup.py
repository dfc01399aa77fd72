"""Records, and the parsers that collect them from XML and from the tables of HTML pages.

Above: `records.py`.
"""

from html.parser import HTMLParser
from typing import Any
from xml.parsers import expat

from msgspec import Struct

MAX_DEPTH = 48


class UnreadableRecords(Exception):
    """The records cannot all be read; says why. Never leaves `local`: nothing is claimed then."""


class Record(Struct, frozen=True):
    """One record: which set it belongs to, its first byte, its place in words, and its values by field."""

    of: str
    start: int
    place: str
    values: dict[str, Any]


class _Elements:
    """Collects the elements of XML: attributes and the texts of children without children are their values."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._stack: list[tuple[Record, list[str], dict[str, Any]]] = []
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.EntityDeclHandler = self._refuse

    def _refuse(self, *_: object) -> None:
        # An entity may stand for gigabytes.
        raise UnreadableRecords("it declares entities")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._stack) > MAX_DEPTH:
            raise UnreadableRecords("it is nested too deep")
        place = f"line {self.parser.CurrentLineNumber}"
        record = Record(name.rpartition(":")[2], self.parser.CurrentByteIndex, place, dict(attributes))
        self._stack.append((record, [], attributes))

    def _text(self, text: str) -> None:
        if self._stack:
            self._stack[-1][1].append(text)

    def _end(self, _: str) -> None:
        record, texts, attributes = self._stack.pop()
        text = "".join(texts).strip()
        if self._stack:
            above = self._stack[-1][0].values
            own = {record.of: text, **{f"{record.of}.{name}": value for name, value in attributes.items()}}
            above |= {name: [] for name in own} if record.of in above else own
        if text:
            record.values.setdefault("text", text)
        self.records.append(record)


def _spans_others(attrs: list[tuple[str, str | None]]) -> bool:
    return any(name in {"colspan", "rowspan"} and value not in {"1", None} for name, value in attrs)


class _PageTables(HTMLParser):
    """Collects the rows of the tables of an HTML page. The first row of each names its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, int, list[str]]] = []
        self._table = self._depth = 0
        self._row: list[str] | None = None
        self._cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._depth += 1
            self._table += 1
        if _spans_others(attrs) or self._depth > 1:
            raise UnreadableRecords("a table has cells that span others, or tables inside")
        if tag == "tr":
            self._row = []
            self.rows.append((self._table, self.getpos()[0], self._row))
        self._cell = tag in {"td", "th"} or (self._cell and tag != "tr")
        if tag in {"td", "th"} and self._row is not None:
            self._row.append("")

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "table"
        self._cell = self._cell and tag not in {"td", "th", "tr", "table"}

    def handle_data(self, data: str) -> None:
        if self._cell and self._row:
            self._row[-1] += data
