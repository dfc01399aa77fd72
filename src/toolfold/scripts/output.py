"""What a script printed, made fit for a model: no terminal codes, no control characters, no direction marks."""

import re
from typing import Any

import msgspec

MAX_JSON_LINE = 1 << 20

_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def shown(data: bytes | str) -> str:
    """The text with terminal codes taken out and other control characters written out."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    text = _CODES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROLS.sub(lambda found: ascii(found.group())[1:-1], text)


def last_json(text: str) -> Any:
    """The last line, where it is a JSON object or array: what a script printed as its summary."""
    line = text.rstrip().rpartition("\n")[2].strip()
    if line[:1] not in {"{", "["} or len(line) > MAX_JSON_LINE:
        return None
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
