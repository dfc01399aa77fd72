"""What a child may say, read strictly. A frame that is none of these ends the run: an honest child sends no other.

A frame is read in the event loop and may have megabytes, so only its outline is: what it carries is looked into later,
as far as it is of a size that an honest child sends.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import InvalidArguments
from toolfold.scripts.values import MAX_WARNING, MAX_WARNINGS, ScriptProblem

# --- What a script printed, made fit for a model: no terminal codes, no control characters, no direction marks.

_MAX_JSON_LINE = 1 << 20
_PIECE_CHARS = 1 << 16

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL_RANGES = (
    (0, 8),
    (0xB, 0x1F),
    (0x7F, 0x9F),
    (0x61C, 0x61C),
    (0x200E, 0x200F),
    (0x202A, 0x202E),
    (0x2066, 0x2069),
)
_CONTROL_ESCAPES = {
    n: ascii(chr(n))[1:-1] for first, last in (*_CONTROL_RANGES, (0xFEFF, 0xFEFF)) for n in range(first, last + 1)
}
_CONTROL = re.compile(f"[{re.escape(''.join(map(chr, _CONTROL_ESCAPES)))}]")


def clean_text(data: bytes | str) -> str:
    """The text with terminal codes taken out and other control characters written out."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    if _CONTROL.search(text) is None:
        return text
    # Each piece is one call into C; between two of them other threads have their turn.
    return "".join(
        [text[at : at + _PIECE_CHARS].translate(_CONTROL_ESCAPES) for at in range(0, len(text), _PIECE_CHARS)]
    )


def parse_last_line(text: str) -> Any:
    """The last line, where it is a JSON object or array: what a script printed as its summary."""
    line = text.rstrip().rpartition("\n")[2].strip()
    if line[:1] not in {"{", "["} or len(line) > _MAX_JSON_LINE:
        return None
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None


_MAX_TEXT = 8_000
_MAX_REPORT_BYTES = 128 * 1024
"""Of the account of an error, or of all warnings. The longest texts that a child keeps need less, however written."""
_MAX_VALUES = 100_000
"""Values in arguments. What makes them costly is how many there are, not how long."""
_MAX_DEPTH = 64
"""Of arguments. Real ones need a tenth of it; a validator that recurses stands far more."""


class Frame(Struct, frozen=True):
    """A call, the wish for a piece of a large result, the end of a call, or the end of the script."""

    op: str
    id: int = 0
    tool: str = ""
    args: Raw = Raw(b"{}")
    ref: int = 0
    offset: int = 0
    outcome: str = ""
    answer: Raw = Raw(b"null")
    code: int | None = None
    error: Raw = Raw(b"null")
    warnings: Raw = Raw(b"[]")


class BadFrame(Exception):
    """The bytes are no frame of ours."""


_decode = msgspec.json.Decoder(Frame).decode
_texts = msgspec.json.Decoder(list[str]).decode
_object = msgspec.json.Decoder(dict[str, Any] | None).decode
_OPS = frozenset({"call", "load", "cancel", "done"})
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def decode_frame(data: bytes) -> Frame:
    try:
        frame = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(str(error)) from None
    if frame.op not in _OPS or frame.id < 0 or frame.offset < 0:
        raise BadFrame(f"no such frame: {frame.op[:40]!r}")
    return frame


def canonical_arguments(tool_id: str, raw: Raw) -> Raw:
    """The arguments in the one form that is checked and sent. Raises `InvalidArguments` for odd JSON.

    What an honest child sends is in that form already. Anything else is read with care: a key that stands there twice
    could mean one thing here and another at the server.
    """
    try:
        given = bytes(raw)
        _check_value_count(given)
        value = msgspec.json.decode(given)
        if given.count(b"{") + given.count(b"[") > _MAX_DEPTH:
            _check_depth(value)
        made = msgspec.json.encode(value)
        if made != given:
            _check_unique_keys(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"the arguments of {tool_id} cannot be read: {str(error) or 'nested too deep'}",
            next_action="send plain JSON: less deep, fewer values, numbers that fit, each key once",
        ) from None
    return Raw(made)


def _check_value_count(given: bytes) -> None:
    if len(given) > _MAX_VALUES:
        plain = _STRINGS.sub(b"", given)
        if plain.count(b",") + plain.count(b"[") + plain.count(b"{") > _MAX_VALUES:
            raise ValueError(f"they have over {_MAX_VALUES:,} values")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        inner: list[Any] = []
        for one in level:
            below = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            inner.extend(part for part in below if isinstance(part, dict | list))
        if not inner:
            return
        level = inner
    raise ValueError("nested too deep")


def _check_unique_keys(raw: Raw) -> None:
    import json

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands there twice")
        return found

    json.loads(bytes(raw), object_pairs_hook=unique)


def decode_warnings(raw: Raw) -> tuple[str, ...]:
    """What the child warns of, cut to size."""
    try:
        return tuple(clean_text(text[:MAX_WARNING]) for text in _texts(_bounded(raw))[:MAX_WARNINGS])
    except (msgspec.DecodeError, RecursionError):
        return ("what the script was to be warned of cannot be read",)


def _bounded(raw: Raw) -> bytes:
    if len(memoryview(raw)) > _MAX_REPORT_BYTES:
        raise msgspec.DecodeError("too long")
    return bytes(raw)


def decode_problem(raw: Raw) -> ScriptProblem | None:
    """The child's account of an error, cut to size: it may be a lie, and is never more than text."""
    try:
        told = _object(_bounded(raw))
    except (msgspec.DecodeError, RecursionError):
        return ScriptProblem(type="Error", message="what the script told of its error cannot be read")
    if told is None:
        return None

    def text(key: str) -> str:
        value = told.get(key, "")
        return clean_text(value[:_MAX_TEXT]) if isinstance(value, str) else ""

    line = told.get("line")
    return ScriptProblem(
        type=text("type") or "Error",
        message=text("message"),
        line=line if isinstance(line, int) else None,
        source=text("source"),
        traceback=text("traceback"),
        next_action=text("next_action"),
    )
