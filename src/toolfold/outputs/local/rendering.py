"""What was found, as text: each passage with its lines and bytes, the best first, inside a budget of tokens."""

import html
import re
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import Struct

from toolfold import tokens
from toolfold.outputs.local.around import neighbours, parents
from toolfold.outputs.local.index import Index
from toolfold.outputs.local.ranking import Ranked
from toolfold.outputs.local.records import render_record
from toolfold.outputs.truncating import top_and_bottom

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


class Passage(Struct):
    """A run of units that is quoted together."""

    first: int
    last: int
    score: float


def place(index: Index, start: int, end: int) -> str:
    """`[lines 3-7, bytes 120-480]`: both ends belong to it, lines count from 1, bytes from 0."""
    first, last = index.source.line_at(start), index.source.line_at(max(start, end - 1))
    lines = f"line {first}" if first == last else f"lines {first}-{last}"
    return f"[{lines}, bytes {start}-{max(start, end - 1)}]"


def visible(text: str) -> str:
    """Without control characters, which a terminal or a model might take for more than they are."""
    return CONTROL.sub("�", text)


def unescaped(text: str) -> str:
    """A piece from inside a JSON string, as it reads."""
    if "\\" not in text:
        return text
    try:
        return str(msgspec.json.decode(f'"{text}"'.encode()))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return text.replace("\\n", "\n").replace('\\"', '"').replace("\\t", "\t").replace("\\/", "/")


def is_page(index: Index) -> bool:
    """Whether the document is an HTML page, which is quoted without its tags."""
    return index.blocks is not None and index.blocks.kind == "page"


def untagged(text: str) -> str:
    """HTML as it reads, without tags; where its links and pictures lead to stands at the end."""
    leads = list(dict.fromkeys(match[1] for match in LEADS.finditer(text)))
    bare = html.unescape(TAG.sub("", CELL_END.sub(" | ", text)))
    links = f"\n(links: {' '.join(leads)})" if leads else ""
    return BLANKS.sub("\n", bare).strip() + links or text


def trimmed(index: Index, start: int, end: int) -> tuple[int, int]:
    """The same bytes without blanks at both ends."""
    raw = index.source.read(start, end)
    return start + len(raw) - len(raw.lstrip()), end - (len(raw) - len(raw.rstrip()))


def render_text(index: Index, ranked: Sequence[Ranked], budget: int, *, escaped: bool = False) -> list[str]:
    """Passages of a text."""
    passages = gather(index, ranked, budget)
    headings = index.headings
    shown: list[str] = []
    plain = is_page(index)
    for passage in passages:
        start, end = index.units.span(passage.first)[0], index.units.span(passage.last)[1]
        start, end = trimmed(index, start, end)
        text = visible(index.source.read(start, end).decode(errors="replace"))
        above = heading_above(index, passage.first, headings)
        path = f"{index.path(start)} " if escaped and index.tape else ""
        text = unescaped(text) if escaped else untagged(text) if plain else text
        shown.append(f"{path}{place(index, start, end)}\n{above}{text}")
    return within(shown, budget)


def heading_above(index: Index, unit: int, headings: "np.typing.NDArray[np.int64]") -> str:
    """The heading that the passage stands under, and the one above that, with their lines."""
    if above := parents(index, unit):
        return "".join(heading_line(index, line) for line in above)
    at = int(np.searchsorted(headings, unit, side="right")) - 1
    if at < 0 or int(headings[at]) == unit:
        return ""
    found = [int(headings[at])]
    if index.text(found[0]).startswith("@@"):
        for other in range(at - 1, max(-1, at - 200), -1):
            if not index.text(int(headings[other])).startswith("@@"):
                found.insert(0, int(headings[other]))
                break
    return "".join(heading_line(index, heading) for heading in found)


def heading_line(index: Index, heading: int) -> str:
    start = index.units.span(heading)[0]
    text = visible(index.text(heading)).strip()[:200].replace("\\n", "")
    if is_page(index):
        text = untagged(text)
    return f"(under line {index.source.line_at(start)}: {text})\n"


def gather(index: Index, ranked: Sequence[Ranked], budget: int) -> list[Passage]:
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
    return merged(taken)


def within(parts: list[str], budget: int) -> list[str]:
    """As many of the parts, the first ones, as the budget holds; of a single one that is too long, its ends."""
    kept: list[str] = []
    spent = 0
    for part in parts:
        spent += tokens.count(part) + 1
        if spent > budget and kept:
            break
        kept.append(part if spent <= budget else top_and_bottom(part.encode(), budget))
    return kept


def merged(taken: dict[int, float]) -> list[Passage]:
    passages: list[Passage] = []
    for unit in sorted(taken):
        if passages and unit == passages[-1].last + 1:
            passages[-1].last = unit
            passages[-1].score = max(passages[-1].score, taken[unit])
        else:
            passages.append(Passage(unit, unit, taken[unit]))
    return sorted(passages, key=lambda passage: -passage.score)


def render_records(index: Index, ranked: Sequence[Ranked], budget: int, forms: Sequence[str]) -> list[str]:
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
            text = one_record(index, item.unit, open_at, forms, allowance(len(shown)))
        cost = tokens.count(text) + 2 if text else 0
        if not text or spent + cost > budget:
            if spent > budget * 0.9:
                break
            continue
        spent += cost
        shown.append(text)
    return shown


def allowance(number: int) -> int:
    """Tokens for a record with so many before it."""
    return FIRST_RECORD if not number else OTHER_RECORD if number <= NEXT else LATE_RECORD


def one_record(index: Index, unit: int, open_at: int, forms: Sequence[str], most: int) -> str:
    start = index.units.span(unit)[0]
    close = closing(index, open_at)
    raw = index.source.read(open_at, close + 1)
    before = OWN_KEY.sub("", index.source.read(start, open_at).decode(errors="replace")).strip(" \r\n\t,")
    lead = f"{before}\n" if before else ""
    head = f"{index.path(open_at)} {place(index, open_at, close + 1)}"
    above = index.named(open_at)
    inside = f"(inside {' / '.join(above)})\n" if above else ""
    return f"{head}\n{visible(inside)}{visible(lead)}{visible(render_record(raw, forms, most))}"


def closing(index: Index, open_at: int) -> int:
    """Where the container that opens at `open_at` closes."""
    for level in index.tape.levels if index.tape is not None else ():
        at = int(np.searchsorted(level.opens, open_at))
        if at < len(level.opens) and int(level.opens[at]) == open_at:
            return int(level.closes[at])
    return open_at
