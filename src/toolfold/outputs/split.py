"""Splits one result that is too large: what fits goes on to the model, each other part is stored under a handle.

A result falls into parts: its text, its structured content where the text does not repeat it, each picture, sound or
blob, and the rest. They are found by their places in the JSON, bare or inside its JSON-RPC answer, without decoding;
what has another form than the protocol's stays JSON. Nothing is cut and nothing is dropped. All of this blocks: it runs
in a thread. Above: `large_results.py`. Below: `json_scan.py`, `token_counter.py`, `store.py`.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

import msgspec
from msgspec import Raw, Struct, field

from toolfold import tokens
from toolfold.errors import FrameTooLarge, ProtocolViolation
from toolfold.outputs.json_scan import (
    ByteSource,
    JsonScanner,
    decodable_length,
    iter_base64,
    iter_raw,
    iter_string,
    malformed,
)
from toolfold.outputs.shape import describe_binary, describe_output
from toolfold.outputs.store import Draft, OutputStore
from toolfold.outputs.token_counter import Counts, LineCounter, count_tokens
from toolfold.outputs.tool_output_definition import too_large_message
from toolfold.types import EMPTY_OBJECT, Caller, Outcome, Stored

# A result of more blocks than this is kept as JSON: an index of them would take too much memory.
MAX_BLOCKS = 50_000
# Escapes are resolved one by one, which takes time: a text with more of them is not compared.
MAX_ESCAPES = 2_000_000
_ESCAPE = re.compile(rb"\\\\|\\u([0-9a-fA-F]{4})|\\/")
# The offsets of a value in its source: first byte, and the one after the last.
Span = tuple[int, int]
_BlockKind = Literal["text", "media", "blob", "other"]
JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain"
MAX_JSON_CHECK = 8 << 20
# How much longer JSON with escapes may be than its text, about.
ESCAPE_FACTOR = 8


class _Block(Struct, frozen=True):
    """One content block. `body`: the string literal with its text or Base64."""

    kind: _BlockKind
    whole: Span
    body: Span | None = None
    media_type: str = ""


class _ResultLayout(Struct, kw_only=True):
    """A whole result."""

    blocks: list[_Block] = field(default_factory=list)
    # Instead of `blocks`, where the content has another form than the protocol's.
    content: Span | None = None
    structured: Span | None = None
    # The only value in the structured content, where there is one: many servers wrap what they return.
    inner: Span | None = None
    is_error: bool = False
    # The result itself.
    whole: Span = (0, 0)
    # All other members, such as `_meta`.
    rest: dict[str, Span] = field(default_factory=dict)

    @property
    def texts(self) -> list[_Block]:
        return [block for block in self.blocks if block.kind == "text"]


class ResultLimits(Struct, frozen=True):
    """What may go to the model as it is, and how much may be held in memory."""

    max_bytes: int
    max_tokens: int
    media_bytes: int
    held_bytes: int

    def allow(self, texts: Sequence[bytes], taken: int = 0) -> bool:
        """Whether texts are within both limits together, where so many bytes are taken already."""
        size, room = sum(map(len, texts)), self.max_bytes - taken
        # No text has more tokens than bytes, so most texts need no tokeniser.
        if size > room or size <= self.max_tokens:
            return size <= room
        return sum(tokens.count(text.decode("utf-8", "replace")) for text in texts) <= self.max_tokens


class Origin(Struct, frozen=True):
    """Whose call made the result."""

    caller: Caller
    tool_id: str
    arguments: str
    # What the client calls the tool, where that is not its id.
    shown_as: str = ""
    input_schema: Raw = EMPTY_OBJECT


class _Part(Struct, eq=False):
    """One part of a result. `blocks` or `member` is its place in the result, for a part that goes on as it came."""

    what: str
    media_type: str
    # An upper bound of its size: its bytes in the JSON, with escapes.
    bound: int
    pieces: Callable[[], Iterator[bytes]]
    blocks: tuple[_Block, ...] = ()
    member: tuple[str, Span] | None = None
    binary: bool = False
    draft: Draft | None = None
    counts: Counts = Counts()
    # What stands beside the message about it.
    hint: str = ""


class ResultSplitter:
    """Splits one result. `check_cancelled` is called now and then, and raises to stop."""

    def __init__(
        self, source: ByteSource, store: OutputStore, origin: Origin, check_cancelled: Callable[[], None]
    ) -> None:
        self._source = source
        self._store = store
        self._origin = origin
        self._check_cancelled = check_cancelled

    def split(self, limits: ResultLimits, *, enveloped: bool) -> tuple[Outcome, tuple[Stored, ...]]:
        """The result that goes on, and the records of what was stored of it."""
        layout = _read_layout(self._source, enveloped=enveloped)
        parts = self._parts(layout)
        with self._all_or_nothing(parts):
            stored = self._store_excess(parts, limits)
            result = self._result(layout, parts, stored) if stored else self._whole_result(layout, limits)
        _discard(part for number, part in enumerate(parts) if number not in stored)
        records = tuple(stored.values())
        stored_first = records[0] if records else None
        return Outcome(raw=result, is_error=layout.is_error, stored=stored_first, all_stored=records), records

    def store_text(self, size: int) -> Stored:
        """Stores the source as it is: a text that is no tool's result, such as what a script printed."""
        part = _Part("the text", TEXT_TYPE, size, lambda: iter_raw(self._source, 0, size))
        with self._all_or_nothing([part]):
            self._write(part)
            return self._finish(part)

    @contextmanager
    def _all_or_nothing(self, parts: list[_Part]) -> Iterator[None]:
        """Where something fails or is cancelled, everything that was stored before is removed."""
        try:
            yield
            self._check_cancelled()
        except BaseException:
            _discard(parts)
            raise

    def _parts(self, layout: _ResultLayout) -> list[_Part]:
        # Most servers send the same twice, as text and as structured content: one of them is enough. Where the text is
        # what the structured content wraps, the latter is: paths into it are those that the tool's schema shows.
        repetition = _repetition(self._source, layout)
        parts = [self._text(texts)] if (texts := layout.texts) and repetition != "wrapped" else []
        if layout.structured is not None and repetition != "same":
            parts.append(self._member("structuredContent", layout.structured, "the structured content"))
        if layout.content is not None:
            parts.append(self._member("content", layout.content, "the content"))
        parts += [self._member(key, span, f"the member {key!r}") for key, span in layout.rest.items()]
        return parts + [self._block(block) for block in layout.blocks if block.kind != "text"]

    def _text(self, blocks: list[_Block]) -> _Part:
        bound = sum(end - start for start, end in _bodies(blocks))
        pieces = partial(_joined_texts, self._source, _bodies(blocks))
        return _Part("the text", _media_type(blocks), bound, pieces, tuple(blocks))

    def _member(self, key: str, span: Span, what: str) -> _Part:
        return _Part(what, JSON_TYPE, span[1] - span[0], lambda: iter_raw(self._source, *span), member=(key, span))

    def _block(self, block: _Block) -> _Part:
        size = block.whole[1] - block.whole[0]
        body = block.body
        if block.kind == "other" or body is None:
            return _Part("a further block", JSON_TYPE, size, lambda: iter_raw(self._source, *block.whole), (block,))
        what = "binary content" if block.kind == "blob" else "a picture or sound"
        return _Part(what, block.media_type, size, lambda: iter_base64(self._source, *body), (block,), binary=True)

    def _store_excess(self, parts: list[_Part], limits: ResultLimits) -> dict[int, Stored]:
        """Stores what does not fit, by its place in `parts`. The smallest go on, as many as fit."""
        media = [part for part in parts if part.binary and part.blocks[0].kind == "media"]
        others = [part for part in parts if part not in media]
        excess = [*_excess_media(media, limits), *self._excess(others, limits)]
        return {number: self._finish(part) for number, part in enumerate(parts) if part in excess}

    def _excess(self, parts: list[_Part], limits: ResultLimits) -> list[_Part]:
        bound = sum(part.bound for part in parts)
        if bound <= min(limits.max_bytes, limits.max_tokens):
            return []
        # Escapes are resolved in memory only where the result can still fit: an escape is at most so much longer.
        if bound <= ESCAPE_FACTOR * limits.max_bytes and _parts_fit(parts, limits):
            return []
        for part in parts:
            if not part.binary:
                self._write(part)
        return _excess_parts(parts, limits)

    def _write(self, part: _Part) -> None:
        """Writes a part into a draft and counts it."""
        draft = part.draft = self._store.draft(self._origin.caller)
        lines = LineCounter()
        for piece in part.pieces():
            self._check_cancelled()
            draft.write(piece)
            lines.add(piece)
        if part.binary:
            part.counts = Counts(lines.bytes)
            return
        tokens = count_tokens(draft.descriptor, lines.bytes, self._check_cancelled)
        part.counts = Counts(lines.bytes, lines.lines, tokens)
        if part.media_type == TEXT_TYPE and _looks_like_json(draft.descriptor, lines.bytes):
            part.media_type = JSON_TYPE

    def _finish(self, part: _Part) -> Stored:
        self._check_cancelled()
        if part.draft is None:
            self._write_binary(part)
        if part.draft is None:
            raise ValueError("a part that was not written cannot be stored")
        part.hint = self._hint(part, part.draft)
        return part.draft.finish(
            part.counts,
            tool_id=self._origin.tool_id,
            arguments=self._origin.arguments,
            media_type=part.media_type,
            shown_as=self._origin.shown_as,
        )

    def _hint(self, part: _Part, draft: Draft) -> str:
        size = part.counts.bytes
        if part.binary and not part.counts.tokens:
            return describe_binary(part.media_type, size, draft.handle)
        is_json, origin = part.media_type == JSON_TYPE, self._origin
        tool = origin.shown_as or origin.tool_id
        return describe_output(draft.descriptor, size, is_json=is_json, tool=tool, input_schema=origin.input_schema)

    def _write_binary(self, part: _Part) -> None:
        """As bytes where it is Base64, as the protocol demands; else as the text it is."""
        try:
            self._write(part)
        except ProtocolViolation:
            _discard([part])
            part.draft = None
            body = part.blocks[0].body or part.blocks[0].whole
            part.pieces = lambda: iter_string(self._source, *body)
            self._write(part)

    def _whole_result(self, layout: _ResultLayout, limits: ResultLimits) -> Raw:
        start, end = layout.whole
        if end - start > limits.held_bytes:
            raise FrameTooLarge(
                f"the result has {end - start} bytes, over the {limits.held_bytes} that are held, and fits the limits",
                next_action="lower `tool_response_max_bytes` or `tool_media_max_bytes`, or raise `max_frame_bytes`",
            )
        return Raw(self._read(layout.whole))

    def _result(self, layout: _ResultLayout, parts: list[_Part], stored: dict[int, Stored]) -> Raw:
        """The messages about what was stored, and the parts that go on, byte for byte as they came."""
        remaining = [part for number, part in enumerate(parts) if number not in stored]
        notes = [msgspec.json.encode({"type": "text", "text": note}) for note in _notes(parts, stored)]
        members = {key: Raw(self._read(span)) for key, span in _members(remaining) if key != "content"}
        content = Raw(b"[" + b",".join([*notes, *map(self._read, _block_spans(layout, remaining))]) + b"]")
        failed = {"isError": True} if layout.is_error else {}
        return Raw(msgspec.json.encode({"content": content} | members | failed))

    def _read(self, span: Span) -> bytes:
        return self._source.read(span[0], span[1] - span[0])


def _members(parts: list[_Part]) -> list[tuple[str, Span]]:
    return [part.member for part in parts if part.member is not None]


def _block_spans(layout: _ResultLayout, parts: list[_Part]) -> Iterator[Span]:
    """Where the blocks of the parts lie, in their order in the result."""
    spans = {block.whole for part in parts for block in part.blocks}
    return (block.whole for block in layout.blocks if block.whole in spans)


def _notes(parts: list[_Part], stored: dict[int, Stored]) -> Iterator[str]:
    """What the model reads about each part that was stored."""
    for number, record in stored.items():
        part = parts[number]
        yield too_large_message(record)
        several = len(stored) > 1 or part.binary
        yield (f"Handle {record.handle} holds {part.what} ({record.media_type}). " if several else "") + part.hint


def _excess_parts(parts: list[_Part], limits: ResultLimits) -> list[_Part]:
    """What is left when the smallest have taken all the room there is."""
    size, tokens, excess = 0, 0, []
    for part in sorted(parts, key=_size):
        own_tokens = 0 if part.binary else part.counts.tokens
        if size + _size(part) > limits.max_bytes or tokens + own_tokens > limits.max_tokens:
            excess.append(part)
        else:
            size += _size(part)
            tokens += own_tokens
    return excess


def _excess_media(parts: list[_Part], limits: ResultLimits) -> list[_Part]:
    room, excess = limits.media_bytes, []
    for part in sorted(parts, key=lambda part: part.bound):
        if part.bound > room:
            excess.append(part)
        else:
            room -= part.bound
    return excess


def _discard(parts: Iterable[_Part]) -> None:
    for part in parts:
        if part.draft is not None:
            part.draft.discard()


def _looks_like_json(descriptor: int, size: int) -> bool:
    """Whether a text is one JSON object or array. A small one is parsed, a large one is judged by its ends."""
    ends = os.pread(descriptor, 64, 0).lstrip()[:1] + os.pread(descriptor, 64, max(0, size - 64)).rstrip()[-1:]
    if ends not in {b"{}", b"[]"} or size > MAX_JSON_CHECK:
        return ends in {b"{}", b"[]"}
    try:
        msgspec.json.decode(os.pread(descriptor, size, 0), type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _parts_fit(parts: list[_Part], caps: ResultLimits) -> bool:
    """Whether parts that are not much larger than they may be fit once their escapes are resolved."""
    taken = sum(part.bound for part in parts if part.binary)
    return caps.allow([b"".join(part.pieces()) for part in parts if not part.binary], taken)


def _size(part: _Part) -> int:
    return part.bound if part.binary else part.counts.bytes


def _bodies(blocks: Iterable[_Block]) -> list[Span]:
    return [block.body for block in blocks if block.body is not None]


def _joined_texts(source: ByteSource, bodies: Iterable[Span]) -> Iterator[bytes]:
    """All texts, each from the beginning of a line."""
    last = b"\n"
    for body in bodies:
        if last != b"\n":
            yield b"\n"
            last = b"\n"
        for piece in iter_string(source, *body):
            yield piece
            last = piece[-1:] or last


def _media_type(blocks: list[_Block]) -> str:
    types = {block.media_type for block in blocks}
    return types.pop() or TEXT_TYPE if len(types) == 1 else TEXT_TYPE


def _read_layout(source: ByteSource, *, enveloped: bool = False) -> _ResultLayout:
    """Reads where everything stands. `enveloped`: the result still stands in its JSON-RPC answer."""
    return _LayoutReader(source).read(enveloped)


class _UnknownForm(Exception):
    """The content has another form than the protocol's."""


class _TooManyEscapes(Exception):
    """The text is not compared."""


class _LayoutReader:
    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._scanner = JsonScanner(source)
        self._layout = _ResultLayout()

    def read(self, enveloped: bool) -> _ResultLayout:
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
        members: dict[str, Span] = {}
        end = self._scanner.walk_object(at, _MemberSpans(self._scanner, members))
        self._layout.blocks.append(self._read_block(members, (at, end)))
        return end

    def _read_block(self, members: dict[str, Span], whole: Span) -> _Block:
        kind = self._word(members.get("type"))
        if kind == "text" and self._is_string(members.get("text")):
            return _Block("text", whole, members["text"])
        if kind in {"image", "audio"} and self._is_string(members.get("data")):
            return _Block("media", whole, members["data"], self._media(members.get("mimeType")) or f"{kind}/*")
        if kind == "resource":
            media = self._media(members.get("resource.mimeType"))
            if self._is_string(members.get("resource.text")):
                return _Block("text", whole, members["resource.text"], media)
            if self._is_string(members.get("resource.blob")):
                return _Block("blob", whole, members["resource.blob"], media or "application/octet-stream")
        return _Block("other", whole)

    def _is_string(self, span: Span | None) -> bool:
        return span is not None and self._source.read(span[0], 1) == b'"'

    def _media(self, span: Span | None) -> str:
        """A media type that can stand in a line, or nothing."""
        word = self._word(span)
        return word if word.isprintable() else ""

    def _word(self, span: Span | None) -> str:
        """A short string, or nothing."""
        if span is None or span[1] - span[0] > 200:
            return ""
        try:
            return msgspec.json.decode(self._source.read(span[0], span[1] - span[0]), type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""


class _MemberSpans:
    """A visitor that records where the members of a block lie, those of its resource among them."""

    def __init__(self, scanner: JsonScanner, spans: dict[str, Span], prefix: str = "") -> None:
        self._scanner = scanner
        self._spans = spans
        self._prefix = prefix

    def __call__(self, key: str, at: int) -> int:
        if key == "resource" and not self._prefix and self._scanner.byte(at) == 0x7B:
            return self._scanner.walk_object(at, _MemberSpans(self._scanner, self._spans, "resource."))
        end = self._scanner.value_end(at)
        if key in {"type", "text", "data", "mimeType", "blob"}:
            self._spans[self._prefix + key] = (at, end)
        return end


def _repetition(source: ByteSource, layout: _ResultLayout) -> Literal["none", "same", "wrapped"]:
    """Whether the text blocks together say what the structured content says, or as JSON what it wraps. In doubt they do
    not: both are kept."""
    bodies = _bodies(layout.texts)
    if not bodies or layout.structured is None:
        return "none"
    inner = layout.inner
    if inner is not None and source.read(inner[0], 1) == b'"':
        if _digest(_texts(source, bodies)) == _digest(iter_string(source, *inner)):
            return "same"
        inner = None
    try:
        return _json_repetition(source, bodies, layout.structured, inner)
    except _TooManyEscapes:
        return "none"


def _json_repetition(
    source: ByteSource, bodies: list[Span], structured: Span, inner: Span | None
) -> Literal["none", "same", "wrapped"]:
    # Both sides are reduced to a digest of one form, a piece at a time, so that their size does not matter.
    text = _canonical_digest(_texts(source, bodies))
    if text == _canonical_digest(iter_raw(source, *structured)):
        return "same"
    if inner is None:
        return "none"
    # Many servers send a list as one block for each item.
    items = _canonical_digest(_as_array(source, bodies)) if len(bodies) > 1 else text
    return "wrapped" if items == _canonical_digest(iter_raw(source, *inner)) else "none"


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


def _resolve_escape(match: "re.Match[bytes]") -> bytes:
    code = match[1]
    if code is None:
        return b"/" if match[0] == b"\\/" else match[0]
    number = int(code, 16)
    if number < 0x20 or number in {0x22, 0x5C}:  # these must stand escaped in JSON, whoever writes it
        return b"\\u%04x" % number
    return chr(number).encode("utf-8", "surrogatepass")
