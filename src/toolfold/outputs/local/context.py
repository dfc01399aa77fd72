"""What is quoted with a unit: what it heads, what is indented below it, the rest of its log event, its neighbours.

And what it stands under: the heading above, or the lines of less indentation that lead to it. Above: `rendering`.
"""

import re

import numpy as np

from toolfold.outputs.local.formats import LEVEL, TIME
from toolfold.outputs.local.index import DocumentIndex

DIFF_LINE = re.compile(r"@@ -\d|diff --git ")
MAX_EVENT, MAX_BELOW, MAX_PARENTS, MAX_BACK = 40, 16, 3, 600
WHOLE, BLOCK = 2, 45
"""Of the best so many units the whole item is quoted, as far as so many units of it."""
RECORDS = frozenset({"items", "markup", "settings"})
INDENTED = frozenset({"items", "code", "markup"})


def neighbours(index: DocumentIndex, unit: int, order: int) -> list[int]:
    """The units to quote with one, the nearest first; fewer for lower ranks."""
    reach = 3 if order < 3 else 1 if order < 8 else 0
    if not reach:
        return []
    count = len(index.units)
    around = [unit + sign * step for step in range(1, reach + 1) for sign in (1, -1)]
    if index.format.kind == "log":
        around = [*_event_lines(index, unit), *around]
    elif index.format.kind == "text":
        around = [*_indented_below(index, unit, MAX_BELOW * reach // 3), *around]
    around = [*_headed(index, unit, reach), *around]
    if order < WHOLE and index.blocks is not None and index.blocks.kind in RECORDS:
        around += _block_of(index, unit)
    return [other for other in dict.fromkeys(around) if 0 <= other < count and other != unit]


def _headed(index: DocumentIndex, unit: int, reach: int) -> list[int]:
    """What a heading heads, and of a hunk the changes."""
    headings = index.headings
    at = int(np.searchsorted(headings, unit, side="right")) - 1
    if at < 0:
        return []
    end = _block_end(index, at)
    block = range(int(headings[at]), min(end, int(headings[at]) + 60))
    found: list[int] = []
    if int(headings[at]) == unit:
        found = list(range(unit + 1, min(end, unit + 4 * reach + 2)))
    if DIFF_LINE.match(index.text(block.start)):
        found = [*sorted(_changed_lines(index, block), key=lambda line: abs(line - unit))[: reach * 6], *found]
    return found


def _block_of(index: DocumentIndex, unit: int) -> list[int]:
    """The item, element or section that holds a unit, from its beginning."""
    at = int(np.searchsorted(index.outer, unit, side="right")) - 1
    if at < 0:
        return []
    start = int(index.outer[at])
    end = int(index.outer[at + 1]) if at + 1 < len(index.outer) else len(index.units)
    return list(range(start, min(end, start + BLOCK)))


def _block_end(index: DocumentIndex, at: int) -> int:
    """Where what a heading heads ends: at the next one; the head of a file in a diff heads its hunks, too."""
    headings = index.headings
    following = at + 1
    if index.text(int(headings[at])).startswith("diff --git "):
        while following < min(len(headings), at + 12) and index.text(int(headings[following])).startswith("@@"):
            following += 1
    return int(headings[following]) if following < len(headings) else len(index.units)


def _changed_lines(index: DocumentIndex, block: range) -> list[int]:
    """The lines of a hunk that were added or taken away."""
    return [line for line in block if re.match(r"[+-](?![+-]{2} )", index.text(line))]


def _begins_event(text: str) -> bool:
    """Whether a line of a log opens an event: it carries a time or a level near its beginning."""
    raw = text[:100].encode(errors="replace")
    return TIME.search(raw) is not None or (LEVEL.search(raw[:40]) is not None and not raw[:1].isspace())


def _event_lines(index: DocumentIndex, unit: int) -> list[int]:
    """The other lines of a log event: from the line with the time to before the next such line."""
    first = unit
    while first > 0 and unit - first < MAX_EVENT and not _begins_event(index.text(first)):
        first -= 1
    last = unit + 1
    while last < len(index.units) and last - unit < MAX_EVENT and not _begins_event(index.text(last)):
        last += 1
    return sorted((line for line in range(first, last) if line != unit), key=lambda line: abs(line - unit))


def _indentation(index: DocumentIndex, unit: int) -> int:
    """How far a line is indented; -1 for a blank one, and for a further piece of a long line."""
    start = index.units.span(unit)[0]
    if start and index.source.read(start - 1, start) != b"\n":
        return -1
    text = index.text(unit)
    bare = text.lstrip(" \t")
    if not bare.strip():
        return -1
    own = len(text[: len(text) - len(bare)].expandtabs(4))
    # What stands below `- name: x` is indented as far as `name`.
    return own + (1 if bare.startswith("- ") else 0)


def _indented_below(index: DocumentIndex, unit: int, most: int) -> list[int]:
    """The lines right below that are indented deeper."""
    own = _indentation(index, unit)
    if own < 0:
        return []
    found = []
    for line in range(unit + 1, min(len(index.units), unit + 1 + most)):
        other = _indentation(index, line)
        if 0 <= other <= own:
            break
        found.append(line)
    return found if any(index.text(line).strip() for line in found) else []


def parents(index: DocumentIndex, unit: int) -> list[int]:
    """The lines that lead to one, by indentation: the keys above it in YAML, the class of a method. Outermost first."""
    if index.blocks is None or index.blocks.kind not in INDENTED:
        return []
    own = _indentation(index, unit)
    found: list[int] = []
    for line in range(unit - 1, max(-1, unit - MAX_BACK), -1):
        other = _indentation(index, line)
        if 0 <= other < own:
            found.insert(0, line)
            own = other
        if own == 0:
            break
    return found[-MAX_PARENTS:]
