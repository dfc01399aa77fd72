"""Requests that name their answer: a path, a range of lines or bytes, the first or last lines, a regular expression."""

import re
from collections import deque
from collections.abc import Iterable
from itertools import islice

import msgspec
from msgspec import Struct

from toolfold import tokens
from toolfold.outputs.grepping import grep_file
from toolfold.outputs.local import jsonpath
from toolfold.outputs.local.index import Index
from toolfold.outputs.local.literals import decode
from toolfold.outputs.local.rendering import place, visible
from toolfold.outputs.local.request import MAX_REQUEST
from toolfold.outputs.local.shape import shape_lines
from toolfold.outputs.paths import Step, as_place, read_path, show_path
from toolfold.outputs.truncating import ends_of

LINES = re.compile(r"\blines?\s+(\d{1,18})(?:\s*(?:-|to|\.\.|through)\s*(?:line\s+)?(\d{1,18}))?", re.IGNORECASE)
BYTES = re.compile(r"\bbytes?\s+(\d{1,18})\d*\s*(?:-|to|\.\.|through)\s*(\d{1,18})", re.IGNORECASE)
ENDS = re.compile(
    r"\b(first|last|top|bottom|head|tail)\s+(\d{1,18})\s+(?:lines?|rows?|entries|records)\b", re.IGNORECASE
)
REGEX = re.compile(
    r"(?:^|\b(?:regex|regexp|pattern|matching|matches|match|grep)(?:\s*:)?\s+)/(.+)/([imsx]*)\s*[.?]?$",
    re.IGNORECASE | re.DOTALL,
)
PATHLIKE = re.compile(
    r"""(?<![\w$@-])(?!\d)[\w$@-]*+"""
    r"""(?:\.(?:[A-Za-z_$@][\w$@-]*+|\d++|\*)|\[(?:-?\d++|\*|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')?\])+"""
    r"""|(?<![\w$@-])\$(?=\s|$)"""
)
"""What is surely meant as a path. What is one, too, but may be words (`src/main.py`) is only tried."""
MOST_ELEMENTS = 200

Member = tuple[Step, int, int]
"""A step, and where its value begins and ends."""

REGEX_SECONDS = 20.0


class Exact(Struct, frozen=True):
    """An answer by what the request names. `whole`: the request asks for nothing else."""

    lines: tuple[str, ...]
    whole: bool = True


def answer_exactly(index: Index, request: str, budget: int) -> Exact | None:
    """The exact answer, or `None` where the request names nothing that can be looked up."""
    text = request.strip()[:MAX_REQUEST]
    if match := REGEX.search(text):
        return by_regex(index, match[1], match[2], budget)
    if match := BYTES.search(text):
        return by_bytes(index, int(match[1]), int(match[2]), budget)
    if match := LINES.search(text):
        return by_lines(index, int(match[1]), int(match[2] or match[1]), budget)
    if match := ENDS.search(text):
        return by_end(index, match[1].lower(), int(match[2]), budget)
    return by_path(index, text, budget)


def by_lines(index: Index, first: int, last: int, budget: int) -> Exact:
    total = index.source.lines
    if first > total or first < 1 or last < first:
        return Exact((f"There are no such lines: the document has lines 1-{total}.",))
    start, end = index.source.span_of_lines(first, min(last, total))
    return Exact((quoted(index, start, end, budget),))


def by_bytes(index: Index, first: int, last: int, budget: int) -> Exact:
    if first >= index.source.size or last < first:
        return Exact((f"There are no such bytes: the document has bytes 0-{max(0, index.source.size - 1)}.",))
    return Exact((quoted(index, first, min(last + 1, index.source.size), budget),))


def by_end(index: Index, word: str, count: int, budget: int) -> Exact | None:
    total = index.source.lines
    if index.format.kind == "json" or not total:
        return None
    if word in {"first", "top", "head"}:
        return by_lines(index, 1, min(count + index.format.header_lines, total), budget)
    return by_lines(index, max(1, total - count + 1), total, budget)


def quoted(index: Index, start: int, end: int, budget: int) -> str:
    """The bytes as text, whole where they fit."""
    return f"{place(index, start, end)}\n{ends(index, start, end, budget)}"


def ends(index: Index, start: int, end: int, budget: int) -> str:
    return visible(ends_of(lambda first, last: index.source.read(start + first, start + last), end - start, budget))


def by_regex(index: Index, pattern: str, flags: str, budget: int) -> Exact:
    found = grep_file(index.source.path, pattern, ignore_case="i" in flags, most=2000, seconds=REGEX_SECONDS)
    if found.problem:
        return Exact((found.problem,))
    count = f"{found.count} lines fit" if found.count else "No line fits"
    lines = [f"{count} /{pattern}/{flags}."]
    spent = 0
    for number, hit in enumerate(found.hits):
        text = f"[line {hit.line}, bytes {hit.start}-{max(hit.start, hit.end - 1)}] {visible(hit.text)}"
        spent += tokens.count(text) + 1
        if spent > budget:
            lines.append(f"({found.count - number} further lines are not shown)")
            break
        lines.append(text)
    return Exact(tuple(lines))


def by_path(index: Index, request: str, budget: int) -> Exact | None:
    """Every path in the request that leads somewhere."""
    if index.tape is None or not index.tape.levels:
        return None
    alone = read_path(request) if not re.search(r"\s", request) else None
    if alone is not None:
        found = look_up(index, request, alone, budget)
        if found:
            return Exact(tuple(found))
        return missing(index, request, alone) if PATHLIKE.fullmatch(request) else None
    lines: list[str] = []
    for match in PATHLIKE.finditer(request.replace("`", " ")):
        steps = read_path(match[0].rstrip("."))
        if steps:
            lines += look_up(index, match[0], steps, budget // 2)
    return Exact(tuple(lines), whole=False) if lines else None


def missing(index: Index, request: str, steps: list[Step]) -> Exact | None:
    """How far the path leads; `None` for a single word, which may be no path at all."""
    if len(steps) < 2:
        return None
    for length in range(len(steps) - 1, -1, -1):
        spans = resolve(index, steps[:length])
        if spans:
            keys = names_at(index, spans[0][0], spans[0][1])
            at = show_path(steps[:length])
            return Exact((f"There is nothing at {request}. {at} is there and holds: {keys}",))
    return None


def names_at(index: Index, start: int, end: int) -> str:
    around = jsonpath.chain(index.source, index.tape, start) if index.tape is not None else []
    if index.tape is None or not around or around[-1].start != start:
        return f"the value {visible(index.source.read(start, min(end, start + 200)).decode(errors='replace'))}"
    found = [step for step, _, _ in jsonpath.members(index.source, index.tape, around[-1], len(around) - 1)]
    if around[-1].is_array:
        return f"{len(found)} elements"
    return ", ".join(str(step) for step in found[:40]) + (f" and {len(found) - 40} more" if len(found) > 40 else "")


def look_up(index: Index, written: str, steps: list[Step], budget: int) -> list[str]:
    spans = resolve(index, steps)
    lines = [f"{written} leads to {len(spans)} values."] if len(spans) > 1 else []
    spent = 0
    for number, (start, end, path) in enumerate(spans):
        text = value_text(index, start, end, max(40, budget - spent))
        line = f"{show_path(path)} {place(index, start, end)}\n{text}"
        spent += tokens.count(line)
        if spent > budget and number:
            lines.append(f"({len(spans) - number} further values are not shown)")
            break
        lines.append(line)
    return lines


def value_text(index: Index, start: int, end: int, budget: int) -> str:
    """A value whole where it fits; else its size and its shape."""
    if end - start <= budget * 8:
        raw = index.source.read(start, end).strip()
        try:
            text = msgspec.json.encode(decode(raw)).decode()
        except ValueError:
            text = raw.decode(errors="replace")
        if tokens.count(text) <= budget:
            return visible(text)
    shape = shape_lines(index, start)
    if shape:
        return f"({names_at(index, start, end)}; {end - start} bytes, too large to show; its shape)\n" + "\n".join(
            shape
        )
    return ends(index, start, end, budget)


def resolve(index: Index, steps: list[Step]) -> list[tuple[int, int, list[Step]]]:
    """The bytes that a path leads to; several where it holds `[]`."""
    if index.tape is None or not index.tape.levels:
        return []
    root = index.tape.levels[0]
    start, end = int(root.opens[0]), int(root.closes[0]) + 1
    spans: list[tuple[int, int, list[Step]]] = [(start, end, [])]
    for step in steps:
        following: list[tuple[int, int, list[Step]]] = []
        for begin, _, path in spans:
            around = jsonpath.chain(index.source, index.tape, begin)
            if not around or around[-1].start != begin:
                continue
            members = jsonpath.members(index.source, index.tape, around[-1], len(around) - 1)
            for own, first, last in picked(members, step, is_array=around[-1].is_array):
                following.append((first, last, [*path, own]))
        spans = following[:MOST_ELEMENTS]
    return [(first, jsonpath.trimmed_end(index.source, first, last), path) for first, last, path in spans]


def picked(members: Iterable[Member], step: Step, *, is_array: bool) -> list[Member]:
    """The members of a container that a step leads to. No more of them are read than it takes."""
    if step is None:
        return list(islice(members, MOST_ELEMENTS))
    if not is_array:
        return list(islice((member for member in members if member[0] == str(step)), 1))
    place = as_place(step)
    if place is None:
        return []
    if place >= 0:
        return list(islice(members, place, place + 1))
    last = deque(members, maxlen=-place)
    return [last[0]] if len(last) == -place else []
