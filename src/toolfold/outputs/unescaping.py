"""A JSON string that lies in a file, given back as its text, a piece at a time: linear, and never whole in memory.

Pieces are cut so that no escape, surrogate pair or UTF-8 sequence is torn. Half of a surrogate pair becomes U+FFFD, as
does a byte that is no UTF-8; an escape that does not exist is an error. Above: `keeping.py`. Below: `scanning.py`.
"""

import base64
import binascii
import json
from collections.abc import Iterator

import msgspec

from toolfold.outputs.scanning import PIECE, Source, broken, without_escapes

LONGEST_ESCAPE = 12
"""A surrogate pair: twice a backslash, `u` and four digits."""

_lenient = json.JSONDecoder(strict=False)
_text = msgspec.json.Decoder(str)


def unescaped(source: Source, start: int, end: int, *, size: int = PIECE) -> Iterator[bytes]:
    """The UTF-8 text of the string literal that stands, quotes included, from `start` to `end`."""
    position, end = start + 1, end - 1
    while position < end:
        piece = source.read(position, min(size, end - position))
        if not piece:
            raise broken("it ends too early", position)
        if position + len(piece) < end:
            piece = piece[: whole_length(piece)]
        yield _decoded(piece, position)
        position += len(piece)


def raw(source: Source, start: int, end: int) -> Iterator[bytes]:
    """The bytes as they are."""
    while start < end:
        piece = source.read(start, min(PIECE, end - start))
        if not piece:
            raise broken("it ends too early", start)
        yield piece
        start += len(piece)


def unbased(source: Source, start: int, end: int) -> Iterator[bytes]:
    """The bytes that the Base64 of a string literal stands for."""
    rest = b""
    for piece in unescaped(source, start, end):
        text = (rest + piece).translate(None, b" \t\r\n")
        cut = len(text) - len(text) % 4
        rest = text[cut:]
        yield _unbased(text[:cut])
    yield _unbased(rest + b"=" * (-len(rest) % 4))


def _unbased(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, altchars=b"-_" if b"-" in text or b"_" in text else None, validate=True)
    except binascii.Error as error:
        raise broken(f"binary content is no Base64: {error}", 0) from error


def whole_length(piece: bytes) -> int:
    """How much of a piece can be decoded without what follows it."""
    end = len(piece)
    if b"\\" in piece[-LONGEST_ESCAPE:]:
        end = _before_escape(piece)
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


def _before_escape(piece: bytes) -> int:
    """The length without an escape at the end that may be torn."""
    masked = without_escapes(piece)
    last = masked.rfind(b"\\", max(0, len(masked) - LONGEST_ESCAPE))
    if last < 0:
        return len(piece)
    escape = piece[last : last + 6]
    torn = len(escape) < (6 if escape[1:2] == b"u" else 2)
    if not torn and not _is_high(escape):
        return len(piece)
    # A first half alone, or a torn second one: the half that stands before it goes with it.
    return last - 6 if torn and _is_high(piece[max(0, last - 6) : last]) else last


def _is_high(escape: bytes) -> bool:
    return len(escape) == 6 and escape[:2] == b"\\u" and escape[2:3] in b"dD" and escape[3:4] in b"89abAB"


def _decoded(piece: bytes, position: int) -> bytes:
    if b"\\" not in piece:
        return piece if _is_utf8(piece) else piece.decode("utf-8", "replace").encode()
    try:
        return _text.decode(b'"%b"' % piece).encode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _leniently(piece, position)


def _leniently(piece: bytes, position: int) -> bytes:
    """Control characters as they are, halves of surrogate pairs and bad bytes replaced."""
    try:
        text = _lenient.decode('"' + piece.decode("utf-8", "replace") + '"')
    except ValueError as error:
        raise broken(f"a string holds an escape that does not exist: {error}", position) from error
    return str(text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _is_utf8(piece: bytes) -> bool:
    if piece.isascii():
        return True
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
