"""The answer to a request without a language model: exact where the request names its answer, else the best passages.

Every answer says how it was made and, where nothing matches, what was searched for. Above: `extraction.py`. Below: all
other modules of `local`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold import tokens
from toolfold.outputs.json_path import Step, format_path
from toolfold.outputs.local.computed import ADDS_UP, Computed, compute
from toolfold.outputs.local.exact import ExactAnswer, describe_shape, find_exact
from toolfold.outputs.local.index import DocumentIndex, IndexCache
from toolfold.outputs.local.json_index import Container, JsonIndex
from toolfold.outputs.local.query_words import COMPARISONS, FILLER, OPERATIONS
from toolfold.outputs.local.rank import ORDERED, Ranked, rank_segments, weigh_terms
from toolfold.outputs.local.render import (
    clip,
    count_quoted,
    format_location,
    render_passages,
    render_record,
    replace_controls,
    take_fitting,
)
from toolfold.outputs.local.request import MONTHS, STOP, ParsedRequest, Term, parse_request, stem
from toolfold.outputs.local.segments import Segments
from toolfold.outputs.local.source import BLOCK, HEAD, Offsets, Source, sorted_unique
from toolfold.words import split_identifier

# Times: which stretch of time a request names, and the time of each segment of a log, read with numpy.

CLOCK = r"(\d{1,2})(?::(\d\d))?(?::(\d\d))?(?:[.,]\d+)?\s*(am|pm)?"
DAY = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)(?=\b|T)")
STAMP = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[T ])?\b" + CLOCK + r"(?:Z|\b)", re.IGNORECASE)
RANGE = re.compile(
    r"\b(?:between|from)\b(.{1,40}?)\b(?:and|to|until|till)\b(.{1,40})|(\S{4,25})\s?(?:-|to|\.\.)\s?(\S{4,25})",
    re.IGNORECASE,
)
SIDE = re.compile(r"\b(after|since|before|until|at|around)\s+(.{1,30})", re.IGNORECASE)
DIGITS = np.zeros(256, dtype=np.bool_)
DIGITS[48:58] = True
LAST = 24 * 3600
FIRST_DAY, LAST_DAY = 10101, 99991231
NEGATION = re.compile(r"\b(?:not|except|excluding|without|other than|apart from)\b|n['\u2019]t\b", re.IGNORECASE)
DAY_SIDE = re.compile(r"\b(after|since|before|until|till)\s+(?:the\s+)?\d{4}-\d\d-\d\d", re.IGNORECASE)
DAY_RANGE = re.compile(
    r"\d{4}-\d\d-\d\d\s*(?:to|until|till|through|-|\.\.)\s*\d{4}|\bbetween\s+\d{4}-\d\d-\d\d\s+and\s+\d{4}",
    re.IGNORECASE,
)
LEAD = 64
HALVED = re.compile(rb"\d:\d\d(?:[.,]\d+)?\s?[AP]\.?M\b", re.IGNORECASE)
# A number that is compared with need not stand anywhere.
BOUND = re.compile(rf"(?:{'|'.join(map(re.escape, COMPARISONS))})\s+[$€£]?(\d[\d.,]*)", re.IGNORECASE)


class _TimeRange(Struct, frozen=True):
    """A stretch of time. `day` is 20240501, or 0 for any; the seconds are of the day, both ends belong to it."""

    first: int = 0
    last: int = LAST
    day: int = 0
    last_day: int = 0

    def __str__(self) -> str:
        day = f"{_written(self.day)} " if self.day else ""
        if (self.first, self.last) == (0, LAST) and self.last_day > self.day:
            start = f"{_written(self.day)} " if self.day > FIRST_DAY else ""
            return f"{start}to {_written(self.last_day)}" if self.last_day < LAST_DAY else f"{start}and later"
        if (self.first, self.last) == (0, LAST):
            return day.strip()
        return f"{day}{_clock(self.first)} to {_clock(self.last)}"


def _written(day: int) -> str:
    return f"{day // 10000}-{day // 100 % 100:02}-{day % 100:02}"


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class _TimeFilter(Struct, frozen=True):
    """A stretch of time that a request names, and the segments in it."""

    range: _TimeRange
    segments: Offsets


class _SegmentTimes(Struct, frozen=True):
    """Of each segment: seconds of the day and the day; -1 and 0 where unknown."""

    seconds: npt.NDArray[np.int32]
    days: npt.NDArray[np.int32]


class _Moment(Struct, frozen=True):
    day: int
    first: int
    last: int


def _find_time_filter(index: DocumentIndex, request: str) -> _TimeFilter | None:
    """The stretch of time that a request names, where most of the document carries times."""
    time_range = _parse_time_range(request)
    if time_range is None or index.format.kind not in {"log", "text", "table", "json-lines"}:
        return None
    if HALVED.search(index.source.read(0, HEAD)):  # `_read_times` knows no AM and PM
        return None
    times = index.cached("times", lambda: _read_times(index.source, index.segments))
    if (times.seconds >= 0).mean() < 0.2:
        return None
    return _TimeFilter(time_range, _segments_in(times, time_range))


def _parse_time_range(request: str) -> _TimeRange | None:
    if NEGATION.search(request):  # what is not meant is not to be shown alone
        return None
    match = DAY.search(request)
    day = int("".join(match.groups())) if match else 0
    return _parse_between(request, day) or _parse_side(request, day) or _parse_days(request)


def _parse_days(request: str) -> _TimeRange | None:
    """`on 2024-05-01`, `after 2024-05-01`, `from 2024-05-01 to 2024-05-03`; of two other days nothing is known."""
    days = [int("".join(parts)) for parts in DAY.findall(request)]
    if len(days) == 1:
        side = DAY_SIDE.search(request)
        word = side[1].lower() if side else ""
        after, before = word in {"after", "since"}, word in {"before", "until", "till"}
        return _TimeRange(day=FIRST_DAY if before else days[0], last_day=LAST_DAY if after else days[0])
    if len(days) == 2 and DAY_RANGE.search(request) and days[0] <= days[1]:
        return _TimeRange(day=days[0], last_day=days[1])
    return None


def _parse_between(request: str, day: int) -> _TimeRange | None:
    """`between 10:05 and 10:20`, `10:05-10:20`."""
    for match in RANGE.finditer(request):
        begin, end = _parse_moment(match[1] or match[3]), _parse_moment(match[2] or match[4])
        if begin and end:
            first_day = begin.day or day
            return _TimeRange(begin.first, end.first, first_day, end.day or first_day)
    return None


def _parse_side(request: str, day: int) -> _TimeRange | None:
    """`after 10:05`, `before 3 pm`, or a time alone."""
    sides = [(match[1].lower(), match[2]) for match in SIDE.finditer(request)]
    for side, text in [*sides, ("at", request)]:
        if moment := _parse_moment(text):
            return _on_side(side, moment, moment.day or day)
    return None


def _on_side(word: str, moment: _Moment, day: int) -> _TimeRange:
    if word in {"after", "since"}:
        return _TimeRange(moment.first, LAST, day, day)
    if word in {"before", "until"}:
        return _TimeRange(0, moment.first, day, day)
    return _TimeRange(moment.first, moment.last, day, day)


def _parse_moment(text: str) -> _Moment | None:
    """A time as written: `10:05`, `2024-05-01 10:05:09`, `3 pm`."""
    for match in STAMP.finditer(text):
        minute, second, half = match[5], match[6], match[7]
        hour = _hour(int(match[4]), half)
        # A bare number is no time, and 25 is no hour.
        if hour > 24 or not (minute or half):
            continue
        first = hour * 3600 + int(minute or 0) * 60 + int(second or 0)
        # A time stands for as long as it is precise: a second, a minute, an hour.
        width = 0 if second else 59 if minute else 3599
        day = int(match[1] + match[2] + match[3]) if match[1] else 0
        return _Moment(day, first, first + width)
    return None


def _hour(number: int, half: str | None) -> int:
    """The hour of the day; `half` is `am`, `pm` or nothing."""
    return number % 12 + (12 if half.lower() == "pm" else 0) if half else number


def _segments_in(times: _SegmentTimes, time_range: _TimeRange) -> Offsets:
    """The segments in a stretch of time."""
    if time_range.day and time_range.last_day > time_range.day:
        begin = times.days.astype(np.int64) * 100_000 + times.seconds
        after = begin >= time_range.day * 100_000 + time_range.first
        before = begin <= time_range.last_day * 100_000 + time_range.last
        return np.flatnonzero(after & before & (times.seconds >= 0))
    after, before = times.seconds >= time_range.first, times.seconds <= time_range.last
    over_midnight = time_range.first > time_range.last
    fits = ((after | before) & (times.seconds >= 0)) if over_midnight else after & before
    if time_range.day:
        fits &= times.days == time_range.day
    return np.flatnonzero(fits)


def _read_times(source: Source, segments: Segments) -> _SegmentTimes:
    """The time of every segment: the first `12:34:56` in it, with the date before it."""
    seconds = np.full(len(segments), -1, dtype=np.int32)
    days = np.zeros(len(segments), dtype=np.int32)
    for at in range(0, source.size, BLOCK):
        before = source.read(at - LEAD, at).rjust(LEAD, b"\0")
        text = np.frombuffer(before + source.read(at, at + BLOCK + 16) + b"\0" * 16, dtype=np.uint8)
        colons = np.flatnonzero(text[: len(text) - 16] == 58)
        colons = colons[colons >= LEAD]
        good = DIGITS[text[colons - 1]] & DIGITS[text[colons - 2]] & DIGITS[text[colons + 1]] & DIGITS[text[colons + 2]]
        # In `01/May/2024:10:05:09` the year is no hour.
        good &= ~DIGITS[text[colons - 3]]
        colons = colons[good & (text[colons + 3] == 58) & DIGITS[text[colons + 4]] & DIGITS[text[colons + 5]]]
        owner = segments.at(colons.astype(np.int64) - LEAD + at)
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        owner = owner[first]
        place = colons[first]
        fresh = seconds[owner] < 0
        owner, place = owner[fresh], place[fresh]
        seconds[owner] = (
            _two_digits(text, place - 2) * 3600 + _two_digits(text, place + 1) * 60 + _two_digits(text, place + 4)
        )
        days[owner] = _dates_before(text, place - 2)
    return _SegmentTimes(_fill_forward(seconds, seconds >= 0), _fill_forward(days, seconds >= 0))


def _two_digits(text: npt.NDArray[np.uint8], at: npt.NDArray[np.intp]) -> npt.NDArray[np.int32]:
    """Two digits as a number."""
    return (text[at].astype(np.int32) - 48) * 10 + (text[at + 1].astype(np.int32) - 48)


def _dates_before(text: npt.NDArray[np.uint8], at: npt.NDArray[np.intp]) -> npt.NDArray[np.int32]:
    """The date right before a time: `2024-05-01T` or `01/May/2024:`; 0 where there is none."""
    safe = np.maximum(at - 12, 0)
    day = np.zeros(len(at), dtype=np.int32)
    iso = (at >= 11) & (text[safe + 5] == 45) & (text[safe + 8] == 45)
    year = _two_digits(text, safe + 1) * 100 + _two_digits(text, safe + 3)
    day[iso] = (year * 10000 + _two_digits(text, safe + 6) * 100 + _two_digits(text, safe + 9))[iso]
    web = (at >= 12) & (text[safe + 2] == 47) & (text[safe + 6] == 47)
    if web.any():
        names = text[safe[:, None] + np.array([3, 4, 5])] | 32
        for name, number in MONTHS.items():
            fits = web & (names == np.frombuffer(name.encode(), np.uint8)).all(axis=1)
            full = _two_digits(text, safe + 7) * 100 + _two_digits(text, safe + 9)
            day[fits] = (full * 10000 + number * 100 + _two_digits(text, safe))[fits]
    return day


def _fill_forward(values: npt.NDArray[np.int32], is_set: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Gaps take the value before them."""
    if not is_set.any():
        return values
    last = np.maximum.accumulate(np.where(is_set, np.arange(len(values)), -1))
    return np.where(last >= 0, values[np.maximum(last, 0)], values).astype(np.int32)


# Values by their keys: `the default of page_size`.

MAX_BYTES = 24 << 20
# A key that occurs more often says nothing about where to look.
MAX_PLACES = 60
# Tokens of a value, and of the only or best one.
VALUE_TOKENS, BEST_TOKENS = 160, 420
MAX_DEPTH = 2
MAX_MEMBER_BYTES = 1 << 20
JSON_KEY = re.compile(rb'"((?:[^"\\\n]|\\.){1,80})"\s*:')
LITERAL_KEY = re.compile(rb"['\"]([^'\"\\\n]{1,80})['\"]\s*:")


class _Hit(Struct, frozen=True):
    """A value: its bytes, its path, and how much of the request its path names."""

    start: int
    end: int
    path: list[Step]
    fit: float


def _find_by_keys(index: DocumentIndex, request: ParsedRequest, budget: int) -> list[str]:
    """Lines with paths and values; nothing where the request names no key that occurs in few places."""
    json = index.json
    if json is None or index.source.size > MAX_BYTES or any(term.kind == "phrase" for term in request.terms):
        return []
    words = _name_parts(request.text)
    anchors, others = _named_keys(index, words)
    if not _asks_for_keys(request, anchors, others):
        return []
    places = [(key, start) for key in anchors for start in _value_starts(index, key)]
    hits = [hit for key, start in places for hit in _hits_at(json, key, start, others, set(words))]
    return _render_hits(index, sorted(hits, key=lambda hit: -hit.fit), request.forms, budget)


def _named_keys(index: DocumentIndex, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Of the keys that the request names: of those in few places the ones with most words, and the others."""
    counts = index.cached("keys", lambda: _count_keys(index))
    keys = _keys_in_order(counts, words)
    rare = [key for key in keys if counts[key] <= MAX_PLACES]
    longest = max((len(_name_parts(key)) for key in rare), default=0)
    anchors = [key for key in rare if len(_name_parts(key)) == longest][:4]
    return anchors, [key for key in keys if key not in anchors]


def _asks_for_keys(request: ParsedRequest, anchors: Sequence[str], others: Sequence[str]) -> bool:
    """Whether all words of the request are parts of the keys, and not one word that happens to be a key."""
    if not anchors or (len(_name_parts(anchors[0])) == 1 and not others):
        return False
    parts = {part for key in (*anchors, *others) for part in _name_parts(key)}
    # A word that no key holds may be what tells the right place from the others: `user 1500`.
    return all(parts.issuperset(_name_parts(word)) for word in request.words)


def _name_parts(name: str) -> tuple[str, ...]:
    """The words that a name is made of."""
    return tuple(stem(part.lower()) for part in split_identifier(name))


def _count_keys(index: DocumentIndex) -> Counter[str]:
    """Every key of the document with the number of its places."""
    pattern = LITERAL_KEY if index.format.literal else JSON_KEY
    counter: Counter[bytes] = Counter()
    for _, block in index.source.blocks():
        counter.update(match[1] for match in pattern.finditer(block))
    return Counter({key.decode(errors="replace"): count for key, count in counter.items()})


def _keys_in_order(counts: Counter[str], words: Sequence[str]) -> list[str]:
    """The keys whose words stand in the request side by side, those with more words first."""
    runs = {tuple(words[at : at + size]) for size in range(1, 7) for at in range(len(words) - size + 1)}
    keys = [(parts, key) for key in counts if (parts := _name_parts(key)) and parts in runs]
    return [key for parts, key in sorted(keys, key=lambda item: (-len(item[0]), counts[item[1]], item[1]))]


def _value_starts(index: DocumentIndex, key: str) -> list[int]:
    """Where the values of a key begin."""
    pattern = re.compile(rb"[\"']" + re.escape(key.encode()) + rb"[\"']\s*:\s*(?=\S)")
    starts = [at + match.end() for at, block in index.source.blocks(margin=512) for match in pattern.finditer(block)]
    return sorted(set(starts))[: MAX_PLACES * 2]


def _hits_at(json: JsonIndex, key: str, start: int, others: Sequence[str], words: set[str]) -> Iterator[_Hit]:
    """The members that the request names inside the value; else the value itself."""
    containers = json.containers_at(start)
    own = containers.pop() if containers and containers[-1].start == start else None
    path: list[Step] = [*(container.step for container in containers[1:]), key]
    fit = float(sum(1 for step in path if isinstance(step, str) and words.intersection(_name_parts(step))))
    if own is None:
        yield _Hit(start, start + len(json.scalar_at(start)), path, fit - 0.5 * bool(others))
        return
    members = list(_named_members(json, own, path, others, MAX_DEPTH))
    for begin, end, steps in members[:3]:
        yield _Hit(begin, end, steps, fit + 1)
    if not members:
        yield _Hit(own.start, own.end + 1, path, fit)


def _named_members(
    json: JsonIndex, container: Container, path: list[Step], names: Sequence[str], depth: int
) -> Iterator[tuple[int, int, list[Step]]]:
    """Members with one of the names, in the container or a little deeper."""
    if container.end - container.start > MAX_MEMBER_BYTES:
        return
    inner = []
    for step, start, end in json.members(container):
        if step in names:
            yield start, json.trimmed_end(start, end), [*path, step]
        elif depth > 1:
            inner.append((step, start))
    for step, start in inner[:40]:
        child = json.container_from(start)
        if child is not None:
            yield from _named_members(json, child, [*path, step], names, depth - 1)


def _render_hits(index: DocumentIndex, hits: Sequence[_Hit], forms: Sequence[str], budget: int) -> list[str]:
    best = BEST_TOKENS if len(hits) < 3 else VALUE_TOKENS
    texts = (_render_hit(index, hit, forms, VALUE_TOKENS if number else best) for number, hit in enumerate(hits))
    lines = take_fitting(texts, budget)
    if not lines:
        return []
    if len(lines) < len(hits):
        lines.append(f"({len(hits) - len(lines)} further places of these keys are not shown)")
    return ["By the names of keys:\n" + "\n".join(lines)]


def _render_hit(index: DocumentIndex, hit: _Hit, forms: Sequence[str], limit: int) -> str:
    text = replace_controls(render_record(index.source.read(hit.start, hit.end), forms, limit))
    return f"{format_path(hit.path)} {format_location(index, hit.start, hit.end)}\n{text}"


# A name in so few segments says where to look: in them, and so many segments around.
FEW_NAMED, AROUND_NAME = 12, 6
# Tokens of passages where most words of the request are not in the document, and where something was to be computed,
# but could not be: passages do not hold a number that is found by reading everything.
FAINT, REFUSED, UNCOUNTED, MOST = 240, 240, 100, 1 << 30
PREAMBLE = "Made without a language model, by searching the document."


def answer(indexes: IndexCache, path: Path, request: str, budget: int, *, binary: str = "") -> str:
    """Answers one request about one file inside `budget` tokens. `binary`: the media type of what is no text."""
    with indexes.of(path) as index:
        if not index.source.size:
            return f"{PREAMBLE}\n\nThe document is empty."
        exact = find_exact(index, request, budget - 60)
        if exact is not None and exact.whole:
            return _whole_answer(exact)
        lead = list(exact.lines) if exact is not None else []
        return replace_controls(_search(index, parse_request(request), budget, lead, binary))


def exact_answer(indexes: IndexCache, path: Path, request: str, budget: int) -> str | None:
    """Only what the request names by path, range or pattern; `None` where it names nothing, or more than that."""
    with indexes.of(path) as index:
        exact = find_exact(index, request, budget - 60) if index.source.size else None
        return _whole_answer(exact) if exact is not None and exact.whole else None


def _whole_answer(exact: ExactAnswer) -> str:
    return replace_controls("\n".join([f"{PREAMBLE}\n", *exact.lines]))


def _search(index: DocumentIndex, request: ParsedRequest, budget: int, lead: list[str], binary: str) -> str:
    head = f"{PREAMBLE} {_describe(index, binary)}"
    computed = compute(index, request.text, budget // 3)
    if computed.claimed and (computed.segments is None or len(computed.segments)):
        head = "\n\n".join([head, *lead, "\n".join(computed.lines)])
        return _with_records(index, request, computed, budget, head)
    return _by_words(index, request, computed, budget, [head, *lead])


def _by_words(index: DocumentIndex, request: ParsedRequest, computed: Computed, budget: int, lead: list[str]) -> str:
    """The best passages, behind why nothing was computed."""
    time_filter = _find_time_filter(index, request.text)
    allowed = _apply_time(time_filter, lead)
    request = _without_times(request) if allowed is not None else request
    places, estimates = _find_places(index, request, everywhere=allowed is not None)
    named = _find_by_keys(index, request, budget * 2 // 5)
    lead += named
    weighted = weigh_terms(request, places, index.segments, allowed, estimates)
    ranked = rank_segments(index, request, weighted, allowed)
    telling = [] if allowed is not None else _telling_terms(request, places)
    absent = [term for term in telling if _is_nowhere(term, request, places)]
    if not telling and computed.unplaced:
        absent = _absent_as(computed.unplaced, request, places)
    if time_filter is not None and allowed is None:
        ranked = []
    if not ranked or (not computed.claimed and 0 < len(absent) >= len(telling)):
        return "\n".join([*lead, *_nothing_found(index, request, computed, absent, named=bool(named))])
    fits = "none of which fits" if computed.claimed and not computed.count else "not tested whether they fit"
    lead += ["\n".join(computed.lines), f"Passages by their words, {fits}:"] if computed.lines else []
    room = budget - tokens.count("\n".join(lead)) - 80
    if not computed.claimed:
        lead += _not_there(absent, request)
        room = min(room, _worth(request, places, telling, uncounted=computed.refused and len(computed.lines) > 1))
        ranked = _near_name(index, ranked, telling, places)
    order = sorted(weighted, key=lambda item: -item.weight)
    forms = [form for item in order for form in item.term.forms]
    return "\n\n".join([*lead, *render_passages(index, ranked, room, forms)])


def _nothing_found(
    index: DocumentIndex, request: ParsedRequest, computed: Computed, absent: list[Term], *, named: bool
) -> list[str]:
    """Why nothing was computed, and which words do not occur."""
    stated = "\n".join(computed.lines)
    if computed.refused or computed.claimed:
        return [stated, *_not_there(absent, request)]
    reason = [stated] if stated and BOUND.search(request.text) else []
    return [*reason, *([] if named else [_no_match(index, absent or request.terms, request)])]


def _with_records(index: DocumentIndex, request: ParsedRequest, computed: Computed, budget: int, head: str) -> str:
    """What was computed, and of the document only the records that it rests on."""
    if computed.segments is None:
        return head
    segments = [int(segment) for segment in computed.segments[:100]]
    ranked = [Ranked(segment, 1e6 - number) for number, segment in enumerate(dict.fromkeys(segments))]
    room = budget - tokens.count(head) - 80
    passages = render_passages(index, ranked, room, request.forms, alone=True)
    quoted = count_quoted(index, segments, passages)
    note = [f"({quoted} of {computed.rests_on} are quoted here)"] if quoted < computed.rests_on else []
    return "\n\n".join([head, *note, *passages])


def _worth(request: ParsedRequest, places: Mapping[str, Offsets], telling: list[Term], *, uncounted: bool) -> int:
    """How many tokens of passages a request may be worth that nothing was computed for."""
    if telling:
        return MOST
    if uncounted:
        return UNCOUNTED if ADDS_UP.search(request.text) else REFUSED
    return FAINT if _is_mostly_absent(request, places) else MOST


def _near_name(
    index: DocumentIndex, ranked: list[Ranked], telling: list[Term], places: Mapping[str, Offsets]
) -> list[Ranked]:
    """Where the one name or number of a request stands in few places: these, and not what only resembles it."""
    if len(telling) != 1 or telling[0].is_name:
        return ranked
    holders = sorted_unique(index.segments.at(places[telling[0].text]))
    if not 0 < len(holders) <= FEW_NAMED:
        return ranked
    return [item for item in ranked if np.abs(holders - item.segment).min() <= AROUND_NAME] or ranked


def _not_there(absent: Sequence[Term], request: ParsedRequest) -> list[str]:
    spoken = ", ".join(request.spoken(term)[:60] for term in absent[:8])
    return [f"Not in the document as written: {spoken}."] if absent else []


def _telling_terms(request: ParsedRequest, places: Mapping[str, Offsets]) -> list[Term]:
    """The terms that can only mean themselves; `zebra-utils` among them where a part of it does not occur at all."""
    bounds = set(BOUND.findall(request.text))
    partly = {term.of for term in request.terms if len(term.text) > 3 and not len(places[term.text])}
    terms = [term for term in request.terms if term.text not in bounds]
    return [term for term in terms if term.is_telling or (term.text in partly and not len(places[term.text]))]


def _absent_as(word: str, request: ParsedRequest, places: Mapping[str, Offsets]) -> list[Term]:
    """The term of a word that occurs nowhere, unless the document may say something else for it."""
    terms = [term for term in request.terms if request.spoken(term) == word.lower()]
    hinted = any(term.kind == "hint" and len(places[term.text]) for term in request.terms)
    return [] if hinted else [term for term in terms if not len(places[term.text]) and term.text not in STOP]


def _is_nowhere(term: Term, request: ParsedRequest, places: Mapping[str, Offsets]) -> bool:
    """Whether neither a term occurs nor all of its parts: `order-9123` may stand as 9123 in a list of orders."""
    there = [part for part in request.terms if part.of == term.text and len(places[part.text])]
    return not len(places[term.text]) and len(there) < max(2, len(split_identifier(term.text)))


def _find_places(
    index: DocumentIndex, request: ParsedRequest, *, everywhere: bool
) -> tuple[dict[str, Offsets], dict[str, int]]:
    # For the first or the last one, every place must be known.
    if everywhere or ORDERED.search(request.text):
        return index.places(request.terms), {}
    return index.places_near(request.terms)


def _is_mostly_absent(request: ParsedRequest, places: Mapping[str, Offsets]) -> bool:
    words = [term for term in request.terms if term.is_named]
    return 2 * sum(1 for term in words if not len(places[term.text])) >= len(words) > 1


def _without_times(request: ParsedRequest) -> ParsedRequest:
    """Where a time has selected the segments, it is not searched for as a word, too."""
    terms = tuple(term for term in request.terms if ":" not in term.text)
    return msgspec.structs.replace(request, terms=terms)


def _apply_time(time_filter: _TimeFilter | None, lead: list[str]) -> Offsets | None:
    """The segments that may be quoted; `None` for all. Says so in `lead`."""
    if time_filter is None:
        return None
    if not len(time_filter.segments):
        lead.append(f"Nothing in the document has a time of {time_filter.range}.")
        return None
    lead.append(f"Only what has a time of {time_filter.range} was searched: {len(time_filter.segments)} units.")
    return time_filter.segments


def _describe(index: DocumentIndex, binary: str = "") -> str:
    """One sentence on what the document is."""
    fmt, source = index.format, index.source
    if binary:
        return f"The document is no text but binary data ({binary}) of {source.size} bytes."
    names = {"json": "JSON", "json-lines": "lines of JSON", "table": "a table", "markdown-table": "a table in Markdown"}
    kind = names.get(fmt.kind, {"diff": "a diff", "log": "a log", "binary": "binary data"}.get(fmt.kind, "text"))
    kind += f" in {source.encoding.upper()}" if source.encoding != "utf-8" else ""
    return f"The document is {kind} of {source.size} bytes and {source.lines} lines."


def _no_match(index: DocumentIndex, terms: Sequence[Term], request: ParsedRequest) -> str:
    """What was searched for in vain, and what there is instead: two lines."""
    spoken = (request.spoken(term)[:60] for term in terms[:20] if term.is_named)
    words = ", ".join(word for word in spoken if word not in FILLER | OPERATIONS.keys() | COMPARISONS.keys())
    said = f"No match was found for the words: {words}. Their meaning was not looked for, and nothing was computed."
    if index.json is not None:
        there = f"Its shape: {'; '.join(describe_shape(index, index.json.root.start))}"
    else:
        start, end = index.source.span_of_lines(1, 1)
        there = f"It begins: {index.source.text(start, min(end, start + 400))}"
    return f"{said if words else 'The request names nothing to look for.'}\n{clip(there, 600)}"
