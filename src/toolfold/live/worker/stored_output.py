"""`open_output("<handle>")`: a stored tool result inside the session, read piece by piece from where it lies.

Opening loads only the head, whose folded shape `inspect` shows. The host answers each read, or names a file that the
session may read itself.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from toolfold.live.worker.originals import BUILTINS

# The folded shape of a document, from its first bytes: which fields there are, of which types, how deep.

globals()["__builtins__"] = BUILTINS

_DEPTH_MAX = 4
_LINES_MAX = 200
_ITEMS_MAX = 50
_NESTING_MAX = 200  # values inside one another that are parsed: far below the recursion limit
_scan_string: Any = vars(json.decoder)["scanstring"]
_NUMBER = "-+.eE0123456789"
_WORDS = {"true": True, "false": False, "null": None}
_TYPE_NAMES = {str: "string", bool: "boolean", int: "number", float: "number", dict: "object", list: "array"}


class _EndOfHead(Exception):
    """The text ends here, or is no JSON from here on."""


class _JsonHead:
    """Parses the start of a JSON text. What is cut off is left out, and `truncated` is set."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0
        self.truncated = False

    def value(self, depth: int = 0) -> Any:
        char = self._next_char()
        if depth > _NESTING_MAX:
            raise _EndOfHead
        if char in "{[":
            return self._container(depth, is_object=char == "{")
        return self._string() if char == '"' else self._word()

    def _next_char(self) -> str:
        """Skips white space."""
        while self.position < len(self._text):
            char = self._text[self.position]
            if char not in " \t\r\n":
                return char
            self.position += 1
        raise _EndOfHead

    def _string(self) -> str:
        try:
            text: str
            text, self.position = _scan_string(self._text, self.position + 1, False)
        except ValueError as error:
            raise _EndOfHead from error
        return text

    def _word(self) -> Any:
        for word, value in _WORDS.items():
            if self._text.startswith(word, self.position):
                self.position += len(word)
                return value
        start = self.position
        while self.position < len(self._text) and self._text[self.position] in _NUMBER:
            self.position += 1
        if self.position == start or self.position == len(self._text):
            raise _EndOfHead
        return 0  # only the type of a number is shown

    def _container(self, depth: int, *, is_object: bool) -> Any:
        members: dict[str, Any] = {}
        items: list[Any] = []
        self.position += 1
        try:
            while self._next_char() != ("}" if is_object else "]"):
                if is_object:
                    key = self._string()
                    members[key] = None  # the key counts even where its value is cut off
                    self._next_char()
                    self.position += 1  # the colon
                    members[key] = self.value(depth + 1)
                else:
                    items.append(self.value(depth + 1))
                if self._next_char() == ",":
                    self.position += 1
            self.position += 1
        except _EndOfHead:
            self.truncated = True
            self.position = len(self._text)
        return members if is_object else items


def _document_shape(text: str, *, whole: bool) -> tuple[str, list[str], str]:
    """The form (`json`, `json lines`, `table` or `text`), its shape, a line a field, and the column separator."""
    if text.lstrip()[:1] in {"{", "["}:
        return (*_json_shape(text, whole=whole), "")
    first = text.split("\n", 1)[0]
    rows = [line for line in text.split("\n")[1:5] if line.strip()][:3]
    for mark in ("\t", ","):
        columns = first.count(mark)
        if columns and rows and all(row.count(mark) == columns for row in rows):
            return "table", _bounded(f"{name.strip()}: column" for name in first.split(mark)), mark
    return "text", [f"first line: {first[:200]}"], ""


def _json_shape(text: str, *, whole: bool) -> tuple[str, list[str]]:
    head = _JsonHead(text)
    form, value = "json", head.value()
    if text[head.position :].strip()[:1] in {"{", "["}:
        form, value = "json lines", [value]
    lines = _bounded(_shape_lines(value, "", 0))
    if head.truncated or not whole:
        lines.append("(seen in the first bytes; there is more)")
    return form, lines


def _bounded(lines: Iterable[str]) -> list[str]:
    """The first lines, with a mark where there are more."""
    rest = iter(lines)
    shown = list(islice(rest, _LINES_MAX))
    return shown if next(rest, None) is None else [*shown[:-1], f"(more than these {_LINES_MAX - 1} lines)"]


def _shape_lines(value: Any, path: str, depth: int) -> Iterator[str]:
    if type(value) is dict:
        for key, item in value.items():
            yield from _field_lines(f"{path}.{key}" if path else key, item, depth)
    elif type(value) is list:
        yield from _field_lines(f"{path}[]", _merge_items(value), depth)
    else:
        yield f"{path or 'value'}: {_json_type(value)}"


def _field_lines(path: str, item: Any, depth: int) -> Iterator[str]:
    path = path[:200]
    if type(item) is dict and item:
        yield f"{path}: object ({len(item)} fields)"
    elif type(item) is list:
        yield f"{path}: array ({len(item)} seen)"
    else:
        yield f"{path}: {_json_type(item)}"
    if depth < _DEPTH_MAX and type(item) in {dict, list} and item:
        yield from _shape_lines(item, path, depth + 1)


def _merge_items(values: list[Any]) -> Any:
    """The items of an array as one: an object with the fields of all."""
    objects = [value for value in values[:_ITEMS_MAX] if type(value) is dict]
    if not objects:
        return values[0] if values else None
    merged: dict[str, Any] = {}
    for item in objects:
        for key, value in item.items():
            if merged.get(key) is None:
                merged[key] = value
    return merged


def _json_type(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), "null")


globals()["__builtins__"] = BUILTINS

_HEAD_BYTES = 64 * 1024
_PIECE_BYTES = 512 * 1024
_SHAPE_LINES_MAX = 24

_Ask = Callable[[dict[str, Any]], dict[str, Any]]


class OutputUnavailable(Exception):
    """A stored output that cannot be read: no such handle, or the host cannot be asked from here."""


class StoredOutput:
    """One stored tool result. `text`, `lines`, `json` and `rows` read it; nothing that was read is cached."""

    _file = -1

    def __init__(self, handle: str, ask: _Ask, facts: dict[str, Any]) -> None:
        self.handle = handle
        self.bytes = int(facts.get("bytes", 0))
        self._ask = ask
        path = facts.get("path")
        if type(path) is str:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.bytes = os.fstat(self._file).st_size
        head = self.read(0, _HEAD_BYTES)
        text = head.decode("utf-8", "replace")
        self.form, self.shape, self._separator = _document_shape(text, whole=len(head) >= self.bytes)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def read(self, offset: int = 0, size: int = _PIECE_BYTES) -> bytes:
        """Some bytes, at most half a megabyte at a time."""
        offset, size = max(0, offset), max(0, min(size, _PIECE_BYTES))
        if self._file >= 0:
            return os.pread(self._file, size, offset)
        answer = self._ask({"ask": "read_output", "handle": self.handle, "offset": offset, "size": size})
        if "error" in answer:
            raise OutputUnavailable(answer["error"])
        data: str = answer["data"]
        return data.encode("latin-1")

    def pieces(self) -> Iterator[bytes]:
        offset = 0
        while piece := self.read(offset):
            yield piece
            offset += len(piece)

    def text(self, start: int = 0, size: int | None = None) -> str:
        """The text from a byte on; without a size, all of it."""
        if size is not None and size <= _PIECE_BYTES:
            return self.read(start, size).decode("utf-8", "replace")
        data = b"".join(self.pieces())
        return data[start : None if size is None else start + size].decode("utf-8", "replace")

    def lines(self) -> Iterator[str]:
        """Line by line, with no more than one piece and one line in memory."""
        rest = b""
        for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")
        if rest:
            yield rest.decode("utf-8", "replace")

    def json(self) -> Any:
        """The whole, decoded. For JSON lines, a list of their values."""
        if self.form == "json lines":
            return list(self.rows())
        return json.loads(b"".join(self.pieces()))

    def rows(self) -> Iterator[Any]:
        """The rows of a table: objects of JSON lines or of a JSON array, or dicts of a CSV or TSV file."""
        if self.form == "table":
            import csv

            yield from csv.DictReader(self.lines(), delimiter=self._separator)
        elif self.form == "json lines":
            yield from (json.loads(line) for line in self.lines() if line.strip())
        else:
            document = self.json()
            yield from document if type(document) is list else [document]

    def __len__(self) -> int:
        return self.bytes

    def __repr__(self) -> str:
        lines = "\n".join(f"  {line}" for line in self.shape[:_SHAPE_LINES_MAX])
        more = f"\n  … (+{len(self.shape) - _SHAPE_LINES_MAX} more)" if len(self.shape) > _SHAPE_LINES_MAX else ""
        title = f"<stored output {self.handle}: {self.form}, {self.bytes} bytes"
        return f"{title}\n{lines}{more}\n  read it with .text(start, size), .lines(), .json(), .rows()>"


def make_open_output(ask: _Ask) -> Callable[[str], StoredOutput]:
    def open_output(handle: str) -> StoredOutput:
        """Opens a stored tool result by its handle. Nothing is loaded until it is read."""
        answer = ask({"ask": "open_output", "handle": str(handle)})
        if "error" in answer:
            raise OutputUnavailable(answer["error"])
        return StoredOutput(str(handle), ask, answer)

    return open_output
