"""Texts of a form that is known though they name no fields: commits, mails, changelogs, `/etc/passwd`, `ls -l`.

A block is a line that opens it, lines that say one thing each, and the text that is left; a listing has a record
in each of its lines. Above: `records.py`.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct


class _BlockForm(Struct, frozen=True):
    """How blocks of one kind are written: what opens one, what its lines say, and what the rest is called."""

    name: str
    opening: re.Pattern[str]
    lines: tuple[re.Pattern[str], ...]
    rest: str
    # Whether what its lines say ends at the first blank line, as the head of a mail does.
    headed: bool = False
    # What the lines of the rest begin with; others are what was changed, and no message.
    indent: str = ""


class _ListingForm(Struct, frozen=True):
    """How the lines of a listing are written, what is said above some of them, and what are none."""

    name: str
    line: re.Pattern[str]
    above: re.Pattern[str] = re.compile(r"(?!)")
    skipped: re.Pattern[str] = re.compile(r"\s*(?:#.*)?")


_PERSON = r"(?P<{0}>[^<\n]*?) ?<(?P<{0}_email>[^>\n]*)>"
FORMS = (
    _BlockForm(
        "commits",
        re.compile(r"commit (?P<commit>[0-9a-f]{7,64})(?: \(.*\))?"),
        (
            re.compile(r"Merge: (?P<merge>.+)"),
            re.compile(rf"Author: +{_PERSON.format('author')}"),
            re.compile(rf"Commit: +{_PERSON.format('committer')}"),
            re.compile(r"(?:Author)?Date: +(?P<date>.+)"),
            re.compile(r"CommitDate: +(?P<commit_date>.+)"),
        ),
        "message",
        headed=True,
        indent="    ",
    ),
    _BlockForm(
        "mails",
        re.compile(r"From \S+ +[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d.*"),
        (
            re.compile(rf"From: +(?:{_PERSON.format('from').replace('_email', '_address')})", re.IGNORECASE),
            *(
                re.compile(rf"{name}: +(?P<{name.lower().replace('-', '_')}>.+)", re.IGNORECASE)
                for name in ("From", "To", "Cc", "Subject", "Date", "Message-ID", "In-Reply-To")
            ),
        ),
        "body",
        headed=True,
    ),
    _BlockForm(
        "entries",
        re.compile(
            r"(?P<package>[\w.+-]+) \((?P<version>[^()\s]+)\) (?P<distribution>[^;\n]+); urgency=(?P<urgency>\w+).*"
        ),
        (re.compile(rf" -- {_PERSON.format('maintainer')}  (?P<date>.+)"),),
        "changes",
    ),
)


LISTINGS = (
    _ListingForm(
        "users",
        re.compile(
            r"(?P<name>[^:#\s][^:]*):(?P<password>[^:]*):(?P<uid>\d+):(?P<gid>\d+):(?P<gecos>[^:]*):(?P<home>/[^:]*)"
            r":(?P<shell>[^:]*)"
        ),
    ),
    _ListingForm("groups", re.compile(r"(?P<name>[^:#\s]+):(?P<password>[^:]*):(?P<gid>\d+):(?P<members>[^:]*)")),
    _ListingForm(
        "services",
        re.compile(
            r"(?P<name>[^\s#]\S*)\s+(?P<port>\d+)/(?P<protocol>\w+)(?:\s+(?P<aliases>[^#]*?))?\s*(?:#\s*(?P<comment>.*))?"
        ),
    ),
    # What `pip` notes of the files it installed.
    _ListingForm("files", re.compile(r"(?P<path>\"[^\"]+\"|[^,]+),(?P<hash>(?:\w+=[\w-]+)?),(?P<size>\d*)")),
    _ListingForm(
        "entries",
        re.compile(
            r"(?P<mode>[bcdlps-][rwxsStT-]{9}[.+@]?)\s+(?P<links>\d+)\s+(?P<owner>\S+)\s+(?P<group>\S+)\s+(?P<size>\d+)\s+"
            r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d\S*(?: [+-]\d{4})?|[A-Z][a-z]{2} +\d+ +[\d:]{4,5})\s(?P<name>\S.*)"
        ),
        re.compile(r"(?P<folder>\S.*):"),
        re.compile(r"\s*|total \S+"),
    ),
)

NAMES = frozenset(form.name for form in (*FORMS, *LISTINGS))


def _find_form(head: str) -> _BlockForm | None:
    """The form of the blocks that a text is made of from its first line on."""
    first = next((line for line in head.split("\n") if line.strip()), "").rstrip("\r")
    return next((form for form in FORMS if form.opening.fullmatch(first)), None)


def _read_blocks(lines: Iterable[tuple[int, int, str]], form: _BlockForm) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Number and first byte of the line that opens each block, and its values."""
    opened: tuple[int, int, dict[str, Any]] | None = None
    rest: list[str] = []
    for number, start, text in lines:
        line = text.removesuffix("\r")
        if opening := form.opening.fullmatch(line):
            if opened is not None:
                yield _closed(opened, form, rest)
            opened, rest = (number, start, opening.groupdict()), []
        elif opened is not None and not _says(opened[2], form, line, headed=not rest):
            rest.append(line)
    if opened is not None:
        yield _closed(opened, form, rest)


def _says(values: dict[str, Any], form: _BlockForm, line: str, *, headed: bool) -> bool:
    """Whether a line says one thing of its block, which is noted."""
    if form.headed and not headed:
        return False
    match = next(filter(None, (pattern.fullmatch(line) for pattern in form.lines)), None)
    if match is None or not values.keys().isdisjoint(match.groupdict()):
        # A blank line ends a head; of a head the other lines are none of the text.
        return form.headed and bool(line.strip())
    values |= match.groupdict()
    return True


def _closed(opened: tuple[int, int, dict[str, Any]], form: _BlockForm, rest: list[str]) -> Any:
    own = [line for line in rest if line.startswith(form.indent) or not line.strip()]
    opened[2][form.rest] = "\n".join(map(str.strip, own)).strip()
    if other := "\n".join(line.strip() for line in rest if line not in own):
        opened[2]["other_lines"] = other
    return opened


def _find_listing(head: str) -> _ListingForm | None:
    """The form of a listing, where all lines of the head have it but the last, which may be cut."""
    lines = [line.removesuffix("\r") for line in head.split("\n")[:-1]][:400]
    for form in LISTINGS:
        rows = [line for line in lines if not (form.skipped.fullmatch(line) or form.above.fullmatch(line))]
        if len(rows) > 1 and all(map(form.line.fullmatch, rows)):
            return form
    return None


def _read_listing(
    lines: Iterable[tuple[int, int, str]], form: _ListingForm
) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Number, first byte and values of each line; none of one that has another form."""
    above: dict[str, Any] = {}
    for number, start, text in lines:
        line = text.removesuffix("\r")
        if form.skipped.fullmatch(line):
            continue
        if (match := form.line.fullmatch(line)) is not None:
            yield number, start, {name: own or "" for name, own in match.groupdict().items()} | above
        elif (heading := form.above.fullmatch(line)) is not None:
            above = heading.groupdict()
        else:
            yield number, start, None
