"""Where everything stands in a tool result: its texts, its structured content, pictures, and the rest. Nothing decoded.

A result is read as it came, bare or inside its JSON-RPC answer. What does not have the protocol's form is kept as JSON,
so that nothing is lost. Above: `keeping.py`. Below: `scanning.py`.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import Struct, field

from toolfold.outputs.json_scan import ByteSource, JsonScanner, decodable_length, iter_raw, iter_string, malformed

MAX_BLOCKS = 50_000
"""A result of more blocks than this is kept as JSON: an index of them would take too much memory."""

Span = tuple[int, int]
"""Where a value begins and ends in its source."""

BlockKind = Literal["text", "media", "blob", "other"]


class Block(Struct, frozen=True):
    """One content block. `body`: the string literal with its text or Base64."""

    kind: BlockKind
    whole: Span
    body: Span | None = None
    media_type: str = ""


class ResultLayout(Struct, kw_only=True):
    """A whole result."""

    blocks: list[Block] = field(default_factory=list)
    content: Span | None = None
    """Instead of `blocks`, where the content has another form than the protocol's."""
    structured: Span | None = None
    inner: Span | None = None
    """The only value in the structured content, where there is one: many servers wrap what they return."""
    is_error: bool = False
    whole: Span = (0, 0)
    """The result itself."""
    rest: dict[str, Span] = field(default_factory=dict)
    """All other members, such as `_meta`."""


def read_layout(source: ByteSource, *, enveloped: bool = False) -> ResultLayout:
    """Reads where everything stands. `enveloped`: the result still stands in its JSON-RPC answer."""
    return _LayoutReader(source).read(enveloped)


class _UnknownForm(Exception):
    """The content has another form than the protocol's."""


class _LayoutReader:
    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._scanner = JsonScanner(source)
        self._layout = ResultLayout()

    def read(self, enveloped: bool) -> ResultLayout:
        at = self._scanner.space(0)
        end = self._scanner.walk_object(at, self._envelope if enveloped else self._member)
        if not enveloped:
            self._layout.whole = (at, end)
        end = self._scanner.space(end)
        if self._scanner.piece(end, 1):
            raise malformed("something follows its end", end)
        return self._layout

    def _envelope(self, key: str, at: int) -> int:
        if key != "result":
            return self._scanner.value_end(at)
        end = self._scanner.walk_object(at, self._member)
        self._layout.whole = (at, end)
        return end

    def _member(self, key: str, at: int) -> int:
        if key == "content" and self._scanner.byte(at) == 0x5B:
            return self._content(at)
        if key == "structuredContent":
            return self._structured(at)
        end = self._scanner.value_end(at)
        if key == "isError":
            self._layout.is_error = self._source.read(at, end - at) == b"true"
        elif key == "content":
            self._layout.content = (at, end)
        else:
            self._layout.rest[key] = (at, end)
        return end

    def _structured(self, at: int) -> int:
        if self._scanner.byte(at) != 0x7B:
            end = self._scanner.value_end(at)
            if self._source.read(at, 4) != b"null":
                self._layout.structured = (at, end)
            return end
        inner: dict[str, Span] = {}

        def member(key: str, start: int) -> int:
            end = self._scanner.value_end(start)
            if len(inner) < 2:
                inner[key] = (start, end)
            return end

        end = self._scanner.walk_object(at, member)
        self._layout.structured = (at, end)
        self._layout.inner = next(iter(inner.values())) if len(inner) == 1 else None
        return end

    def _content(self, at: int) -> int:
        try:
            return self._scanner.walk_array(at, self._block)
        except _UnknownForm:
            end = self._scanner.value_end(at)
            self._layout.blocks = []
            self._layout.content = (at, end)
            return end

    def _block(self, at: int) -> int:
        if self._scanner.byte(at) != 0x7B or len(self._layout.blocks) >= MAX_BLOCKS:
            raise _UnknownForm
        found: dict[str, Span] = {}
        end = self._scanner.walk_object(at, _MemberSpans(self._scanner, found))
        self._layout.blocks.append(self._read_block(found, (at, end)))
        return end

    def _read_block(self, found: dict[str, Span], whole: Span) -> Block:
        kind = self._word(found.get("type"))
        if kind == "text" and self._is_string(found.get("text")):
            return Block("text", whole, found["text"])
        if kind in {"image", "audio"} and self._is_string(found.get("data")):
            return Block("media", whole, found["data"], self._word(found.get("mimeType")) or f"{kind}/*")
        if kind == "resource":
            media = self._word(found.get("resource.mimeType"))
            if self._is_string(found.get("resource.text")):
                return Block("text", whole, found["resource.text"], media)
            if self._is_string(found.get("resource.blob")):
                return Block("blob", whole, found["resource.blob"], media or "application/octet-stream")
        return Block("other", whole)

    def _is_string(self, span: Span | None) -> bool:
        return span is not None and self._source.read(span[0], 1) == b'"'

    def _word(self, span: Span | None) -> str:
        """A short string, or nothing."""
        if span is None or span[1] - span[0] > 200:
            return ""
        try:
            return msgspec.json.decode(self._source.read(span[0], span[1] - span[0]), type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""


class _MemberSpans:
    """Notes where the members of a block stand, those of its resource among them."""

    def __init__(self, scanner: JsonScanner, found: dict[str, Span], prefix: str = "") -> None:
        self._scanner = scanner
        self._found = found
        self._prefix = prefix

    def __call__(self, key: str, at: int) -> int:
        if key == "resource" and not self._prefix and self._scanner.byte(at) == 0x7B:
            return self._scanner.walk_object(at, _MemberSpans(self._scanner, self._found, "resource."))
        end = self._scanner.value_end(at)
        if key in {"type", "text", "data", "mimeType", "blob"}:
            self._found[self._prefix + key] = (at, end)
        return end


# --- Whether the text of a result only repeats its structured content, as most servers do it: found out in passing.

MAX_ESCAPES = 2_000_000
"""Resolving them one by one takes time; a text with more is not compared."""

_ESCAPE = re.compile(rb"\\\\|\\u([0-9a-fA-F]{4})|\\/")


class _TooManyEscapes(Exception):
    pass


def text_repeats_structured(source: ByteSource, layout: ResultLayout) -> bool:
    """Whether the text blocks together say what the structured content says."""
    bodies = [block.body for block in layout.blocks if block.kind == "text" and block.body is not None]
    if not bodies or layout.structured is None:
        return False
    inner = layout.inner
    if inner is not None and source.read(inner[0], 1) == b'"':
        if _digest(_texts(source, bodies)) == _digest(iter_string(source, *inner)):
            return True
        inner = None
    try:
        said = _canonical_digest(_texts(source, bodies))
        if said == _canonical_digest(iter_raw(source, *layout.structured)):
            return True
        if inner is None:
            return False
        listed = _canonical_digest(_as_array(source, bodies)) if len(bodies) > 1 else said
        return listed == _canonical_digest(iter_raw(source, *inner))
    except _TooManyEscapes:
        return False


def _texts(source: ByteSource, bodies: Iterable[Span]) -> Iterator[bytes]:
    for body in bodies:
        yield from iter_string(source, *body)


def _as_array(source: ByteSource, bodies: Iterable[Span]) -> Iterator[bytes]:
    """A list whose items came as a block each."""
    between = b"["
    for body in bodies:
        yield between
        yield from iter_string(source, *body)
        between = b","
    yield b"]"


def _digest(pieces: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _canonical_digest(pieces: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    rest, escapes = b"", 0
    for piece in pieces:
        data = rest + piece
        cut = decodable_length(data)
        data, rest = data[:cut], data[cut:]
        escapes += data.count(b"\\u")
        if escapes > MAX_ESCAPES:
            raise _TooManyEscapes
        digest.update(_canonicalize(data))
    digest.update(_canonicalize(rest))
    return digest.digest()


def _canonicalize(data: bytes) -> bytes:
    data = data.translate(None, b" \t\r\n")
    if b"\\u" in data or b"\\/" in data:
        text = _ESCAPE.sub(_resolve_escape, data).decode("utf-8", "surrogatepass")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    return data


def _resolve_escape(found: "re.Match[bytes]") -> bytes:
    code = found[1]
    if code is None:
        return b"/" if found[0] == b"\\/" else found[0]
    number = int(code, 16)
    if number < 0x20 or number in {0x22, 0x5C}:  # these must stand escaped in JSON, whoever writes it
        return b"\\u%04x" % number
    return chr(number).encode("utf-8", "surrogatepass")
