"""Walks JSON that lies in a file without decoding it: where each member begins and ends, in linear time, a piece at a
time.

It finds ends and checks nothing else: what a value says is for whoever reads it. All heavy steps are searches over
bytes, so a gigabyte takes seconds. Above: `layout.py`. Below: any `Source` of bytes.
"""

import os
import re
from collections.abc import Callable
from typing import Protocol

import msgspec

from toolfold.errors import ProtocolViolation

PIECE = 1 << 20
FIRST = 512
"""A value is first looked for in a small piece: most are small."""

MAX_KEY = 1 << 16

_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]+")
_MARKS = re.compile(rb'["{}\[\]]')
_NO_BRACKETS = bytes(code for code in range(256) if code not in b"{}[]")
_OPENING = frozenset(b"{[")


class Source(Protocol):
    """Bytes that can be read anywhere."""

    def read(self, at: int, size: int, /) -> bytes: ...


class FileSource:
    """An open file. Reading moves no position, so several may read at once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, at: int, size: int, /) -> bytes:
        return os.pread(self._descriptor, size, at)


class BytesSource:
    """Bytes in memory."""

    def __init__(self, data: "bytes | memoryview | msgspec.Raw") -> None:
        self._view = memoryview(data)

    def read(self, at: int, size: int, /) -> bytes:
        return bytes(self._view[at : at + size])


class Scanner:
    """A walk through one document, forwards. A visitor is given where a value begins and gives back where it ends."""

    def __init__(self, source: Source, *, size: int = PIECE) -> None:
        self._source = source
        self._size = size
        self._base = 0
        self._window = b""

    def piece(self, at: int, size: int) -> bytes:
        """Up to `size` bytes from `at`; nothing at the end."""
        start = at - self._base
        if start < 0 or start + size > len(self._window):
            self._base, start = at, 0
            self._window = self._source.read(at, self._size)
        return self._window[start : start + size]

    def space(self, at: int) -> int:
        """Where the next thing begins."""
        while True:
            piece = self.piece(at, FIRST)
            found = _SPACE.match(piece)
            length = found.end() if found else 0
            if length < len(piece) or not piece:
                return at + length
            at += length

    def byte(self, at: int) -> int:
        piece = self.piece(at, 1)
        if not piece:
            raise broken("it ends too early", at)
        return piece[0]

    # --- values

    def value_end(self, at: int) -> int:
        first = self.byte(at)
        if first == 0x22:
            return self.string_end(at)
        if first in _OPENING:
            return self._container_end(at)
        end = at
        while (found := _SCALAR.match(self.piece(end, FIRST))) is not None:
            end += found.end()
        if end == at:
            raise broken("a value is missing", at)
        return end

    def string_end(self, at: int) -> int:
        position, size = at + 1, FIRST
        while True:
            piece = self.piece(position, size)
            masked = without_escapes(piece)
            end = masked.find(b'"')
            if end >= 0:
                return position + end + 1
            step = len(piece) - masked.endswith(b"\\")
            if step <= 0:
                raise broken("a string does not end", at)
            position += step
            size = min(size * 8, PIECE)

    def _container_end(self, at: int) -> int:
        position, size, depth, inside = at + 1, FIRST, 1, 0
        while True:
            piece = self.piece(position, size)
            masked = without_escapes(piece)
            masked = masked[: len(masked) - masked.endswith(b"\\")]
            if not masked:
                raise broken("it ends too early", position)
            parts = masked.split(b'"')
            brackets = b"".join(parts[inside::2]).translate(None, _NO_BRACKETS)
            lowest, change = _balance(brackets)
            if depth + lowest <= 0:
                return position + _closing(masked, inside, depth)
            depth += change
            inside ^= (len(parts) - 1) & 1
            position += len(masked)
            size = min(size * 8, PIECE)

    # --- containers that are walked into

    def walk_object(self, at: int, member: Callable[[str, int], int]) -> int:
        """Calls `member(key, value_begins) -> value_ends` for each."""
        if self.byte(at) != 0x7B:
            raise broken("an object is expected", at)
        at = self.space(at + 1)
        if self.byte(at) == 0x7D:
            return at + 1
        while True:
            if self.byte(at) != 0x22:
                raise broken("a name is expected", at)
            end = self.string_end(at)
            key = self._key(at, end)
            at = self.space(end)
            if self.byte(at) != 0x3A:
                raise broken("a colon is expected", at)
            at = self.space(member(key, self.space(at + 1)))
            if self.byte(at) == 0x7D:
                return at + 1
            if self.byte(at) != 0x2C:
                raise broken("a comma is expected", at)
            at = self.space(at + 1)

    def walk_array(self, at: int, item: Callable[[int], int]) -> int:
        """Calls `item(begins) -> ends` for each."""
        at = self.space(at + 1)
        if self.byte(at) == 0x5D:
            return at + 1
        while True:
            at = self.space(item(at))
            if self.byte(at) == 0x5D:
                return at + 1
            if self.byte(at) != 0x2C:
                raise broken("a comma is expected", at)
            at = self.space(at + 1)

    def _key(self, at: int, end: int) -> str:
        if end - at > MAX_KEY:
            raise broken("a name is too long", at)
        try:
            return msgspec.json.decode(self._source.read(at, end - at), type=str)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise broken(str(error), at) from error


def without_escapes(piece: bytes) -> bytes:
    """The same length, with no escaped quote or backslash in it: a quote that is left ends a string.

    A single backslash may stand at the end: what it escapes comes with the next piece.
    """
    return piece.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in piece else piece


def _balance(brackets: bytes) -> tuple[int, int]:
    """The lowest depth on the way through, and the depth at the end, from 0 at the start."""
    for _ in range(8):
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    depth = lowest = 0
    for bracket in brackets:
        depth += 1 if bracket in _OPENING else -1
        lowest = min(lowest, depth)
    return lowest, depth


def _closing(masked: bytes, inside: int, depth: int) -> int:
    """Where the bracket ends that closes everything."""
    for mark in _MARKS.finditer(masked):
        found = mark[0]
        if found == b'"':
            inside ^= 1
        elif not inside:
            depth += 1 if found in b"{[" else -1
            if depth <= 0:
                return mark.end()
    raise broken("its brackets do not match", 0)


def broken(what: str, at: int) -> ProtocolViolation:
    return ProtocolViolation(
        f"the result of the call cannot be read: {what} (byte {at})",
        next_action="report this to the author of the server",
    )
