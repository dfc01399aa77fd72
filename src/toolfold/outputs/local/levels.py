"""Levels of log lines: which one a request asks for, and which units carry it near their beginning."""

import re

import numpy as np

from toolfold.outputs.local.index import Index
from toolfold.outputs.local.scan import ALNUM, places
from toolfold.outputs.local.source import BLOCK, Offsets, distinct

LEVELS = {
    "error": ("error", "err"),
    "warning": ("warning", "warn"),
    "fatal": ("fatal", "critical", "crit", "emerg"),
    "critical": ("critical", "crit", "fatal"),
    "info": ("info",),
    "debug": ("debug",),
    "trace": ("trace",),
    "notice": ("notice",),
}
ASKED = re.compile(r"\b(error|warning|warn|fatal|critical|info|debug|trace|notice)s?\b", re.IGNORECASE)
NEAR_START = 100


def level_asked(request: str) -> tuple[str, ...]:
    match = ASKED.search(request)
    if match is None:
        return ()
    word = match[1].lower()
    return LEVELS["warning" if word == "warn" else word]


def units_of_level(index: Index, names: tuple[str, ...]) -> Offsets:
    """Units whose first level word is one of `names`."""
    every = {name for group in LEVELS.values() for name in group}
    first: dict[str, tuple[Offsets, Offsets]] = {name: level_places(index, name) for name in sorted(every)}
    earliest = np.full(len(index.units), np.iinfo(np.int64).max)
    for units, at in first.values():
        np.minimum.at(earliest, units, at)
    held = [units[earliest[units] == at] for name, (units, at) in first.items() if name in names]
    return distinct(np.concatenate(held)) if held else np.zeros(0, np.int64)


def level_places(index: Index, name: str) -> tuple[Offsets, Offsets]:
    """Units that hold the word near their beginning, and where."""
    return index.kept(f"level:{name}", lambda: read_level(index, name))


def read_level(index: Index, name: str) -> tuple[Offsets, Offsets]:
    found = [np.zeros(0, np.int64)]
    for at in range(0, index.source.size, BLOCK):
        lead = index.source.read(at - 1, at)
        raw = lead + index.source.read(at, at + BLOCK + 16)
        hits = np.array(places(raw.lower(), name.encode()), dtype=np.int64)
        if len(hits):
            text = np.frombuffer(raw + b"\0", dtype=np.uint8)
            before = np.where(hits > 0, text[np.maximum(hits - 1, 0)], 0)
            hits = hits[~ALNUM[before] & ~ALNUM[text[np.minimum(hits + len(name), len(text) - 1)]]]
            hits = hits[(hits >= len(lead)) & (hits < BLOCK + len(lead))]
            found.append(hits - len(lead) + at)
    at_all = np.concatenate(found)
    units = index.units.of(at_all)
    near = at_all - index.units.starts[units] < NEAR_START
    return units[near], at_all[near]
