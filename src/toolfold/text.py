"""Text that can be stored, compared and shown: cut to a length, without lone surrogates or what nobody sees."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

# An escaped pair of surrogates, half of one, any other escape: only halves are no characters.
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)

# The key in the `_meta` of a result that says what of it is not as it came, and what is said of such characters.
NOTE_KEY = "toolfold/note"
REPLACED = "characters that were no text are replaced by U+FFFD"
# A text, also one without an end, or a bracket.
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
MAX_LEVELS = 200
_MAX_BRACKETS = 500_000
_LEFT_OUT = b'"(left out: nested over %d levels)"' % MAX_LEVELS

# Readers take integers of so many digits, and other numbers up to 1.8e308. Written with fewer signs, none is too large.
_MAX_DIGITS = 4300
_LONG_NUMBER = 309
NUMBER_LEFT_OUT = b'"(left out: a number that no JSON reader takes)"'
# A text, or a number.
_NUMBERS = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*+(?:"|\Z)|'
    rb"(-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|NaN|-?Infinity)",
    re.DOTALL,
)
# Digits as 0, exponents as e: then a plain search finds numbers that may be too large, faster than a pattern does. A
# plus is as good as a digit at first: one search then finds both ways to write an exponent.
_SHAPES = bytes(48 if chr(byte) in "0123456789" else ord("e") if chr(byte) in "eE" else byte for byte in range(256))
_ROUGH_SHAPES = _SHAPES.replace(b"+", b"0")
_SCANNED = 1 << 20


def truncate(text: str, limit: int) -> str:
    """At most `limit` characters; a cut text ends in an ellipsis, which counts."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str, limit: int) -> str:
    """For a person who decides by it: what cannot be seen or turns text around is spelt out, what is cut is counted."""
    kept = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:limit])
    hidden = len(text) - limit
    return kept if hidden <= 0 else f"{kept} … ({hidden:,} more characters are not shown)"


def text_of(content: Iterable[dict[str, Any]], *, labelled: bool = False) -> str:
    """The text of a result's blocks, text resources among them, one after the other; where there is none, the addresses
    of links. With `labelled`, what is no text stands there by its kind, type and address."""
    blocks = list(content)
    texts = [_block_text(block) for block in blocks]
    if labelled:
        return "\n".join(_label(block) if text is None else text for block, text in zip(blocks, texts, strict=True))
    links = [str(block.get("uri", "")) for block in blocks if block.get("type") == "resource_link"]
    return "\n".join([text for text in texts if text is not None] or links)


def _block_text(block: dict[str, Any]) -> str | None:
    holder = block.get("resource") if block.get("type") == "resource" else block
    text = holder.get("text") if isinstance(holder, dict) else None
    if block.get("type") == "text" and not isinstance(text, str):
        return ""
    return text if isinstance(text, str) else None


def _label(block: dict[str, Any]) -> str:
    resource = block.get("resource")
    about = resource if isinstance(resource, dict) else block
    media = truncate(str(about.get("mimeType") or ""), 100)
    details = (block.get("type", "content"), media, about.get("uri") or about.get("name"))
    return f"[{' '.join(str(detail) for detail in details if detail)}]"


def replace_surrogates(text: str) -> str:
    """Replaces lone surrogates, which a Python string may hold and UTF-8 cannot encode, by question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def replace_surrogates_all(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(replace_surrogates, texts))


def replace_escaped_halves(text: bytes) -> bytes:
    """The same JSON with a replacement character for each escaped half of a character, which no strict reader takes."""
    return _ESCAPES.sub(lambda found: rb"\ufffd" if found[1] else found[0], text) if rb"\u" in text else text


def cut_deep(text: bytes) -> bytes:
    """The same JSON with a short text in place of whatever is nested over 200 levels, more than readers take."""
    brackets = text.count(b"[") + text.count(b"{")
    if not MAX_LEVELS < brackets <= _MAX_BRACKETS:  # nothing is so deep, or looking for it takes too long
        return text
    pieces: list[bytes] = []
    depth = end = 0
    for found in _STRUCTURE.finditer(text):
        if found[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_LEVELS + 1:
                pieces += text[end : found.start()], _LEFT_OUT
        elif found[0] in (b"]", b"}"):
            depth -= 1
            if depth == MAX_LEVELS:
                end = found.end()
    return text if depth else b"".join((*pieces, text[end:]))


def has_large_number(text: bytes) -> bool:
    """Whether something in it looks like a number that readers refuse; it may stand inside a text."""
    for start in range(0, len(text), _SCANNED):
        piece = text[max(0, start - _LONG_NUMBER) : start + _SCANNED]
        shapes = piece.translate(_ROUGH_SHAPES)
        if b"0e000" in shapes or b"0" * _LONG_NUMBER in shapes:
            shapes = piece.translate(_SHAPES)
            if b"0e000" in shapes or b"0e+000" in shapes or b"0" * _LONG_NUMBER in shapes:
                return True
    return False


def replace_large_numbers(text: bytes) -> bytes:
    """The same JSON with a short text in place of each number that is larger than readers take, or is none."""
    suspect = has_large_number(text) or b"NaN" in text or b"Infinity" in text
    return _NUMBERS.sub(_replaced_number, text) if suspect else text


def _replaced_number(found: re.Match[bytes]) -> bytes:
    number = found[1]
    if not number:
        return found[0]
    is_integer = number.removeprefix(b"-").isdigit()
    is_large = len(number.removeprefix(b"-")) > _MAX_DIGITS if is_integer else not math.isfinite(float(number))
    return NUMBER_LEFT_OUT if is_large else number


def replace_whole_numbers(text: bytes) -> bytes:
    """The same JSON with numbers such as `1.0` as integers."""
    return _NUMBERS.sub(lambda found: re.sub(rb"\.0+\Z", b"", found[1]) if found[1] else found[0], text)


def as_path(path: str | Sequence[str]) -> tuple[str, ...]:
    """A category as whoever names it may write it: its steps, or one text such as `Databases` or `Storage / Files`."""
    steps = re.split("[/>]", path) if isinstance(path, str) else path
    return replace_surrogates_all(step.strip() if isinstance(path, str) else step for step in steps if step.strip())
