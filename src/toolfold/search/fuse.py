"""Joins words and meaning: each score measured against the whole catalogue's, then mixed.

A score by itself says little: words are rare in one catalogue and common in another. So each becomes "how many standard
deviations above this catalogue's mean for this request", and the two are added with fixed weights. A request that says
several things in several sentences is compared sentence by sentence too (`sentences`); it is split nowhere else, since
a wrong split costs more than it gives.
"""

import re

import numpy as np

from toolfold.search.kinds import Floats, Numbers
from toolfold.search.terms import terms

LEXICAL = 0.25
"""The share of words; meaning has the rest."""
MAX_SENTENCES = 8
MAX_CHARACTERS = 8192

_END = re.compile("(?<=[.!?;])\\s+|\n+|(?<=[\u3002\uff01\uff1f])")


def sentences(text: str) -> list[str]:
    """The sentences of a request that hold at least two words of content; nothing if there is only one."""
    pieces = (piece.strip() for piece in _END.split(text[:MAX_CHARACTERS]))
    found = [piece for piece in pieces if len(terms(piece[:512])) >= 2][:MAX_SENTENCES]
    return found if len(found) > 1 else []


def standard(values: Numbers, among: Numbers | Floats) -> Numbers:
    """Standard deviations above the mean of `among`. Rounded, so that the order of a sum never shows."""
    if not len(among):
        return values * 0.0
    mean, spread = float(among.mean(dtype=np.float64)), float(among.std(dtype=np.float64))
    if spread < 1e-9:
        return values * 0.0
    return (values - round(mean, 7)) / round(spread, 7)


def nearest(nearness: Numbers) -> Numbers:
    """One nearness for each tool, from a line for the whole request and a line for each sentence: half and half the
    whole's and the nearest line's."""
    whole: Numbers = nearness[0]
    return whole if len(nearness) == 1 else (whole + nearness.max(axis=0)) / 2


def mix(lexical: Numbers, dense: Numbers) -> Numbers:
    return np.round(LEXICAL * lexical + (1 - LEXICAL) * dense, 5)
