"""JSON as people write it for editors: with comments and trailing commas, and with the place of every value.

It accepts all of JSON and those two additions, nothing more. Above: the reader of `mcp.json` and the import.
"""

import json
import re
from functools import cached_property
from typing import Any

from toolfold.config.files import line_and_column
from toolfold.config.validation import KeyPath

_MAX_DEPTH = 100
_FAST_PARSE_SIZE = 256 * 1024
"""Files from this size are decoded by the C parser first; places are then found only when somebody asks."""

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_MAX_DIGITS = 4000
_DECODER = json.JSONDecoder()


class JsonError(ValueError):
    """The text is not JSON; `offset` says where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class JsonDocument:
    """A parsed text: its value, and where each part of it stands."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.value: Any = self._fast() if len(text) >= _FAST_PARSE_SIZE else self._places.value

    def locate(self, path: KeyPath) -> tuple[int, int] | None:
        """Line and column of a key or of an item of a list."""
        offset = self._places.keys.get(path)
        return None if offset is None else line_and_column(self.text, offset)

    def span(self, path: KeyPath) -> tuple[int, int] | None:
        """The offsets of a value's text."""
        return self._places.spans.get(path)

    @property
    def comments(self) -> list[tuple[int, int]]:
        return self._places.comments

    @property
    def duplicates(self) -> list[KeyPath]:
        """Keys that stand twice in one object; the last one counts."""
        return self._places.duplicates

    @cached_property
    def _places(self) -> "_Parser":
        parser = _Parser(self.text)
        parser.parse()
        return parser

    def _fast(self) -> Any:
        try:
            return json.loads(self.text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return self._places.value


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


class _Parser:
    """One pass over the text by recursive descent, with a bound on depth."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.value: Any = None
        self.keys: dict[KeyPath, int] = {}
        self.spans: dict[KeyPath, tuple[int, int]] = {}
        self.comments: list[tuple[int, int]] = []
        self.duplicates: list[KeyPath] = []

    def parse(self) -> None:
        self._skip()
        self.value = self._value(())
        self._skip()
        if self.at < len(self.text):
            raise JsonError("there is something after the end of the document", self.at)

    def _value(self, path: KeyPath) -> Any:
        if len(path) > _MAX_DEPTH:
            raise JsonError(f"the nesting is deeper than {_MAX_DEPTH} levels", self.at)
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
                raise JsonError(f"expected a key in double quotes, found {self._found()}", key_at)
            key = self._string()
            here = (*path, key)
            if key in result:
                self.duplicates.append(here)
            self.keys[here] = key_at
            self._skip()
            if self.text[self.at : self.at + 1] != ":":
                raise JsonError(f"expected ':' after a key, found {self._found()}", self.at)
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
            raise JsonError(f"expected ',' or '{close}', found {self._found()}", self.at)

    def _string(self) -> str:
        try:
            value, self.at = _DECODER.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            raise JsonError(error.msg[0].lower() + error.msg[1:], error.pos) from None
        return str(value)

    def _scalar(self) -> Any:
        for word, value in _WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        match = _NUMBER.match(self.text, self.at)
        if not match:
            raise JsonError(f"expected a value, found {self._found()}", self.at)
        digits = match.group()
        if len(digits) > _MAX_DIGITS:
            raise JsonError("the number has too many digits", self.at)
        self.at = match.end()
        return float(digits) if any(char in digits for char in ".eE") else int(digits)

    def _skip(self) -> None:
        """Passes blanks and comments."""
        while True:
            match = _SPACE.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.text.startswith("//", self.at):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
            elif self.text.startswith("/*", self.at):
                close = self.text.find("*/", self.at + 2)
                if close < 0:
                    raise JsonError("a comment is not closed", self.at)
                end = close + 2
            else:
                return
            self.comments.append((self.at, end))
            self.at = end

    def _found(self) -> str:
        char = self.text[self.at : self.at + 1]
        if not char:
            return "the end of the file"
        return f"'{char}'" if char.isprintable() else f"character U+{ord(char):04X}"
