"""Points in time as documents write them. Above: `records.py`, `conditions.py`."""

import re

from msgspec import Struct

from toolfold.outputs.local.request import MONTHS

CLOCK = r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?"
ISO_TIME = re.compile(rf"(\d{{4}})[-/](\d\d)[-/](\d\d)(?:[T ,]{{1,2}}{CLOCK}\s?(Z|[+-]\d\d:?\d\d)?)?(?![\w-])")
WEB_TIME = re.compile(rf"(\d\d)/([A-Z][a-z]{{2}})/(\d{{4}}):{CLOCK}(?: ([+-]\d{{4}}))?")
SYSLOG_TIME = re.compile(rf"([A-Z][a-z]{{2}}) ([ \d]\d) {CLOCK}")
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
        return Moment(f"{match[1]}-{match[2]}-{match[3]}", _clock(match.groups()[3:7]), match[8] or "", match[0])
    if (match := WEB_TIME.search(text)) and match[2].lower() in MONTHS:
        month = MONTHS[match[2].lower()]
        return Moment(f"{match[3]}-{month:02}-{match[1]}", _clock(match.groups()[3:7]), match[8] or "", match[0])
    if (match := SYSLOG_TIME.search(text)) and match[1].lower() in MONTHS:
        month = MONTHS[match[1].lower()]
        return Moment(f"-{month:02}-{int(match[2]):02}", _clock(match.groups()[2:6]), "", match[0])
    match = CLOCK_TIME.search(text)
    return Moment("", _clock(match.groups()[:4]), "", match[0]) if match else None


def _clock(parts: tuple[str | None, ...]) -> str:
    hour, minute, second, fraction = parts
    if hour is None:
        return ""
    return f"{hour}:{minute}:{second or '00'}" + (f".{fraction}" if fraction else "")
