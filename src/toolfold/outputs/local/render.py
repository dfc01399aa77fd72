"""What was found, as text: each passage with its lines and bytes, the best first, inside a budget of tokens."""

import html
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from toolfold import tokens
from toolfold.outputs.json_path import Step, format_path
from toolfold.outputs.local.context import neighbours, parents
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.json_index import decode_value
from toolfold.outputs.local.rank import Ranked
from toolfold.outputs.truncate import truncate_bytes

# --- One JSON record as text: whole where it is short, else the members that the request names and as many more as

LONG_VALUE = 600


def render_record(raw: bytes, forms: Sequence[str], allowance: int) -> str:
    """`forms` are what the request looks for, lower case."""
    try:
        value = decode_value(raw)
    except ValueError:
        return _clip(raw.decode(errors="replace"), allowance * 4)
    text = _compact(value)
    if tokens.count(text) <= allowance:
        return text
    leaves = [(format_path(steps), _compact(leaf)) for steps, leaf in _leaves(value, [])]
    own = [_score(leaf, forms) for leaf in leaves]
    near = [value + 0.4 * max(own[max(0, at - 3) : at + 4]) for at, value in enumerate(own)]
    scored = sorted(range(len(leaves)), key=lambda at: (-near[at], at))
    longest = min(LONG_VALUE, allowance * 2)
    kept: list[int] = []
    spent = 0
    for at in scored:
        cost = tokens.count(leaves[at][0]) + tokens.count(leaves[at][1][:longest]) + 3
        if spent + cost > allowance:
            continue
        spent += cost
        kept.append(at)
    lines = [f"{leaves[at][0]}: {_cut_around(leaves[at][1], forms, longest)}" for at in sorted(kept)]
    if len(kept) < len(leaves):
        lines.append(f"({len(leaves) - len(kept)} more values in this record)")
    return "\n".join(lines)


def _score(leaf: tuple[str, str], forms: Sequence[str]) -> float:
    path, value = leaf[0].lower(), leaf[1].lower()
    return sum((form in path) + 1.5 * (form in value) for form in forms) - 0.1 * path.count(".")


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} more characters)"


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


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
FIRST_RECORD, OTHER_RECORD, LATE_RECORD = 900, 280, 140
"""Tokens that one record may take: the best, the next ones, and each after those."""
NEXT = 4
OVERHEAD = 18
"""Tokens of a passage's first line."""
HEADING = 45
"""Tokens of the headings it stands under, where there are any."""
LEADS = re.compile(
    r"<(?:a|img|link)\b[^>]{0,400}?\b(?:href|src)=[\"']([^\"'#>][^\"'>]{3,300})[\"'][^>]{0,400}>", re.IGNORECASE
)
CELL_END = re.compile(r"</t[dh]>\s*(?=<t[dh])", re.IGNORECASE)
TAG = re.compile(r"</?[A-Za-z!][^<>]{0,2000}>")
BLANKS = re.compile(r"(?<![ \t])[ \t]*+\n\s*\n")
OWN_KEY = re.compile(r'"(?:[^"\\]|\\.){0,200}"\s*:\s*$')


class _Passage(Struct):
    """A run of units that is quoted together."""

    first: int
    last: int
    score: float


def format_location(index: DocumentIndex, start: int, end: int) -> str:
    """`[lines 3-7, bytes 120-480]`: both ends belong to it, lines count from 1, bytes from 0."""
    first, last = index.source.line_at(start), index.source.line_at(max(start, end - 1))
    lines = f"line {first}" if first == last else f"lines {first}-{last}"
    return f"[{lines}, bytes {start}-{max(start, end - 1)}]"


def replace_controls(text: str) -> str:
    """Without control characters, which a terminal or a model might take for more than they are."""
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
    return index.blocks is not None and index.blocks.kind == "page"


def _strip_tags(text: str) -> str:
    """HTML as it reads, without tags; where its links and pictures lead to stands at the end."""
    leads = list(dict.fromkeys(match[1] for match in LEADS.finditer(text)))
    bare = html.unescape(TAG.sub("", CELL_END.sub(" | ", text)))
    links = f"\n(links: {' '.join(leads)})" if leads else ""
    return BLANKS.sub("\n", bare).strip() + links or text


def _trim(index: DocumentIndex, start: int, end: int) -> tuple[int, int]:
    """The same bytes without blanks at both ends."""
    raw = index.source.read(start, end)
    return start + len(raw) - len(raw.lstrip()), end - (len(raw) - len(raw.rstrip()))


def render_text(index: DocumentIndex, ranked: Sequence[Ranked], budget: int, *, escaped: bool = False) -> list[str]:
    """Passages of a text."""
    passages = _gather(index, ranked, budget)
    headings = index.headings
    shown: list[str] = []
    plain = _is_page(index)
    for passage in passages:
        start, end = index.units.span(passage.first)[0], index.units.span(passage.last)[1]
        start, end = _trim(index, start, end)
        text = replace_controls(index.source.read(start, end).decode(errors="replace"))
        above = _heading_above(index, passage.first, headings)
        path = f"{index.path(start)} " if escaped and index.tape else ""
        text = _unescape(text) if escaped else _strip_tags(text) if plain else text
        shown.append(f"{path}{format_location(index, start, end)}\n{above}{text}")
    return fit_budget(shown, budget)


def _heading_above(index: DocumentIndex, unit: int, headings: "np.typing.NDArray[np.int64]") -> str:
    """The heading that the passage stands under, and the one above that, with their lines."""
    if above := parents(index, unit):
        return "".join(_heading_line(index, line) for line in above)
    at = int(np.searchsorted(headings, unit, side="right")) - 1
    if at < 0 or int(headings[at]) == unit:
        return ""
    found = [int(headings[at])]
    if index.text(found[0]).startswith("@@"):
        for other in range(at - 1, max(-1, at - 200), -1):
            if not index.text(int(headings[other])).startswith("@@"):
                found.insert(0, int(headings[other]))
                break
    return "".join(_heading_line(index, heading) for heading in found)


def _heading_line(index: DocumentIndex, heading: int) -> str:
    start = index.units.span(heading)[0]
    text = replace_controls(index.text(heading)).strip()[:200].replace("\\n", "")
    if _is_page(index):
        text = _strip_tags(text)
    return f"(under line {index.source.line_at(start)}: {text})\n"


def _gather(index: DocumentIndex, ranked: Sequence[Ranked], budget: int) -> list[_Passage]:
    """Which units to quote: the best with their neighbours, then as many more as the budget holds, merged."""
    taken: dict[int, float] = {}
    spent = 0
    headed = len(index.headings) > 0
    overhead = OVERHEAD + (HEADING if headed else 0)
    for order, item in enumerate(ranked):
        for unit in [item.unit, *neighbours(index, item.unit, order)]:
            if unit in taken:
                continue
            own = unit == item.unit
            cost = tokens.count(index.text(unit)[:6000]) + (overhead if own else 1)
            limit = budget if own else budget * (0.4 if order < 3 else 0.6)
            if spent + cost > limit:
                if own:
                    break
                continue
            spent += cost
            taken[unit] = item.score if own else item.score * 0.999
        if spent > budget * 0.97:
            break
    return _merge(taken)


def fit_budget(parts: list[str], budget: int) -> list[str]:
    """As many of the parts, the first ones, as the budget holds; of a single one that is too long, its ends."""
    kept: list[str] = []
    spent = 0
    for part in parts:
        spent += tokens.count(part) + 1
        if spent > budget and kept:
            break
        kept.append(part if spent <= budget else truncate_bytes(part.encode(), budget))
    return kept


def _merge(taken: dict[int, float]) -> list[_Passage]:
    passages: list[_Passage] = []
    for unit in sorted(taken):
        if passages and unit == passages[-1].last + 1:
            passages[-1].last = unit
            passages[-1].score = max(passages[-1].score, taken[unit])
        else:
            passages.append(_Passage(unit, unit, taken[unit]))
    return sorted(passages, key=lambda passage: -passage.score)


def render_records(index: DocumentIndex, ranked: Sequence[Ranked], budget: int, forms: Sequence[str]) -> list[str]:
    """Records of a JSON text, each with its path; what stands between records, and inside long strings, as text."""
    shown: list[str] = []
    spent = 0
    opens = index.units.opens
    loose = [item for item in ranked if opens is None or int(opens[item.unit]) < 0]
    loose_share = budget if len(loose) == len(ranked) else budget // 2
    texts = iter(render_text(index, loose, loose_share, escaped=True)) if loose else iter(())
    for item in ranked:
        if opens is None or int(opens[item.unit]) < 0:
            text = next(texts, "")
        else:
            open_at = int(opens[item.unit])
            text = _render_located(index, item.unit, open_at, forms, _allowance(len(shown)))
        cost = tokens.count(text) + 2 if text else 0
        if not text or spent + cost > budget:
            if spent > budget * 0.9:
                break
            continue
        spent += cost
        shown.append(text)
    return shown


def _allowance(number: int) -> int:
    """Tokens for a record with so many before it."""
    return FIRST_RECORD if not number else OTHER_RECORD if number <= NEXT else LATE_RECORD


def _render_located(index: DocumentIndex, unit: int, open_at: int, forms: Sequence[str], most: int) -> str:
    start = index.units.span(unit)[0]
    close = _closing_offset(index, open_at)
    raw = index.source.read(open_at, close + 1)
    before = OWN_KEY.sub("", index.source.read(start, open_at).decode(errors="replace")).strip(" \r\n\t,")
    lead = f"{before}\n" if before else ""
    head = f"{index.path(open_at)} {format_location(index, open_at, close + 1)}"
    above = index.named(open_at)
    inside = f"(inside {' / '.join(above)})\n" if above else ""
    return (
        f"{head}\n{replace_controls(inside)}{replace_controls(lead)}{replace_controls(render_record(raw, forms, most))}"
    )


def _closing_offset(index: DocumentIndex, open_at: int) -> int:
    """Where the container that opens at `open_at` closes."""
    for level in index.tape.levels if index.tape is not None else ():
        at = int(np.searchsorted(level.opens, open_at))
        if at < len(level.opens) and int(level.opens[at]) == open_at:
            return int(level.closes[at])
    return open_at
