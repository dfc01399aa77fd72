"""The folded shape of a document, from its first bytes: what fields there are, of which types, how deep.

A head of JSON is cut somewhere; the reader here takes what is whole and stops there.
"""

import json
from typing import Any

from toolfold.live.worker.originals import BUILTINS

globals()["__builtins__"] = BUILTINS

_DEPTH_MAX = 4
_LINES_MAX = 200
_ITEMS_MAX = 50
_STRING: Any = vars(json.decoder)["scanstring"]
_NUMBER = "-+.eE0123456789"
_WORDS = {"true": True, "false": False, "null": None}


class _EndOfHead(Exception):
    """The head ends here."""


class _JsonHead:
    """Reads the start of a JSON text into values; what is cut off is left out and `cut` is set."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.cut = False

    def value(self, depth: int = 0) -> Any:
        self._blank()
        char = self._char()
        if depth > 200:
            raise _EndOfHead
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char == '"':
            return self._string()
        return self._word()

    def _char(self) -> str:
        if self._at >= len(self._text):
            raise _EndOfHead
        return self._text[self._at]

    def _blank(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
            self._at += 1

    def _string(self) -> str:
        try:
            found: str
            found, self._at = _STRING(self._text, self._at + 1, False)
        except ValueError as error:
            raise _EndOfHead from error
        return found

    def _word(self) -> Any:
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in _NUMBER:
            self._at += 1
        if self._at == start or self._at == len(self._text):
            raise _EndOfHead
        return float(self._text[start : self._at]) if "." in self._text[start : self._at] else 1

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        try:
            self._blank()
            while self._char() != "}":
                self._blank()
                key = self._string()
                self._blank()
                self._at += 1  # the colon
                found[key] = None
                found[key] = self.value(depth + 1)
                self._blank()
                if self._char() == ",":
                    self._at += 1
                    self._blank()
            self._at += 1
        except _EndOfHead:
            self.cut = True
            self._at = len(self._text)
        return found

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        try:
            self._blank()
            while self._char() != "]":
                found.append(self.value(depth + 1))
                self._blank()
                if self._char() == ",":
                    self._at += 1
            self._at += 1
        except _EndOfHead:
            self.cut = True
            self._at = len(self._text)
        return found


def document_shape(text: str, *, whole: bool) -> tuple[str, list[str], str]:
    """The form (`json`, `json lines`, `table` or `text`), its shape, a line a field, and the mark between columns."""
    start = text.lstrip()[:1]
    if start and start in "{[":
        return (*_json_shape(text, whole=whole), "")
    first = text.split("\n", 1)[0]
    rows = [line for line in text.split("\n")[1:5] if line.strip()][:3]
    for mark in ("\t", ","):
        if first.count(mark) >= 1 and rows and all(row.count(mark) == first.count(mark) for row in rows):
            return "table", [f"{name.strip()}: column" for name in first.split(mark)][:_LINES_MAX], mark
    return "text", [f"first line: {first[:200]}"], ""


def _json_shape(text: str, *, whole: bool) -> tuple[str, list[str]]:
    head = _JsonHead(text)
    try:
        value = head.value()
    except _EndOfHead:
        return "text", [f"first line: {text[:200]}"]
    rest = text[head._at :].strip()  # noqa: SLF001 - the same module
    form = "json lines" if rest[:1] in {"{", "["} else "json"
    if form == "json lines":
        value = [value]
    lines: list[str] = []
    _add_lines(value, "", lines, 0)
    if head.cut or not whole:
        lines.append("(seen in the first bytes; there is more)")
    return form, lines


def _add_lines(value: Any, path: str, lines: list[str], depth: int) -> None:
    if len(lines) >= _LINES_MAX:
        return
    if type(value) is dict:
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            _add_line(where, item, lines, depth)
    elif type(value) is list:
        _add_line(f"{path}[]", _merge_items(value), lines, depth)
    else:
        lines.append(f"{path or 'value'}: {_json_type(value)}")


def _add_line(where: str, item: Any, lines: list[str], depth: int) -> None:
    where = where[:200]
    if type(item) is dict and item:
        lines.append(f"{where}: object ({len(item)} fields)")
    elif type(item) is list:
        lines.append(f"{where}: array ({len(item)} seen)")
    else:
        lines.append(f"{where}: {_json_type(item)}")
    if depth < _DEPTH_MAX and type(item) in {dict, list} and item:
        _add_lines(item, where, lines, depth + 1)


def _merge_items(values: list[Any]) -> Any:
    """Items of an array are told as one: objects with the fields of all."""
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
    names = {str: "string", bool: "boolean", int: "number", float: "number", dict: "object", list: "array"}
    return names.get(type(value), "null")
