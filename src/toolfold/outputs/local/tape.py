"""The structure of a JSON text of any size: where each container opens and closes, by depth, found with numpy.

It does not check JSON and makes no objects: a text that was cut off or that follows some words of introduction has a
tape all the same. Memory is a few bytes per container. Containers deeper than `DEEPEST` are left inside their parents.
"""

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.outputs.local import literals
from toolfold.outputs.local.source import BLOCK, Offsets, Source

DEEPEST = 48
LONG_RUN = 32
"""Backslashes that are counted one by one; a longer run is measured at once."""

QUOTE, BACKSLASH = 34, 92
STRUCTURE = np.zeros(256, dtype=np.int8)
STRUCTURE[[ord("{"), ord("[")]] = 1
STRUCTURE[[ord("}"), ord("]")]] = -1
STRUCTURE[ord(",")] = 2


class Level(Struct, frozen=True):
    """The containers of one depth, in order: `opens[i]` is closed by `closes[i]`."""

    opens: Offsets
    closes: Offsets
    is_array: npt.NDArray[np.bool_]
    commas: Offsets
    """The commas directly inside arrays of this depth: they number the elements."""


class Tape(Struct, frozen=True):
    """All levels, the root's first. `start` is where the JSON begins."""

    start: int
    levels: tuple[Level, ...]


def build_tape(source: Source, start: int = 0, *, literal: bool = False) -> Tape:
    """Reads the structure in one pass."""
    where, what = literals.structure(source, start) if literal else structure(source, start)
    step = STRUCTURE[what]
    comma = step == 2
    change = np.where(comma, 0, step).astype(np.int32)
    depth = np.cumsum(change, dtype=np.int32)
    opening, closing = change == 1, change == -1
    levels: list[Level] = []
    for number in range(1, min(DEEPEST, int(depth.max(initial=0))) + 1):
        opens = where[opening & (depth == number)]
        if not len(opens):
            break
        closes = matched(opens, where[closing & (depth == number - 1)], source.size)
        is_array = what[opening & (depth == number)] == ord("[")
        commas = where[comma & (depth == number)]
        owner = np.searchsorted(opens, commas) - 1
        levels.append(Level(opens, closes, is_array, commas[is_array[np.maximum(owner, 0)] & (owner >= 0)]))
    return Tape(start, tuple(levels))


def matched(opens: Offsets, closes: Offsets, size: int) -> Offsets:
    """The closing of each opening. At one depth they alternate; the last may be missing in a text that was cut off."""
    at = np.searchsorted(closes, opens)
    ends = np.full(len(opens), size - 1, dtype=np.int64)
    there = at < len(closes)
    ends[there] = closes[at[there]]
    return ends


def structure(source: Source, start: int) -> tuple[Offsets, npt.NDArray[np.uint8]]:
    """Every bracket and comma outside of strings: its place and which it is."""
    places, signs = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint8)]
    inside = False
    for at in range(start, source.size, BLOCK):
        before = source.read(max(start, at - 4096), at)
        block = source.read(at, at + BLOCK)
        whole = np.frombuffer(before + block, dtype=np.uint8)
        quotes = np.flatnonzero(whole == QUOTE)
        quotes = quotes[quotes >= len(before)]
        quotes = quotes[~escaped(whole, quotes)]
        marks = np.flatnonzero(STRUCTURE[whole] != 0)
        marks = marks[marks >= len(before)]
        parity = (np.searchsorted(quotes, marks) + int(inside)) % 2
        marks = marks[parity == 0]
        places.append(marks.astype(np.int64) - len(before) + at)
        signs.append(whole[marks])
        inside = bool((len(quotes) + int(inside)) % 2)
    return np.concatenate(places), np.concatenate(signs)


def escaped(text: npt.NDArray[np.uint8], quotes: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Which quotes follow an odd number of backslashes."""
    odd = np.zeros(len(quotes), dtype=np.bool_)
    live = np.arange(len(quotes))
    back = 1
    while len(live) and back <= LONG_RUN:
        at = quotes[live] - back
        live = live[(at >= 0) & (text[np.maximum(at, 0)] == BACKSLASH)]
        odd[live] = back % 2 == 1
        back += 1
    if len(live):
        others = np.flatnonzero(text != BACKSLASH)
        index = np.searchsorted(others, quotes[live]) - 1
        odd[live] = (quotes[live] - np.where(index >= 0, others[np.maximum(index, 0)], -1) - 1) % 2 == 1
    return odd
