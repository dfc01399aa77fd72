"""Parses JSON as people write it for editors, with comments and trailing commas, and records where each value stands.

It accepts all of JSON and those two additions, nothing more. Above: the reader of an `mcp.json` and the import.
"""

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

from toolfold.config.files import line_and_column
from toolfold.config.validation import KeyPath, syntax_error

_MAX_DEPTH = 100
# Files from this size are decoded by the C parser first, and scanned for places only when an error needs one.
_FAST_PARSE_SIZE = 256 * 1024

_GAP = re.compile(r"[ \t\r\n]+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
# Python refuses to convert more than 4300 digits, with an error that knows no place.
_MAX_DIGITS = 4000
_DECODER = json.JSONDecoder()


class _JsonError(ValueError):
    """The text is not JSON; `offset` says where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class _JsonDocument:
    """A parsed text: its value, and where each part of it stands."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.value: Any = self._parse_fast() if len(text) >= _FAST_PARSE_SIZE else self._parser.value

    def locate(self, path: KeyPath) -> tuple[int, int] | None:
        """Line and column of a key or of an item of a list."""
        offset = self._parser.keys.get(path)
        return None if offset is None else line_and_column(self.text, offset)

    def span(self, path: KeyPath) -> tuple[int, int] | None:
        """The offsets of a value's text."""
        return self._parser.spans.get(path)

    @property
    def comments(self) -> list[int]:
        """The offsets at which comments start."""
        return self._parser.comments

    @property
    def duplicates(self) -> list[KeyPath]:
        """Keys that stand twice in one object; the last one counts."""
        return self._parser.duplicates

    @cached_property
    def _parser(self) -> "_Parser":
        return _Parser(self.text)

    def _parse_fast(self) -> Any:
        try:
            # Python alone would accept NaN and Infinity, which no other reader of the file does.
            return json.loads(self.text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return self._parser.value


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


class _Parser:
    """One pass over the text by recursive descent. The depth is bounded, since a file of brackets is easily made."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.keys: dict[KeyPath, int] = {}
        self.spans: dict[KeyPath, tuple[int, int]] = {}
        self.comments: list[int] = []
        self.duplicates: list[KeyPath] = []
        self._skip()
        self.value = self._value(())
        self._skip()
        if self.at < len(self.text):
            raise _JsonError("there is something after the end of the document", self.at)

    def _value(self, path: KeyPath) -> Any:
        if len(path) > _MAX_DEPTH:
            raise _JsonError(f"the nesting is deeper than {_MAX_DEPTH} levels", self.at)
        start = self.at
        char = self.text[start : start + 1]
        if char == "{":
            value: Any = self._object(path)
        elif char == "[":
            value = self._array(path)
        elif char == '"':
            value = self._string()
        else:
            value = self._scalar()
        self.spans[path] = (start, self.at)
        return value

    def _object(self, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        self.at += 1
        while not self._ends("}"):
            key_at = self.at
            if self.text[key_at : key_at + 1] != '"':
                raise _JsonError(f"expected a key in double quotes, found {self._next()}", key_at)
            key = self._string()
            here = (*path, key)
            # JSON leaves open what a repeated key means; Python takes the last, and so would a client.
            if key in result:
                self.duplicates.append(here)
            self.keys[here] = key_at
            self._skip()
            if self.text[self.at : self.at + 1] != ":":
                raise _JsonError(f"expected ':' after a key, found {self._next()}", self.at)
            self.at += 1
            self._skip()
            result[key] = self._value(here)
            self._comma("}")
        self.at += 1
        return result

    def _array(self, path: KeyPath) -> list[Any]:
        result: list[Any] = []
        self.at += 1
        while not self._ends("]"):
            here = (*path, len(result))
            self.keys[here] = self.at
            result.append(self._value(here))
            self._comma("]")
        self.at += 1
        return result

    def _ends(self, close: str) -> bool:
        self._skip()
        return self.text[self.at : self.at + 1] == close

    def _comma(self, close: str) -> None:
        self._skip()
        char = self.text[self.at : self.at + 1]
        if char == ",":
            self.at += 1
        elif char != close:
            raise _JsonError(f"expected ',' or '{close}', found {self._next()}", self.at)

    def _string(self) -> str:
        try:
            value, self.at = _DECODER.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            raise _JsonError(error.msg[0].lower() + error.msg[1:], error.pos) from None
        return str(value)

    def _scalar(self) -> Any:
        for word, value in _WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        match = _NUMBER.match(self.text, self.at)
        if not match:
            raise _JsonError(f"expected a value, found {self._next()}", self.at)
        digits = match.group()
        if len(digits) > _MAX_DIGITS:
            raise _JsonError("the number has too many digits", self.at)
        self.at = match.end()
        return float(digits) if any(char in digits for char in ".eE") else int(digits)

    def _skip(self) -> None:
        """Passes blanks and comments."""
        while match := _GAP.match(self.text, self.at):
            if match.group().startswith("/"):
                self.comments.append(self.at)
            self.at = match.end()
        if self.text.startswith("/*", self.at):
            raise _JsonError("a comment is not closed", self.at)

    def _next(self) -> str:
        char = self.text[self.at : self.at + 1]
        if not char:
            return "the end of the file"
        return f"'{char}'" if char.isprintable() else f"character U+{ord(char):04X}"


def is_json(path: Path, text: str) -> bool:
    if path.suffix.casefold() in {".json", ".jsonc", ".json5"}:
        return True
    return path.suffix.casefold() != ".toml" and text.lstrip().startswith("{")


def parse_json(path: Path, text: str) -> _JsonDocument:
    """The text's values and places. What is not JSON becomes a `ConfigError` with its place."""
    try:
        return _JsonDocument(text)
    except _JsonError as error:
        line, column = line_and_column(text, error.offset)
        raise syntax_error(str(path), f"not valid JSON: {error}", line=line, column=column) from None
