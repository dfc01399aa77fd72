"""`open_output("<handle>")`: a stored tool result inside the session, read piece by piece from where it lies.

Opening loads only the head, whose folded shape `inspect` shows. The host answers each read, or names a file that the
session may read itself.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from toolfold.live.worker.document_shape import document_shape
from toolfold.live.worker.originals import BUILTINS

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
        self.form, self.shape, self._separator = document_shape(text, whole=len(head) >= self.bytes)

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
