"""Truncation: the top and the bottom of a text, with what was cut said in between. Never breaks a character.

It runs when a caller asks for it, and when a strategy could not run. Nothing else cuts a result.
"""

import os
from collections.abc import Callable
from pathlib import Path

from toolfold import tokens
from toolfold.outputs.document import open_regular_file

BYTES_PER_TOKEN = 16
"""What is read for one token of answer, at most: more would not fit."""


BLOCK = 1 << 20

ReadRange = Callable[[int, int], bytes]
"""Gives the bytes from one place to before another."""


def truncate_bytes(raw: bytes, budget: int) -> str:
    """The two ends of `raw` in at most `budget` tokens, and between them how much is missing."""
    return truncate_range(lambda start, end: raw[start:end], len(raw), budget)


def truncate_file(path: Path, budget: int) -> str:
    """The same for a file."""
    with open_regular_file(path) as file:
        descriptor = file.fileno()
        return truncate_range(lambda start, end: os.pread(descriptor, end - start, start), file.seek(0, 2), budget)


def truncate_range(read: ReadRange, size: int, budget: int) -> str:
    """The same for what can be read anywhere. Only the ends are held; between them newlines are counted in passing."""
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
    """As much of the end."""
    size = _fitting_size(raw, budget, at_end=True)
    part = raw[len(raw) - size :]
    while part and part[0] & 0xC0 == 0x80:
        part = part[1:]
    newline = part.find(b"\n")
    return part[newline + 1 :] if 0 <= newline < size // 2 and size < len(raw) else part


def _fitting_size(raw: bytes, budget: int, *, at_end: bool) -> int:
    """The largest size whose text fits the budget, found by halving."""
    low, high = 0, len(raw)
    while low < high:
        middle = (low + high + 1) // 2
        part = raw[len(raw) - middle :] if at_end else raw[:middle]
        if tokens.count(part.decode(errors="replace")) <= budget:
            low = middle
        else:
            high = middle - 1
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
