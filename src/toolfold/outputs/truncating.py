"""Truncation: the top and the bottom of a text, with what was cut said in between. Never breaks a character.

It runs when a caller asks for it, and when a strategy could not run. Nothing else cuts a result.
"""

from pathlib import Path

from toolfold import tokens
from toolfold.outputs.plainfile import open_plain

BYTES_PER_TOKEN = 16
"""What is read for one token of answer, at most: more would not fit."""


def top_and_bottom(raw: bytes, budget: int) -> str:
    """The two ends of `raw` in at most `budget` tokens, and between them how much is missing."""
    text = raw.decode(errors="replace")
    if len(raw) <= budget * 64 and tokens.count(text) <= budget:
        return text
    half = max(1, (budget - 40) // 2)
    top = leading(raw[: half * BYTES_PER_TOKEN], half)
    bottom = trailing(raw[max(0, len(raw) - half * BYTES_PER_TOKEN) :], half)
    return joined(top, bottom, len(raw), raw.count(b"\n"))


def truncate_file(path: Path, budget: int) -> str:
    """The same for a file, of which only the ends are read."""
    reach = max(64, budget * BYTES_PER_TOKEN)
    half = max(1, (budget - 40) // 2)
    with open_plain(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        if size <= 2 * reach:
            return top_and_bottom(file.read(), budget)
        top = leading(file.read(reach), half)
        file.seek(size - reach)
        bottom = trailing(file.read(reach), half)
        file.seek(len(top))
        left, newlines = size - len(top) - len(bottom), 0
        while left > 0 and (block := file.read(min(left, 1 << 20))):
            newlines += block.count(b"\n")
            left -= len(block)
    return joined(top, bottom, size, newlines + top.count(b"\n") + bottom.count(b"\n"))


def joined(top: bytes, bottom: bytes, size: int, newlines: int) -> str:
    cut = size - len(top) - len(bottom)
    lines = newlines - top.count(b"\n") - bottom.count(b"\n")
    note = f"[... {cut} bytes ({lines} lines) are missing here: bytes {len(top)}-{size - len(bottom) - 1} ...]"
    return f"{top.decode(errors='replace').rstrip()}\n\n{note}\n\n{bottom.decode(errors='replace').lstrip()}"


def leading(raw: bytes, budget: int) -> bytes:
    """As much of the beginning as the budget holds, ended at a line or at least at a character."""
    size = fitting(raw, budget, at_end=False)
    part = whole_characters(raw[:size])
    newline = part.rfind(b"\n")
    return part[: newline + 1] if newline > size // 2 and size < len(raw) else part


def trailing(raw: bytes, budget: int) -> bytes:
    """As much of the end."""
    size = fitting(raw, budget, at_end=True)
    part = raw[len(raw) - size :]
    while part and part[0] & 0xC0 == 0x80:
        part = part[1:]
    newline = part.find(b"\n")
    return part[newline + 1 :] if 0 <= newline < size // 2 and size < len(raw) else part


def fitting(raw: bytes, budget: int, *, at_end: bool) -> int:
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


def whole_characters(raw: bytes) -> bytes:
    """Without the first bytes of a character whose rest is not there."""
    for back in range(1, min(4, len(raw)) + 1):
        byte = raw[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return raw if need <= back else raw[:-back]
    return raw
