"""Points in time as documents write them. Above: `records.py`, `conditions.py`."""

import re

from msgspec import Struct

from toolfold.outputs.local.request import MONTHS

HALF = r"\s?([AaPp])(?:[Mm]\b|\.[Mm]\.)"
# An hour of one digit is one only beside AM or PM: `1:17` may be a duration.
CLOCK = rf"(\d\d|\d(?=:[\d:.,]{{2,16}}{HALF.replace('(', '(?:', 1)})):(\d\d)(?::(\d\d)(?:[.,](\d{{1,9}}))?)?(?:{HALF})?"
ISO_TIME = re.compile(rf"(\d{{4}})[-/](\d\d)[-/](\d\d)(?:[T ,]{{1,2}}{CLOCK}(?:\s?(Z|[+-]\d\d:?\d\d))?)?(?![\w-])")
WEB_TIME = re.compile(rf"(\d\d)/([A-Z][a-z]{{2}})/(\d{{4}}):{CLOCK}(?: ([+-]\d{{4}}))?")
SYSLOG_TIME = re.compile(rf"([A-Z][a-z]{{2}}) ([ \d]\d) {CLOCK}")
# `3 Feb 2024`, `Feb 3, 2024`, with or without a clock.
WORD_TIME = re.compile(
    rf"\b(?:(\d{{1,2}})[ -]([A-Z][a-z]{{2,8}})\.?|([A-Z][a-z]{{2,8}})\.? (\d{{1,2}})),?[ -](\d{{4}})\b"
    rf"(?:[ ,T]+{CLOCK})?"
)
# A day of two readings, 01/02/2024, is none.
UNCLEAR_TIME = re.compile(rf"(?<![\w./-])\d{{1,2}}([./-])\d{{1,2}}\1\d{{2,4}},?[ T]{{1,2}}{CLOCK}")
CLOCK_TIME = re.compile(rf"(?<![\d:]){CLOCK}(?![\d:])")


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
    return Moment(day, _clock(match.groups()[5:10]), _zone("", match[10]), match[0])


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
