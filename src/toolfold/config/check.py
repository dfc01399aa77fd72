"""Checks single values: the right kind, inside its bounds, printable. A wrong one is reported and answers `None`."""

import math
from collections.abc import Iterable
from typing import Any

from toolfold.config.problems import KeyPath, Report, kind_of, nearest, show_key, shown_value
from toolfold.config.values import Bounds

MAX_ITEMS = 10_000


def known_keys(
    table: dict[str, Any], known: Iterable[str], report: Report, path: KeyPath, *, renamed: dict[str, str] | None = None
) -> None:
    """Reports each key that is not known, with the one that was probably meant."""
    known = tuple(known)
    for key in table:
        if key in known:
            continue
        meant = (renamed or {}).get(key) or nearest(key, known)
        fix = f"Did you mean `{meant}`?" if meant else f"Known here: {', '.join(known)}."
        report.odd((*path, key), "unknown key", fix)


def table_of(value: Any, report: Report, path: KeyPath) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    form = "{…}" if report.lenient else f"[{show_key(path)}]"
    report.error(path, f"expected a table, found {kind_of(value)}", f"Write it as {form}.")
    return None


def bounded(value: Any, bounds: Bounds, report: Report, path: KeyPath) -> Any:
    """The value in the setting's own kind, or `None` after a report."""
    if bounds.kind is str:
        return _chosen(text(value, report, path), bounds, report, path)
    if bounds.kind is bool:
        return flag(value, report, path)
    return _number(value, bounds, report, path)


def _chosen(value: str | None, bounds: Bounds, report: Report, path: KeyPath) -> str | None:
    if value is None or not bounds.choices or value in bounds.choices:
        return value
    report.error(path, f"unknown value {shown_value(value)}", f"Give one of {', '.join(bounds.choices)}.")
    return None


def _number(value: Any, bounds: Bounds, report: Report, path: KeyPath) -> int | float | None:
    right = f"Give {_range(bounds)}."
    wanted = "a whole number" if bounds.kind is int else "a number"
    wrong = isinstance(value, bool) or not isinstance(value, (int, float))
    if wrong or (bounds.kind is int and isinstance(value, float)):
        fix = f"{right[:-1]}, without quotes." if isinstance(value, str) else right
        report.error(path, f"expected {wanted}, found {shown_value(value)}", fix)
        return None
    if isinstance(value, float) and not math.isfinite(value):
        report.error(path, f"expected {wanted}, found {value}", right)
        return None
    if not bounds.low <= value <= bounds.high:
        report.error(path, f"{shown_value(value)} is out of bounds", right)
        return None
    return float(value) if bounds.kind is float else int(value)


def _range(bounds: Bounds) -> str:
    wanted = "a whole number" if bounds.kind is int else "a number"
    unit = f" {bounds.unit}" if bounds.unit else ""
    return f"{wanted} from {bounds.low:,g} to {bounds.high:,.0f}{unit}".replace(",", "_")


def text(value: Any, report: Report, path: KeyPath, *, empty: bool = False) -> str | None:
    """A string that a process and a terminal can take: no NUL, no half of a surrogate pair."""
    if not isinstance(value, str):
        report.error(path, f"expected a string, found {kind_of(value)}", "Write it in quotes.")
        return None
    if not empty and not value.strip():
        report.error(path, "the string is empty", "Give a value or remove the key.")
        return None
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        report.error(path, "the string holds a character that cannot be passed on", "Remove NUL and lone surrogates.")
        return None
    return value


def flag(value: Any, report: Report, path: KeyPath) -> bool | None:
    if isinstance(value, bool):
        return value
    report.error(path, f"expected true or false, found {shown_value(value)}", "Write true or false, without quotes.")
    return None


def texts(value: Any, report: Report, path: KeyPath, *, single: bool = False) -> tuple[str, ...] | None:
    """A list of strings; with `single` one string stands for a list of one."""
    if single and isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        report.error(path, f"expected a list of strings, found {kind_of(value)}", 'Write it as ["…", "…"].')
        return None
    if len(value) > MAX_ITEMS:
        report.error(path, f"the list has {len(value)} items", f"At most {MAX_ITEMS} are read.")
        return None
    found = [text(item, report, (*path, index), empty=True) for index, item in enumerate(value)]
    return None if None in found else tuple(item for item in found if item is not None)


def text_map(value: Any, report: Report, path: KeyPath, *, lenient: bool = False) -> dict[str, str] | None:
    """A table of strings. `lenient` takes numbers and flags as the text a person would have written."""
    if not isinstance(value, dict):
        report.error(path, f"expected a table of strings, found {kind_of(value)}", 'Write it as { NAME = "value" }.')
        return None
    result: dict[str, str] = {}
    for key, item in value.items():
        found = text(written_form(item) if lenient else item, report, (*path, key), empty=True)
        if text(key, report, (*path, key)) is not None and found is not None:
            result[key] = found
    return result


def written_form(item: Any) -> Any:
    """A number or flag as the text a person would have written; all else as it is."""
    if isinstance(item, bool):
        return str(item).lower()
    return str(item) if isinstance(item, (int, float)) else item
