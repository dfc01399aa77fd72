"""The bytes of a document, read a piece at a time, and the few facts that every step needs.

The file is never held whole in Python objects. Positions are byte offsets from 0; lines count from 1. Above:
everything in `local`. Below: `document.py`.
"""

import codecs
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from toolfold.outputs.document import open_regular_file

Offsets = npt.NDArray[np.int64]

BLOCK = 8 << 20
# What a block includes of its neighbour, so that nothing is missed at a border.
MARGIN = 512
HEAD = 64 * 1024
# A text in another encoding is held in memory while it is asked.
MAX_TRANSCODED = 32 << 20
# What stands in no text, but in bytes that are read as one by mistake.
BINARY_TYPE = "application/octet-stream"
_MAGIC = {
    b"\x1f\x8b": "application/gzip",
    b"PK\3\4": "application/zip",
    b"%PDF-": "application/pdf",
    b"BZh": "application/x-bzip2",
    b"\xfd7zXZ\0": "application/x-xz",
    b"(\xb5/\xfd": "application/zstd",
    b"7z\xbc\xaf": "application/x-7z-compressed",
    b"\x89PNG\r\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}
_CONTROLS = bytes([*range(9), *range(14, 27), *range(28, 32)])
NO_TEXT = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f\ufffd\ud800-\udfff]")


def sorted_unique(values: npt.NDArray[np.integer[Any]]) -> Offsets:
    """The different values in order."""
    # np.unique hashes in newer versions of numpy, which is slow on millions; most values are sorted already.
    ordered = values if len(values) < 2 or bool((values[1:] >= values[:-1]).all()) else np.sort(values)
    keep = np.ones(len(ordered), dtype=np.bool_)
    keep[1:] = ordered[1:] != ordered[:-1]
    return ordered[keep].astype(np.int64, copy=False)


def is_binary(head: bytes) -> bool:
    """Whether bytes are no text, judged from the first of them."""
    if _utf16_of(head):
        return False
    zeros, controls = head.count(b"\0"), len(head) - len(head.translate(None, _CONTROLS))
    # What is compressed holds all bytes alike, and is no UTF-8; text in an encoding of single bytes has no controls.
    return zeros > len(head) // 100 or (controls > len(head) // 100 and not _is_utf8(head))


def _media_type_of(head: bytes) -> str:
    """What binary content is, by its first bytes."""
    return next((kind for start, kind in _MAGIC.items() if head.startswith(start)), BINARY_TYPE)


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last letter may be cut
    except UnicodeDecodeError:
        return False
    return True


def _utf16_of(head: bytes) -> str:
    """`utf-16-le` or `-be` where the text is in one of them: it has a mark, or every other byte is zero."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    marked = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(head[:2], "")
    share = 0.35 * len(head)
    guess = marked or ("utf-16-le" if odd > share and not even else "utf-16-be" if even > share and not odd else "")
    if not guess or len(head) < 4:
        return ""
    text = head[: len(head) // 2 * 2].decode(guess, errors="replace")
    return "" if NO_TEXT.search(text) else guess


def _transcoded(raw: bytes, encoding: str) -> bytes:
    """The text in UTF-8. What is no UTF-8 in a text of single bytes is read as Windows and the web do: cp1252."""
    if encoding != "latin-1":
        return raw.decode(encoding, errors="replace").removeprefix("\ufeff").encode(errors="replace")
    codecs.register_error("toolfold-cp1252", _read_as_cp1252)
    return raw.decode(errors="toolfold-cp1252").encode()


def _read_as_cp1252(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("cp1252", errors="replace"), error.end


class Source:
    """One document on disk, as UTF-8. It is open inside `with source:` only, so that nothing keeps it alive after.

    `encoding` is what the file is in; where that is not UTF-8, positions are those of the text in UTF-8.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.encoding = ""
        self._file: BinaryIO | None = None
        self._newlines: Offsets | None = None

    def __enter__(self) -> Self:
        self._file = open_regular_file(self.path)
        if not self.encoding:
            self.encoding = self._detect_encoding()
        if self.encoding != "utf-8":
            with self._file as file:
                file.seek(0)
                raw = file.read()
            self._file = BytesIO(_transcoded(raw, self.encoding))
            self.size = len(self._file.getvalue())
        return self

    def _detect_encoding(self) -> str:
        head = self.read(0, HEAD)
        if is_binary(head) or self.size > MAX_TRANSCODED:
            return "utf-8"
        if utf16 := _utf16_of(head):
            return utf16
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for _, block in self.blocks():
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "latin-1"
        return "utf-8"

    @contextmanager
    def as_utf8_file(self) -> Iterator[Path]:
        """A file with the text, for other processes: the document itself where it is UTF-8."""
        if self.encoding == "utf-8":
            yield self.path
            return
        with tempfile.NamedTemporaryFile(prefix="toolfold-extract-") as file:
            file.write(self.read(0, self.size))
            file.flush()
            yield Path(file.name)

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, fewer at the end of the file."""
        start, end = max(0, start), min(self.size, end)
        if end <= start or self._file is None:
            return b""
        self._file.seek(start)
        parts = []
        while start < end and (part := self._file.read(end - start)):
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def text(self, start: int, end: int) -> str:
        return self.read(start, end).decode(errors="replace")

    def blocks(self, *, margin: int = 0, before: int = 0) -> Iterator[tuple[int, bytes]]:
        """The document in blocks, each with its offset, `before` bytes of the one before and `margin` of the next."""
        for at in range(0, self.size, BLOCK):
            yield at, self.read(at - before, at + BLOCK + margin)

    @property
    def newlines(self) -> Offsets:
        """Where each newline is. Computed once."""
        if self._newlines is None:
            empty = np.zeros(0, dtype=np.int64)
            parts = [np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + at for at, block in self.blocks()]
            self._newlines = np.concatenate([empty, *parts])
        return self._newlines

    @property
    def lines(self) -> int:
        """How many lines there are; a last one without a newline counts."""
        count = len(self.newlines)
        return count + int(self.size > 0 and (count == 0 or int(self.newlines[-1]) != self.size - 1))

    def line_at(self, offset: int) -> int:
        """The number of the line that holds the byte at `offset`."""
        return int(np.searchsorted(self.newlines, offset, side="left")) + 1

    def span_of_lines(self, first: int, last: int) -> tuple[int, int]:
        """Where lines `first` to `last` begin and end, the newline left out."""
        newlines = self.newlines
        start = 0 if first <= 1 else int(newlines[min(first - 2, len(newlines) - 1)]) + 1
        end = int(newlines[last - 1]) if last - 1 < len(newlines) else self.size
        return start, max(start, end)
