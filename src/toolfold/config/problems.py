"""What is wrong with a configuration: each problem with its place and its fix, all of a file reported together.

A problem never repeats a value that may be a secret. Above: the readers. Below: the error tree.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct

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


class Report:
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
            raise config_error(self.errors)

    def _problem(self, path: KeyPath, message: str, fix: str, severity: Literal["error", "warning"]) -> Problem:
        line, column = self._position(path)
        return Problem(
            file=self.file, message=message, key=show_key(path), line=line, column=column, fix=fix, severity=severity
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


def config_error(problems: list[Problem]) -> ConfigError:
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
    return config_error([Problem(file=file, message=message, line=line, column=column, fix=fix)])


def show_key(path: KeyPath) -> str:
    """A key path as a person would write it: `servers."my server".args[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        shown = part if _BARE.fullmatch(part) else '"' + "".join(c if c.isprintable() else "?" for c in part) + '"'
        text += f".{shown}" if text else shown
    return text


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that a typo most likely meant, or nothing."""
    from difflib import get_close_matches

    by_folded = {_fold(name): name for name in known}
    found = get_close_matches(_fold(word)[:100], by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else ""


def kind_of(value: Any) -> str:
    """What was found, without its content."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    for kind, word in ((str, "a string"), (int, "a number"), (float, "a number"), (list, "a list"), (dict, "a table")):
        if isinstance(value, kind):
            return word
    return "a date or time"


def shown_value(value: Any) -> str:
    """A plain setting's value in a message: short, and never of a place that may hold a secret."""
    if isinstance(value, str):
        return f'the string "{value[:40]}"' if value.isprintable() else "a string"
    if isinstance(value, (bool, int, float)):
        return str(value).lower() if isinstance(value, bool) else _number(value)
    return kind_of(value)


def _number(value: float) -> str:
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a huge number"
    return str(value)


def _fold(word: str) -> str:
    return word.replace("-", "_").replace("_", "").casefold()
