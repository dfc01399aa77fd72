"""Where everything stands in a tool result: its texts, its structured content, pictures, and the rest. Nothing decoded.

A result is read as it came, bare or inside its JSON-RPC answer. What does not have the protocol's form is kept as JSON,
so that nothing is lost. Above: `keeping.py`. Below: `scanning.py`.
"""

from typing import Literal

import msgspec
from msgspec import Struct, field

from toolfold.outputs.scanning import Scanner, Source, broken

MAX_BLOCKS = 50_000
"""A result of more blocks than this is kept as JSON: an index of them would take too much memory."""

Span = tuple[int, int]
"""Where a value begins and ends in its source."""

Kind = Literal["text", "media", "blob", "other"]


class Block(Struct, frozen=True):
    """One content block. `body`: the string literal with its text or Base64."""

    kind: Kind
    whole: Span
    body: Span | None = None
    media_type: str = ""


class Layout(Struct, kw_only=True):
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


def laid_out(source: Source, *, enveloped: bool = False) -> Layout:
    """Reads where everything stands. `enveloped`: the result still stands in its JSON-RPC answer."""
    return _Reader(source).read(enveloped)


class _Misfit(Exception):
    """The content has another form than the protocol's."""


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._scanner = Scanner(source)
        self._layout = Layout()

    def read(self, enveloped: bool) -> Layout:
        at = self._scanner.space(0)
        end = self._scanner.walk_object(at, self._envelope if enveloped else self._member)
        if not enveloped:
            self._layout.whole = (at, end)
        end = self._scanner.space(end)
        if self._scanner.piece(end, 1):
            raise broken("something follows its end", end)
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
        except _Misfit:
            end = self._scanner.value_end(at)
            self._layout.blocks = []
            self._layout.content = (at, end)
            return end

    def _block(self, at: int) -> int:
        if self._scanner.byte(at) != 0x7B or len(self._layout.blocks) >= MAX_BLOCKS:
            raise _Misfit
        found: dict[str, Span] = {}
        end = self._scanner.walk_object(at, _Noting(self._scanner, found))
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


class _Noting:
    """Notes where the members of a block stand, those of its resource among them."""

    def __init__(self, scanner: Scanner, found: dict[str, Span], prefix: str = "") -> None:
        self._scanner = scanner
        self._found = found
        self._prefix = prefix

    def __call__(self, key: str, at: int) -> int:
        if key == "resource" and not self._prefix and self._scanner.byte(at) == 0x7B:
            return self._scanner.walk_object(at, _Noting(self._scanner, self._found, "resource."))
        end = self._scanner.value_end(at)
        if key in {"type", "text", "data", "mimeType", "blob"}:
            self._found[self._prefix + key] = (at, end)
        return end
