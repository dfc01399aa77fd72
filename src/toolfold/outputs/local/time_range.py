"""Times: which stretch of time a request names, and the time of each unit of a log, read with numpy.

A line without a time of its own, such as a line of a stack trace, has the time of the line before it.
"""

import re

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolfold.outputs.local.segments import Segments
from toolfold.outputs.local.source import BLOCK, Offsets, Source
from toolfold.outputs.local.vocabulary import MONTHS

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
LEAD = 64


class TimeRange(Struct, frozen=True):
    """A stretch of time. `day` is 20240501, or 0 for any; the seconds are of the day, both ends belong to it."""

    first: int = 0
    last: int = LAST
    day: int = 0
    last_day: int = 0

    def __str__(self) -> str:
        day = f"{self.day // 10000}-{self.day // 100 % 100:02}-{self.day % 100:02} " if self.day else ""
        if (self.first, self.last) == (0, LAST):
            return day.strip()
        return f"{day}{_clock(self.first)} to {_clock(self.last)}"


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class SegmentTimes(Struct, frozen=True):
    """Of each unit: seconds of the day and the day; -1 and 0 where unknown."""

    seconds: npt.NDArray[np.int32]
    days: npt.NDArray[np.int32]


class _Moment(Struct, frozen=True):
    day: int
    first: int
    last: int


def _parse_moment(text: str) -> _Moment | None:
    """One time as written: `10:05`, `2024-05-01 10:05:09`, `3 pm`."""
    for match in STAMP.finditer(text):
        hour, minute, second, half = match[4], match[5], match[6], match[7]
        if minute is None and half is None:
            continue
        number = int(hour) % 12 + (12 if half.lower() == "pm" else 0) if half else int(hour)
        if number > 24:
            continue
        first = number * 3600 + int(minute or 0) * 60 + int(second or 0)
        width = 0 if second else 59 if minute else 3599
        day = int(match[1] + match[2] + match[3]) if match[1] else 0
        return _Moment(day, first, first + width)
    return None


def parse_time_range(request: str) -> TimeRange | None:
    """The stretch of time that a request names, if it names one."""
    day_match = DAY.search(request)
    day = int("".join(day_match.groups())) if day_match else 0
    for match in RANGE.finditer(request):
        begin, end = _parse_moment(match[1] or match[3]), _parse_moment(match[2] or match[4])
        if begin and end:
            return TimeRange(begin.first, end.first, begin.day or day, end.day or begin.day or day)
    for match in SIDE.finditer(request):
        found = _parse_moment(match[2])
        if found:
            word, on = match[1].lower(), found.day or day
            if word in {"after", "since"}:
                return TimeRange(found.first, LAST, on, on)
            if word in {"before", "until"}:
                return TimeRange(0, found.first, on, on)
            return TimeRange(found.first, found.last, on, on)
    if found := _parse_moment(request):
        return TimeRange(found.first, found.last, found.day or day, found.day or day)
    return TimeRange(day=day, last_day=day) if day else None


def segments_in_range(times: SegmentTimes, window: TimeRange) -> Offsets:
    """The units in a stretch of time."""
    if window.day and window.last_day > window.day:
        begin = times.days.astype(np.int64) * 100_000 + times.seconds
        fits = (begin >= window.day * 100_000 + window.first) & (begin <= window.last_day * 100_000 + window.last)
        return np.flatnonzero(fits & (times.seconds >= 0))
    fits = (times.seconds >= window.first) & (times.seconds <= window.last)
    if window.day:
        fits &= times.days == window.day
    return np.flatnonzero(fits)


def read_times(source: Source, units: Segments) -> SegmentTimes:
    """The time of every unit: the first `12:34:56` or `12:34` after a date that stands in it."""
    seconds = np.full(len(units), -1, dtype=np.int32)
    days = np.zeros(len(units), dtype=np.int32)
    for at in range(0, source.size, BLOCK):
        before = source.read(at - LEAD, at).rjust(LEAD, b"\0")
        text = np.frombuffer(before + source.read(at, at + BLOCK + 16) + b"\0" * 16, dtype=np.uint8)
        colons = np.flatnonzero(text[: len(text) - 16] == 58)
        colons = colons[colons >= LEAD]
        good = DIGITS[text[colons - 1]] & DIGITS[text[colons - 2]] & DIGITS[text[colons + 1]] & DIGITS[text[colons + 2]]
        colons = colons[good & (text[colons + 3] == 58) & DIGITS[text[colons + 4]] & DIGITS[text[colons + 5]]]
        owner = units.of(colons.astype(np.int64) - LEAD + at)
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        owner = owner[first]
        place = colons[first]
        fresh = seconds[owner] < 0
        owner, place = owner[fresh], place[fresh]
        seconds[owner] = (
            _two_digits(text, place - 2) * 3600 + _two_digits(text, place + 1) * 60 + _two_digits(text, place + 4)
        )
        days[owner] = _dates_before(text, place - 2)
    return SegmentTimes(_fill_forward(seconds, seconds >= 0), _fill_forward(days, seconds >= 0))


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


def _fill_forward(values: npt.NDArray[np.int32], known: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Gaps take the value before them."""
    if not known.any():
        return values
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    return np.where(last >= 0, values[np.maximum(last, 0)], values).astype(np.int32)
