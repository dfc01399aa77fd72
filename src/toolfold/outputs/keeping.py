"""Keeps what is too large of one result, and writes the result that the model gets instead.

A result falls into parts: its text, its structured content where the text does not repeat it, each picture, sound or
blob, and what else there is. Parts that fit together under the limits go on as they came; each other part becomes a
file with a handle of its own. Nothing is cut and nothing is dropped. All of this blocks: it runs in a thread. Above:
`storing.py`. Below: `layout.py`, `unescaping.py`, `counting.py`, `store.py`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import Raw, Struct

from toolfold import tokens
from toolfold.errors import FrameTooLarge, ProtocolViolation
from toolfold.outputs.counting import Counts, Lines, count_tokens
from toolfold.outputs.layout import Block, Layout, Span, laid_out
from toolfold.outputs.message import too_large, which
from toolfold.outputs.repeating import repeats
from toolfold.outputs.scanning import Source
from toolfold.outputs.store import Draft, OutputStore
from toolfold.outputs.unescaping import raw, unbased, unescaped
from toolfold.types import Caller, Outcome, Stored

JSON = "application/json"
TEXT = "text/plain"
JSON_READ = 8 << 20
NEARLY = 8
"""An escape is at most so much longer than what it stands for, about."""


class Caps(Struct, frozen=True):
    """What may go to the model as it is, and how much may be held."""

    max_bytes: int
    max_tokens: int
    media_bytes: int
    held_bytes: int


class Origin(Struct, frozen=True):
    """Whose call made the result."""

    caller: Caller
    tool_id: str
    arguments: str


class Part(Struct, eq=False):
    """One thing in a result. `blocks` or `member` say what stands for it where it goes on as it came."""

    what: str
    media_type: str
    bound: int
    """It has at most so many bytes."""
    pieces: Callable[[], Iterator[bytes]]
    blocks: tuple[Block, ...] = ()
    member: tuple[str, Span] | None = None
    binary: bool = False
    draft: Draft | None = None
    counts: Counts = Counts()


class Keeping:
    """One result on its way. `going_on` is called now and then, and raises to stop."""

    def __init__(self, source: Source, store: OutputStore, origin: Origin, going_on: Callable[[], None]) -> None:
        self._source = source
        self._store = store
        self._origin = origin
        self._going_on = going_on

    def keep(self, caps: Caps, *, enveloped: bool) -> tuple[Outcome, tuple[Stored, ...]]:
        """The result that goes on, and what was stored of it."""
        layout = laid_out(self._source, enveloped=enveloped)
        parts = self._parts(layout)
        with self._all_or_nothing(parts):
            stored = self._stored(parts, caps)
            result = self._result(layout, parts, stored) if stored else self._all(layout, caps)
        _discard(part for number, part in enumerate(parts) if number not in stored)
        records = tuple(stored.values())
        return Outcome(result=result, is_error=layout.is_error, stored=records[0] if records else None), records

    def keep_text(self, size: int) -> Stored:
        """Stores the source as it is: a text that is no tool's result, such as what a script printed."""
        part = Part("the text", TEXT, size, lambda: raw(self._source, 0, size))
        with self._all_or_nothing([part]):
            self._write(part)
            return self._finish(part)

    @contextmanager
    def _all_or_nothing(self, parts: list[Part]) -> Iterator[None]:
        """What fails, or is stopped, takes back what was stored before."""
        try:
            yield
            self._going_on()
        except BaseException:
            _discard(parts)
            raise

    # --- the parts

    def _parts(self, layout: Layout) -> list[Part]:
        source = self._source
        parts: list[Part] = []
        texts = tuple(block for block in layout.blocks if block.kind == "text")
        if texts:
            bound = sum(block.body[1] - block.body[0] for block in texts if block.body is not None)
            parts.append(Part("the text", _type_of(texts), bound, lambda: _joined(source, texts), texts))
        if layout.structured is not None and not repeats(source, layout):
            parts.append(self._member("structuredContent", layout.structured, "the structured content"))
        if layout.content is not None:
            parts.append(self._member("content", layout.content, "the content"))
        parts += [self._member(key, span, f"the member {key!r}") for key, span in layout.rest.items()]
        for block in layout.blocks:
            if block.kind == "other":
                parts.append(self._raw_block(block))
            elif block.kind != "text" and block.body is not None:
                parts.append(self._binary(block, block.body))
        return parts

    def _member(self, key: str, span: Span, what: str) -> Part:
        return Part(what, JSON, span[1] - span[0], lambda: raw(self._source, *span), member=(key, span))

    def _raw_block(self, block: Block) -> Part:
        size = block.whole[1] - block.whole[0]
        return Part("a further block", JSON, size, lambda: raw(self._source, *block.whole), (block,))

    def _binary(self, block: Block, body: Span) -> Part:
        size = block.whole[1] - block.whole[0]
        what = "binary content" if block.kind == "blob" else "a picture or sound"
        return Part(what, block.media_type, size, lambda: unbased(self._source, *body), (block,), binary=True)

    # --- what goes on, and what is stored

    def _stored(self, parts: list[Part], caps: Caps) -> dict[int, Stored]:
        """By the place of the part among `parts`. The smallest go on, as many as fit."""
        media = [part for part in parts if part.binary and part.blocks[0].kind == "media"]
        plain = [part for part in parts if part not in media]
        kept = [*self._over_media(media, caps), *self._over(plain, caps)]
        return {number: self._finish(part) for number, part in enumerate(parts) if part in kept}

    def _over_media(self, parts: list[Part], caps: Caps) -> list[Part]:
        room, kept = caps.media_bytes, []
        for part in sorted(parts, key=lambda part: part.bound):
            if part.bound > room:
                kept.append(part)
            else:
                room -= part.bound
        return kept

    def _over(self, parts: list[Part], caps: Caps) -> list[Part]:
        bound = sum(part.bound for part in parts)
        if bound <= min(caps.max_bytes, caps.max_tokens) or (bound <= NEARLY * caps.max_bytes and _fit(parts, caps)):
            return []
        for part in parts:
            if not part.binary:
                self._write(part)
        total, spent, kept = 0, 0, []
        for part in sorted(parts, key=_size):
            more = 0 if part.binary else part.counts.tokens
            if total + _size(part) > caps.max_bytes or spent + more > caps.max_tokens:
                kept.append(part)
            else:
                total += _size(part)
                spent += more
        return kept

    def _write(self, part: Part) -> None:
        """Writes a part out and counts it."""
        draft = part.draft = self._store.draft(self._origin.caller)
        lines = Lines()
        for piece in part.pieces():
            self._going_on()
            draft.write(piece)
            lines.add(piece)
        if part.binary:
            part.counts = Counts(lines.bytes)
            return
        counted = count_tokens(draft.descriptor, lines.bytes, self._going_on)
        part.counts = Counts(lines.bytes, lines.lines, counted)
        if part.media_type == TEXT and looks_like_json(draft.descriptor, lines.bytes):
            part.media_type = JSON

    def _finish(self, part: Part) -> Stored:
        self._going_on()
        if part.draft is None:
            self._write_binary(part)
        if part.draft is None:
            raise ValueError("a part that was not written cannot be stored")
        origin = self._origin
        return part.draft.finish(
            part.counts, tool_id=origin.tool_id, arguments=origin.arguments, media_type=part.media_type
        )

    def _write_binary(self, part: Part) -> None:
        """As bytes where it is Base64, as promised; else as the text it is."""
        try:
            self._write(part)
        except ProtocolViolation:
            _discard([part])
            part.draft = None
            body = part.blocks[0].body or part.blocks[0].whole
            part.pieces = lambda: unescaped(self._source, *body)
            self._write(part)

    # --- the result that the model gets

    def _all(self, layout: Layout, caps: Caps) -> Raw:
        start, end = layout.whole
        if end - start > caps.held_bytes:
            raise FrameTooLarge(
                f"the result has {end - start} bytes, over the {caps.held_bytes} that are held, and fits the limits",
                next_action="lower `tool_response_max_bytes` or `tool_media_max_bytes`, or raise `max_frame_bytes`",
            )
        return Raw(self._source.read(start, end - start))

    def _result(self, layout: Layout, parts: list[Part], stored: dict[int, Stored]) -> Raw:
        notes: list[str] = []
        for number, record in stored.items():
            notes.append(too_large(record))
            if len(stored) > 1 or parts[number].binary:
                notes.append(which(record, parts[number].what))
        rides = {block.whole for number, part in enumerate(parts) if number not in stored for block in part.blocks}
        blocks = [msgspec.json.encode({"type": "text", "text": note}) for note in notes]
        blocks += [self._read(block.whole) for block in layout.blocks if block.whole in rides]
        members = {
            part.member[0]: self._read(part.member[1])
            for number, part in enumerate(parts)
            if number not in stored and part.member is not None and part.member[0] != "content"
        }
        members = {"content": b"[" + b",".join(blocks) + b"]", **members}
        if layout.is_error:
            members["isError"] = b"true"
        return Raw(b"{" + b",".join(msgspec.json.encode(key) + b":" + value for key, value in members.items()) + b"}")

    def _read(self, span: Span) -> bytes:
        return self._source.read(span[0], span[1] - span[0])


def _discard(parts: Iterable[Part]) -> None:
    for part in parts:
        if part.draft is not None:
            part.draft.discard()


def looks_like_json(descriptor: int, size: int) -> bool:
    """Whether a text is one JSON object or array. A small one is read for it, a large one is judged by its ends."""
    ends = os.pread(descriptor, 64, 0).lstrip()[:1] + os.pread(descriptor, 64, max(0, size - 64)).rstrip()[-1:]
    if ends not in {b"{}", b"[]"} or size > JSON_READ:
        return ends in {b"{}", b"[]"}
    try:
        msgspec.json.decode(os.pread(descriptor, size, 0), type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _fit(parts: list[Part], caps: Caps) -> bool:
    """Whether parts that are not much larger than they may be fit once their escapes are resolved."""
    room = caps.max_bytes - sum(part.bound for part in parts if part.binary)
    return fit([b"".join(part.pieces()) for part in parts if not part.binary], room, caps.max_tokens)


def fit(texts: Sequence[bytes], max_bytes: int, max_tokens: int) -> bool:
    """Whether texts are within both limits together. No text has more tokens than bytes."""
    size = sum(map(len, texts))
    if size > max_bytes or size <= max_tokens:
        return size <= max_bytes
    return sum(tokens.count(text.decode("utf-8", "replace")) for text in texts) <= max_tokens


def _size(part: Part) -> int:
    return part.bound if part.binary else part.counts.bytes


def _joined(source: Source, blocks: tuple[Block, ...]) -> Iterator[bytes]:
    """All texts, each from the beginning of a line."""
    last = b"\n"
    for block in blocks:
        if block.body is None:
            continue
        if last != b"\n":
            yield b"\n"
            last = b"\n"
        for piece in unescaped(source, *block.body):
            yield piece
            last = piece[-1:] or last


def _type_of(blocks: tuple[Block, ...]) -> str:
    types = {block.media_type for block in blocks}
    return types.pop() or TEXT if len(types) == 1 else TEXT
