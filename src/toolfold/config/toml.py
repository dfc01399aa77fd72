"""TOML beyond `tomllib`: where each key of a text stands, and writing tables.

Positions are read from texts that `tomllib` has accepted, so nothing is checked; what cannot be followed is left out.
Only new text is written, existing text is never reformatted, and `tomllib` reads it back as the same value. Dates and
`None` are refused.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolfold.config.files import line_and_column
from toolfold.config.validation import KeyPath, syntax_error

__all__ = ["parse_toml"]

_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL = re.compile(r"'[^'\n]*'")
# A long string may end in one or two quotes of its own, right before the three that close it.
_LONG_BASIC = re.compile(r'"""(?:[^"\\]|\\.|"(?!"")|""(?!"))*?"{3,5}', re.DOTALL)
_LONG_LITERAL = re.compile(r"'''(?:[^']|'(?!'')|''(?!'))*?'{3,5}", re.DOTALL)
_PLAIN = re.compile(r"[^,\]}#\n]*")
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
# Python's `splitlines` breaks at the last three, so that a line of the file would not be one line elsewhere.
_SPECIAL = re.compile(r'[\x00-\x1f"\\\x7f\u0085\u2028\u2029]')
_WIDTH = 100


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """The text's values. What `tomllib` refuses becomes a `ConfigError` with its place."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise syntax_error(str(path), "the nesting is too deep") from None
    except tomllib.TOMLDecodeError as error:
        # Before Python 3.14 the place stands only in the message.
        match = _TOML_PLACE.search(str(error))
        line, column = line_and_column(text, len(text))
        if match and match.group(1):
            line, column = int(match.group(1)), int(match.group(2))
        what = _TOML_PLACE.sub("", str(error))
        raise syntax_error(str(path), f"not valid TOML: {what}", line=line, column=column) from None
    except ValueError:  # Python's own bound on the digits of an integer
        raise syntax_error(str(path), "a number has too many digits") from None


class _Header(Struct, frozen=True):
    """A `[table]` or `[[array]]` line: the table's path, and the offset where its line starts."""

    path: KeyPath
    start: int


class TomlPositions:
    """The places of all keys and items of one text, which is scanned when the first is asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def scan(self) -> "_Scanner":
        return _Scanner(self.text)

    def locate(self, path: KeyPath) -> tuple[int, int] | None:
        """1-based line and column of a key, a table or an item of a list."""
        offset = self.scan.offsets.get(path)
        return None if offset is None else line_and_column(self.text, offset)


class _Scanner:
    """One pass over the text. Where it gets lost it stops and keeps what it has."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.offsets: dict[KeyPath, int] = {}
        self.headers: list[_Header] = []
        self.comments: list[int] = []
        self._at = 0
        self._table: KeyPath = ()
        self._lengths: dict[KeyPath, int] = {}
        try:
            self._document()
        except (RecursionError, _Lost):
            return  # a problem then has the place of the nearest table instead

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
        # The long forms first: `"""` also starts like an empty short string.
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
            if self._at == start:  # nothing was read: it would loop for ever
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
            comment = self.text.find("#", self._at, match.end())
            if comment >= 0:  # one stands for all of this gap
                self.comments.append(comment)
            self._at = match.end()


class _Lost(Exception):
    """The text is not what the scanner expects: it stops and keeps what it has."""


def _unquoted(key: str) -> str:
    if key[0] == "'":
        return key[1:-1]
    if key[0] == '"':
        try:
            value = tomllib.loads(f"key = {key}")["key"]
        except tomllib.TOMLDecodeError as error:
            raise _Lost from error
        return value if isinstance(value, str) else key
    return key


def remove_tables(text: str, *paths: KeyPath) -> tuple[str, str, list[int]]:
    """The text without the tables at these paths and below, what was removed, and where comments stand in that."""
    scan = TomlPositions(text).scan
    removable, lengths = set(paths), {len(path) for path in paths}
    ends = [*(header.start for header in scan.headers), len(text)][1:]
    rest, removed, comments = [text[: scan.headers[0].start] if scan.headers else text], [], []
    for header, end in zip(scan.headers, ends, strict=True):
        region = text[header.start : end]
        goes = any(header.path[:length] in removable for length in lengths)
        own, after = _split_tail(region) if goes else ("", region)
        comments += [at for at in scan.comments if header.start <= at < header.start + len(own)] if own else []
        removed.append(own)
        rest.append(after if after.strip() or not own else "")
    return "".join(rest), "".join(removed), comments


def _split_tail(region: str) -> tuple[str, str]:
    """A table's own lines, and the blank lines and comments after them, which may belong to what follows."""
    lines = region.splitlines(keepends=True)
    count = len(lines)
    while count and (not lines[count - 1].strip() or lines[count - 1].lstrip().startswith("#")):
        count -= 1
    return "".join(lines[:count]), "".join(lines[count:])


def format_table(path: Sequence[str], content: Mapping[str, Any]) -> str:
    """`[path]` with its values, then one table for each table inside, with a blank line between."""
    lines = [f"[{'.'.join(_key(part) for part in path)}]"]
    lines += [f"{_key(name)} = {_value(item)}" for name, item in content.items() if not isinstance(item, Mapping)]
    blocks = ["\n".join(lines) + "\n"]
    blocks += [format_table((*path, name), item) for name, item in content.items() if isinstance(item, Mapping)]
    return "\n".join(blocks)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("TOML cannot hold half of a surrogate pair")
    return '"' + _SPECIAL.sub(_escape, text) + '"'


def _value(item: Any) -> str:
    """A value in one piece; a table inside becomes an inline table."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, (int, float)):
        return repr(item)
    if isinstance(item, str):
        return _string(item)
    if isinstance(item, Mapping):
        pairs = ", ".join(f"{_key(name)} = {_value(inner)}" for name, inner in item.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(item, Sequence):
        return _array([_value(inner) for inner in item])
    raise TypeError(f"TOML has no form for {type(item).__name__}")


def _array(parts: list[str]) -> str:
    line = f"[{', '.join(parts)}]"
    if len(line) <= _WIDTH or len(parts) < 2:
        return line
    return "[\n" + "".join(f"  {part},\n" for part in parts) + "]"


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return _ESCAPES.get(char) or f"\\u{ord(char):04X}"
