"""Chunks of a document: how many, how large, and where they are cut.

Balanced: all chunks are of one size, the overlap counted in. Cut at the end of a line, else where a JSON value ends,
else at a blank, and never inside a character.
"""

import math
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from toolfold.errors import ModelError
from toolfold.outputs.plainfile import open_plain

SEARCHED = 0.1
"""How far from its ideal place a cut may move, as a share of the chunk."""


class Chunk(Struct, frozen=True):
    """One piece: bytes `start` to before `end`."""

    start: int
    end: int
    text: str
    tokens: int


def room_for_chunk(context: int, output: int, prompt: int) -> int:
    """Tokens of document that fit one call."""
    room = context - output - prompt
    if room < 64:
        raise ModelError(
            f"the model's window of {context} tokens leaves no room for a chunk: {output} are kept for the answer and "
            f"{prompt} are the prompt",
            next_action="use a model with a larger window, or make the request shorter",
        )
    return room


def chunks_needed(total: int, room: int, overlap_percent: int) -> int:
    """How many chunks of `room` tokens cover `total`, each but the first repeating a part of the one before."""
    if total <= room:
        return 1
    share = overlap_percent / 100
    return math.ceil((total - share * room) / (room * (1 - share)))


def balanced_size(size: int, count: int, overlap_percent: int) -> int:
    """What each of `count` chunks measures so that together, overlaps counted, they cover `size`."""
    return math.ceil(size / (count - (count - 1) * overlap_percent / 100))


def cut_chunks(
    path: Path, count: int, overlap_percent: int, *, room: int, count_tokens: Callable[[str], int], most: int
) -> list[Chunk] | None:
    """The chunks, each within `room` tokens. Where the text is denser in places, more and smaller ones; `None` where
    that would take more than `most`.
    """
    with open_plain(path) as file:
        data = file.read()
    while count <= most:
        chunks = cut_into(data, count, overlap_percent, count_tokens)
        largest = max(chunk.tokens for chunk in chunks)
        if largest <= room:
            return chunks
        count = max(count + 1, math.ceil(count * min(2.0, largest / room)))
    return None


def cut_into(data: bytes, count: int, overlap_percent: int, count_tokens: Callable[[str], int]) -> list[Chunk]:
    size = balanced_size(len(data), count, overlap_percent)
    step = size * (1 - overlap_percent / 100)
    chunks = []
    for number in range(count):
        start = border(data, round(number * step), size) if number else 0
        end = border(data, round(number * step) + size, size) if number < count - 1 else len(data)
        text = data[start:end].decode(errors="replace")
        chunks.append(Chunk(start, end, text, count_tokens(text)))
    return chunks


def border(data: bytes, ideal: int, size: int) -> int:
    """The best place to cut at or a little before `ideal`."""
    ideal = min(max(ideal, 0), len(data))
    reach = max(1, int(size * SEARCHED))
    low = max(0, ideal - reach)
    newline = data.rfind(b"\n", low, ideal)
    if newline >= 0:
        return newline + 1
    for mark in (b"},", b"],", b",", b" "):
        found = data.rfind(mark, low, ideal)
        if found >= 0:
            return found + len(mark)
    while 0 < ideal < len(data) and data[ideal] & 0xC0 == 0x80:
        ideal -= 1
    return ideal
