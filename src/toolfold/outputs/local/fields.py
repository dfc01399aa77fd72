"""Fields of records: the columns of a table, the keys of JSON records, `key=value` in logs. Their values, exactly.

A field is read over the whole document when a request needs it, in one pass, and kept. `Column.units` ties each value
to the unit that holds it, so that conditions on several fields can be joined.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from toolfold.outputs.local.formats import NARROW, WIDE, columns_of
from toolfold.outputs.local.index import Index
from toolfold.outputs.local.request import PARTS, stem
from toolfold.outputs.local.source import BLOCK, Offsets

SAMPLED = 120
MOST_VALUES = 3_000_000
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


def field_names(index: Index) -> list[str]:
    """The fields that records of the document have, as far as a sample shows."""
    return list(index.format.header) or index.kept("fields", lambda: sampled_names(index))


def sampled_names(index: Index) -> list[str]:
    pattern = (
        LITERAL_KEY if index.format.literal else JSON_KEY if index.format.kind in {"json", "json-lines"} else LOGFMT
    )
    counted: Counter[str] = Counter()
    for raw in samples(index):
        counted.update({match[1].decode(errors="replace") for match in pattern.finditer(raw)})
    return [name for name, _ in counted.most_common(300)]


def samples(index: Index) -> Iterator[bytes]:
    """Pieces from all over the document."""
    size = index.source.size
    step = max(1, size // SAMPLED)
    for at in range(0, size, max(step, 4096)):
        yield index.source.read(at, at + 8192)


def parts_of(name: str) -> tuple[str, ...]:
    """The words that a name is made of."""
    return tuple(stem(part.lower()) for part in PARTS.findall(name))


def mentioned(index: Index, request: str) -> list[str]:
    """The fields that a request names, those with most words first: `order id` names `orderId` and `order_id`."""
    words = {stem(part.lower()) for part in PARTS.findall(request)}
    words |= {word.lower() for word in re.findall(r"\w+", request)}
    found = []
    for name in field_names(index):
        parts = parts_of(name)
        if parts and (all(part in words for part in parts) or name.lower() in words):
            found.append((len(parts), name))
    return [name for _, name in sorted(found, key=lambda item: -item[0])]


def column(index: Index, name: str) -> Column:
    """One field, read over the whole document."""
    read = table_column if index.format.header else keyed_column
    return index.kept(f"column:{name}", lambda: read(index, name))


def keyed_column(index: Index, name: str) -> Column:
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
            if match.start() >= BLOCK or len(values) >= MOST_VALUES:
                break
            values.append((match[1] if match[1] is not None else match[2].strip(b'"')).decode(errors="replace"))
            places.append(at + match.start())
    return Column(name, tuple(values), index.units.of(np.array(places, dtype=np.int64)))


def rows(index: Index) -> Iterator[tuple[int, list[str]]]:
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
                    yield number, columns_of(line, fmt.delimiter, len(fmt.header))
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


def table_column(index: Index, name: str) -> Column:
    wanted = index.format.header.index(name)
    values: list[str] = []
    lines: list[int] = []
    for line, row in rows(index):
        if len(row) > wanted and len(values) < MOST_VALUES:
            lines.append(line)
            values.append(row[wanted].strip())
    at = np.array(lines, dtype=np.int64)
    newlines = np.append(index.source.newlines, index.source.size)
    starts = np.where(at > 1, newlines[np.clip(at - 2, 0, len(newlines) - 1)] + 1, 0)
    return Column(name, tuple(values), index.units.of(starts.astype(np.int64)))
