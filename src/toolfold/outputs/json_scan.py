"""Streaming JSON: where each value of a file begins and ends, and its strings as text, a piece at a time.

Nothing is held whole and all heavy steps are searches over bytes, so a gigabyte takes seconds. Only ends are found;
what a value says is not checked. Pieces of a string are cut so that no escape and no character is torn. Above:
`split.py`. Below: any `ByteSource`.
"""

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from toolfold.errors import ProtocolViolation

PIECE = 1 << 20
# Most values are small: the end is first looked for in a small piece, then in pieces that grow.
FIRST_PIECE = 512

MAX_KEY = 1 << 16

# A surrogate pair: twice a backslash, `u` and four digits.
LONGEST_ESCAPE = 12

_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]+")
_QUOTES_AND_BRACKETS = re.compile(rb'["{}\[\]]')
_NO_BRACKETS = bytes(code for code in range(256) if code not in b"{}[]")
_OPENING = frozenset(b"{[")

_lenient_decoder = json.JSONDecoder(strict=False)
_string_decoder = msgspec.json.Decoder(str)


class ByteSource(Protocol):
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


class JsonScanner:
    """Walks forwards through one document. A visitor gets where a value begins and returns where it ends."""

    def __init__(self, source: ByteSource, *, size: int = PIECE) -> None:
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
            piece = self.piece(at, FIRST_PIECE)
            match = _SPACE.match(piece)
            length = match.end() if match else 0
            if length < len(piece) or not piece:
                return at + length
            at += length

    def byte(self, at: int) -> int:
        piece = self.piece(at, 1)
        if not piece:
            raise malformed("it ends too early", at)
        return piece[0]

    def value_end(self, at: int) -> int:
        first = self.byte(at)
        if first == 0x22:
            return self.string_end(at)
        if first in _OPENING:
            return self._container_end(at)
        end = at
        while (match := _SCALAR.match(self.piece(end, FIRST_PIECE))) is not None:
            end += match.end()
        if end == at:
            raise malformed("a value is missing", at)
        return end

    def string_end(self, at: int) -> int:
        position, size = at + 1, FIRST_PIECE
        while True:
            piece = self.piece(position, size)
            masked = _mask_escapes(piece)
            end = masked.find(b'"')
            if end >= 0:
                return position + end + 1
            step = len(piece) - masked.endswith(b"\\")
            if step <= 0:
                raise malformed("a string does not end", at)
            position += step
            size = min(size * 8, PIECE)

    def _container_end(self, at: int) -> int:
        position, size, depth, inside = at + 1, FIRST_PIECE, 1, 0
        while True:
            piece = self.piece(position, size)
            masked = _mask_escapes(piece)
            masked = masked[: len(masked) - masked.endswith(b"\\")]
            if not masked:
                raise malformed("it ends too early", position)
            parts = masked.split(b'"')
            brackets = b"".join(parts[inside::2]).translate(None, _NO_BRACKETS)
            lowest, change = _balance(brackets)
            if depth + lowest <= 0:
                return position + _closing(masked, inside, depth)
            depth += change
            inside ^= (len(parts) - 1) & 1
            position += len(masked)
            size = min(size * 8, PIECE)

    def walk_object(self, at: int, member: Callable[[str, int], int]) -> int:
        """Calls `member(key, value_begins) -> value_ends` for each."""
        if self.byte(at) != 0x7B:
            raise malformed("an object is expected", at)
        at = self.space(at + 1)
        if self.byte(at) == 0x7D:
            return at + 1
        while True:
            if self.byte(at) != 0x22:
                raise malformed("a name is expected", at)
            end = self.string_end(at)
            key = self._key(at, end)
            at = self.space(end)
            if self.byte(at) != 0x3A:
                raise malformed("a colon is expected", at)
            at = self.space(member(key, self.space(at + 1)))
            if self.byte(at) == 0x7D:
                return at + 1
            if self.byte(at) != 0x2C:
                raise malformed("a comma is expected", at)
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
                raise malformed("a comma is expected", at)
            at = self.space(at + 1)

    def _key(self, at: int, end: int) -> str:
        if end - at > MAX_KEY:
            raise malformed("a name is too long", at)
        return _decode_piece(self._source.read(at + 1, end - at - 2), at).decode()


def _mask_escapes(piece: bytes) -> bytes:
    """The piece at the same length without escaped quotes and backslashes: a quote that is left ends a string."""
    # A single backslash may be left at the end: what it escapes comes with the next piece.
    return piece.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in piece else piece


def _balance(brackets: bytes) -> tuple[int, int]:
    """The lowest depth on the way through, and the depth at the end, from 0 at the start."""
    # Removing innermost pairs, level by level, is far quicker than counting brackets one by one.
    for _ in range(8):
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    depth = lowest = 0
    for bracket in brackets:
        depth += 1 if bracket in _OPENING else -1
        lowest = min(lowest, depth)
    return lowest, depth


def _closing(masked: bytes, inside: int, depth: int) -> int:
    """Where the bracket ends that closes everything."""
    for mark in _QUOTES_AND_BRACKETS.finditer(masked):
        if mark[0] == b'"':
            inside ^= 1
        elif not inside:
            depth += 1 if mark[0] in b"{[" else -1
            if depth <= 0:
                return mark.end()
    raise malformed("its brackets do not match", 0)


def malformed(what: str, at: int) -> ProtocolViolation:
    return ProtocolViolation(
        f"the result of the call cannot be read: {what} (byte {at})",
        next_action="report this to the author of the server",
    )


def iter_string(source: ByteSource, start: int, end: int, *, size: int = PIECE) -> Iterator[bytes]:
    """The UTF-8 text of the string literal that stands, quotes included, from `start` to `end`."""
    position, end = start + 1, end - 1
    while position < end:
        piece = source.read(position, min(size, end - position))
        if not piece:
            raise malformed("it ends too early", position)
        if position + len(piece) < end:
            piece = piece[: decodable_length(piece)]
        yield _decode_piece(piece, position)
        position += len(piece)


def iter_raw(source: ByteSource, start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start` to `end`."""
    while start < end:
        piece = source.read(start, min(PIECE, end - start))
        if not piece:
            raise malformed("it ends too early", start)
        yield piece
        start += len(piece)


def iter_base64(source: ByteSource, start: int, end: int) -> Iterator[bytes]:
    """The bytes that the Base64 of a string literal stands for."""
    rest = b""
    for piece in iter_string(source, start, end):
        text = (rest + piece).translate(None, b" \t\r\n")
        cut = len(text) - len(text) % 4
        rest = text[cut:]
        yield _decode_base64(text[:cut])
    yield _decode_base64(rest + b"=" * (-len(rest) % 4))


def _decode_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, altchars=b"-_" if b"-" in text or b"_" in text else None, validate=True)
    except binascii.Error as error:
        raise malformed(f"binary content is no Base64: {error}", 0) from error


def decodable_length(piece: bytes) -> int:
    """How much of a piece can be decoded without what follows it."""
    end = len(piece)
    if b"\\" in piece[-LONGEST_ESCAPE:]:
        end = _length_before_escape(piece)
    for back in range(1, 4):
        if back > end:
            break
        byte = piece[end - back]
        if byte >= 0xC0:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return end - back if needs > back else end
        if byte < 0x80:
            break
    return end


def _length_before_escape(piece: bytes) -> int:
    """The length without an escape at the end that may be torn."""
    masked = _mask_escapes(piece)
    last = masked.rfind(b"\\", max(0, len(masked) - LONGEST_ESCAPE))
    if last < 0:
        return len(piece)
    escape = piece[last : last + 6]
    torn = len(escape) < (6 if escape[1:2] == b"u" else 2)
    if not torn and not _is_high(escape):
        return len(piece)
    # A high surrogate waits for its second half; of a torn second half, the first one is held back, too.
    return last - 6 if torn and _is_high(piece[max(0, last - 6) : last]) else last


def _is_high(escape: bytes) -> bool:
    return len(escape) == 6 and escape[:2] == b"\\u" and escape[2:3] in b"dD" and escape[3:4] in b"89abAB"


def _decode_piece(piece: bytes, position: int) -> bytes:
    if b"\\" not in piece:
        return piece if _is_utf8(piece) else piece.decode("utf-8", "replace").encode()
    try:
        return _string_decoder.decode(b'"%b"' % piece).encode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_leniently(piece, position)


def _decode_leniently(piece: bytes, position: int) -> bytes:
    """Control characters as they are, halves of surrogate pairs and bad bytes replaced."""
    try:
        text = _lenient_decoder.decode('"' + piece.decode("utf-8", "replace") + '"')
    except ValueError as error:
        raise malformed(f"a string holds an escape that does not exist: {error}", position) from error
    return str(text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _is_utf8(piece: bytes) -> bool:
    if piece.isascii():
        return True
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
