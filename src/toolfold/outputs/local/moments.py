"""Points in time as documents write them, and where events of a log begin. Above: `records.py`, `conditions.py`."""

import re

from msgspec import Struct

from toolfold.outputs.local.request import MONTHS

HALF = r"\s?([AaPp])(?:[Mm]\b|\.[Mm]\.)"
# An hour of one digit is one only beside AM or PM: `1:17` may be a duration.
CLOCK = rf"(\d\d|\d(?=:[\d:.,]{{2,16}}{HALF.replace('(', '(?:', 1)})):(\d\d)(?::(\d\d)(?:[.,](\d{{1,9}}))?)?(?:{HALF})?"
ISO_TIME = re.compile(rf"(\d{{4}})[-/](\d\d)[-/](\d\d)(?:[T ,]{{1,2}}{CLOCK}(?:\s?(Z|[+-]\d\d:?\d\d))?)?(?![\w-])")
WEB_TIME = re.compile(rf"(\d\d)/([A-Z][a-z]{{2}})/(\d{{4}}):{CLOCK}(?: ([+-]\d{{4}}))?")
# `Mon Jun 3 10:00:00 2024 +0200`
C_TIME = re.compile(rf"\b([A-Z][a-z]{{2}}) +(\d{{1,2}}) {CLOCK} (\d{{4}})\b(?: ([+-]\d{{4}}))?")
SYSLOG_TIME = re.compile(rf"([A-Z][a-z]{{2}}) ([ \d]\d) {CLOCK}")
# `3 Feb 2024`, `Feb 3, 2024`, with or without a clock.
WORD_TIME = re.compile(
    rf"\b(?:(\d{{1,2}})[ -]([A-Z][a-z]{{2,8}})\.?|([A-Z][a-z]{{2,8}})\.? (\d{{1,2}})),?[ -](\d{{4}})\b"
    rf"(?:[ ,T]+{CLOCK}(?:\s?(Z|[+-]\d\d:?\d\d))?)?"
)
# A day of two readings, 01/02/2024, is none.
UNCLEAR_TIME = re.compile(rf"(?<![\w./-])\d{{1,2}}([./-])\d{{1,2}}\1\d{{2,4}},?[ T]{{1,2}}{CLOCK}")
CLOCK_TIME = re.compile(rf"(?<![\d:]){CLOCK}(?![\d:])")

LEVELS = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|FATAL|CRITICAL|CRIT|ALERT|EMERG"
LEVEL = re.compile(rf"\b({LEVELS})\b|(?i:[\[<(:]({LEVELS})[\]>)]|\b({LEVELS}):)")
# The time with which a line begins stands there, also behind a bracket or its level.
STAMP_REACH = 13
# A level word further inside a line belongs to its message.
LEVEL_REACH = 100


class Moment(Struct, frozen=True, order=True):
    """A point in time as it is written: day and clock, each empty where it is not given.

    The zone also tells times with AM and PM from those without: which half of the day the others are in is not known.
    """

    day: str
    clock: str
    zone: str = ""
    written: str = ""


def find_moment(text: str) -> Moment | None:
    """The first point in time in a text."""
    if match := ISO_TIME.search(text):
        return Moment(
            f"{match[1]}-{match[2]}-{match[3]}", _clock(match.groups()[3:8]), _zone(match[9], match[8]), match[0]
        )
    if (match := WEB_TIME.search(text)) and match[2].lower() in MONTHS:
        month = MONTHS[match[2].lower()]
        return Moment(
            f"{match[3]}-{month:02}-{match[1]}", _clock(match.groups()[3:8]), _zone(match[9], match[8]), match[0]
        )
    if (match := C_TIME.search(text)) and match[1].lower() in MONTHS:
        day = f"{match[8]}-{MONTHS[match[1].lower()]:02}-{int(match[2]):02}"
        return Moment(day, _clock(match.groups()[2:7]), _zone(match[9], match[7]), match[0])
    if (match := SYSLOG_TIME.search(text)) and match[1].lower() in MONTHS:
        month = MONTHS[match[1].lower()]
        return Moment(f"-{month:02}-{int(match[2]):02}", _clock(match.groups()[2:7]), _zone("", match[7]), match[0])
    if moment := _moment_in_words(text):
        return moment
    match = UNCLEAR_TIME.search(text) or CLOCK_TIME.search(text)
    return Moment("", _clock(match.groups()[-5:]), _zone("", match.groups()[-1]), match[0]) if match else None


def _moment_in_words(text: str) -> Moment | None:
    match = WORD_TIME.search(text)
    month = MONTHS.get((match[2] or match[3])[:3].lower()) if match else None
    if match is None or month is None:
        return None
    day = f"{match[5]}-{month:02}-{int(match[1] or match[4]):02}"
    return Moment(day, _clock(match.groups()[5:10]), _zone(match[11], match[10]), match[0])


def _zone(written: str | None, half: str | None) -> str:
    """`+00:00`, `+0000` and `Z` are one."""
    plain = (written or "").replace(":", "")
    return ("Z" if plain in {"+0000", "-0000"} else plain) + (" AM/PM" if half else "")


def _clock(parts: tuple[str | None, ...]) -> str:
    hour, minute, second, fraction, half = parts
    if hour is None:
        return ""
    if half:
        hour = f"{int(hour) % 12 + (12 if half in 'pP' else 0):02}"
    return f"{hour}:{minute}:{second or '00'}" + (f".{fraction}" if fraction else "")


def stamp_reach(head: str) -> int:
    """Within how many characters of a line the time of an event begins, where most events have one; else 0.

    What has no time there, as a line of a stack trace that names an error, is no event of its own then.
    """
    heads = [line for line in head.split("\n") if opens_event(line, 0)]
    places = [at for at in map(_moment_place, heads) if at >= 0]
    if len(places) * 2 < len(heads):
        return 0
    early = sum(at < STAMP_REACH for at in places)
    return STAMP_REACH if early * 4 >= len(places) * 3 else LEVEL_REACH


def _moment_place(line: str) -> int:
    """Where in the head of a line its time begins; -1 without one."""
    moment = find_moment(line[:LEVEL_REACH])
    return -1 if moment is None else line.find(moment.written)


def opens_event(line: str, stamp: int) -> bool:
    if stamp:
        return not line[:1].isspace() and 0 <= _moment_place(line) < stamp
    head = line[:LEVEL_REACH]
    return find_moment(head) is not None or (LEVEL.search(head[:40]) is not None and not head[:1].isspace())
