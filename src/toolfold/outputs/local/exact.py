"""Requests that name their answer: a path, a range of lines or bytes, the first or last lines, a regular expression.

A value that is too large is described by its shape, folded as output schemas are. Above: `answer.py`. Below:
`json_index.py`, `outputs/grep.py`.
"""

import re
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from toolfold import tokens
from toolfold.disclosure.fold import summarize_schema_for_llm
from toolfold.disclosure.observed import observe, to_schema
from toolfold.outputs.grep import grep_file
from toolfold.outputs.json_path import Step, format_path, list_index, parse_path
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.json_index import Container, JsonIndex, Member, decode_value
from toolfold.outputs.local.render import format_location, replace_controls, take_fitting
from toolfold.outputs.local.request import MAX_REQUEST
from toolfold.outputs.local.source import Source
from toolfold.outputs.truncate import truncate_range

SMALL = 64 * 1024
FIRST_ITEMS, LAST_ITEMS = 4, 2
MAX_MEMBERS = 60
LINES = re.compile(r"\blines?\s+(\d{1,18})\d*(?:\s*(?:-|to|\.\.|through)\s*(?:line\s+)?(\d{1,18})\d*)?", re.IGNORECASE)
BYTES = re.compile(r"\bbytes?\s+(\d{1,18})\d*\s*(?:-|to|\.\.|through)\s*(\d{1,18})", re.IGNORECASE)
# Nothing else may be asked: the last 3 lines are not the last 3 lines with an error.
ENDS = re.compile(
    r"(?:(?:please|show|give|print|get|me|the|what|are|is)\s+){0,6}(first|last|top|bottom|head|tail)\s+(\d{1,18})\s+"
    r"(?:lines?|rows?|entries|records)(?:\s+(?:please|of|in|from|the|this|document|file|table|log|output)){0,6}[\s.?!]*",
    re.IGNORECASE,
)
REGEX = re.compile(
    r"(?:^|\b(?:regex|regexp|pattern|matching|matches|match|grep)(?:\s*:)?\s+)/(.+)/([imsx]*)\s*[.?]?$",
    re.IGNORECASE | re.DOTALL,
)
# What is surely meant as a path. What may also be words (`src/main.py`) is only tried. Possessive: requests come from a
# model, and none may make this backtrack.
PATHLIKE = re.compile(
    r"""(?<![\w$@-])(?!\d)[\w$@-]*+"""
    r"""(?:\.(?:[A-Za-z_$@][\w$@-]*+|\d++|\*)|\[(?:-?\d++|\*|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')?\])+"""
    r"""|(?<![\w$@-])\$(?=\s|$)"""
)
MAX_ELEMENTS = 200
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
    if match := ENDS.fullmatch(text):
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
    """The bytes as text with their location, whole where they fit."""
    return f"{format_location(index, start, end)}\n{_truncated(index, start, end, budget)}"


def _truncated(index: DocumentIndex, start: int, end: int, budget: int) -> str:
    return replace_controls(
        truncate_range(lambda first, last: index.source.read(start + first, start + last), end - start, budget)
    )


def _by_regex(index: DocumentIndex, pattern: str, flags: str, budget: int) -> ExactAnswer:
    with index.source.as_utf8_file() as path:
        result = grep_file(path, pattern, ignore_case="i" in flags, limit=2000, seconds=REGEX_SECONDS)
    if result.problem:
        return ExactAnswer((result.problem,))
    count = f"{result.count} lines fit" if result.count else "No line fits"
    texts = (
        f"[line {hit.line}, bytes {hit.start}-{max(hit.start, hit.end - 1)}] {replace_controls(hit.text)}"
        for hit in result.hits
    )
    lines = [f"{count} /{pattern}/{flags}.", *(shown := take_fitting(texts, budget))]
    if len(shown) < len(result.hits):
        lines.append(f"({result.count - len(shown)} further lines are not shown)")
    return ExactAnswer(tuple(lines))


def _by_path(index: DocumentIndex, request: str, budget: int) -> ExactAnswer | None:
    """Every path in the request that leads somewhere."""
    json = index.json
    if json is None:
        return None
    alone = parse_path(request) if not re.search(r"\s", request) else None
    if alone is not None:
        lines = _look_up(index, json, request, alone, budget)
        if lines:
            return ExactAnswer(tuple(lines))
        return _missing_path(index, json, request, alone) if PATHLIKE.fullmatch(request) else None
    lines = []
    for match in PATHLIKE.finditer(request.replace("`", " ")):
        steps = parse_path(match[0].rstrip("."))
        if steps:
            lines += _look_up(index, json, match[0], steps, budget // 2)
    return ExactAnswer(tuple(lines), whole=False) if lines else None


def _missing_path(index: DocumentIndex, json: JsonIndex, request: str, steps: list[Step]) -> ExactAnswer | None:
    """How far the path leads; `None` for a single word, which may be no path at all."""
    if len(steps) < 2 and isinstance(steps[0], str):
        return None
    for length in range(len(steps) - 1, -1, -1):
        values = _resolve(json, steps[:length])
        if values:
            names = _member_names(index, json, values[0][0], values[0][1])
            at = format_path(steps[:length])
            return ExactAnswer((f"There is nothing at {request}. {at} is there and holds: {names}",))
    return None


def _member_names(index: DocumentIndex, json: JsonIndex, start: int, end: int) -> str:
    container = json.container_from(start)
    if container is None:
        return f"the value {replace_controls(index.source.text(start, min(end, start + 200)))}"
    steps = [step for step, _, _ in json.members(container)]
    if container.is_array:
        return f"{len(steps)} elements"
    return ", ".join(str(step) for step in steps[:40]) + (f" and {len(steps) - 40} more" if len(steps) > 40 else "")


def _look_up(index: DocumentIndex, json: JsonIndex, written: str, steps: list[Step], budget: int) -> list[str]:
    values = _resolve(json, steps)
    more = " or more" if len(values) == MAX_ELEMENTS else ""
    lines = [f"{written} leads to {len(values)} values{more}."] if len(values) > 1 else []
    spent = 0
    for number, (start, end, path) in enumerate(values):
        text = _value_text(index, json, start, end, max(40, budget - spent))
        line = f"{format_path(path)} {format_location(index, start, end)}\n{text}"
        spent += tokens.count(line)
        if spent > budget and number:
            lines.append(f"({len(values) - number}{more} further values are not shown)")
            break
        lines.append(line)
    return lines


def _value_text(index: DocumentIndex, json: JsonIndex, start: int, end: int, budget: int) -> str:
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
    if not shape:
        return _truncated(index, start, end, budget)
    size = f"{_member_names(index, json, start, end)}; {end - start} bytes, too large to show; its shape"
    return "\n".join([f"({size})", *shape])


def _resolve(json: JsonIndex, steps: list[Step]) -> list[tuple[int, int, list[Step]]]:
    """The bytes that a path leads to; several where it holds `[]`."""
    root = json.root
    values: list[tuple[int, int, list[Step]]] = [(root.start, root.end + 1, [])]
    for step in steps:
        following: list[tuple[int, int, list[Step]]] = []
        for begin, _, path in values:
            container = json.container_from(begin)
            if container is not None:
                members = _pick_members(json.members(container), step, is_array=container.is_array)
                following += [(start, end, [*path, own]) for own, start, end in members]
        values = following[:MAX_ELEMENTS]
    return [(start, json.trimmed_end(start, end), path) for start, end, path in values]


def _pick_members(members: Iterable[Member], step: Step, *, is_array: bool) -> list[Member]:
    """The members of a container that a step leads to. No more of them are read than it takes."""
    if step is None:
        return list(islice(members, MAX_ELEMENTS))
    if not is_array:
        return list(islice((member for member in members if member[0] == str(step)), 1))
    position = list_index(step)
    if position is None:
        return []
    if position >= 0:
        return list(islice(members, position, position + 1))
    last = deque(members, maxlen=-position)
    return [last[0]] if len(last) == -position else []


def describe_shape(index: DocumentIndex, start: int) -> list[str]:
    """The folded fields of the container that begins at `start`; nothing where none begins there."""
    container = index.json.container_from(start) if index.json is not None else None
    if index.json is None or container is None:
        return []
    value = _sample(index.source, index.json, container)
    # Python prints tuples, and keys that are no text: a shape knows only what JSON has.
    shape = observe(msgspec.json.decode(msgspec.json.encode(value)) if index.format.literal else value)
    return summarize_schema_for_llm(to_schema(shape), max_depth=3, max_fields=24)[0]


def _sample(source: Source, json: JsonIndex, container: Container) -> Any:
    """The value, with long arrays reduced to some elements and very large objects to their first members."""
    if container.end - container.start < SMALL or container.depth + 1 >= len(json.levels):
        return _decode(source.read(container.start, min(container.end + 1, container.start + SMALL)))
    members = list(json.members(container))
    if container.is_array and len(members) > FIRST_ITEMS + LAST_ITEMS:
        members = [*members[:FIRST_ITEMS], *members[-LAST_ITEMS:]]
    sample: dict[Any, Any] = {}
    for step, start, end in members[:MAX_MEMBERS]:
        inner = json.container_from(start)
        if inner is not None and inner.depth == container.depth + 1:
            sample[step] = _sample(source, json, inner)
        else:
            sample[step] = _decode(source.read(start, min(end, start + SMALL)))
    return list(sample.values()) if container.is_array else {str(key): value for key, value in sample.items()}


def _decode(raw: bytes) -> Any:
    """The value; a text where it was cut off or is no JSON."""
    try:
        return decode_value(raw.strip())
    except ValueError:
        return "?"
