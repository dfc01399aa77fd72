"""Requests that name their answer: a path, a range of lines or bytes, the first or last lines, a regular expression."""

import re
from collections import deque
from collections.abc import Iterable
from itertools import islice

import msgspec
from msgspec import Struct

from toolfold import tokens
from toolfold.outputs.grep import grep_file
from toolfold.outputs.json_path import Step, format_path, list_index, parse_path
from toolfold.outputs.local import json_index as jsonpath
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.json_index import decode_value
from toolfold.outputs.local.render import format_location, replace_controls
from toolfold.outputs.local.request import MAX_REQUEST
from toolfold.outputs.local.shape import describe_shape
from toolfold.outputs.truncate import truncate_range

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
MAX_ELEMENTS = 200

Member = tuple[Step, int, int]
"""A step, and where its value begins and ends."""

REGEX_SECONDS = 20.0


class ExactAnswer(Struct, frozen=True):
    """An answer by what the request names. `whole`: the request asks for nothing else."""

    lines: tuple[str, ...]
    whole: bool = True


def find_exact(index: DocumentIndex, request: str, budget: int) -> ExactAnswer | None:
    """The exact answer, or `None` where the request names nothing that can be looked up."""
    text = request.strip()[:MAX_REQUEST]
    if match := REGEX.search(text):
        return _by_regex(index, match[1], match[2], budget)
    if match := BYTES.search(text):
        return _by_bytes(index, int(match[1]), int(match[2]), budget)
    if match := LINES.search(text):
        return _by_lines(index, int(match[1]), int(match[2] or match[1]), budget)
    if match := ENDS.search(text):
        return _by_end(index, match[1].lower(), int(match[2]), budget)
    return _by_path(index, text, budget)


def _by_lines(index: DocumentIndex, first: int, last: int, budget: int) -> ExactAnswer:
    total = index.source.lines
    if first > total or first < 1 or last < first:
        return ExactAnswer((f"There are no such lines: the document has lines 1-{total}.",))
    start, end = index.source.span_of_lines(first, min(last, total))
    return ExactAnswer((_quote(index, start, end, budget),))


def _by_bytes(index: DocumentIndex, first: int, last: int, budget: int) -> ExactAnswer:
    if first >= index.source.size or last < first:
        return ExactAnswer((f"There are no such bytes: the document has bytes 0-{max(0, index.source.size - 1)}.",))
    return ExactAnswer((_quote(index, first, min(last + 1, index.source.size), budget),))


def _by_end(index: DocumentIndex, word: str, count: int, budget: int) -> ExactAnswer | None:
    total = index.source.lines
    if index.format.kind == "json" or not total:
        return None
    if word in {"first", "top", "head"}:
        return _by_lines(index, 1, min(count + index.format.header_lines, total), budget)
    return _by_lines(index, max(1, total - count + 1), total, budget)


def _quote(index: DocumentIndex, start: int, end: int, budget: int) -> str:
    """The bytes as text, whole where they fit."""
    return f"{format_location(index, start, end)}\n{_truncated(index, start, end, budget)}"


def _truncated(index: DocumentIndex, start: int, end: int, budget: int) -> str:
    return replace_controls(
        truncate_range(lambda first, last: index.source.read(start + first, start + last), end - start, budget)
    )


def _by_regex(index: DocumentIndex, pattern: str, flags: str, budget: int) -> ExactAnswer:
    found = grep_file(index.source.path, pattern, ignore_case="i" in flags, most=2000, seconds=REGEX_SECONDS)
    if found.problem:
        return ExactAnswer((found.problem,))
    count = f"{found.count} lines fit" if found.count else "No line fits"
    lines = [f"{count} /{pattern}/{flags}."]
    spent = 0
    for number, hit in enumerate(found.hits):
        text = f"[line {hit.line}, bytes {hit.start}-{max(hit.start, hit.end - 1)}] {replace_controls(hit.text)}"
        spent += tokens.count(text) + 1
        if spent > budget:
            lines.append(f"({found.count - number} further lines are not shown)")
            break
        lines.append(text)
    return ExactAnswer(tuple(lines))


def _by_path(index: DocumentIndex, request: str, budget: int) -> ExactAnswer | None:
    """Every path in the request that leads somewhere."""
    if index.tape is None or not index.tape.levels:
        return None
    alone = parse_path(request) if not re.search(r"\s", request) else None
    if alone is not None:
        found = _look_up(index, request, alone, budget)
        if found:
            return ExactAnswer(tuple(found))
        return _missing_path(index, request, alone) if PATHLIKE.fullmatch(request) else None
    lines: list[str] = []
    for match in PATHLIKE.finditer(request.replace("`", " ")):
        steps = parse_path(match[0].rstrip("."))
        if steps:
            lines += _look_up(index, match[0], steps, budget // 2)
    return ExactAnswer(tuple(lines), whole=False) if lines else None


def _missing_path(index: DocumentIndex, request: str, steps: list[Step]) -> ExactAnswer | None:
    """How far the path leads; `None` for a single word, which may be no path at all."""
    if len(steps) < 2:
        return None
    for length in range(len(steps) - 1, -1, -1):
        spans = _resolve(index, steps[:length])
        if spans:
            keys = _member_names(index, spans[0][0], spans[0][1])
            at = format_path(steps[:length])
            return ExactAnswer((f"There is nothing at {request}. {at} is there and holds: {keys}",))
    return None


def _member_names(index: DocumentIndex, start: int, end: int) -> str:
    around = jsonpath.containers_at(index.source, index.tape, start) if index.tape is not None else []
    if index.tape is None or not around or around[-1].start != start:
        return f"the value {replace_controls(index.source.read(start, min(end, start + 200)).decode(errors='replace'))}"
    found = [step for step, _, _ in jsonpath.members(index.source, index.tape, around[-1], len(around) - 1)]
    if around[-1].is_array:
        return f"{len(found)} elements"
    return ", ".join(str(step) for step in found[:40]) + (f" and {len(found) - 40} more" if len(found) > 40 else "")


def _look_up(index: DocumentIndex, written: str, steps: list[Step], budget: int) -> list[str]:
    spans = _resolve(index, steps)
    lines = [f"{written} leads to {len(spans)} values."] if len(spans) > 1 else []
    spent = 0
    for number, (start, end, path) in enumerate(spans):
        text = _value_text(index, start, end, max(40, budget - spent))
        line = f"{format_path(path)} {format_location(index, start, end)}\n{text}"
        spent += tokens.count(line)
        if spent > budget and number:
            lines.append(f"({len(spans) - number} further values are not shown)")
            break
        lines.append(line)
    return lines


def _value_text(index: DocumentIndex, start: int, end: int, budget: int) -> str:
    """A value whole where it fits; else its size and its shape."""
    if end - start <= budget * 8:
        raw = index.source.read(start, end).strip()
        try:
            text = msgspec.json.encode(decode_value(raw)).decode()
        except ValueError:
            text = raw.decode(errors="replace")
        if tokens.count(text) <= budget:
            return replace_controls(text)
    shape = describe_shape(index, start)
    if shape:
        return f"({_member_names(index, start, end)}; {end - start} bytes, too large to show; its shape)\n" + "\n".join(
            shape
        )
    return _truncated(index, start, end, budget)


def _resolve(index: DocumentIndex, steps: list[Step]) -> list[tuple[int, int, list[Step]]]:
    """The bytes that a path leads to; several where it holds `[]`."""
    if index.tape is None or not index.tape.levels:
        return []
    root = index.tape.levels[0]
    start, end = int(root.opens[0]), int(root.closes[0]) + 1
    spans: list[tuple[int, int, list[Step]]] = [(start, end, [])]
    for step in steps:
        following: list[tuple[int, int, list[Step]]] = []
        for begin, _, path in spans:
            around = jsonpath.containers_at(index.source, index.tape, begin)
            if not around or around[-1].start != begin:
                continue
            members = jsonpath.members(index.source, index.tape, around[-1], len(around) - 1)
            for own, first, last in _pick_members(members, step, is_array=around[-1].is_array):
                following.append((first, last, [*path, own]))
        spans = following[:MAX_ELEMENTS]
    return [(first, jsonpath.trimmed_end(index.source, first, last), path) for first, last, path in spans]


def _pick_members(members: Iterable[Member], step: Step, *, is_array: bool) -> list[Member]:
    """The members of a container that a step leads to. No more of them are read than it takes."""
    if step is None:
        return list(islice(members, MAX_ELEMENTS))
    if not is_array:
        return list(islice((member for member in members if member[0] == str(step)), 1))
    place = list_index(step)
    if place is None:
        return []
    if place >= 0:
        return list(islice(members, place, place + 1))
    last = deque(members, maxlen=-place)
    return [last[0]] if len(last) == -place else []
