"""What a child may say, read strictly. A frame that is none of these ends the run: an honest child sends no other.

A frame is read in the event loop and may have megabytes, so only its outline is: what it carries is looked into later,
as far as it is of a size that an honest child sends.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import InvalidArguments
from toolfold.scripts.output import shown
from toolfold.scripts.values import MAX_WARNING, MAX_WARNINGS, Problem

MAX_TEXT = 8_000
MAX_TOLD_BYTES = 128 * 1024
"""Of the account of an error, or of all warnings. The longest texts that a child keeps need less, however written."""
MAX_PARTS = 100_000
"""Values in arguments. What makes them costly is how many there are, not how long."""
MAX_DEPTH = 64
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
OPS = frozenset({"call", "load", "cancel", "done"})
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def read(data: bytes) -> Frame:
    try:
        frame = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(str(error)) from None
    if frame.op not in OPS or frame.id < 0 or frame.offset < 0:
        raise BadFrame(f"no such frame: {frame.op[:40]!r}")
    return frame


def arguments(tool_id: str, raw: Raw) -> Raw:
    """The arguments in the one form that is checked and sent. Raises `InvalidArguments` for odd JSON.

    What an honest child sends is in that form already. Anything else is read with care: a key that stands there twice
    could mean one thing here and another at the server.
    """
    try:
        given = bytes(raw)
        _refuse_crowd(given)
        value = msgspec.json.decode(given)
        if given.count(b"{") + given.count(b"[") > MAX_DEPTH:
            _refuse_depth(value)
        made = msgspec.json.encode(value)
        if made != given:
            _refuse_twins(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"the arguments of {tool_id} cannot be read: {str(error) or 'nested too deep'}",
            next_action="send plain JSON: less deep, fewer values, numbers that fit, each key once",
        ) from None
    return Raw(made)


def _refuse_crowd(given: bytes) -> None:
    if len(given) > MAX_PARTS:
        plain = _STRINGS.sub(b"", given)
        if plain.count(b",") + plain.count(b"[") + plain.count(b"{") > MAX_PARTS:
            raise ValueError(f"they have over {MAX_PARTS:,} values")


def _refuse_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for one in level:
            below = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            inner.extend(part for part in below if isinstance(part, dict | list))
        if not inner:
            return
        level = inner
    raise ValueError("nested too deep")


def _refuse_twins(raw: Raw) -> None:
    import json

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands there twice")
        return found

    json.loads(bytes(raw), object_pairs_hook=unique)


def warnings(raw: Raw) -> tuple[str, ...]:
    """What the child warns of, cut to size."""
    try:
        return tuple(shown(text[:MAX_WARNING]) for text in _texts(_bounded(raw))[:MAX_WARNINGS])
    except (msgspec.DecodeError, RecursionError):
        return ("what the script was to be warned of cannot be read",)


def _bounded(raw: Raw) -> bytes:
    if len(memoryview(raw)) > MAX_TOLD_BYTES:
        raise msgspec.DecodeError("too long")
    return bytes(raw)


def problem(raw: Raw) -> Problem | None:
    """The child's account of an error, cut to size: it may be a lie, and is never more than text."""
    try:
        told = _object(_bounded(raw))
    except (msgspec.DecodeError, RecursionError):
        return Problem(type="Error", message="what the script told of its error cannot be read")
    if told is None:
        return None

    def text(key: str) -> str:
        value = told.get(key, "")
        return shown(value[:MAX_TEXT]) if isinstance(value, str) else ""

    line = told.get("line")
    return Problem(
        type=text("type") or "Error",
        message=text("message"),
        line=line if isinstance(line, int) else None,
        source=text("source"),
        traceback=text("traceback"),
        next_action=text("next_action"),
    )
