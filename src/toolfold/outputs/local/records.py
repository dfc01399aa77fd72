"""A document as records: rows of tables, JSON objects, log events, stanzas, sections, elements. All of them, or none.

Whoever counts must know that everything was read: what cannot be read whole raises `UnreadableRecords`, and nothing is
claimed. A record has its place in the document, and its values as text, verbatim. Above: `query.py`, `computed.py`.
Below: `index.py`.
"""

import csv
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from xml.parsers import expat

import msgspec

from toolfold.outputs.json_path import Step, format_path
from toolfold.outputs.local.blocks import _find_form, _find_listing, _read_blocks, _read_listing
from toolfold.outputs.local.formats import FOOTER, LISTING_COLUMNS, LISTING_TYPES, NARROW, RULE, WIDE, Format
from toolfold.outputs.local.headings import SECTION, STANZA_LINE
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.json_index import Container, JsonIndex, decode_value
from toolfold.outputs.local.markup import MAX_DEPTH, Record, UnreadableRecords, _Elements, _PageTables
from toolfold.outputs.local.moments import LEVEL, LEVEL_REACH, LEVELS, find_moment, opens_event, stamp_reach
from toolfold.outputs.local.source import BLOCK, HEAD
from toolfold.outputs.local.sql_dump import SQL_INSERTS, inserted_rows
from toolfold.yaml_reader import load_yaml

MARKDOWN = Format("markdown-table")
LARGEST, LARGEST_MARKUP, LARGEST_YAML = 128 << 20, 24 << 20, 2 << 20
# The first byte of a record, where only its path is known.
UNKNOWN = -1
# Elements of a JSON array are decoded together up to so many bytes, and those from `SMALL` on alone.
SMALL, PIECE, LARGEST_ELEMENT = 4096, 1 << 19, 4 << 20
MAX_FIELDS = 200
# The whole text of a record, among its values.
TEXT = ""

LEVEL_BEHIND = re.compile(rf"[\]\s|,]{{1,4}}({LEVELS})(?=[\s\]|,:]|$)", re.IGNORECASE)
PAIR = re.compile(r"(?<![\w.-])([A-Za-z_][\w.-]{0,40})=(?:\"([^\"\n]{0,400})\"|([^\s,;\"]{1,200}))")
UNIT = "ms|µs|us|ns|seconds|secs?|s|min|bytes|kB|MB|GB"
# `served in 408 ms` is named by what was served, and never `in`.
STOP = (
    "in|after|for|to|of|at|by|than|over|under|below|above|within|is|was|about|and|or|the|an|with|from|on|until|till"
    "|every|each|per|up|only|last|next|another|around|since|before|as|only|just|nearly|almost|less|more|least|most"
)
MEASURED = re.compile(
    rf"\b(?!(?i:{STOP})\b)([A-Za-z_]{{2,40}})(?: (?i:{STOP})\b)?[ :=]{{1,2}}(\d{{1,20}}(?:\.\d{{1,20}})?) ?({UNIT})\b"
)
MEASURED_VALUE = re.compile(rf"\d[\d.]*(?:{UNIT})")
ACCESS = re.compile(
    r'(?P<client>\S+) \S+ (?P<user>\S+) \[[^\]]{10,40}\] "(?P<method>[A-Z]+) (?P<path>\S+)[^"]*" (?P<status>\d{3}) '
    r'(?P<bytes>\d+|-)(?: "(?P<referer>[^"]*)" "(?P<agent>[^"]*)")?'
)
SYSLOG = re.compile(
    r"(?:<\d+>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<host>\S+) (?P<program>[\w./-]+)(?:\[(?P<pid>\d+)\])?:"
)
# What logs between the level and the message: `INFO [billing] …`, `INFO billing.worker: …`.
COMPONENT = re.compile(
    rf"\b(?:{LEVELS})\b\]?:?\s+(?:\[([A-Za-z][\w./:-]{{0,60}})\]|([A-Za-z][\w./-]{{0,60}})(?::| -)\s)"
)
# The line below the header of a table in Markdown.
TABLE_RULE = re.compile(rb"^[ \t]*\|[^\n]+\|[ \t]*\r?\n[ \t]*\|(?:[ \t]*:?-{3,}:?[ \t]*\|)+[ \t]*\r?$", re.MULTILINE)
DIGIT = re.compile(r"\d")
LIST_KEY = re.compile(r"[\"']?([\w.$/@-]{1,80})[\"']?:")
SETTING = re.compile(r"\s*([\w.\"'-]{1,80})\s*[=:]\s*(.*)")


def read_records(index: DocumentIndex, *, lines: bool = False) -> Iterator[Record] | None:
    """Every record in the order of the document, or every line as one; `None` where the document has none."""
    if lines:
        return _read_lines(index)
    kind = index.format.kind
    structure = index.structure.kind if index.structure is not None else ""
    read = READERS.get(kind) or READERS.get(structure)
    if kind in {"text", "log"} and structure not in {"page", "markup"}:
        read = _reader_of_text(index.source.read(0, HEAD)) or read
    if read is None:
        return None
    if index.source.size > (LARGEST_MARKUP if kind == "text" else LARGEST):
        raise UnreadableRecords("it is too large to be computed on")
    return read(index)


def _reader_of_text(head: bytes) -> "Callable[[DocumentIndex], Iterator[Record]] | None":
    """How a text is read that is known by what it begins with, or by a table in it."""
    text = head.decode(errors="replace")
    if _find_form(text) is not None:
        return _blocks
    if _find_listing(text) is not None:
        return _listing
    if SQL_INSERTS.search(head):
        return _insertions
    return _markdown_tables if TABLE_RULE.search(head) else None


def _blocks(index: DocumentIndex) -> Iterator[Record]:
    """Commits, mails, entries of a changelog."""
    if (form := _find_form(index.source.text(0, HEAD))) is not None:
        for number, start, values in _read_blocks(_lines(index), form):
            yield Record(form.name, start, f"line {number}", values)


def _listing(index: DocumentIndex) -> Iterator[Record]:
    """Users, ports, files: a record in each line."""
    if (form := _find_listing(index.source.text(0, HEAD))) is not None:
        for number, start, values in _read_listing(_lines(index), form):
            if values is None:
                raise UnreadableRecords(f"line {number} has another form than those above it")
            if "mode" in values:
                values["type"] = LISTING_TYPES.get(values["mode"][:1], "special file")
            yield Record(form.name, start, f"line {number}", values)


def _read_lines(index: DocumentIndex) -> Iterator[Record]:
    """Every line as a record without fields."""
    for number, start, line in _lines(index):
        yield Record("lines", start, f"line {number}", {TEXT: line.removesuffix("\r")})


def _lines(index: DocumentIndex) -> Iterator[tuple[int, int, str]]:
    """Number, first byte and text of each line, without its newline."""
    number, at, rest = 0, 0, b""
    for _, block in index.source.blocks():
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            number += 1
            yield number, at, line.decode(errors="replace")
            at += len(line) + 1
    if rest:
        yield number + 1, at, rest.decode(errors="replace")


def _rows(index: DocumentIndex) -> Iterator[Record]:
    """The rows of a table below its header."""
    fmt = index.format
    by_lines = fmt.delimiter in {WIDE, NARROW}
    header = list(fmt.header)
    after_blank = False
    for number, start, cells in _line_cells(index) if by_lines else _csv_cells(index):
        if number <= fmt.header_lines or not any(cells):
            after_blank = number > fmt.header_lines
            continue
        if _is_no_row(fmt, header, cells):
            continue
        if fmt.remarked and cells[0][:1] == "#":
            continue
        cells.extend([""] * (len(header) - len(cells) if fmt.remarked else 0))
        if len(cells) != len(header):
            raise UnreadableRecords(f"line {number} has {len(cells)} cells, the header {len(header)}")
        if cells[0][:2] in {"# ", "//"} or (after_blank and not any(map(DIGIT.search, cells))):
            raise UnreadableRecords(f"line {number} may be a remark, or the header of another table")
        after_blank = False
        yield Record("", start, f"line {number}", _row_values(fmt, cells))


def _is_no_row(fmt: Format, header: list[str], cells: list[str]) -> bool:
    """Whether a line is the header once more, or stands below the rows."""
    if cells[0] == header[0] and [cell.strip() for cell in cells] == header:
        return True
    return len(cells) < len(header) and FOOTER.fullmatch(fmt.delimiter.join(cells)) is not None


def _row_values(fmt: Format, cells: list[str]) -> dict[str, Any]:
    named = dict(zip(fmt.header, map(str.strip, cells) if fmt.delimiter == "|" else cells, strict=True))
    if fmt.header == LISTING_COLUMNS:
        named["type"] = LISTING_TYPES.get(named["mode"][:1], "special file")
    return named


def _line_cells(index: DocumentIndex) -> Iterator[tuple[int, int, list[str]]]:
    for number, start, line in _lines(index):
        yield number, start, index.format.split_row(line) if line.strip() else []


def _csv_cells(index: DocumentIndex) -> Iterator[tuple[int, int, list[str]]]:
    starts: list[int] = []

    def lines() -> Iterator[str]:
        for number, start, line in _lines(index):
            starts.append(start)
            yield f"{line.removeprefix(chr(0xFEFF)) if number == 1 else line}\n"

    reader = csv.reader(lines(), delimiter=index.format.delimiter, strict=True)
    last = 0
    try:
        for row in reader:
            # A quoted cell may hold newlines: a row is known by its first line.
            first, last = last + 1, reader.line_num
            start = starts[0]
            starts.clear()
            yield first, start, row
    except csv.Error as error:
        raise UnreadableRecords(f"line {last + 1} is no row of a table: {error}") from error


def _markdown_tables(index: DocumentIndex) -> Iterator[Record]:
    """The rows of every table of a text in Markdown."""
    header: list[str] = []
    table = 0
    for (number, start, line), (_, _, following) in pairwise([*_lines(index), (0, 0, "")]):
        if not line.strip().startswith("|"):
            header = header if RULE.fullmatch(line[:2000]) and "+" in line else []
        elif not header:
            if RULE.fullmatch(following[:2000]):
                header, table = MARKDOWN.split_row(line), number
        elif not RULE.fullmatch(line[:2000]):
            cells = MARKDOWN.split_row(line)
            name = "" if table <= index.format.header_lines else f"the table at line {table}"
            if cells != header:
                yield Record(name, start, f"line {number}", _named_cells(header, cells, number))


def _named_cells(header: list[str], cells: list[str], line: int) -> dict[str, Any]:
    if len(cells) != len(header):
        raise UnreadableRecords(f"line {line} has {len(cells)} cells, the header {len(header)}")
    if len(set(header)) < len(header):
        raise UnreadableRecords("two of its columns have the same name")
    return dict(zip(header, cells, strict=True))


def _json_records(index: DocumentIndex) -> Iterator[Record]:
    """The objects that are elements of arrays, and those of an object that holds nothing else."""
    json = index.json
    if json is None:
        return
    if index.source.read(json.root.end, json.root.end + 1) not in {b"]", b"}", b")"}:
        raise UnreadableRecords("its JSON is cut off")
    if index.source.read(json.root.end + 1, index.source.size).strip():
        raise UnreadableRecords("more follows its JSON")
    yield from _in_container(index, json, json.root, [])


def _in_container(index: DocumentIndex, json: JsonIndex, container: Container, path: list[Step]) -> Iterator[Record]:
    """Those inside a container of any size: a small object is decoded whole, of all else the members."""
    if container.is_array:
        for number, start, end, value in _array_members(index, json, container):
            if end - start < SMALL:
                yield from _element(value, [*path, number], start)
            else:
                yield from _large_member(index, json, [*path, number], start, named=True)
    elif container.end - container.start < SMALL:
        yield from _in_value(_decode(index.source.read(container.start, container.end + 1)), path, container.start)
    else:
        members = list(json.members(container))
        named = len(members) > 2 and all(index.source.read(start, start + 1) == b"{" for _, start, _ in members)
        for step, start, _ in members:
            yield from _large_member(index, json, [*path, step], start, named=named)


def _large_member(
    index: DocumentIndex, json: JsonIndex, path: list[Step], start: int, *, named: bool
) -> Iterator[Record]:
    inner = json.container_from(start)
    if inner is None:
        return
    if named and not inner.is_array:
        if inner.end - start > LARGEST_ELEMENT:
            raise UnreadableRecords(f"{format_path(path)} is too large")
        value = _decode(index.source.read(start, inner.end + 1))
        yield _named_record(value, path, start)
    yield from _in_container(index, json, inner, path)


def _array_members(index: DocumentIndex, json: JsonIndex, array: Container) -> Iterator[tuple[int, int, int, Any]]:
    """Number, bytes and value of each element; the value of a large one is not decoded."""
    spans = json.member_spans(array)
    first = 0
    for number, (_, end) in enumerate(spans):
        alone = end - spans[number][0] >= SMALL
        if alone or number == len(spans) - 1 or spans[number + 1][1] - spans[first][0] > PIECE:
            begin = spans[first][0]
            raw = index.source.read(begin, end)
            values = [None] * (number - first + 1) if alone and first == number else _decode(b"[" + raw + b"]")
            for offset, value in enumerate(values):
                start, stop = spans[first + offset]
                blanks = len(raw[start - begin : stop - begin]) - len(raw[start - begin : stop - begin].lstrip())
                yield first + offset, start + blanks, stop, value
            first = number + 1


def _decode(raw: bytes) -> Any:
    try:
        # Numbers stay as they are written.
        return msgspec.json.Decoder(float_hook=str).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return decode_value(raw)
    except ValueError as error:
        raise UnreadableRecords("its JSON cannot be read") from error


def _in_value(value: Any, path: list[Step], start: int) -> Iterator[Record]:
    if len(path) > MAX_DEPTH:
        raise UnreadableRecords("it is nested too deep")
    if isinstance(value, dict):
        named = len(value) > 2 and all(isinstance(member, dict) for member in value.values())
        for key, member in value.items():
            if named:
                yield _named_record(member, [*path, key], start)
            yield from _in_value(member, [*path, key], start)
    elif isinstance(value, (list, tuple)):
        for number, member in enumerate(value):
            yield from _element(member, [*path, number], start)


def _element(value: Any, path: list[Step], start: int) -> Iterator[Record]:
    if isinstance(value, dict):
        yield _named_record(value, path, start)
    yield from _in_value(value, path, start)


def _named_record(value: dict[Any, Any], path: list[Step], start: int) -> Record:
    """An object that is an element of an array, or a member of an object of such."""
    key = path[-1] if isinstance(path[-1], str) else None
    return Record(_pattern(path), start, format_path(path), _flat(value, key))


def _pattern(path: list[Step]) -> str:
    """`orders[3].items[1]` as `orders[].items[]`, `packages.curl` as `packages.*`."""
    *above, last = path
    steps = "".join("[]" if isinstance(step, int) else f".{step}" for step in above)
    return f"{steps}{'[]' if isinstance(last, int) else '.*'}".removeprefix(".")


def _flat(value: dict[Any, Any], key: str | None = None) -> dict[str, Any]:
    """The scalars of an object by their paths, also those of the one object of a list; of several, they are lists.

    `key`: what leads to the object.
    """
    flat: dict[str, Any] = {} if key is None else {"key": key}
    stack = [("", value, False)]
    while stack:
        prefix, members, several = stack.pop()
        for name, member in members.items():
            own = f"{prefix}{name}"
            if isinstance(member, dict):
                stack.append((f"{own}.", member, several))
            elif isinstance(member, (list, tuple)):
                flat[own] = list(member)
                many = several or len(member) > 1
                stack += ((f"{own}[].", element, many) for element in member if isinstance(element, dict))
            elif member is not None:
                flat[own] = [*flat.get(own, ()), _scalar_text(member)] if several else _scalar_text(member)
        if len(flat) > MAX_FIELDS:
            raise UnreadableRecords(f"a record has more than {MAX_FIELDS} fields")
    return flat


def _scalar_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json_line_records(index: DocumentIndex) -> Iterator[Record]:
    for number, start, line in _lines(index):
        if line.strip():
            value = _decode(line.removeprefix("\ufeff").encode())
            if not isinstance(value, dict):
                raise UnreadableRecords(f"line {number} is no object")
            yield Record("", start, f"line {number}", _flat(value))


def _events(index: DocumentIndex) -> Iterator[Record]:
    """The events of a log: a line with a time or a level, and the lines without one that follow it."""
    event: list[str] = []
    first, at = 0, 0
    stamp = stamp_reach(index.source.text(0, HEAD))
    for number, start, line in _lines(index):
        if opens_event(line, stamp):
            if event:
                yield _event(event, first, at)
            event, first, at = [line], number, start
        elif event:
            event.append(line)
    if event:
        yield _event(event, first, at)


def _event(lines: list[str], number: int, start: int) -> Record:
    line = lines[0]
    values: dict[str, Any] = {TEXT: "\n".join(own.removesuffix("\r") for own in lines), **_log_head(line)}
    if match := ACCESS.match(line) or SYSLOG.match(line):
        values |= {name: text for name, text in match.groupdict().items() if text not in {None, "-"}}
    for word, amount, unit in MEASURED.findall(line):
        values.setdefault(f"{word.lower()} {unit}", amount)
    return Record("", start, f"line {number}", _log_pairs(line) | values)


def _log_head(line: str) -> dict[str, str]:
    """What the first line of an event begins with: time, level, component."""
    head = {}
    moment = find_moment(line[:LEVEL_REACH])
    if moment is not None:
        head["time"] = moment.written
    # Right behind the time, a level may be written in small letters.
    behind = line.partition(moment.written)[2] if moment is not None else ""
    if level := LEVEL_BEHIND.match(behind) or LEVEL.search(line[:LEVEL_REACH]):
        head["level"] = level[level.lastindex or 0]
    if component := COMPONENT.search(line[: LEVEL_REACH * 2]):
        head["component"] = component[component.lastindex or 0]
    return head


def _log_pairs(line: str) -> dict[str, Any]:
    """`key=value`, quoted or not; those with a unit are read elsewhere."""
    pairs: dict[str, Any] = {}
    for name, quoted, plain in PAIR.findall(line):
        # Of what is said twice it is not known which is meant.
        pairs[name] = [] if name in pairs else quoted or plain
        if MEASURED_VALUE.fullmatch(plain):
            del pairs[name]
    return pairs


def _stanzas(index: DocumentIndex) -> Iterator[Record]:
    """Blocks of `key: value` between blank lines; a line that is indented goes on with the value above."""
    values: dict[str, Any] = {}
    key, first, at = "", 0, 0
    for number, start, line in _lines(index):
        bare = line.rstrip("\r")
        if not bare.strip():
            if values:
                yield Record("", at, f"line {first}", values)
            values, key = {}, ""
        elif bare[0] in " \t" and key:
            values[key] += f"\n{line}"
        elif match := STANZA_LINE.match(bare.encode()):
            if not values:
                first, at = number, start
            key = match[1].decode()
            if key in values:
                raise UnreadableRecords(f"line {number} has a second {key}")
            values[key] = bare[len(key) + 1 :].strip(" \t")
        elif not bare.startswith("#"):
            raise UnreadableRecords(f"line {number} has no key")
    if values:
        yield Record("", at, f"line {first}", values)


def _sections(index: DocumentIndex) -> Iterator[Record]:
    """The sections of INI and TOML, with their settings."""
    section: Record | None = None
    for number, start, line in _lines(index):
        if SECTION.match(line.encode()):
            if section is not None:
                yield section
            section = Record("", start, f"line {number}", {"section": line.strip().strip("[]")})
        elif section is not None and line.strip()[:1] not in {"", "#", ";"}:
            match = SETTING.fullmatch(line)
            if match is None:
                raise UnreadableRecords(f"line {number} is no setting")
            name = match[1].strip("\"'")
            if name in section.values:
                raise UnreadableRecords(f"line {number} has a second {name}")
            section.values[name] = match[2].strip().strip("\"'")
    if section is not None:
        yield section


def _items(index: DocumentIndex) -> Iterator[Record]:
    """The items of YAML, like those of JSON. Of what cannot be read whole, the items of the outermost lists as text."""
    if index.source.size <= LARGEST_YAML:
        try:
            yield from _in_value(load_yaml(index.source.text(0, index.source.size)), [], UNKNOWN)
        except ValueError:
            pass
        else:
            return
    yield from _listed_items(index)


def _listed_items(index: DocumentIndex) -> Iterator[Record]:
    """The items of the lists of YAML that no other list holds, by the key above them; their fields are not read."""
    depth = None
    key = ""
    for number, start, line in _lines(index):
        bare = line.lstrip(" ")
        own = len(line) - len(bare)
        outer = depth is None or own <= depth
        if bare.startswith("- ") and outer:
            depth = own
            if key:
                yield Record(key, start, f"line {number}", {TEXT: bare[2:]})
        elif bare.strip() and not bare.startswith("#") and outer:
            match = LIST_KEY.fullmatch(bare.rstrip())
            key, depth = (match[1], None) if match else ("", depth)


def _insertions(index: DocumentIndex) -> Iterator[Record]:
    """The rows that a dump of SQL inserts."""
    text = index.source.text(0, index.source.size)
    at = line = start = 0
    for table, place, values in inserted_rows(text):
        passed = text[at:place]
        at, line, start = place, line + passed.count("\n"), start + len(passed.encode())
        if values is None:
            raise UnreadableRecords(f"line {line + 1} has other values than the table has columns")
        yield Record(table, start, f"line {line + 1}", values)


def _elements(index: DocumentIndex) -> Iterator[Record]:
    elements = _Elements()
    try:
        for at in range(0, index.source.size, BLOCK):
            elements.parser.Parse(index.source.read(at, at + BLOCK), False)
        elements.parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise UnreadableRecords(f"its XML cannot be read: {error}") from error
    return iter(sorted(elements.records, key=lambda record: record.start))


def _page_tables(index: DocumentIndex) -> Iterator[Record]:
    tables = _PageTables()
    tables.feed(index.source.text(0, index.source.size))
    headers: dict[int, list[str]] = {}
    for table, line, cells in tables.rows:
        texts = [" ".join(cell.split()) for cell in cells]
        header = headers.setdefault(table, texts)
        if header != texts and texts:
            start = index.source.span_of_lines(line, line)[0]
            yield Record(f"table {table}", start, f"line {line}", _named_cells(header, texts, line))


READERS: dict[str, Callable[[DocumentIndex], Iterator[Record]]] = {
    "json": _json_records,
    "json-lines": _json_line_records,
    "table": _rows,
    "markdown-table": _markdown_tables,
    "markdown": _markdown_tables,
    "log": _events,
    "stanzas": _stanzas,
    "settings": _sections,
    "markup": _elements,
    "items": _items,
    "page": _page_tables,
}
