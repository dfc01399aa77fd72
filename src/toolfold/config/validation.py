"""What is wrong with a configuration: each problem with its place and its fix, all of a file reported together.

A problem never repeats a value that may be a secret. Above: the readers. Below: the error tree.
"""

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct

from toolfold.config.sections import Bounds
from toolfold.errors import ConfigError

KeyPath = tuple[str | int, ...]
"""Where a value stands: `("servers", "git", "args", 2)`."""

Locator = Callable[[KeyPath], tuple[int, int] | None]
"""Tells the 1-based line and column of a key or an item, where it knows."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Problem(Struct, frozen=True, kw_only=True):
    """One thing that is wrong or odd, and what would be right."""

    file: str
    message: str
    key: str = ""
    line: int | None = None
    column: int | None = None
    fix: str = ""
    severity: Literal["error", "warning"] = "error"

    @property
    def place(self) -> str:
        position = "".join(f":{number}" for number in (self.line, self.column) if number is not None)
        return self.file + position

    def __str__(self) -> str:
        parts = (self.place, self.key, self.message)
        text = ": ".join(part for part in parts if part)
        return f"{text}. {self.fix}" if self.fix else text


class Checker:
    """Collects the problems of one file while it is read."""

    def __init__(self, file: str, locate: Locator | None = None, *, lenient: bool = False) -> None:
        self.file = file
        self.locate = locate
        self.lenient = lenient
        """The file was written for another program: what is merely odd is a warning."""
        self.problems: list[Problem] = []

    def error(self, path: KeyPath, message: str, fix: str = "") -> None:
        self.problems.append(self._problem(path, message, fix, "error"))

    def odd(self, path: KeyPath, message: str, fix: str = "") -> None:
        """An error in a file of ours, a warning in another program's."""
        (self.warning if self.lenient else self.error)(path, message, fix)

    def warning(self, path: KeyPath, message: str, fix: str = "") -> None:
        self.problems.append(self._problem(path, message, fix, "warning"))

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "warning")

    def raise_errors(self) -> None:
        if self.errors:
            raise _config_error(self.errors)

    def _problem(self, path: KeyPath, message: str, fix: str, severity: Literal["error", "warning"]) -> Problem:
        line, column = self._position(path)
        return Problem(
            file=self.file, message=message, key=format_key(path), line=line, column=column, fix=fix, severity=severity
        )

    def _position(self, path: KeyPath) -> tuple[int | None, int | None]:
        """The place of the key, else of the nearest table around it."""
        if self.locate is None:
            return None, None
        for end in range(len(path), 0, -1):
            found = self.locate(path[:end])
            if found:
                return found
        return None, None


def _config_error(problems: list[Problem]) -> ConfigError:
    """One error for all problems: the message is the first one, the hints list each."""
    ordered = sorted(problems, key=lambda problem: problem.line or 0)
    first = ordered[0]
    more = len(ordered) - 1
    message = str(first)
    if more:
        message = f"{message} (and {more} more problem{'s' if more > 1 else ''} in this file)"
    return ConfigError(
        message,
        hints=[str(problem) for problem in ordered],
        next_action=first.fix or f"Correct {first.place} and run the command again.",
    )


def syntax_error(file: str, message: str, *, line: int | None = None, column: int | None = None) -> ConfigError:
    fix = "Correct the syntax there; nothing else in the file was checked yet."
    return _config_error([Problem(file=file, message=message, line=line, column=column, fix=fix)])


def format_key(path: KeyPath) -> str:
    """A key path as a person would write it: `servers."my server".args[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        shown = part if _BARE.fullmatch(part) else '"' + "".join(c if c.isprintable() else "?" for c in part) + '"'
        text += f".{shown}" if text else shown
    return text


def closest_match(word: str, known: Iterable[str]) -> str:
    """The known word that a typo most likely meant, or nothing."""
    from difflib import get_close_matches

    by_folded = {_fold(name): name for name in known}
    found = get_close_matches(_fold(word)[:100], by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else ""


def describe_type(value: Any) -> str:
    """What was found, without its content."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    for kind, word in ((str, "a string"), (int, "a number"), (float, "a number"), (list, "a list"), (dict, "a table")):
        if isinstance(value, kind):
            return word
    return "a date or time"


def _describe_value(value: Any) -> str:
    """A plain setting's value in a message: short, and never of a place that may hold a secret."""
    if isinstance(value, str):
        return f'the string "{value[:40]}"' if value.isprintable() else "a string"
    if isinstance(value, (bool, int, float)):
        return str(value).lower() if isinstance(value, bool) else _describe_number(value)
    return describe_type(value)


def _describe_number(value: float) -> str:
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a huge number"
    return str(value)


def _fold(word: str) -> str:
    return word.replace("-", "_").replace("_", "").casefold()


# --- Checks single values: the right kind, inside its bounds, printable. A wrong one is reported and answers `None`

_MAX_ITEMS = 10_000


def check_keys(
    table: dict[str, Any],
    known: Iterable[str],
    report: Checker,
    path: KeyPath,
    *,
    renamed: dict[str, str] | None = None,
) -> None:
    """Reports each key that is not known, with the one that was probably meant."""
    known = tuple(known)
    for key in table:
        if key in known:
            continue
        meant = (renamed or {}).get(key) or closest_match(key, known)
        fix = f"Did you mean `{meant}`?" if meant else f"Known here: {', '.join(known)}."
        report.odd((*path, key), "unknown key", fix)


def check_table(value: Any, report: Checker, path: KeyPath) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    form = "{…}" if report.lenient else f"[{format_key(path)}]"
    report.error(path, f"expected a table, found {describe_type(value)}", f"Write it as {form}.")
    return None


def check_setting(value: Any, bounds: Bounds, report: Checker, path: KeyPath) -> Any:
    """The value in the setting's own kind, or `None` after a report."""
    if bounds.kind is str:
        return _check_choice(check_text(value, report, path), bounds, report, path)
    if bounds.kind is bool:
        return check_flag(value, report, path)
    return _check_number(value, bounds, report, path)


def _check_choice(value: str | None, bounds: Bounds, report: Checker, path: KeyPath) -> str | None:
    if value is None or not bounds.choices or value in bounds.choices:
        return value
    report.error(path, f"unknown value {_describe_value(value)}", f"Give one of {', '.join(bounds.choices)}.")
    return None


def _check_number(value: Any, bounds: Bounds, report: Checker, path: KeyPath) -> int | float | None:
    right = f"Give {_describe_range(bounds)}."
    wanted = "a whole number" if bounds.kind is int else "a number"
    wrong = isinstance(value, bool) or not isinstance(value, (int, float))
    if wrong or (bounds.kind is int and isinstance(value, float)):
        fix = f"{right[:-1]}, without quotes." if isinstance(value, str) else right
        report.error(path, f"expected {wanted}, found {_describe_value(value)}", fix)
        return None
    if isinstance(value, float) and not math.isfinite(value):
        report.error(path, f"expected {wanted}, found {value}", right)
        return None
    if not bounds.low <= value <= bounds.high:
        report.error(path, f"{_describe_value(value)} is out of bounds", right)
        return None
    return float(value) if bounds.kind is float else int(value)


def _describe_range(bounds: Bounds) -> str:
    wanted = "a whole number" if bounds.kind is int else "a number"
    unit = f" {bounds.unit}" if bounds.unit else ""
    return f"{wanted} from {bounds.low:,g} to {bounds.high:,.0f}{unit}".replace(",", "_")


def check_text(value: Any, report: Checker, path: KeyPath, *, empty: bool = False) -> str | None:
    """A string that a process and a terminal can take: no NUL, no half of a surrogate pair."""
    if not isinstance(value, str):
        report.error(path, f"expected a string, found {describe_type(value)}", "Write it in quotes.")
        return None
    if not empty and not value.strip():
        report.error(path, "the string is empty", "Give a value or remove the key.")
        return None
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        report.error(path, "the string holds a character that cannot be passed on", "Remove NUL and lone surrogates.")
        return None
    return value


def check_flag(value: Any, report: Checker, path: KeyPath) -> bool | None:
    if isinstance(value, bool):
        return value
    report.error(
        path, f"expected true or false, found {_describe_value(value)}", "Write true or false, without quotes."
    )
    return None


def check_texts(value: Any, report: Checker, path: KeyPath, *, single: bool = False) -> tuple[str, ...] | None:
    """A list of strings; with `single` one string stands for a list of one."""
    if single and isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        report.error(path, f"expected a list of strings, found {describe_type(value)}", 'Write it as ["…", "…"].')
        return None
    if len(value) > _MAX_ITEMS:
        report.error(path, f"the list has {len(value)} items", f"At most {_MAX_ITEMS} are read.")
        return None
    found = [check_text(item, report, (*path, index), empty=True) for index, item in enumerate(value)]
    return None if None in found else tuple(item for item in found if item is not None)


def check_text_map(value: Any, report: Checker, path: KeyPath, *, lenient: bool = False) -> dict[str, str] | None:
    """A table of strings. `lenient` takes numbers and flags as the text a person would have written."""
    if not isinstance(value, dict):
        report.error(
            path, f"expected a table of strings, found {describe_type(value)}", 'Write it as { NAME = "value" }.'
        )
        return None
    result: dict[str, str] = {}
    for key, item in value.items():
        found = check_text(scalar_text(item) if lenient else item, report, (*path, key), empty=True)
        if check_text(key, report, (*path, key)) is not None and found is not None:
            result[key] = found
    return result


def scalar_text(item: Any) -> Any:
    """A number or flag as the text a person would have written; all else as it is."""
    if isinstance(item, bool):
        return str(item).lower()
    return str(item) if isinstance(item, (int, float)) else item
