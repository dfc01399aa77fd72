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
from toolfold.outputs.json_scan import ByteSource, iter_base64, iter_raw, iter_string
from toolfold.outputs.result_layout import Block, ResultLayout, Span, read_layout, text_repeats_structured
from toolfold.outputs.store import Draft, OutputStore
from toolfold.outputs.token_counter import Counts, LineCounter, count_tokens
from toolfold.outputs.tool_output import part_message, too_large_message
from toolfold.types import Caller, Outcome, Stored

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain"
MAX_JSON_CHECK = 8 << 20
ESCAPE_FACTOR = 8
"""An escape is at most so much longer than what it stands for, about."""


class ResultLimits(Struct, frozen=True):
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


class _Part(Struct, eq=False):
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


class ResultSplitter:
    """One result on its way. `going_on` is called now and then, and raises to stop."""

    def __init__(self, source: ByteSource, store: OutputStore, origin: Origin, going_on: Callable[[], None]) -> None:
        self._source = source
        self._store = store
        self._origin = origin
        self._going_on = going_on

    def keep(self, caps: ResultLimits, *, enveloped: bool) -> tuple[Outcome, tuple[Stored, ...]]:
        """The result that goes on, and what was stored of it."""
        layout = read_layout(self._source, enveloped=enveloped)
        parts = self._parts(layout)
        with self._all_or_nothing(parts):
            stored = self._stored(parts, caps)
            result = self._result(layout, parts, stored) if stored else self._all(layout, caps)
        _discard(part for number, part in enumerate(parts) if number not in stored)
        records = tuple(stored.values())
        return Outcome(result=result, is_error=layout.is_error, stored=records[0] if records else None), records

    def keep_text(self, size: int) -> Stored:
        """Stores the source as it is: a text that is no tool's result, such as what a script printed."""
        part = _Part("the text", TEXT_TYPE, size, lambda: iter_raw(self._source, 0, size))
        with self._all_or_nothing([part]):
            self._write(part)
            return self._finish(part)

    @contextmanager
    def _all_or_nothing(self, parts: list[_Part]) -> Iterator[None]:
        """What fails, or is stopped, takes back what was stored before."""
        try:
            yield
            self._going_on()
        except BaseException:
            _discard(parts)
            raise

    # --- the parts

    def _parts(self, layout: ResultLayout) -> list[_Part]:
        source = self._source
        parts: list[_Part] = []
        texts = tuple(block for block in layout.blocks if block.kind == "text")
        if texts:
            bound = sum(block.body[1] - block.body[0] for block in texts if block.body is not None)
            parts.append(_Part("the text", _media_type(texts), bound, lambda: _joined_texts(source, texts), texts))
        if layout.structured is not None and not text_repeats_structured(source, layout):
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

    def _member(self, key: str, span: Span, what: str) -> _Part:
        return _Part(what, JSON_TYPE, span[1] - span[0], lambda: iter_raw(self._source, *span), member=(key, span))

    def _raw_block(self, block: Block) -> _Part:
        size = block.whole[1] - block.whole[0]
        return _Part("a further block", JSON_TYPE, size, lambda: iter_raw(self._source, *block.whole), (block,))

    def _binary(self, block: Block, body: Span) -> _Part:
        size = block.whole[1] - block.whole[0]
        what = "binary content" if block.kind == "blob" else "a picture or sound"
        return _Part(what, block.media_type, size, lambda: iter_base64(self._source, *body), (block,), binary=True)

    # --- what goes on, and what is stored

    def _stored(self, parts: list[_Part], caps: ResultLimits) -> dict[int, Stored]:
        """By the place of the part among `parts`. The smallest go on, as many as fit."""
        media = [part for part in parts if part.binary and part.blocks[0].kind == "media"]
        plain = [part for part in parts if part not in media]
        kept = [*self._over_media(media, caps), *self._over(plain, caps)]
        return {number: self._finish(part) for number, part in enumerate(parts) if part in kept}

    def _over_media(self, parts: list[_Part], caps: ResultLimits) -> list[_Part]:
        room, kept = caps.media_bytes, []
        for part in sorted(parts, key=lambda part: part.bound):
            if part.bound > room:
                kept.append(part)
            else:
                room -= part.bound
        return kept

    def _over(self, parts: list[_Part], caps: ResultLimits) -> list[_Part]:
        bound = sum(part.bound for part in parts)
        if bound <= min(caps.max_bytes, caps.max_tokens) or (
            bound <= ESCAPE_FACTOR * caps.max_bytes and _parts_fit(parts, caps)
        ):
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

    def _write(self, part: _Part) -> None:
        """Writes a part out and counts it."""
        draft = part.draft = self._store.draft(self._origin.caller)
        lines = LineCounter()
        for piece in part.pieces():
            self._going_on()
            draft.write(piece)
            lines.add(piece)
        if part.binary:
            part.counts = Counts(lines.bytes)
            return
        counted = count_tokens(draft.descriptor, lines.bytes, self._going_on)
        part.counts = Counts(lines.bytes, lines.lines, counted)
        if part.media_type == TEXT_TYPE and _looks_like_json(draft.descriptor, lines.bytes):
            part.media_type = JSON_TYPE

    def _finish(self, part: _Part) -> Stored:
        self._going_on()
        if part.draft is None:
            self._write_binary(part)
        if part.draft is None:
            raise ValueError("a part that was not written cannot be stored")
        origin = self._origin
        return part.draft.finish(
            part.counts, tool_id=origin.tool_id, arguments=origin.arguments, media_type=part.media_type
        )

    def _write_binary(self, part: _Part) -> None:
        """As bytes where it is Base64, as promised; else as the text it is."""
        try:
            self._write(part)
        except ProtocolViolation:
            _discard([part])
            part.draft = None
            body = part.blocks[0].body or part.blocks[0].whole
            part.pieces = lambda: iter_string(self._source, *body)
            self._write(part)

    # --- the result that the model gets

    def _all(self, layout: ResultLayout, caps: ResultLimits) -> Raw:
        start, end = layout.whole
        if end - start > caps.held_bytes:
            raise FrameTooLarge(
                f"the result has {end - start} bytes, over the {caps.held_bytes} that are held, and fits the limits",
                next_action="lower `tool_response_max_bytes` or `tool_media_max_bytes`, or raise `max_frame_bytes`",
            )
        return Raw(self._source.read(start, end - start))

    def _result(self, layout: ResultLayout, parts: list[_Part], stored: dict[int, Stored]) -> Raw:
        notes: list[str] = []
        for number, record in stored.items():
            notes.append(too_large_message(record))
            if len(stored) > 1 or parts[number].binary:
                notes.append(part_message(record, parts[number].what))
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


def _discard(parts: Iterable[_Part]) -> None:
    for part in parts:
        if part.draft is not None:
            part.draft.discard()


def _looks_like_json(descriptor: int, size: int) -> bool:
    """Whether a text is one JSON object or array. A small one is read for it, a large one is judged by its ends."""
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
    room = caps.max_bytes - sum(part.bound for part in parts if part.binary)
    return fits([b"".join(part.pieces()) for part in parts if not part.binary], room, caps.max_tokens)


def fits(texts: Sequence[bytes], max_bytes: int, max_tokens: int) -> bool:
    """Whether texts are within both limits together. No text has more tokens than bytes."""
    size = sum(map(len, texts))
    if size > max_bytes or size <= max_tokens:
        return size <= max_bytes
    return sum(tokens.count(text.decode("utf-8", "replace")) for text in texts) <= max_tokens


def _size(part: _Part) -> int:
    return part.bound if part.binary else part.counts.bytes


def _joined_texts(source: ByteSource, blocks: tuple[Block, ...]) -> Iterator[bytes]:
    """All texts, each from the beginning of a line."""
    last = b"\n"
    for block in blocks:
        if block.body is None:
            continue
        if last != b"\n":
            yield b"\n"
            last = b"\n"
        for piece in iter_string(source, *block.body):
            yield piece
            last = piece[-1:] or last


def _media_type(blocks: tuple[Block, ...]) -> str:
    types = {block.media_type for block in blocks}
    return types.pop() or TEXT_TYPE if len(types) == 1 else TEXT_TYPE
