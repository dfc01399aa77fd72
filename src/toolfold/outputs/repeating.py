"""Whether the text of a result only repeats its structured content, as most servers do it: found out in passing.

Both are reduced to a digest of the same form (no white space, escapes resolved), a piece at a time, so size does not
matter. What cannot be shown to be a repetition counts as none: then both are kept. Above: `keeping.py`.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator

from toolfold.outputs.layout import Layout, Span
from toolfold.outputs.scanning import Source
from toolfold.outputs.unescaping import raw, unescaped, whole_length

MAX_ESCAPES = 2_000_000
"""Resolving them one by one takes time; a text with more is not compared."""

_ESCAPE = re.compile(rb"\\\\|\\u([0-9a-fA-F]{4})|\\/")


class _TooMany(Exception):
    pass


def repeats(source: Source, layout: Layout) -> bool:
    """Whether the text blocks together say what the structured content says."""
    bodies = [block.body for block in layout.blocks if block.kind == "text" and block.body is not None]
    if not bodies or layout.structured is None:
        return False
    inner = layout.inner
    if inner is not None and source.read(inner[0], 1) == b'"':
        if _plain(_texts(source, bodies)) == _plain(unescaped(source, *inner)):
            return True
        inner = None
    try:
        said = _canonical(_texts(source, bodies))
        if said == _canonical(raw(source, *layout.structured)):
            return True
        if inner is None:
            return False
        listed = _canonical(_listed(source, bodies)) if len(bodies) > 1 else said
        return listed == _canonical(raw(source, *inner))
    except _TooMany:
        return False


def _texts(source: Source, bodies: Iterable[Span]) -> Iterator[bytes]:
    for body in bodies:
        yield from unescaped(source, *body)


def _listed(source: Source, bodies: Iterable[Span]) -> Iterator[bytes]:
    """A list whose items came as a block each."""
    between = b"["
    for body in bodies:
        yield between
        yield from unescaped(source, *body)
        between = b","
    yield b"]"


def _plain(pieces: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _canonical(pieces: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    rest, escapes = b"", 0
    for piece in pieces:
        data = rest + piece
        cut = whole_length(data)
        data, rest = data[:cut], data[cut:]
        escapes += data.count(b"\\u")
        if escapes > MAX_ESCAPES:
            raise _TooMany
        digest.update(_reduced(data))
    digest.update(_reduced(rest))
    return digest.digest()


def _reduced(data: bytes) -> bytes:
    data = data.translate(None, b" \t\r\n")
    if b"\\u" in data or b"\\/" in data:
        text = _ESCAPE.sub(_resolved, data).decode("utf-8", "surrogatepass")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    return data


def _resolved(found: "re.Match[bytes]") -> bytes:
    code = found[1]
    if code is None:
        return b"/" if found[0] == b"\\/" else found[0]
    number = int(code, 16)
    if number < 0x20 or number in {0x22, 0x5C}:  # these must stand escaped in JSON, whoever writes it
        return b"\\u%04x" % number
    return chr(number).encode("utf-8", "surrogatepass")
