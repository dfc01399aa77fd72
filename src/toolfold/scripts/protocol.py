"""What a child says, read strictly: its frames, and what it printed. Nothing of it is trusted, only bounded.

A frame that is none of ours ends the run: an honest child sends no other. A frame is read in the event loop and may
have megabytes, so only its outline is: what it carries is decoded later, as far as it is of a size that an honest child
sends. Above: `execution.py`.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import InvalidArguments
from toolfold.scripts.values import MAX_WARNING, MAX_WARNINGS, ScriptProblem

_MAX_TEXT = 8_000
# Of the account of an error, or of all warnings. The longest texts that a child keeps need less, however written.
_MAX_REPORT_BYTES = 128 * 1024
# Values in arguments. What makes them costly is how many there are, not how long.
_MAX_VALUES = 100_000
# Of arguments. Real ones need a tenth of it; a validator that recurses survives far more.
_MAX_DEPTH = 64
_MAX_JSON_LINE = 1 << 20
_PIECE_CHARS = 1 << 16

_OPS = frozenset({"call", "load", "open", "cancel", "summary", "done"})
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Control characters but tab and newline, and the marks that change the direction of text.
_CONTROL_RANGES = (
    *((0, 8), (0xB, 0x1F), (0x7F, 0x9F), (0x61C, 0x61C), (0x200E, 0x200F), (0x202A, 0x202E)),
    *((0x2066, 0x2069), (0xFEFF, 0xFEFF)),
)
_CONTROL_ESCAPES = {n: ascii(chr(n))[1:-1] for first, last in _CONTROL_RANGES for n in range(first, last + 1)}
_CONTROL = re.compile(f"[{re.escape(''.join(map(chr, _CONTROL_ESCAPES)))}]")

_decode_texts = msgspec.json.Decoder(list[str]).decode
_decode_object = msgspec.json.Decoder(dict[str, Any] | None).decode


class BadFrame(Exception):
    """The bytes are no frame of ours."""


class Frame(Struct, frozen=True):
    """A call, the request for a stored output or a piece of it or of a large result, the end of a call, a piece of a
    large summary, or the end of the script."""

    op: str
    id: int = 0
    tool: str = ""
    args: Raw = Raw(b"{}")
    ref: int = 0
    offset: int = 0
    handle: str = ""
    piece: str = ""
    outcome: str = ""
    answer: Raw = Raw(b"null")
    code: int | None = None
    error: Raw = Raw(b"null")
    warnings: Raw = Raw(b"[]")

    @staticmethod
    def parse(data: bytes) -> "Frame":
        try:
            frame = _decode_frame(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadFrame(str(error)) from None
        if frame.op not in _OPS or frame.id < 0 or frame.offset < 0:
            raise BadFrame(f"no such frame: {frame.op[:40]!r}")
        return frame

    def canonical_arguments(self) -> Raw:
        """Returns the arguments in the one form that is checked and sent. Raises `InvalidArguments` for odd JSON.

        What an honest child sends is in that form already. Anything else is read with care: a key that stands there
        twice could mean one thing here and another at the server.
        """
        data = bytes(self.args)
        try:
            _check_value_count(data)
            value = msgspec.json.decode(data)
            if data.count(b"{") + data.count(b"[") > _MAX_DEPTH:
                _check_depth(value)
            canonical = msgspec.json.encode(value)
            if canonical != data:
                _check_unique_keys(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise InvalidArguments(
                f"the arguments of {self.tool} cannot be read: {str(error) or 'nested too deep'}",
                next_action="send plain JSON: less deep, fewer values, numbers that fit, each key once",
            ) from None
        return Raw(canonical)

    def read_answer(self, max_bytes: int) -> Any:
        """The summary; `None` where there is none, or a larger one than an honest child sends."""
        return _decode_json(self.answer) if len(memoryview(self.answer)) <= max_bytes else None

    def read_warnings(self) -> tuple[str, ...]:
        """What the child warns of, cut to size."""
        try:
            return tuple(
                clean_text(text[:MAX_WARNING]) for text in _decode_texts(_bounded(self.warnings))[:MAX_WARNINGS]
            )
        except (msgspec.DecodeError, RecursionError):
            return ("what the script was to be warned of cannot be read",)

    def read_error(self) -> ScriptProblem | None:
        """The child's account of an error, cut to size: it may be a lie, and is never more than text."""
        try:
            account = _decode_object(_bounded(self.error))
        except (msgspec.DecodeError, RecursionError):
            return ScriptProblem(type="Error", message="what the script told of its error cannot be read")
        if account is None:
            return None
        line = account.pop("line", None)
        texts = {key: clean_text(text[:_MAX_TEXT]) for key, text in account.items() if isinstance(text, str)}
        return ScriptProblem(
            type=texts.get("type") or "Error",
            message=texts.get("message", ""),
            line=line if isinstance(line, int) else None,
            source=texts.get("source", ""),
            traceback=texts.get("traceback", ""),
            next_action=texts.get("next_action", ""),
        )


_decode_frame = msgspec.json.Decoder(Frame).decode


def _bounded(raw: Raw) -> bytes:
    if len(memoryview(raw)) > _MAX_REPORT_BYTES:
        raise msgspec.DecodeError("too long")
    return bytes(raw)


def _check_value_count(data: bytes) -> None:
    if len(data) > _MAX_VALUES:
        plain = _STRINGS.sub(b"", data)
        if plain.count(b",") + plain.count(b"[") + plain.count(b"{") > _MAX_VALUES:
            raise ValueError(f"they have over {_MAX_VALUES:,} values")


def _check_depth(value: Any) -> None:
    # Level by level: a recursive walk would itself run out of stack.
    level = [value]
    for _ in range(_MAX_DEPTH):
        inner: list[Any] = []
        for node in level:
            children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
            inner.extend(child for child in children if isinstance(child, dict | list))
        if not inner:
            return
        level = inner
    raise ValueError("nested too deep")


def _check_unique_keys(data: bytes) -> None:
    import json

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("a key stands there twice")
        return result

    json.loads(data, object_pairs_hook=unique)


def clean_text(data: bytes | str) -> str:
    """Removes terminal escapes and writes other control characters out, so that a model or a terminal can read it."""
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
    return _decode_json(line) if line[:1] in {"{", "["} and len(line) <= _MAX_JSON_LINE else None


def _decode_json(data: str | Raw) -> Any:
    """Decodes JSON; `None` for what is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
