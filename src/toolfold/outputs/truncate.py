"""Truncation: the top and the bottom of a text, and between them a note on what is missing. No character is broken.

It runs when a caller asks for it, and when a strategy could not run. Nothing else cuts a result.
"""

import os
from collections.abc import Callable
from pathlib import Path

from toolfold import tokens
from toolfold.outputs.document import open_regular_file

# Bytes read for one token of answer. A token of o200k is hardly ever longer, so more would not fit.
BYTES_PER_TOKEN = 16
BLOCK = 1 << 20

# `read(start, end)` returns the bytes from `start` to before `end`.
ReadRange = Callable[[int, int], bytes]


def truncate_bytes(raw: bytes, budget: int) -> str:
    """The two ends of `raw` in at most `budget` tokens, and between them how much is missing."""
    return truncate_range(lambda start, end: raw[start:end], len(raw), budget)


def truncate_file(path: Path, budget: int) -> str:
    """The two ends of a file."""
    with open_regular_file(path) as file:
        descriptor = file.fileno()
        return truncate_range(lambda start, end: os.pread(descriptor, end - start, start), file.seek(0, 2), budget)


def truncate_range(read: ReadRange, size: int, budget: int) -> str:
    """The two ends of what `read` gives. Only they are held in memory; newlines between them are counted in passing."""
    if size <= budget * 64:
        text = read(0, size).decode(errors="replace")
        if tokens.count(text) <= budget:
            return text
    reach = max(64, budget * BYTES_PER_TOKEN)
    half = max(1, (budget - 40) // 2)
    top = _leading(read(0, min(reach, size)), half)
    bottom = _trailing(read(max(len(top), size - reach), size), half)
    border = size - len(bottom)
    lines = sum(read(at, min(at + BLOCK, border)).count(b"\n") for at in range(len(top), border, BLOCK))
    note = f"[... {border - len(top)} bytes ({lines} lines) are missing here: bytes {len(top)}-{border - 1} ...]"
    return f"{top.decode(errors='replace').rstrip()}\n\n{note}\n\n{bottom.decode(errors='replace').lstrip()}"


def _leading(raw: bytes, budget: int) -> bytes:
    """As much of the beginning as the budget holds, ended at a line or at least at a character."""
    size = _fitting_size(raw, budget, at_end=False)
    part = _whole_characters(raw[:size])
    newline = part.rfind(b"\n")
    return part[: newline + 1] if newline > size // 2 and size < len(raw) else part


def _trailing(raw: bytes, budget: int) -> bytes:
    """As much of the end as the budget holds, begun at a line or at least at a character."""
    size = _fitting_size(raw, budget, at_end=True)
    part = raw[len(raw) - size :]
    while part and part[0] & 0xC0 == 0x80:
        part = part[1:]
    newline = part.find(b"\n")
    return part[newline + 1 :] if 0 <= newline < size // 2 and size < len(raw) else part


def _fitting_size(raw: bytes, budget: int, *, at_end: bool) -> int:
    """About the largest size whose text fits the budget."""
    low, high = 0, len(raw)
    while low < high:
        middle = (low + high + 1) // 2
        part = raw[len(raw) - middle :] if at_end else raw[:middle]
        if tokens.count(part.decode(errors="replace")) <= budget:
            low = middle
        else:
            high = middle - 1
        # Tokens do not grow evenly with bytes: the last few steps would buy nothing.
        if high - low < 16:
            break
    return low


def _whole_characters(raw: bytes) -> bytes:
    """Without the first bytes of a character whose rest is not there."""
    for back in range(1, min(4, len(raw)) + 1):
        byte = raw[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return raw if need <= back else raw[:-back]
    return raw
