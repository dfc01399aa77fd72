"""Points in time as documents write them. Above: `records.py`, `conditions.py`."""

import re

from msgspec import Struct

from toolfold.outputs.local.request import MONTHS

CLOCK = r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?"
ISO_TIME = re.compile(rf"(\d{{4}})[-/](\d\d)[-/](\d\d)(?:[T ,]{{1,2}}{CLOCK}\s?(Z|[+-]\d\d:?\d\d)?)?(?![\w-])")
WEB_TIME = re.compile(rf"(\d\d)/([A-Z][a-z]{{2}})/(\d{{4}}):{CLOCK}(?: ([+-]\d{{4}}))?")
SYSLOG_TIME = re.compile(rf"([A-Z][a-z]{{2}}) ([ \d]\d) {CLOCK}")
# `3 Feb 2024`, `Feb 3, 2024`, with or without a clock.
WORD_TIME = re.compile(
    rf"\b(?:(\d{{1,2}})[ -]([A-Z][a-z]{{2,8}})\.?|([A-Z][a-z]{{2,8}})\.? (\d{{1,2}})),?[ -](\d{{4}})\b"
    rf"(?:[ ,T]+{CLOCK})?"
)
CLOCK_TIME = re.compile(rf"(?<![\d:]){CLOCK}(?![\d:])")


class Moment(Struct, frozen=True, order=True):
    """A point in time as it is written: day and clock, each empty where it is not given."""

    day: str
    clock: str
    zone: str = ""
    written: str = ""


def find_moment(text: str) -> Moment | None:
    """The first point in time in a text."""
    if match := ISO_TIME.search(text):
        return Moment(f"{match[1]}-{match[2]}-{match[3]}", _clock(match.groups()[3:7]), _zone(match[8]), match[0])
    if (match := WEB_TIME.search(text)) and match[2].lower() in MONTHS:
        month = MONTHS[match[2].lower()]
        return Moment(f"{match[3]}-{month:02}-{match[1]}", _clock(match.groups()[3:7]), _zone(match[8]), match[0])
    if (match := SYSLOG_TIME.search(text)) and match[1].lower() in MONTHS:
        month = MONTHS[match[1].lower()]
        return Moment(f"-{month:02}-{int(match[2]):02}", _clock(match.groups()[2:6]), "", match[0])
    if moment := _moment_in_words(text):
        return moment
    match = CLOCK_TIME.search(text)
    return Moment("", _clock(match.groups()[:4]), "", match[0]) if match else None


def _moment_in_words(text: str) -> Moment | None:
    match = WORD_TIME.search(text)
    month = MONTHS.get((match[2] or match[3])[:3].lower()) if match else None
    if match is None or month is None:
        return None
    day = f"{match[5]}-{month:02}-{int(match[1] or match[4]):02}"
    return Moment(day, _clock(match.groups()[5:9]), "", match[0])


def _zone(written: str | None) -> str:
    """`+00:00`, `+0000` and `Z` are one."""
    plain = (written or "").replace(":", "")
    return "Z" if plain in {"+0000", "-0000"} else plain


def _clock(parts: tuple[str | None, ...]) -> str:
    hour, minute, second, fraction = parts
    if hour is None:
        return ""
    return f"{hour}:{minute}:{second or '00'}" + (f".{fraction}" if fraction else "")
