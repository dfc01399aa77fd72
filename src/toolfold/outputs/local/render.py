"""Passages and records as text: each with its lines and bytes, the best first, inside a budget of tokens.

A passage is quoted with its context: what it heads, what is indented below it, the rest of its log event, the headings
it stands under. Above: `answer.py`, `exact.py`, `lookup.py`.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from toolfold import tokens
from toolfold.outputs.json_path import Step, format_path
from toolfold.outputs.local.formats import LEVEL, TIME
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.json_index import decode_value
from toolfold.outputs.local.rank import Ranked
from toolfold.outputs.truncate import truncate_bytes

DIFF_LINE = re.compile(r"@@ -\d|diff --git ")
# A line that was added or removed, and not the name of a file.
CHANGE = re.compile(r"[+-](?![+-]{2} )")
MAX_EVENT, MAX_BELOW, MAX_PARENTS, MAX_BACK = 40, 16, 3, 600
# How many segments on each side are quoted with the best ones, by their rank.
REACHES = (3, 3, 3, 1, 1, 1, 1, 1)
# Of the best so many segments the whole item is quoted, as far as so many segments of it.
WHOLE, BLOCK = 2, 45
RECORDS = frozenset({"items", "markup", "settings", "stanzas"})
INDENTED = frozenset({"items", "code", "markup"})
LONG_VALUE = 600
# A carriage return is a part of many texts, and does no more than a newline.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Tokens that one record may take: the best, the next ones, and each after those.
FIRST_RECORD, OTHER_RECORD, LATE_RECORD = 900, 280, 140
NEXT = 4
# Tokens of a passage's first line.
OVERHEAD = 18
# Tokens of the headings it stands under, where there are any.
HEADING = 45
# All repetitions are bounded or possessive: a page comes from anywhere and must not make these slow.
LINK = re.compile(
    r"<(?:a|img|link)\b[^>]{0,400}?\b(?:href|src)=[\"']([^\"'#>][^\"'>]{3,300})[\"'][^>]{0,400}>", re.IGNORECASE
)
CELL_END = re.compile(r"</t[dh]>\s*(?=<t[dh])", re.IGNORECASE)
TAG = re.compile(r"</?[A-Za-z!][^<>]{0,2000}>")
BLANKS = re.compile(r"(?<![ \t])[ \t]*+\n\s*\n")
# What `format_location` writes at the end of a passage's first line.
LOCATION = re.compile(r"(?<!Header )\[lines? (\d+)(?:-(\d+))?(?:, bytes (\d+)-(\d+))?\]$")
OWN_KEY = re.compile(r'"(?:[^"\\]|\\.){0,200}"\s*:\s*$')


class _Passage(Struct):
    """A run of segments that is quoted together."""

    first: int
    last: int
    score: float


def format_location(index: DocumentIndex, start: int, end: int) -> str:
    """`[lines 3-7, bytes 120-480]`: both ends belong to it, lines count from 1, bytes from 0."""
    first, last = index.source.line_at(start), index.source.line_at(max(start, end - 1))
    lines = f"line {first}" if first == last else f"lines {first}-{last}"
    if index.source.encoding != "utf-8":  # bytes of the file are others than those of the text
        return f"[{lines}]"
    return f"[{lines}, bytes {start}-{max(start, end - 1)}]"


def replace_controls(text: str) -> str:
    """The text with a replacement character for each control character."""
    # A terminal would obey an escape sequence in a quoted document.
    return CONTROL.sub("�", text)


def _unescape(text: str) -> str:
    """A piece from inside a JSON string, as it reads."""
    if "\\" not in text:
        return text
    try:
        return str(msgspec.json.decode(f'"{text}"'.encode()))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return text.replace("\\n", "\n").replace('\\"', '"').replace("\\t", "\t").replace("\\/", "/")


def _is_page(index: DocumentIndex) -> bool:
    """Whether the document is an HTML page, which is quoted without its tags."""
    return index.structure is not None and index.structure.kind == "page"


def _strip_tags(text: str) -> str:
    """HTML as it reads, without tags; the targets of its links and pictures stand at the end."""
    targets = list(dict.fromkeys(match[1] for match in LINK.finditer(text)))
    bare = html.unescape(TAG.sub("", CELL_END.sub(" | ", text)))
    links = f"\n(links: {' '.join(targets)})" if targets else ""
    return BLANKS.sub("\n", bare).strip() + links or text


def _trim(index: DocumentIndex, start: int, end: int) -> tuple[int, int]:
    """The same bytes without blanks at both ends."""
    raw = index.source.read(start, end)
    return start + len(raw) - len(raw.lstrip()), end - (len(raw) - len(raw.rstrip()))


def _render_text(
    index: DocumentIndex, ranked: Sequence[Ranked], budget: int, *, escaped: bool = False, alone: bool = False
) -> list[str]:
    """Passages of a text. `escaped`: it stands inside the strings of a JSON text."""
    passages = []
    for passage in _gather(index, ranked, budget, _own_lines if alone else _neighbours):
        start, end = _trim(index, index.segments.span(passage.first)[0], index.segments.span(passage.last)[1])
        text = replace_controls(index.source.text(start, end))
        if not text.strip():
            continue
        text = _unescape(text) if escaped else _strip_tags(text) if _is_page(index) else text
        path = f"{index.path(start)} " if escaped and index.json is not None else ""
        passages.append(f"{path}{format_location(index, start, end)}\n{_headings_above(index, passage.first)}{text}")
    return _fit_budget(passages, budget)


def _headings_above(index: DocumentIndex, segment: int) -> str:
    """The headings that a passage stands under, the outermost first, with their lines."""
    headings = _parents(index, segment) or _heading_and_file(index, segment)
    return "".join(_heading_line(index, heading) for heading in headings)


def _heading_and_file(index: DocumentIndex, segment: int) -> list[int]:
    """The last heading before a segment; of a hunk in a diff also that of its file."""
    headings = index.headings
    at = int(np.searchsorted(headings, segment, side="right")) - 1
    if at < 0 or int(headings[at]) == segment:
        return []
    heading = int(headings[at])
    if index.text(heading).startswith("@@"):
        above = (int(headings[other]) for other in range(at - 1, max(-1, at - 200), -1))
        file = next((other for other in above if not index.text(other).startswith("@@")), None)
        return [heading] if file is None else [file, heading]
    return [heading]


def _heading_line(index: DocumentIndex, heading: int) -> str:
    start = index.segments.span(heading)[0]
    text = replace_controls(index.text(heading)).strip()[:200].replace("\\n", "")
    if _is_page(index):
        text = _strip_tags(text)
    return f"(under line {index.source.line_at(start)}: {text})\n"


def _gather(
    index: DocumentIndex, ranked: Sequence[Ranked], budget: int, around: Callable[[DocumentIndex, int, int], list[int]]
) -> list[_Passage]:
    """Which segments to quote: the best with their neighbours, then as many more as the budget holds, merged."""
    scores: dict[int, float] = {}
    spent = 0
    overhead = OVERHEAD + (HEADING if len(index.headings) else 0)

    def add(segment: int, score: float, extra: int, room: float) -> None:
        nonlocal spent
        if segment not in scores:
            cost = tokens.count(index.text(segment)[:6000]) + extra
            if spent + cost <= room:
                spent += cost
                scores[segment] = score

    for order, item in enumerate(ranked):
        add(item.segment, item.score, overhead, budget)
        if item.segment in scores:
            # Neighbours may not use up what further hits need.
            room = budget * (0.4 if order < 3 else 0.6)
            for segment in around(index, item.segment, order):
                add(segment, item.score * 0.999, 1, room)
        if spent > budget * 0.97:
            break
    return _merge(scores)


def take_fitting(texts: Iterable[str], budget: int, extra: int = 1) -> list[str]:
    """As many of the texts, the first ones, as the budget holds, each with so many tokens besides its own."""
    fitting: list[str] = []
    for text in texts:
        budget -= tokens.count(text) + extra
        if budget < 0:
            break
        fitting.append(text)
    return fitting


def _fit_budget(parts: list[str], budget: int) -> list[str]:
    """As many of the parts, the first ones, as the budget holds; of a single one that is too long, its ends."""
    fitting: list[str] = []
    spent = 0
    for part in parts:
        spent += tokens.count(part) + 1
        if spent > budget and fitting:
            break
        fitting.append(part if spent <= budget else truncate_bytes(part.encode(), budget))
    return fitting


def _merge(scores: dict[int, float]) -> list[_Passage]:
    passages: list[_Passage] = []
    for segment in sorted(scores):
        if passages and segment == passages[-1].last + 1:
            passages[-1].last = segment
            passages[-1].score = max(passages[-1].score, scores[segment])
        else:
            passages.append(_Passage(segment, segment, scores[segment]))
    return sorted(passages, key=lambda passage: -passage.score)


def render_passages(
    index: DocumentIndex, ranked: Sequence[Ranked], budget: int, forms: Sequence[str], *, alone: bool = False
) -> list[str]:
    """The best segments as text, with their context: records of JSON, passages of any other text.

    `alone`: each is the first of a record, and no other record may stand beside it.
    """
    if index.json is not None:
        return _fit_budget(_render_records(index, ranked, budget, forms), budget)
    header, room = [], budget
    if index.format.header_lines:
        start, end = index.source.span_of_lines(1, index.format.header_lines)
        header = [f"Header [line 1]\n{index.source.text(start, min(end, start + 2000)).strip()}"]
        room -= tokens.count(header[0])
        ranked = [item for item in ranked if index.segments.span(item.segment)[0] > 0]
    return _fit_budget([*header, *_render_text(index, ranked, room, alone=alone)], budget)


def count_quoted(index: DocumentIndex, segments: Iterable[int], passages: Sequence[str]) -> int:
    """How many of the segments are among the passages, by the lines or bytes that each of these names."""
    spans = _quoted_spans(index, passages)
    own = [index.segments.span(segment) for segment in segments]
    return sum(any(start <= last and first < end for first, last in spans) for start, end in own)


def _quoted_spans(index: DocumentIndex, passages: Sequence[str]) -> list[tuple[int, int]]:
    """The first and the last byte of each passage that names its place."""
    places = [place for passage in passages if (place := LOCATION.search(passage.partition("\n")[0]))]
    if all(place[3] for place in places):
        return [(int(place[3]), int(place[4])) for place in places]
    lines = ((int(place[1]), int(place[2] or place[1])) for place in places)
    return [(start, end - 1) for start, end in (index.source.span_of_lines(*own) for own in lines)]


def _render_records(index: DocumentIndex, ranked: Sequence[Ranked], budget: int, forms: Sequence[str]) -> list[str]:
    """Records of a JSON text, each with its path; what stands between records, and inside long strings, as text."""
    starts = {item.segment: index.segments.record_start(item.segment) for item in ranked}
    loose = [item for item in ranked if starts[item.segment] < 0]
    share = budget if len(loose) == len(ranked) else budget // 2
    texts = iter(_render_text(index, loose, share, escaped=True))
    records: list[str] = []
    spent = 0
    for item in ranked:
        start = starts[item.segment]
        if start < 0:
            text = next(texts, "")
        else:
            text = _render_located(index, item.segment, start, forms, _allowance(len(records)))
        cost = tokens.count(text) + 2
        if text and spent + cost <= budget:
            spent += cost
            records.append(text)
        elif spent > budget * 0.9:
            break
    return records


def _allowance(number: int) -> int:
    """Tokens for a record with so many before it."""
    return FIRST_RECORD if not number else OTHER_RECORD if number <= NEXT else LATE_RECORD


def _render_located(index: DocumentIndex, segment: int, open_at: int, forms: Sequence[str], allowance: int) -> str:
    start = index.segments.span(segment)[0]
    end = 1 + (index.json.closing(open_at) if index.json is not None else open_at)
    before = OWN_KEY.sub("", index.source.text(start, open_at)).strip(" \r\n\t,")
    lead = f"{before}\n" if before else ""
    names = index.names_above(open_at)
    inside = f"(inside {' / '.join(names)})\n" if names else ""
    record = render_record(index.source.read(open_at, end), forms, allowance)
    return f"{index.path(open_at)} {format_location(index, open_at, end)}\n{replace_controls(inside + lead + record)}"


def render_record(raw: bytes, forms: Sequence[str], allowance: int) -> str:
    """One JSON record as text: whole where it is short, else the members that the request names and what else fits.

    `forms` are what the request looks for, lower case.
    """
    try:
        value = decode_value(raw)
    except ValueError:
        return clip(raw.decode(errors="replace"), allowance * 4)
    text = _compact(value)
    if tokens.count(text) <= allowance:
        return text
    # A member counts more next to one that the request names: `name: x` beside the `id` that was asked for.
    leaves = [(format_path(steps), _compact(leaf)) for steps, leaf in _leaves(value, [])]
    own = [_score(leaf, forms) for leaf in leaves]
    near = [value + 0.4 * max(own[max(0, at - 3) : at + 4]) for at, value in enumerate(own)]
    longest = min(LONG_VALUE, allowance * 2)
    chosen: list[int] = []
    spent = 0
    for at in sorted(range(len(leaves)), key=lambda at: (-near[at], at)):
        cost = tokens.count(leaves[at][0]) + tokens.count(leaves[at][1][:longest]) + 3
        if spent + cost <= allowance:
            spent += cost
            chosen.append(at)
    lines = [f"{leaves[at][0]}: {_cut_around(leaves[at][1], forms, longest)}" for at in sorted(chosen)]
    if len(chosen) < len(leaves):
        lines.append(f"({len(leaves) - len(chosen)} more values in this record)")
    return "\n".join(lines)


def _score(leaf: tuple[str, str], forms: Sequence[str]) -> float:
    path, value = leaf[0].lower(), leaf[1].lower()
    return sum((form in path) + 1.5 * (form in value) for form in forms) - 0.1 * path.count(".")


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def clip(text: str, limit: int) -> str:
    """The text; where it is longer than `limit`, its beginning with a mark."""
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text) - limit} more characters)"


def _cut_around(text: str, forms: Sequence[str], longest: int = LONG_VALUE) -> str:
    """A long value, cut around the first thing that the request looks for."""
    if len(text) <= longest:
        return text
    low = text.lower()
    at = min((low.find(form) for form in forms if form in low), default=0)
    start = max(0, at - longest // 3)
    return f"{'… ' if start else ''}{text[start : start + longest]} … ({len(text)} characters in all)"


def _leaves(value: Any, steps: list[Step]) -> Iterator[tuple[list[Step], Any]]:
    """Every leaf with its path."""
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from _leaves(member, [*steps, str(key)])
    elif isinstance(value, list) and value:
        for number, member in enumerate(value):
            yield from _leaves(member, [*steps, number])
    else:
        yield steps, value


def _own_lines(index: DocumentIndex, segment: int, _: int) -> list[int]:
    """The other lines of the record that begins in a segment."""
    if index.format.kind == "log":
        return _event_lines(index, segment)
    if index.structure is None or index.structure.kind not in RECORDS:
        return []
    return _indented_below(index, segment, MAX_BELOW) or _block_of(index, segment)


def _neighbours(index: DocumentIndex, segment: int, order: int) -> list[int]:
    """The segments to quote with a segment, the nearest first; fewer for lower ranks."""
    if order >= len(REACHES):
        return []
    reach = REACHES[order]
    around = _headed(index, segment, reach)
    if index.format.kind == "log":
        around += _event_lines(index, segment)
    elif index.format.kind == "text":
        around += _indented_below(index, segment, MAX_BELOW * reach // 3)
    around += [segment + sign * step for step in range(1, reach + 1) for sign in (1, -1)]
    if order < WHOLE:
        around += _block_of(index, segment)
    return [other for other in dict.fromkeys(around) if 0 <= other < len(index.segments) and other != segment]


def _headed(index: DocumentIndex, segment: int, reach: int) -> list[int]:
    """What a heading heads, and of a hunk the changes."""
    headings = index.headings
    at = int(np.searchsorted(headings, segment, side="right")) - 1
    if at < 0:
        return []
    end = _block_end(index, at)
    block = range(int(headings[at]), min(end, int(headings[at]) + 60))
    lines: list[int] = []
    if int(headings[at]) == segment:
        lines = list(range(segment + 1, min(end, segment + 4 * reach + 2)))
    if DIFF_LINE.match(index.text(block.start)):
        changes = [line for line in block if CHANGE.match(index.text(line))]
        lines = [*sorted(changes, key=lambda line: abs(line - segment))[: reach * 6], *lines]
    return lines


def _block_of(index: DocumentIndex, segment: int) -> list[int]:
    """The item, element or section that holds a segment, from its beginning."""
    if index.structure is None or index.structure.kind not in RECORDS:
        return []
    at = int(np.searchsorted(index.outer, segment, side="right")) - 1
    if at < 0:
        return []
    start = int(index.outer[at])
    end = int(index.outer[at + 1]) if at + 1 < len(index.outer) else len(index.segments)
    return list(range(start, min(end, start + BLOCK)))


def _block_end(index: DocumentIndex, at: int) -> int:
    """Where what a heading heads ends: at the next one; the head of a file in a diff heads its hunks, too."""
    headings = index.headings
    following = at + 1
    if index.text(int(headings[at])).startswith("diff --git "):
        while following < min(len(headings), at + 12) and index.text(int(headings[following])).startswith("@@"):
            following += 1
    return int(headings[following]) if following < len(headings) else len(index.segments)


def _begins_event(text: str) -> bool:
    """Whether a line of a log opens an event: it carries a time or a level near its beginning."""
    raw = text[:100].encode(errors="replace")
    return TIME.search(raw) is not None or (LEVEL.search(raw[:40]) is not None and not raw[:1].isspace())


def _event_lines(index: DocumentIndex, segment: int) -> list[int]:
    """The other lines of a log event: from the line with the time to before the next such line."""
    first = segment
    while first > 0 and segment - first < MAX_EVENT and not _begins_event(index.text(first)):
        first -= 1
    last = segment + 1
    while last < len(index.segments) and last - segment < MAX_EVENT and not _begins_event(index.text(last)):
        last += 1
    return sorted((line for line in range(first, last) if line != segment), key=lambda line: abs(line - segment))


def _indentation(index: DocumentIndex, segment: int) -> int:
    """How far a line is indented; -1 for a blank one, and for a further piece of a long line."""
    start = index.segments.span(segment)[0]
    if start and index.source.read(start - 1, start) != b"\n":
        return -1
    text = index.text(segment)
    bare = text.lstrip(" \t")
    if not bare.strip():
        return -1
    own = len(text[: len(text) - len(bare)].expandtabs(4))
    # What stands below `- name: x` is indented as far as `name`.
    return own + (1 if bare.startswith("- ") else 0)


def _indented_below(index: DocumentIndex, segment: int, limit: int) -> list[int]:
    """The lines right below that are indented deeper."""
    own = _indentation(index, segment)
    if own < 0:
        return []
    lines = []
    for line in range(segment + 1, min(len(index.segments), segment + 1 + limit)):
        other = _indentation(index, line)
        if 0 <= other <= own:
            break
        lines.append(line)
    return lines if any(index.text(line).strip() for line in lines) else []


def _parents(index: DocumentIndex, segment: int) -> list[int]:
    """The lines that lead to one, by indentation: the keys above it in YAML, the class of a method. Outermost first."""
    if index.structure is None or index.structure.kind not in INDENTED:
        return []
    own = _indentation(index, segment)
    lines: list[int] = []
    for line in range(segment - 1, max(-1, segment - MAX_BACK), -1):
        other = _indentation(index, line)
        if 0 <= other < own:
            lines.insert(0, line)
            own = other
        if own == 0:
            break
    return lines[-MAX_PARENTS:]
