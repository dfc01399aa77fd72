"""Checks the values of a configuration and collects what is wrong: each problem with its place and its fix.

All problems of a file are reported together, and none repeats a value that may be a secret. What a plain setting may
be is read from the annotations in `sections`. Above: the readers. Below: the error tree.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, get_args, get_type_hints

from msgspec import Struct, inspect
from msgspec.structs import replace

from toolfold.errors import ConfigError

# Where a value stands: `("servers", "git", "args", 2)`.
KeyPath = tuple[str | int, ...]

# Gives the 1-based line and column of a key or an item, where it knows them.
Locator = Callable[[KeyPath], tuple[int, int] | None]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_MAX_ITEMS = 10_000
_TYPE_WORDS = ((str, "a string"), ((int, float), "a number"), (list, "a list"), (dict, "a table"))


class _Problem(Struct, frozen=True, kw_only=True):
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
        text = ": ".join(part for part in (self.place, self.key, self.message) if part)
        return f"{text}. {self.fix}" if self.fix else text


class _Setting(Struct, frozen=True):
    """What one field of a settings struct may hold, as its annotation declares it."""

    kind: type
    low: float = 0
    high: float = 0
    unit: str = ""
    choices: tuple[Any, ...] = ()
    single: bool = False
    """One string stands for a list of one."""

    @property
    def noun(self) -> str:
        return "a whole number" if self.kind is int else "a number"

    @property
    def range(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.noun} from {self.low:,g} to {self.high:,.0f}{unit}".replace(",", "_")


@cache
def settings_of(section: type[Struct]) -> dict[str, _Setting]:
    """The settings of a section by key, in the order of its fields."""
    hints = get_type_hints(section)
    declared = {field.name: _declared(field.type) for field in inspect.type_info(section).fields}  # type: ignore[attr-defined]
    # msgspec sorts the values of a `Literal`; errors list them as declared, the default first.
    return {
        name: replace(setting, choices=get_args(hints[name])) if setting.choices else setting
        for name, setting in declared.items()
    }


def _declared(kind: inspect.Type, extra: Mapping[str, Any] = MappingProxyType({})) -> _Setting:
    match kind:
        case inspect.Metadata():
            return _declared(kind.type, kind.extra or {})
        case inspect.UnionType():  # `T | None`: TOML has no null, so only `T` can be written
            return _declared(kind.types[0])
        case inspect.IntType() | inspect.FloatType():
            return _declared_number(kind, extra.get("unit", ""))
        case inspect.LiteralType():
            return _Setting(str, choices=kind.values)
        case inspect.VarTupleType():
            return _Setting(tuple, single=extra.get("single", False))
        case _:
            plain = {inspect.BoolType: bool, inspect.DictType: dict}.get(type(kind), str)
            return _Setting(object if getattr(kind, "value_type", None) == inspect.AnyType() else plain)


def _declared_number(kind: inspect.IntType | inspect.FloatType, unit: str) -> _Setting:
    return _Setting(int if isinstance(kind, inspect.IntType) else float, kind.ge or 0, kind.le or 0, unit)


class Checker:
    """Checks the values of one file. A wrong value is recorded as a problem and answered with `None`."""

    def __init__(self, file: str, locate: Locator | None = None, *, lenient: bool = False) -> None:
        self.file = file
        self.locate = locate
        # The file was written for another program: what is merely odd is a warning there.
        self.lenient = lenient
        self.problems: list[_Problem] = []

    def error(self, path: KeyPath, message: str, fix: str = "") -> None:
        self._record(path, message, fix, "error")

    def warning(self, path: KeyPath, message: str, fix: str = "") -> None:
        self._record(path, message, fix, "warning")

    def odd(self, path: KeyPath, message: str, fix: str = "") -> None:
        """An error in a file of ours, a warning in another program's."""
        self._record(path, message, fix, "warning" if self.lenient else "error")

    def _record(self, path: KeyPath, message: str, fix: str, severity: Literal["error", "warning"]) -> None:
        line, column = self._position(path)
        self.problems.append(
            _Problem(
                file=self.file,
                message=message,
                key=format_key(path),
                line=line,
                column=column,
                fix=fix,
                severity=severity,
            )
        )

    def _position(self, path: KeyPath) -> tuple[int | None, int | None]:
        """The place of the key, else of the nearest table around it."""
        if self.locate is not None:
            for end in range(len(path), 0, -1):
                if position := self.locate(path[:end]):
                    return position
        return None, None

    @property
    def errors(self) -> list[_Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(str(problem) for problem in self.problems if problem.severity == "warning")

    def raise_errors(self) -> None:
        if self.errors:
            raise _config_error(self.errors)

    def keys(
        self, table: dict[str, Any], known: Iterable[str], path: KeyPath, *, renamed: dict[str, str] | None = None
    ) -> None:
        """Reports each key that is not known, with the one that was probably meant."""
        known = tuple(known)
        for key in table:
            if key not in known:
                meant = (renamed or {}).get(key) or closest_match(key, known)
                fix = f"Did you mean `{meant}`?" if meant else f"Known here: {', '.join(known)}."
                self.odd((*path, key), "unknown key", fix)

    def table(self, value: Any, path: KeyPath) -> dict[str, Any] | None:
        if isinstance(value, dict):
            return value
        form = "{…}" if self.lenient else f"[{format_key(path)}]"
        self.error(path, f"expected a table, found {describe_type(value)}", f"Write it as {form}.")
        return None

    def section(self, struct: type[Struct], value: Any, path: KeyPath, *, without: str = "") -> dict[str, Any]:
        """The checked values of a table whose keys are the fields of `struct`; wrong ones are left out.

        `without` is the field that the table's own name gives.
        """
        table = self.table(value, path) or {}
        settings = {key: setting for key, setting in settings_of(struct).items() if key != without}
        self.keys(table, settings, path)
        checked = {key: self.setting(table[key], settings[key], (*path, key)) for key in settings if key in table}
        return {key: item for key, item in checked.items() if item is not None}

    def setting(self, value: Any, setting: _Setting, path: KeyPath) -> Any:
        """The value in the kind that the setting declares."""
        if setting.kind is bool:
            return self.flag(value, path)
        if setting.kind is tuple:
            return self.texts(value, path, single=setting.single)
        if setting.kind in {dict, object}:  # of texts, or of whatever TOML holds
            return (self.text_map if setting.kind is dict else self.table)(value, path)
        if setting.kind is not str:
            return self._number(value, setting, path)
        text = self.text(value, path)
        if text is None or not setting.choices or text in setting.choices:
            return text
        self.error(path, f"unknown value {_describe_value(text)}", f"Give one of {', '.join(setting.choices)}.")
        return None

    def _number(self, value: Any, setting: _Setting, path: KeyPath) -> int | float | None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or (setting.kind is int and isinstance(value, float)) or not _is_finite(value):
            quoted = ", without quotes" if isinstance(value, str) else ""
            self.error(
                path, f"expected {setting.noun}, found {_describe_value(value)}", f"Give {setting.range}{quoted}."
            )
            return None
        if not setting.low <= value <= setting.high:
            self.error(path, f"{_describe_value(value)} is out of bounds", f"Give {setting.range}.")
            return None
        return float(value) if setting.kind is float else int(value)

    def text(self, value: Any, path: KeyPath, *, empty: bool = False) -> str | None:
        """A string that a process and a terminal can take: no NUL, no half of a surrogate pair."""
        if not isinstance(value, str):
            self.error(path, f"expected a string, found {describe_type(value)}", "Write it in quotes.")
        elif not empty and not value.strip():
            self.error(path, "the string is empty", "Give a value or remove the key.")
        elif "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            self.error(path, "the string holds a character that cannot be passed on", "Remove NUL and lone surrogates.")
        else:
            return value
        return None

    def flag(self, value: Any, path: KeyPath) -> bool | None:
        if isinstance(value, bool):
            return value
        actual = _describe_value(value)
        self.error(path, f"expected true or false, found {actual}", "Write true or false, without quotes.")
        return None

    def texts(self, value: Any, path: KeyPath, *, single: bool = False) -> tuple[str, ...] | None:
        """A list of strings; with `single` one string stands for a list of one."""
        if single and isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            self.error(path, f"expected a list of strings, found {describe_type(value)}", 'Write it as ["…", "…"].')
            return None
        if len(value) > _MAX_ITEMS:
            self.error(path, f"the list has {len(value)} items", f"At most {_MAX_ITEMS} are read.")
            return None
        items = [self.text(item, (*path, index), empty=True) for index, item in enumerate(value)]
        return None if None in items else tuple(item for item in items if item is not None)

    def text_map(self, value: Any, path: KeyPath, *, lenient: bool = False) -> dict[str, str] | None:
        """A table of strings. `lenient` takes numbers and flags as the text a person would have written."""
        if not isinstance(value, dict):
            fix = 'Write it as { NAME = "value" }.'
            self.error(path, f"expected a table of strings, found {describe_type(value)}", fix)
            return None
        result: dict[str, str] = {}
        for key, item in value.items():
            text = self.text(scalar_text(item) if lenient else item, (*path, key), empty=True)
            if self.text(key, (*path, key)) is not None and text is not None:
                result[key] = text
        return result


def scalar_text(item: Any) -> Any:
    """A number or flag as the text a person would have written; all else as it is."""
    if isinstance(item, bool):
        return str(item).lower()
    return str(item) if isinstance(item, (int, float)) else item


def _config_error(problems: list[_Problem]) -> ConfigError:
    """One error for all problems: the message is the first one, the hints list each."""
    ordered = sorted(problems, key=lambda problem: problem.line or 0)
    first, more = ordered[0], len(ordered) - 1
    message = str(first)
    if more:
        message = f"{message} (and {more} more problem{'s' if more > 1 else ''} in this file)"
    return ConfigError(
        message,
        hints=[str(problem) for problem in ordered],
        next_action=first.fix or f"Correct {first.place} and run the command again.",
    )


def syntax_error(
    file: str,
    message: str,
    *,
    line: int | None = None,
    column: int | None = None,
    fix: str = "Correct the syntax there; nothing else in the file was checked yet.",
) -> ConfigError:
    return _config_error([_Problem(file=file, message=message, line=line, column=column, fix=fix)])


def format_key(path: KeyPath) -> str:
    """A key path as a person would write it: `servers."my server".args[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        # Names come from the file: a control character in one must not reach the terminal.
        quoted = part if _BARE.fullmatch(part) else '"' + "".join(c if c.isprintable() else "?" for c in part) + '"'
        text += f".{quoted}" if text else quoted
    return text


def closest_match(word: str, known: Iterable[str]) -> str:
    """The known word that a typo most likely meant, or nothing."""
    from difflib import get_close_matches

    by_folded = {_fold(name): name for name in known}
    # difflib is quadratic in the length of the word, and the word is anybody's.
    matches = get_close_matches(_fold(word)[:100], by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else ""


def _fold(word: str) -> str:
    return word.replace("-", "").replace("_", "").casefold()


def describe_type(value: Any) -> str:
    """The kind of a value, without its content."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    return next((word for kind, word in _TYPE_WORDS if isinstance(value, kind)), "a date or time")


def _describe_value(value: Any) -> str:
    """A plain setting's value in a message: short, and never of a place that may hold a secret."""
    if isinstance(value, str):
        return f'the string "{value[:40]}"' if value.isprintable() else "a string"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return "a huge number" if isinstance(value, int) and abs(value) >= 10**18 else str(value)
    return describe_type(value)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
