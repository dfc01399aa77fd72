"""Paths in a JSON text: which path leads to a byte, and which bytes a path leads to. Works on the tape, not on objects.

How a path is written is said in `outputs/paths.py`.
"""

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from toolfold.outputs.local.literals import decode
from toolfold.outputs.local.source import Source
from toolfold.outputs.local.tape import Tape
from toolfold.outputs.paths import Step

KEY_WINDOW = 1024
NAMED_WITHIN = 600
TAIL = 4096
NAMING = re.compile(
    rb"[\"'](?:name|title|id|label|path|key|file|filename|slug|login)[\"']\s*:\s*"
    rb"(\"(?:[^\"\\]|\\.){1,120}\"|'(?:[^'\\]|\\.){1,120}'|-?\d+)"
)
COMMA = re.compile(rb"\"(?:[^\"\\]|\\.?)*+(?:\"|\Z)|(?<![\w\"])'(?:[^'\\]|\\.?)*+(?:'|\Z)|,", re.DOTALL)
"""Strings, so that commas in them do not count. One that does not end reaches to the end: nothing is read twice."""
STRING = re.compile(rb"\s*+(\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+')\s*+:\s*+", re.DOTALL)
SCALAR = re.compile(rb"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|[^,\]}\s]+", re.DOTALL)


class Container(Struct, frozen=True):
    """An object or array on the way to a byte: its bytes, `start` to `end` inclusive, and the step that led to it."""

    start: int
    end: int
    is_array: bool
    step: Step


def chain(source: Source, tape: Tape, offset: int) -> list[Container]:
    """The containers around a byte, the root first."""
    found: list[Container] = []
    for number, level in enumerate(tape.levels):
        at = int(np.searchsorted(level.opens, offset, side="right")) - 1
        if at < 0 or int(level.closes[at]) < offset:
            break
        start = int(level.opens[at])
        step: Step = None
        if found:
            parent = found[-1]
            if parent.is_array:
                commas = tape.levels[number - 1].commas
                step = int(np.searchsorted(commas, start) - np.searchsorted(commas, parent.start))
            else:
                step = key_before(source, start)
        found.append(Container(start, int(level.closes[at]), bool(level.is_array[at]), step))
    return found


def path_of(source: Source, tape: Tape, offset: int) -> list[Step]:
    """The path of the innermost container around a byte."""
    return [container.step for container in chain(source, tape, offset)[1:]]


def names_above(source: Source, tape: Tape, offset: int) -> list[str]:
    """What the objects around a byte call themselves: a `name`, `title` or `id` near their beginning."""
    found = []
    for container in chain(source, tape, offset):
        if not container.is_array and container.start != offset:
            head = source.read(container.start + 1, min(offset, container.start + NAMED_WITHIN))
            own = re.split(rb"[\[{]", head, maxsplit=1)[0]
            if match := NAMING.search(own):
                found.append(decode_string(match[1]))
    return found


def key_before(source: Source, offset: int) -> str | None:
    """The key whose value begins at `offset`."""
    window = KEY_WINDOW
    while True:
        text = source.read(max(0, offset - window), offset)
        tail = text.rstrip()
        if not tail.endswith(b":"):
            return None
        tail = tail[:-1].rstrip()
        begin = opening_quote(tail)
        if begin >= 0:
            return decode_string(tail[begin:])
        if window > offset or window > 1 << 20:
            return None
        window *= 8


def scalar_at(source: Source, offset: int) -> bytes:
    """The text, number or name that begins at `offset`."""
    match = SCALAR.match(source.read(offset, offset + (1 << 16)))
    return match[0] if match else b""


def opening_quote(text: bytes) -> int:
    """Where the string begins that ends `text`; -1 where it begins earlier."""
    at = len(text) - 1
    quote = text[-1:] if text[-1:] in (b'"', b"'") else b'"'
    while (at := text.rfind(quote, 0, at)) >= 0:
        before = text[:at]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return at
    return -1


def decode_string(raw: bytes) -> str:
    try:
        return str(decode(raw))
    except ValueError:
        return raw.strip(b"\"'").decode(errors="replace")


def members(source: Source, tape: Tape, container: Container, depth: int) -> Iterator[tuple[Step, int, int]]:
    """Each member of a container of `depth` (the root has 0): its step and its bytes, `start` to before `end`."""
    borders = member_borders(source, tape, container, depth)
    for number, (start, end) in enumerate(borders):
        if container.is_array:
            raw = source.read(start, min(end, start + 64))
            yield number, start + len(raw) - len(raw.lstrip()), end
            continue
        raw = source.read(start, min(end, start + 8192))
        match = STRING.match(raw)
        if match:
            yield decode_string(match[1]), start + match.end(), end


def member_borders(source: Source, tape: Tape, container: Container, depth: int) -> list[tuple[int, int]]:
    """Where the members of a container lie: cut at the commas that stand directly in it."""
    if container.is_array:
        commas = tape.levels[depth].commas
        low, high = np.searchsorted(commas, [container.start, container.end])
        cuts = [int(comma) for comma in commas[low:high]]
    else:
        cuts = object_commas(source, tape, container, depth)
    starts = [container.start + 1, *(cut + 1 for cut in cuts)]
    ends = [*cuts, container.end]
    spans = list(zip(starts, ends, strict=True))
    if len(spans) == 1 and trimmed_end(source, *spans[0]) == spans[0][0]:
        return []
    return spans


def trimmed_end(source: Source, start: int, end: int) -> int:
    """Where the text from `start` to `end` ends without the blanks behind it. Reads only those."""
    while end > start:
        tail = source.read(max(start, end - TAIL), end)
        kept = len(tail.rstrip())
        if kept or not tail:
            return end - len(tail) + kept
        end -= len(tail)
    return start


def object_commas(source: Source, tape: Tape, container: Container, depth: int) -> list[int]:
    """The commas directly inside an object: read from its own text, with its children skipped."""
    holes: list[tuple[int, int]] = []
    if depth + 1 < len(tape.levels):
        child = tape.levels[depth + 1]
        low, high = np.searchsorted(child.opens, [container.start, container.end])
        holes = [(int(a), int(b)) for a, b in zip(child.opens[low:high], child.closes[low:high], strict=True)]
    found: list[int] = []
    at = container.start + 1
    for start, end in [*holes, (container.end, container.end)]:
        found += commas_outside_strings(source.read(at, start), at)
        at = end + 1
    return found


def commas_outside_strings(text: bytes, at: int) -> list[int]:
    return [at + match.start() for match in COMMA.finditer(text) if match[0] == b","]
