"""What a script printed, made fit for a model: no terminal codes, no control characters, no direction marks."""

import re
from typing import Any

import msgspec

MAX_JSON_LINE = 1 << 20
PIECE = 1 << 16

_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_RANGES = ((0, 8), (0xB, 0x1F), (0x7F, 0x9F), (0x61C, 0x61C), (0x200E, 0x200F), (0x202A, 0x202E), (0x2066, 0x2069))
_WRITTEN = {n: ascii(chr(n))[1:-1] for first, last in (*_RANGES, (0xFEFF, 0xFEFF)) for n in range(first, last + 1)}
_CONTROL = re.compile(f"[{re.escape(''.join(map(chr, _WRITTEN)))}]")


def shown(data: bytes | str) -> str:
    """The text with terminal codes taken out and other control characters written out."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    text = _CODES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    if _CONTROL.search(text) is None:
        return text
    # Each piece is one call into C; between two of them other threads have their turn.
    return "".join([text[at : at + PIECE].translate(_WRITTEN) for at in range(0, len(text), PIECE)])


def last_json(text: str) -> Any:
    """The last line, where it is a JSON object or array: what a script printed as its summary."""
    line = text.rstrip().rpartition("\n")[2].strip()
    if line[:1] not in {"{", "["} or len(line) > MAX_JSON_LINE:
        return None
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
