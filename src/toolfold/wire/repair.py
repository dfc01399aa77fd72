"""What to make of bytes that are not quite a JSON-RPC message: noise before or after it, batches, broken JSON.

Nothing here is on the way of a proper message. Above: the transports; below: `jsonrpc.py`.
"""

import codecs
import json
import re

import msgspec
from msgspec import Raw, Struct

from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Envelope, is_message, parse_envelope

_MAX_EXCERPT = 200
"""How much of a noisy line is shown."""

_MAX_STARTS = 32
"""How many places of a noisy line are tried as the beginning of a message; 3 in a long one, to stay linear."""

_LONG_LINE = 1 << 18

_PIECE = 1 << 20
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_HEAD_ID = re.compile(rb'^[^{]{0,64}\{\s*(?:"jsonrpc"\s*:\s*"[^"]*"\s*,\s*)?"id"\s*:\s*("?)(\d{1,18})\1\s*[,}]')
_TAIL_ID = re.compile(rb'[,{]\s*"id"\s*:\s*("?)(\d{1,18})\1\s*(?:,\s*"jsonrpc"\s*:\s*"[^"]*"\s*)?\}\s*$')
_METHOD = re.compile(rb'^[^{]{0,64}\{(?:\s*"(?:jsonrpc|id)"\s*:\s*(?:"[^"]*"|\d+|null)\s*,)*\s*"method"\s*:')
_RESULT = re.compile(rb'^\s*\{(?:\s*"(?:jsonrpc|id)"\s*:\s*(?:"[^"]*"|\d+)\s*,)*\s*"result"\s*:\s*\{')


class Repaired(Struct, frozen=True):
    """The messages that were found, the rest as text, and the number of a request whose answer is beyond reading."""

    messages: tuple[Envelope, ...] = ()
    noise: str = ""
    broken: int | None = None


def shorten(text: bytes) -> str:
    """Noise as one printable line."""
    shown = _ANSI.sub(b"", text[: _MAX_EXCERPT * 4]).decode("utf-8", "replace")
    shown = "".join(character if character.isprintable() else " " for character in shown).strip()
    return shown if len(shown) <= _MAX_EXCERPT else shown[:_MAX_EXCERPT] + "…"


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


def begins_as_result(head: bytes) -> bool:
    """Whether a message begins as an answer that is no error."""
    return _RESULT.match(head) is not None


def begins_as_request(head: bytes) -> bool:
    """Whether a message begins as a request or a notification."""
    return _METHOD.match(head) is not None


def id_from_edges(head: bytes, tail: bytes) -> int | None:
    """The id of an answer of which only the beginning and the end are known. Requests and notifications have none."""
    if _METHOD.match(head):
        return None
    found = _HEAD_ID.match(head) or _TAIL_ID.search(tail)
    return int(found[2]) if found else None


def repair(line: bytes) -> Repaired:
    """Reads a line that is no message as it stands."""
    batch = _batch(line)
    if batch is not None:
        return batch
    text = _ANSI.sub(b"", line.removeprefix(codecs.BOM_UTF8)).replace(b"\x00", b"").strip()
    if not text:
        return Repaired()
    messages, rest = _embedded(text)
    broken = None if messages else id_from_edges(text[:4096], text[-4096:])
    return Repaired(tuple(messages), shorten(rest), broken)


def _batch(line: bytes) -> Repaired | None:
    """A JSON-RPC batch, which one version of the protocol allowed."""
    if not line.lstrip().startswith(b"["):
        return None
    try:
        parts = msgspec.json.decode(line, type=list[Raw])
    except DECODE_ERRORS:
        return None
    messages = [message for part in parts if (message := _message(bytes(part))) is not None]
    return Repaired(tuple(messages), "" if len(messages) == len(parts) else shorten(line))


def _message(text: bytes) -> Envelope | None:
    try:
        found = parse_envelope(text)
    except DECODE_ERRORS:
        return _message_with_odd_id(text)
    return found if is_message(found) else None


class _OddId(Struct):
    id: Raw = ABSENT
    method: Raw = ABSENT
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


def _message_with_odd_id(text: bytes) -> Envelope | None:
    """A message whose id or method is of no allowed kind: an answer to nobody, kept so that it can be told."""
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
        found = _message(decoded[start:end].encode()) if end else None
        if found is None:
            noise.append(decoded[position : start + 1])
            position = start + 1
        else:
            noise.append(decoded[position:start])
            messages.append(found)
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
