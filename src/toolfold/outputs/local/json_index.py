"""The structure of a JSON text of any size: where each container opens and closes, by depth, found with numpy.

It does not check JSON and makes no objects: a text that was cut off or that follows some words of introduction has a
tape all the same. Memory is a few bytes per container. Containers deeper than `DEEPEST` are left inside their parents.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.outputs.json_path import Step
from toolfold.outputs.local.source import BLOCK, Offsets, Source

# --- Values as Python prints them: `[{'id': 1, 'name': "O'Neil"}]`, `[(1, None)]`. Many tools answer so.

MAX_LITERAL_TEXT = 48 << 20
LITERAL_TOKEN = re.compile(rb"'(?:[^'\\]|\\.?)*+(?:'|\Z)|\"(?:[^\"\\]|\\.?)*+(?:\"|\Z)|[{}\[\](),]", re.DOTALL)
LITERAL_OPENING = re.compile(rb"[\[{(]\s*(?:[\[{(]\s*)?(?:'|\d+\s*,\s*'|\"(?:[^\"\\]|\\.){0,200}\"\s*,\s*')")
LITERAL_STRING = re.compile(rb"'(?:[^'\\\n]|\\.){0,200}'\s*[:,\]})]")
ROUND_TO_SQUARE = bytes.maketrans(b"()", b"[]")
MAX_LITERAL_VALUE = 1 << 20


def looks_literal(head: bytes, size: int) -> bool:
    return (
        size <= MAX_LITERAL_TEXT
        and LITERAL_OPENING.match(head) is not None
        and LITERAL_STRING.search(head[:600]) is not None
    )


def _literal_structure(source: Source, start: int) -> tuple[Offsets, npt.NDArray[np.uint8]]:
    """Every bracket and comma outside of strings; round brackets count as square ones."""
    text = source.read(start, source.size)
    places = [match.start() for match in LITERAL_TOKEN.finditer(text) if match[0][:1] not in b"'\""]
    where = np.array(places, dtype=np.int64)
    signs = np.frombuffer(text.translate(ROUND_TO_SQUARE), dtype=np.uint8)[where] if places else np.zeros(0, np.uint8)
    return where + start, signs


def decode_value(raw: bytes) -> Any:
    """The value of a JSON text or of a Python literal. Raises `ValueError` for what is neither."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    if len(raw) > MAX_LITERAL_VALUE or (b"'" not in raw and not raw.startswith(b"(")):
        raise ValueError("neither JSON nor a Python literal")
    try:
        value = ast.literal_eval(raw.decode().strip())
        msgspec.json.encode(value)
    except (SyntaxError, MemoryError, RecursionError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ValueError("neither JSON nor a Python literal") from error
    return value


MAX_DEPTH = 48
MAX_BACKSLASHES = 32
"""Backslashes that are counted one by one; a longer run is measured at once."""

QUOTE, BACKSLASH = 34, 92
STRUCTURE = np.zeros(256, dtype=np.int8)
STRUCTURE[[ord("{"), ord("[")]] = 1
STRUCTURE[[ord("}"), ord("]")]] = -1
STRUCTURE[ord(",")] = 2


class _Level(Struct, frozen=True):
    """The containers of one depth, in order: `opens[i]` is closed by `closes[i]`."""

    opens: Offsets
    closes: Offsets
    is_array: npt.NDArray[np.bool_]
    commas: Offsets
    """The commas directly inside arrays of this depth: they number the elements."""


class JsonIndex(Struct, frozen=True):
    """All levels, the root's first. `start` is where the JSON begins."""

    start: int
    levels: tuple[_Level, ...]


def build_json_index(source: Source, start: int = 0, *, literal: bool = False) -> JsonIndex:
    """Reads the structure in one pass."""
    where, what = _literal_structure(source, start) if literal else _json_structure(source, start)
    step = STRUCTURE[what]
    comma = step == 2
    change = np.where(comma, 0, step).astype(np.int32)
    depth = np.cumsum(change, dtype=np.int32)
    opening, closing = change == 1, change == -1
    levels: list[_Level] = []
    for number in range(1, min(MAX_DEPTH, int(depth.max(initial=0))) + 1):
        opens = where[opening & (depth == number)]
        if not len(opens):
            break
        closes = _match_closes(opens, where[closing & (depth == number - 1)], source.size)
        is_array = what[opening & (depth == number)] == ord("[")
        commas = where[comma & (depth == number)]
        owner = np.searchsorted(opens, commas) - 1
        levels.append(_Level(opens, closes, is_array, commas[is_array[np.maximum(owner, 0)] & (owner >= 0)]))
    return JsonIndex(start, tuple(levels))


def _match_closes(opens: Offsets, closes: Offsets, size: int) -> Offsets:
    """The closing of each opening. At one depth they alternate; the last may be missing in a text that was cut off."""
    at = np.searchsorted(closes, opens)
    ends = np.full(len(opens), size - 1, dtype=np.int64)
    there = at < len(closes)
    ends[there] = closes[at[there]]
    return ends


def _json_structure(source: Source, start: int) -> tuple[Offsets, npt.NDArray[np.uint8]]:
    """Every bracket and comma outside of strings: its place and which it is."""
    places, signs = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint8)]
    inside = False
    for at in range(start, source.size, BLOCK):
        before = source.read(max(start, at - 4096), at)
        block = source.read(at, at + BLOCK)
        whole = np.frombuffer(before + block, dtype=np.uint8)
        quotes = np.flatnonzero(whole == QUOTE)
        quotes = quotes[quotes >= len(before)]
        quotes = quotes[~_is_escaped(whole, quotes)]
        marks = np.flatnonzero(STRUCTURE[whole] != 0)
        marks = marks[marks >= len(before)]
        parity = (np.searchsorted(quotes, marks) + int(inside)) % 2
        marks = marks[parity == 0]
        places.append(marks.astype(np.int64) - len(before) + at)
        signs.append(whole[marks])
        inside = bool((len(quotes) + int(inside)) % 2)
    return np.concatenate(places), np.concatenate(signs)


def _is_escaped(text: npt.NDArray[np.uint8], quotes: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Which quotes follow an odd number of backslashes."""
    odd = np.zeros(len(quotes), dtype=np.bool_)
    live = np.arange(len(quotes))
    back = 1
    while len(live) and back <= MAX_BACKSLASHES:
        at = quotes[live] - back
        live = live[(at >= 0) & (text[np.maximum(at, 0)] == BACKSLASH)]
        odd[live] = back % 2 == 1
        back += 1
    if len(live):
        others = np.flatnonzero(text != BACKSLASH)
        index = np.searchsorted(others, quotes[live]) - 1
        odd[live] = (quotes[live] - np.where(index >= 0, others[np.maximum(index, 0)], -1) - 1) % 2 == 1
    return odd


# --- Paths in a JSON text: which path leads to a byte, and which bytes a path leads to. Works on the tape, not on o

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


def containers_at(source: Source, tape: JsonIndex, offset: int) -> list[Container]:
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


def path_at(source: Source, tape: JsonIndex, offset: int) -> list[Step]:
    """The path of the innermost container around a byte."""
    return [container.step for container in containers_at(source, tape, offset)[1:]]


def names_above(source: Source, tape: JsonIndex, offset: int) -> list[str]:
    """What the objects around a byte call themselves: a `name`, `title` or `id` near their beginning."""
    found = []
    for container in containers_at(source, tape, offset):
        if not container.is_array and container.start != offset:
            head = source.read(container.start + 1, min(offset, container.start + NAMED_WITHIN))
            own = re.split(rb"[\[{]", head, maxsplit=1)[0]
            if match := NAMING.search(own):
                found.append(_decode_string(match[1]))
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
        begin = _opening_quote(tail)
        if begin >= 0:
            return _decode_string(tail[begin:])
        if window > offset or window > 1 << 20:
            return None
        window *= 8


def scalar_at(source: Source, offset: int) -> bytes:
    """The text, number or name that begins at `offset`."""
    match = SCALAR.match(source.read(offset, offset + (1 << 16)))
    return match[0] if match else b""


def _opening_quote(text: bytes) -> int:
    """Where the string begins that ends `text`; -1 where it begins earlier."""
    at = len(text) - 1
    quote = text[-1:] if text[-1:] in (b'"', b"'") else b'"'
    while (at := text.rfind(quote, 0, at)) >= 0:
        before = text[:at]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return at
    return -1


def _decode_string(raw: bytes) -> str:
    try:
        return str(decode_value(raw))
    except ValueError:
        return raw.strip(b"\"'").decode(errors="replace")


def members(source: Source, tape: JsonIndex, container: Container, depth: int) -> Iterator[tuple[Step, int, int]]:
    """Each member of a container of `depth` (the root has 0): its step and its bytes, `start` to before `end`."""
    borders = member_spans(source, tape, container, depth)
    for number, (start, end) in enumerate(borders):
        if container.is_array:
            raw = source.read(start, min(end, start + 64))
            yield number, start + len(raw) - len(raw.lstrip()), end
            continue
        raw = source.read(start, min(end, start + 8192))
        match = STRING.match(raw)
        if match:
            yield _decode_string(match[1]), start + match.end(), end


def member_spans(source: Source, tape: JsonIndex, container: Container, depth: int) -> list[tuple[int, int]]:
    """Where the members of a container lie: cut at the commas that stand directly in it."""
    if container.is_array:
        commas = tape.levels[depth].commas
        low, high = np.searchsorted(commas, [container.start, container.end])
        cuts = [int(comma) for comma in commas[low:high]]
    else:
        cuts = _object_commas(source, tape, container, depth)
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


def _object_commas(source: Source, tape: JsonIndex, container: Container, depth: int) -> list[int]:
    """The commas directly inside an object: read from its own text, with its children skipped."""
    holes: list[tuple[int, int]] = []
    if depth + 1 < len(tape.levels):
        child = tape.levels[depth + 1]
        low, high = np.searchsorted(child.opens, [container.start, container.end])
        holes = [(int(a), int(b)) for a, b in zip(child.opens[low:high], child.closes[low:high], strict=True)]
    found: list[int] = []
    at = container.start + 1
    for start, end in [*holes, (container.end, container.end)]:
        found += _commas_outside_strings(source.read(at, start), at)
        at = end + 1
    return found


def _commas_outside_strings(text: bytes, at: int) -> list[int]:
    return [at + match.start() for match in COMMA.finditer(text) if match[0] == b","]
