"""The structure of a JSON text of any size: its containers by depth, and the paths that lead to a byte and back.

It is found with numpy in one pass, takes a few bytes for each container, and creates no objects. JSON is not checked: a
text that was cut off, or that follows some words of introduction, has an index all the same. Values as Python prints
them (`[{'id': 1}]`, `[(1, None)]`), with which many tools answer, are read alike. How a path is written is said in
`outputs/json_path.py`. Above: `index.py`. Below: `source.py`.
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

# Deeper containers are left inside their parents.
MAX_DEPTH = 48

# Backslashes that are counted one by one; a longer run is measured at once.
MAX_BACKSLASHES = 32

QUOTE, BACKSLASH = 34, 92
STRUCTURE = np.zeros(256, dtype=np.int8)
STRUCTURE[[ord("{"), ord("[")]] = 1
STRUCTURE[[ord("}"), ord("]")]] = -1
STRUCTURE[ord(",")] = 2

# A literal is parsed whole.
MAX_LITERAL_VALUE = 1 << 20
# Quantifiers are possessive, and a string that does not end reaches to the end of the text: nothing is read twice.
LITERAL_TOKEN = re.compile(rb"'(?:[^'\\]|\\.?)*+(?:'|\Z)|\"(?:[^\"\\]|\\.?)*+(?:\"|\Z)|[{}\[\](),]", re.DOTALL)
ROUND_TO_SQUARE = bytes.maketrans(b"()", b"[]")

KEY_WINDOW = 1024
NAMED_WITHIN = 600
TAIL = 4096
NAMING = re.compile(
    rb"[\"'](?:name|title|id|label|path|key|file|filename|slug|login)[\"']\s*:\s*"
    rb"(\"(?:[^\"\\]|\\.){1,120}\"|'(?:[^'\\]|\\.){1,120}'|-?\d+)"
)
# Matches strings, too, so that commas in them do not count.
COMMA = re.compile(rb"\"(?:[^\"\\]|\\.?)*+(?:\"|\Z)|(?<![\w\"])'(?:[^'\\]|\\.?)*+(?:'|\Z)|,", re.DOTALL)
KEY = re.compile(rb"\s*+(\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+')\s*+:\s*+", re.DOTALL)
SCALAR = re.compile(rb"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|[^,\]}\s]+", re.DOTALL)

# A member of a container: its step, and its bytes, `start` to before `end`.
Member = tuple[Step, int, int]


class _Level(Struct, frozen=True):
    """The containers of one depth, in order: `opens[i]` is closed by `closes[i]`."""

    opens: Offsets
    closes: Offsets
    is_array: npt.NDArray[np.bool_]
    # The commas directly inside arrays of this depth: they number the elements.
    commas: Offsets

    def commas_between(self, start: int, end: int) -> Offsets:
        low, high = np.searchsorted(self.commas, [start, end])
        return self.commas[low:high]


class Container(Struct, frozen=True):
    """An object or array: its bytes, `start` to `end` inclusive, its depth, and the step that leads to it."""

    start: int
    end: int
    is_array: bool
    step: Step
    depth: int


class _Array(Struct, frozen=True):
    """An array, and how many elements it has."""

    start: int
    end: int
    depth: int
    count: int


class JsonIndex:
    """The containers of the JSON that begins at `start`, by depth, the root's level first."""

    def __init__(self, source: Source, start: int = 0, *, literal: bool = False) -> None:
        self._source = source
        self.levels = _read_levels(source, start, literal=literal)

    @property
    def root(self) -> Container:
        level = self.levels[0]
        return Container(int(level.opens[0]), int(level.closes[0]), bool(level.is_array[0]), None, 0)

    def containers_at(self, offset: int) -> list[Container]:
        """The containers around a byte, the root first."""
        containers: list[Container] = []
        for depth, level in enumerate(self.levels):
            at = int(np.searchsorted(level.opens, offset, side="right")) - 1
            if at < 0 or int(level.closes[at]) < offset:
                break
            start = int(level.opens[at])
            step: Step = None
            if containers and containers[-1].is_array:
                step = len(self.levels[depth - 1].commas_between(containers[-1].start, start))
            elif containers:
                step = self.key_before(start)
            containers.append(Container(start, int(level.closes[at]), bool(level.is_array[at]), step, depth))
        return containers

    def container_from(self, offset: int) -> Container | None:
        """The container that begins at a byte, if one does."""
        containers = self.containers_at(offset)
        return containers[-1] if containers and containers[-1].start == offset else None

    def closing(self, offset: int) -> int:
        """Where the container that begins at `offset` is closed."""
        for level in self.levels:
            at = int(np.searchsorted(level.opens, offset))
            if at < len(level.opens) and int(level.opens[at]) == offset:
                return int(level.closes[at])
        return offset

    def arrays(self, max_levels: int, max_per_level: int) -> Iterator[_Array]:
        """The first arrays of the outermost levels."""
        for depth, level in enumerate(self.levels[:max_levels]):
            for at in np.flatnonzero(level.is_array)[:max_per_level]:
                start, end = int(level.opens[at]), int(level.closes[at])
                commas = len(level.commas_between(start, end))
                empty = not commas and not self._source.read(start + 1, min(end, start + 200)).strip()
                yield _Array(start, end, depth, 0 if empty else commas + 1)

    def path_at(self, offset: int) -> list[Step]:
        """The path of the innermost container around a byte."""
        return [container.step for container in self.containers_at(offset)[1:]]

    def names_above(self, offset: int) -> list[str]:
        """What the objects around a byte call themselves: a `name`, `title` or `id` near their beginning."""
        names = []
        for container in self.containers_at(offset):
            if not container.is_array and container.start != offset:
                head = self._source.read(container.start + 1, min(offset, container.start + NAMED_WITHIN))
                own = re.split(rb"[\[{]", head, maxsplit=1)[0]
                if match := NAMING.search(own):
                    names.append(_decode_string(match[1]))
        return names

    def key_before(self, offset: int) -> str | None:
        """The key whose value begins at `offset`."""
        window = KEY_WINDOW
        while True:
            tail = self._source.read(max(0, offset - window), offset).rstrip()
            if not tail.endswith(b":"):
                return None
            tail = tail[:-1].rstrip()
            begin = _opening_quote(tail)
            if begin >= 0:
                return _decode_string(tail[begin:])
            if window > offset or window > 1 << 20:
                return None
            window *= 8

    def scalar_at(self, offset: int) -> bytes:
        """The text, number or name that begins at `offset`."""
        match = SCALAR.match(self._source.read(offset, offset + (1 << 16)))
        return match[0] if match else b""

    def members(self, container: Container) -> Iterator[Member]:
        """Each member of a container."""
        for number, (start, end) in enumerate(self.member_spans(container)):
            if container.is_array:
                raw = self._source.read(start, min(end, start + 64))
                yield number, start + len(raw) - len(raw.lstrip()), end
            elif match := KEY.match(self._source.read(start, min(end, start + 8192))):
                yield _decode_string(match[1]), start + match.end(), end

    def member_spans(self, container: Container) -> list[tuple[int, int]]:
        """Where the members of a container lie: cut at the commas directly inside it."""
        if container.is_array:
            level = self.levels[container.depth]
            cuts = [int(comma) for comma in level.commas_between(container.start, container.end)]
        else:
            cuts = self._object_commas(container)
        starts = [container.start + 1, *(cut + 1 for cut in cuts)]
        spans = list(zip(starts, [*cuts, container.end], strict=True))
        if len(spans) == 1 and self.trimmed_end(*spans[0]) == spans[0][0]:
            return []
        return spans

    def trimmed_end(self, start: int, end: int) -> int:
        """Where the text from `start` to `end` ends without the blanks behind it. Reads only those."""
        while end > start:
            tail = self._source.read(max(start, end - TAIL), end)
            length = len(tail.rstrip())
            if length or not tail:
                return end - len(tail) + length
            end -= len(tail)
        return start

    def _object_commas(self, container: Container) -> list[int]:
        """The commas directly inside an object: read from its own text, with its children skipped."""
        children: list[tuple[int, int]] = []
        if container.depth + 1 < len(self.levels):
            level = self.levels[container.depth + 1]
            low, high = np.searchsorted(level.opens, [container.start, container.end])
            children = [(int(a), int(b)) for a, b in zip(level.opens[low:high], level.closes[low:high], strict=True)]
        commas: list[int] = []
        at = container.start + 1
        for start, end in [*children, (container.end, container.end)]:
            text = self._source.read(at, start)
            commas += [at + match.start() for match in COMMA.finditer(text) if match[0] == b","]
            at = end + 1
        return commas


def _read_levels(source: Source, start: int, *, literal: bool) -> list[_Level]:
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
    return levels


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


def _literal_structure(source: Source, start: int) -> tuple[Offsets, npt.NDArray[np.uint8]]:
    """Every bracket and comma outside of strings; round brackets count as square ones."""
    text = source.read(start, source.size)
    places = [match.start() for match in LITERAL_TOKEN.finditer(text) if match[0][:1] not in b"'\""]
    where = np.array(places, dtype=np.int64)
    signs = np.frombuffer(text.translate(ROUND_TO_SQUARE), dtype=np.uint8)[where] if places else np.zeros(0, np.uint8)
    return where + start, signs


def decode_value(raw: bytes) -> Any:
    """The value of a JSON text or of a Python literal; nothing is run. Raises `ValueError` for what is neither."""
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


def _decode_string(raw: bytes) -> str:
    try:
        return str(decode_value(raw))
    except ValueError:
        return raw.strip(b"\"'").decode(errors="replace")


def _opening_quote(text: bytes) -> int:
    """Where the string begins that ends `text`; -1 where it begins earlier."""
    at = len(text) - 1
    quote = text[-1:] if text[-1:] in (b'"', b"'") else b'"'
    while (at := text.rfind(quote, 0, at)) >= 0:
        before = text[:at]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return at
    return -1
