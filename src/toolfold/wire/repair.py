"""Repairs bytes that are not quite a JSON-RPC message: noise before or after it, batches, broken or deep JSON, odd ids.

No proper message passes through here. Above: the transports; below: `jsonrpc.py`, `spill.py`.
"""

import codecs
import json
import operator
import re

import msgspec
from msgspec import Raw, Struct

from toolfold.text import (
    MAX_LEVELS,
    NOTE_KEY,
    REPLACED,
    cut_deep,
    has_large_number,
    replace_escaped_halves,
    replace_large_numbers,
    truncate,
)
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Envelope, encode, is_message, parse_envelope
from toolfold.wire.spill import EDGE_BYTES, Edges

_LEFT_OUT = f"what was nested over {MAX_LEVELS} levels is left out"
_NUMBERS_LEFT_OUT = "numbers that no JSON reader takes are left out"

# Keys of `_meta` that begin so are ours alone. A letter that is written as an escape hides something.
_OUR_KEYS = NOTE_KEY.partition("/")[0] + "/"
# Where a result holds blocks, each with a `_meta` of its own, and how deep: `messages` have content with a resource.
_HOLDERS = ("content", "contents", "messages", "resource")
_HOLDER_LEVELS = 6
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")

# How much of a noisy line is shown.
_MAX_EXCERPT = 200

# How many places of a noisy line are tried as the beginning of a message; 3 in a long one, to stay linear.
_MAX_STARTS = 32

_LONG_LINE = 1 << 18

_PIECE = 1 << 20
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class _Repaired(Struct, frozen=True):
    """The messages in a line, the rest as text, and the id of a request whose answer cannot be read."""

    messages: tuple[Envelope, ...] = ()
    noise: str = ""
    broken: int | None = None


def shorten(text: bytes) -> str:
    """Noise as one printable line."""
    printable = _ANSI.sub(b"", text[: _MAX_EXCERPT * 4]).decode("utf-8", "replace")
    printable = "".join(character if character.isprintable() else " " for character in printable).strip()
    return truncate(printable, _MAX_EXCERPT)


def replace_invalid_utf8(text: bytes) -> bytes:
    """The same bytes where they are UTF-8, else with each bad byte replaced. Memory stays bounded while looking."""
    if text.isascii():
        return text
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(text)
    try:
        for start in range(0, len(text), _PIECE):
            decoder.decode(view[start : start + _PIECE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode()
    return text


def is_plain(text: bytes) -> bool:
    """Whether a JSON text can go on as it is: its numbers can be read, and it does not speak in our name."""
    return not (b'"toolfold' in text or has_large_number(text) or _ESCAPED_LETTER.search(text))


def repair(line: bytes, *, replaced: bool = False) -> _Repaired:
    """Reads a line that is no message as it stands; `replaced`: or was none before bad bytes in it were replaced."""
    whole = replace_escaped_halves(line)
    cut = cut_deep(whole)
    numbered = replace_large_numbers(cut)
    notes = ((REPLACED, replaced or whole != line), (_LEFT_OUT, cut != whole), (_NUMBERS_LEFT_OUT, numbered != cut))
    repaired = _repair(numbered)
    note = "; ".join(text for text, is_true in notes if is_true)
    for message in repaired.messages:
        message.result = add_note(message.result, note, drop=_OUR_KEYS)
    return repaired


def repair_result(result: Raw) -> Raw:
    """The same for a result that came in a file and was not looked at on its way."""
    text = bytes(result)
    if is_plain(text) and replace_escaped_halves(text) == text:
        return result
    return repair(b'{"id":0,"result":%b}' % text).messages[0].result


def add_note(result: Raw, note: str, *, drop: str = "") -> Raw:
    """A result that says in its `_meta` what of it is not as it came. Keys that begin with `drop` are left out."""
    try:
        members = msgspec.json.decode(result, type=dict[str, Raw])
        meta = msgspec.json.decode(members.get("_meta", b"{}"), type=dict[str, Raw] | None) or {}
        inner = _held_without(members, drop, _HOLDER_LEVELS)
    except DECODE_ERRORS:
        return result  # no result, or one of another form
    kept = {key: value for key, value in meta.items() if not (drop and key.startswith(drop))}
    changed = len(kept) != len(meta) or any(value is not members[key] for key, value in inner.items())
    if not note and not changed:
        return result
    members |= inner
    if not note and "_meta" not in members:
        return Raw(encode(members))
    said = [msgspec.json.decode(kept[NOTE_KEY], type=str)] if NOTE_KEY in kept else []
    noted = {**kept, NOTE_KEY: "; ".join([*said, note])} if note else kept
    return Raw(encode({**members, "_meta": noted}))


def _held_without(members: dict[str, Raw], drop: str, levels: int) -> dict[str, Raw]:
    return {
        key: _without_keys(members[key], drop, levels) for key in _HOLDERS if drop and levels > 0 and key in members
    }


def _without_keys(part: Raw, drop: str, levels: int) -> Raw:
    """A block, or what holds blocks, without keys of `_meta` that begin so; the same one where there are none."""
    first = bytes(memoryview(part)[:1]) if levels > 0 else b""
    if first == b"[":
        entries = msgspec.json.decode(part, type=list[Raw])
        left = [_without_keys(one, drop, levels - 1) for one in entries]
        return part if all(map(operator.is_, left, entries)) else Raw(encode(left))
    return _block_without(part, drop, levels) if first == b"{" else part


def _block_without(part: Raw, drop: str, levels: int) -> Raw:
    members = msgspec.json.decode(part, type=dict[str, Raw])
    kept = {**members, **_held_without(members, drop, levels - 1)}
    if bytes(members.get("_meta", b""))[:1] == b"{":
        meta = msgspec.json.decode(members["_meta"], type=dict[str, Raw])
        left = {key: value for key, value in meta.items() if not key.startswith(drop)}
        if len(left) < len(meta):
            kept["_meta"] = Raw(encode(left))
    return part if all(map(operator.is_, kept.values(), members.values())) else Raw(encode(kept))


def _repair(line: bytes) -> _Repaired:
    batch = _batch(line)
    if batch is not None:
        return batch
    text = _ANSI.sub(b"", line.removeprefix(codecs.BOM_UTF8)).replace(b"\x00", b"").strip()
    if not text:
        return _Repaired()
    messages, rest = _embedded(text)
    broken = None if messages else Edges(text[:EDGE_BYTES], text[-EDGE_BYTES:]).number
    return _Repaired(tuple(messages), shorten(rest), broken)


def _batch(line: bytes) -> _Repaired | None:
    """A JSON-RPC batch, which one version of the protocol allowed."""
    if not line.lstrip().startswith(b"["):
        return None
    try:
        parts = msgspec.json.decode(line, type=list[Raw])
    except DECODE_ERRORS:
        return None
    messages = [message for part in parts if (message := _message(bytes(part))) is not None]
    return _Repaired(tuple(messages), "" if len(messages) == len(parts) else shorten(line))


def _message(text: bytes) -> Envelope | None:
    try:
        message = parse_envelope(text)
    except DECODE_ERRORS:
        return _message_with_odd_id(text)
    return message if is_message(message) else None


class _OddId(Struct):
    id: Raw = ABSENT
    method: Raw = ABSENT
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


def _message_with_odd_id(text: bytes) -> Envelope | None:
    """A message whose id or method is of no allowed kind: an answer to nobody, returned so that it can be reported."""
    try:
        odd = msgspec.json.decode(text, type=_OddId)
    except DECODE_ERRORS:
        return None
    if odd.method is not ABSENT or (odd.result is ABSENT and odd.error is ABSENT):
        return None
    return Envelope(id=None, result=odd.result, error=odd.error)


def _embedded(text: bytes) -> tuple[list[Envelope], bytes]:
    """Messages that stand in a line among other things, and those other things."""
    whole = _message(text)
    if whole is not None:
        return [whole], b""
    decoded = text.decode("utf-8", "replace")
    messages: list[Envelope] = []
    noise: list[str] = []
    position = 0
    for _ in range(_MAX_STARTS if len(text) < _LONG_LINE else 3):
        start = decoded.find("{", position)
        if start < 0:
            break
        end = _object_end(decoded, start)
        message = _message(decoded[start:end].encode()) if end else None
        if message is None:
            noise.append(decoded[position : start + 1])
            position = start + 1
        else:
            noise.append(decoded[position:start])
            messages.append(message)
            position = end
    noise.append(decoded[position:])
    return messages, "".join(noise).encode().strip()


_json = json.JSONDecoder(parse_int=str, parse_float=str)  # numbers are not looked at, so their size cannot hurt


def _object_end(text: str, start: int) -> int:
    """Where the JSON object that begins at `start` ends, or 0."""
    try:
        return _json.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return 0
