"""Which stretch of time a request names, and the segments of a log that lie in it, read with numpy.

Above: `answer.py`. Below: `index.py`, `segments.py`, `source.py`.
"""

import re

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.request import MONTHS
from toolfold.outputs.local.segments import Segments
from toolfold.outputs.local.source import BLOCK, HEAD, Offsets, Source

_CLOCK = r"(\d{1,2})(?::(\d\d))?(?::(\d\d))?(?:[.,]\d+)?\s*(am|pm)?"
_DAY = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)(?=\b|T)")
_STAMP = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[T ])?\b" + _CLOCK + r"(?:Z|\b)", re.IGNORECASE)
_RANGE = re.compile(
    r"\b(?:between|from)\b(.{1,40}?)\b(?:and|to|until|till)\b(.{1,40})|(\S{4,25})\s?(?:-|to|\.\.)\s?(\S{4,25})",
    re.IGNORECASE,
)
_SIDE = re.compile(r"\b(after|since|before|until|at|around)\s+(.{1,30})", re.IGNORECASE)
_DIGITS = np.zeros(256, dtype=np.bool_)
_DIGITS[48:58] = True
_LAST = 24 * 3600
_FIRST_DAY, _LAST_DAY = 10101, 99991231
_NEGATION = re.compile(r"\b(?:not|except|excluding|without|other than|apart from)\b|n['\u2019]t\b", re.IGNORECASE)
_DAY_SIDE = re.compile(r"\b(after|since|before|until|till)\s+(?:the\s+)?\d{4}-\d\d-\d\d", re.IGNORECASE)
_DAY_RANGE = re.compile(
    r"\d{4}-\d\d-\d\d\s*(?:to|until|till|through|-|\.\.)\s*\d{4}|\bbetween\s+\d{4}-\d\d-\d\d\s+and\s+\d{4}",
    re.IGNORECASE,
)
_LEAD = 64
_HALVED = re.compile(rb"\d:\d\d(?:[.,]\d+)?\s?[AP]\.?M\b", re.IGNORECASE)


class _TimeRange(Struct, frozen=True):
    """A stretch of time. `day` is 20240501, or 0 for any; the seconds are of the day, both ends belong to it."""

    first: int = 0
    last: int = _LAST
    day: int = 0
    last_day: int = 0

    def __str__(self) -> str:
        day = f"{_written(self.day)} " if self.day else ""
        if (self.first, self.last) == (0, _LAST) and self.last_day > self.day:
            start = f"{_written(self.day)} " if self.day > _FIRST_DAY else ""
            return f"{start}to {_written(self.last_day)}" if self.last_day < _LAST_DAY else f"{start}and later"
        if (self.first, self.last) == (0, _LAST):
            return day.strip()
        return f"{day}{_clock(self.first)} to {_clock(self.last)}"


def _written(day: int) -> str:
    return f"{day // 10000}-{day // 100 % 100:02}-{day % 100:02}"


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class TimeFilter(Struct, frozen=True):
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


def find_time_filter(index: DocumentIndex, request: str) -> TimeFilter | None:
    """The stretch of time that a request names, where most of the document carries times."""
    time_range = _parse_time_range(request)
    if time_range is None or index.format.kind not in {"log", "text", "table", "json-lines"}:
        return None
    if _HALVED.search(index.source.read(0, HEAD)):  # `_read_times` knows no AM and PM
        return None
    times = index.cached("times", lambda: _read_times(index.source, index.segments))
    if (times.seconds >= 0).mean() < 0.2:
        return None
    return TimeFilter(time_range, _segments_in(times, time_range))


def _parse_time_range(request: str) -> _TimeRange | None:
    if _NEGATION.search(request):  # what is not meant is not to be shown alone
        return None
    match = _DAY.search(request)
    day = int("".join(match.groups())) if match else 0
    return _parse_between(request, day) or _parse_side(request, day) or _parse_days(request)


def _parse_days(request: str) -> _TimeRange | None:
    """`on 2024-05-01`, `after 2024-05-01`, `from 2024-05-01 to 2024-05-03`; of two other days nothing is known."""
    days = [int("".join(parts)) for parts in _DAY.findall(request)]
    if len(days) == 1:
        side = _DAY_SIDE.search(request)
        word = side[1].lower() if side else ""
        after, before = word in {"after", "since"}, word in {"before", "until", "till"}
        return _TimeRange(day=_FIRST_DAY if before else days[0], last_day=_LAST_DAY if after else days[0])
    if len(days) == 2 and _DAY_RANGE.search(request) and days[0] <= days[1]:
        return _TimeRange(day=days[0], last_day=days[1])
    return None


def _parse_between(request: str, day: int) -> _TimeRange | None:
    """`between 10:05 and 10:20`, `10:05-10:20`."""
    for match in _RANGE.finditer(request):
        begin, end = _parse_moment(match[1] or match[3]), _parse_moment(match[2] or match[4])
        if begin and end:
            first_day = begin.day or day
            return _TimeRange(begin.first, end.first, first_day, end.day or first_day)
    return None


def _parse_side(request: str, day: int) -> _TimeRange | None:
    """`after 10:05`, `before 3 pm`, or a time alone."""
    sides = [(match[1].lower(), match[2]) for match in _SIDE.finditer(request)]
    for side, text in [*sides, ("at", request)]:
        if moment := _parse_moment(text):
            return _on_side(side, moment, moment.day or day)
    return None


def _on_side(word: str, moment: _Moment, day: int) -> _TimeRange:
    if word in {"after", "since"}:
        return _TimeRange(moment.first, _LAST, day, day)
    if word in {"before", "until"}:
        return _TimeRange(0, moment.first, day, day)
    return _TimeRange(moment.first, moment.last, day, day)


def _parse_moment(text: str) -> _Moment | None:
    """A time as written: `10:05`, `2024-05-01 10:05:09`, `3 pm`."""
    for match in _STAMP.finditer(text):
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
        before = source.read(at - _LEAD, at).rjust(_LEAD, b"\0")
        text = np.frombuffer(before + source.read(at, at + BLOCK + 16) + b"\0" * 16, dtype=np.uint8)
        colons = np.flatnonzero(text[: len(text) - 16] == 58)
        colons = colons[colons >= _LEAD]
        good = (
            _DIGITS[text[colons - 1]]
            & _DIGITS[text[colons - 2]]
            & _DIGITS[text[colons + 1]]
            & _DIGITS[text[colons + 2]]
        )
        # In `01/May/2024:10:05:09` the year is no hour.
        good &= ~_DIGITS[text[colons - 3]]
        colons = colons[good & (text[colons + 3] == 58) & _DIGITS[text[colons + 4]] & _DIGITS[text[colons + 5]]]
        owner = segments.at(colons.astype(np.int64) - _LEAD + at)
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
