"""Values that no schema describes: objects whose keys are attributes, too, texts that keep what they came with, and
what is still with the host: large results and stored outputs, read when the script looks into them."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.json import decode

# Returns the text at an offset, and the offset of the next piece.
_Fetch = Callable[[int], tuple[str, int]]


class Record(dict[str, Any]):
    """A JSON object. A key that is a method of `dict`, such as `items`, is reached as `record["items"]`."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name == "raw":
            return self
        keys = ", ".join(list(self)[:30])
        raise AttributeError(f"there is no {name!r} in this object; there is: {keys}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Records(list[Any]):
    """A JSON array as a whole result. `result` is what its server calls it, where it must send an object."""

    @property
    def raw(self) -> list[Any]:
        return self

    result = raw


class TextResult(str):
    """A result that is a text; `content` has every block that came. The keys of a JSON object are attributes, too."""

    __slots__ = ("_parsed", "content", "raw")
    content: list[Any]
    raw: Any

    @property
    def text(self) -> str:
        return str(self)

    def json(self) -> Any:
        """The text parsed as JSON, once."""
        try:
            return object.__getattribute__(self, "_parsed")
        except AttributeError:
            self._parsed = wrap(json.loads(str(self)))
            return self._parsed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._object(name), name)

    def __getitem__(self, key: Any) -> Any:
        return self._object(key)[key] if isinstance(key, str) else super().__getitem__(key)

    def _object(self, key: str) -> Record:
        """The text as a JSON object. Raises `AttributeError` where it is none."""
        try:
            value = self.json()
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, Record):
            return value
        array = "the text of a JSON array", "take .json() first"
        what, advice = array if isinstance(value, list) else ("a text that is no JSON object", "read it as a str")
        raise AttributeError(f"the result is {what}, so it has no {key!r}: {advice}")


def wrap(value: Any) -> Any:
    """The value with every object in it made a `Record`."""
    if type(value) is dict:
        return Record((key, wrap(item)) for key, item in value.items())
    if type(value) is list:
        return [wrap(item) for item in value]
    return value


class LazyResult:
    """A large result that is still with the host, loaded when the script looks into it. `size` is in bytes of JSON."""

    def __init__(self, size: int, fetch: _Fetch, read: Callable[[dict[str, Any]], Any]) -> None:
        self.size = size
        self._fetch = fetch
        self._read = read
        self._loaded: Any = None

    def load(self) -> Any:
        """Returns the result itself."""
        if self._loaded is None:
            self._loaded = self._read(decode("".join(self.pieces())))
        return self._loaded

    def pieces(self) -> Iterator[str]:
        """Yields the JSON text of the whole result piece by piece, for what is larger than the memory at hand."""
        offset = 0
        while offset < self.size:
            piece, offset = self._fetch(offset)
            yield piece

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.load(), name)

    def __getitem__(self, key: Any) -> Any:
        return self.load()[key]

    def __len__(self) -> int:
        return len(self.load())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.load())

    def __contains__(self, item: Any) -> bool:
        return item in self.load()

    def __str__(self) -> str:
        return str(self.load())

    def __bool__(self) -> bool:
        # Without this, truth would take the length, and so load it all.
        return True

    def __repr__(self) -> str:
        return f"<a result of {self.size:,} bytes, not loaded>" if self._loaded is None else repr(self._loaded)


class StoredOutput:
    """A stored tool result, by its handle. As an argument of a tool it stands for its whole text."""

    def __init__(self, handle: str, size: int, fetch: _Fetch) -> None:
        """`fetch` gives each byte as one character."""
        self.handle = handle
        self.bytes = size
        self.reference = {"$output": handle}
        self._fetch = fetch

    def pieces(self, start: int = 0) -> Iterator[bytes]:
        """Yields the bytes from an offset on, piece by piece."""
        while start < self.bytes:
            piece, start = self._fetch(start)
            yield piece.encode("latin-1")

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """Some bytes; without a size, all from there on."""
        data, left = b"", self.bytes if size is None else size
        for piece in self.pieces(offset):
            data += piece[: left - len(data)]
            if len(data) >= left:
                break
        return data

    def text(self, start: int = 0, size: int | None = None) -> str:
        return self.read(start, size).decode("utf-8", "replace")

    def lines(self) -> Iterator[str]:
        """Line by line, with no more than one piece and one line in memory."""
        rest = b""
        for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in whole)
        if rest:
            yield rest.decode("utf-8", "replace")

    def json(self) -> Any:
        """The whole, parsed as JSON."""
        return wrap(json.loads(self.read()))

    def __len__(self) -> int:
        return self.bytes

    def __repr__(self) -> str:
        return f"<stored output {self.handle}, {self.bytes:,} bytes: .text(start, size), .lines(), .json(), .read()>"
