"""Finds where keys stand in a TOML text, since `tomllib` gives values without places.

It reads only texts that `tomllib` has accepted, so it checks nothing; what it cannot follow it leaves out.
"""

import re

from msgspec import Struct

from toolfold.config.files import line_and_column
from toolfold.config.validation import KeyPath

_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL = re.compile(r"'[^'\n]*'")
_LONG_BASIC = re.compile(r'"""(?:[^"\\]|\\.|"(?!"")|""(?!"))*?"{3,5}', re.DOTALL)
_LONG_LITERAL = re.compile(r"'''(?:[^']|'(?!'')|''(?!'))*?'{3,5}", re.DOTALL)
_PLAIN = re.compile(r"[^,\]}#\n]*")


class _Header(Struct, frozen=True):
    """A `[table]` or `[[array]]` line: the table's path, and the offset where its line starts."""

    path: KeyPath
    start: int


class TomlPositions:
    """The places of all keys and items of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.offsets: dict[KeyPath, int] = {}
        self.headers: list[_Header] = []
        self._at = 0
        self._table: KeyPath = ()
        self._lengths: dict[KeyPath, int] = {}
        try:
            self._document()
        except (RecursionError, _Lost):
            return

    def locate(self, path: KeyPath) -> tuple[int, int] | None:
        """1-based line and column of a key, a table or an item of a list."""
        offset = self.offsets.get(path)
        return None if offset is None else line_and_column(self.text, offset)

    def _document(self) -> None:
        while True:
            self._skip(_GAP)
            if self._at >= len(self.text):
                return
            if self.text[self._at] == "[":
                self._header()
            else:
                self._pair(self._table)

    def _header(self) -> None:
        start = self._at
        is_array = self.text.startswith("[[", start)
        self._at += 2 if is_array else 1
        self._skip(_BLANK)
        first = self._at
        names = self._dotted()
        self._skip(_BLANK)
        self._at += 2 if is_array else 1
        path = self._within(names[:-1], first)
        path = (*path, names[-1][0])
        if is_array:
            index = self._lengths.get(path, 0)
            self._lengths[path] = index + 1
            self.offsets.setdefault(path, first)
            path = (*path, index)
        self.offsets.setdefault(path, first)
        self._table = path
        self.headers.append(_Header(path, self.text.rfind("\n", 0, start) + 1))

    def _within(self, names: list[tuple[str, int]], first: int) -> KeyPath:
        """The path of a header's parents; an array of tables stands for its last table."""
        path: KeyPath = ()
        for name, _ in names:
            path = (*path, name)
            self.offsets.setdefault(path, first)
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return path

    def _pair(self, table: KeyPath) -> None:
        path = table
        for name, offset in self._dotted():
            path = (*path, name)
            self.offsets.setdefault(path, offset)
        self._skip(_BLANK)
        self._at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _dotted(self) -> list[tuple[str, int]]:
        names = [self._key()]
        while True:
            self._skip(_BLANK)
            if not self.text.startswith(".", self._at):
                return names
            self._at += 1
            self._skip(_BLANK)
            names.append(self._key())

    def _key(self) -> tuple[str, int]:
        start = self._at
        for pattern in (_BARE_KEY, _BASIC, _LITERAL):
            match = pattern.match(self.text, start)
            if match:
                self._at = match.end()
                return _unquoted(match.group()), start
        raise _Lost

    def _value(self, path: KeyPath) -> None:
        char = self.text[self._at : self._at + 1]
        if char == "[":
            self._array(path)
        elif char == "{":
            self._inline_table(path)
        else:
            self._scalar()

    def _scalar(self) -> None:
        for pattern in (_LONG_BASIC, _LONG_LITERAL, _BASIC, _LITERAL, _PLAIN):
            match = pattern.match(self.text, self._at)
            if match:
                self._at = match.end()
                return

    def _array(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        while not self._closes("]"):
            start = self._at
            self.offsets.setdefault((*path, index), start)
            self._value((*path, index))
            if self._at == start:
                raise _Lost
            index += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        while not self._closes("}"):
            self._pair(path)

    def _closes(self, close: str) -> bool:
        """Passes blanks and a comma; true once the bracket is closed."""
        self._skip(_GAP)
        if self.text.startswith(",", self._at):
            self._at += 1
            self._skip(_GAP)
        if self._at >= len(self.text):
            raise _Lost
        if self.text[self._at] == close:
            self._at += 1
            return True
        return False

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self._at)
        if match:
            self._at = match.end()


class _Lost(Exception):
    """The text is not what the scanner expects: it stops and keeps what it has."""


def _unquoted(key: str) -> str:
    if key[0] == "'":
        return key[1:-1]
    if key[0] == '"':
        import tomllib

        try:
            value = tomllib.loads(f"key = {key}")["key"]
        except tomllib.TOMLDecodeError as error:
            raise _Lost from error
        return value if isinstance(value, str) else key
    return key
