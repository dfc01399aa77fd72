"""Settings from the environment: `TOOLFOLD_SECTION__KEY`, such as `TOOLFOLD_LIMITS__CALL_TIMEOUT_S=30`.

They win over the file, and are checked with the same bounds. Servers and policies are not set this way.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from toolfold.config import check
from toolfold.config.problems import Report, nearest
from toolfold.config.values import SECTIONS, Bounds

PREFIX = "TOOLFOLD_"


def read_overrides(environ: Mapping[str, str], report: Report) -> dict[str, dict[str, Any]]:
    """The checked values by section and key."""
    result: dict[str, dict[str, Any]] = {}
    for variable in sorted(environ):
        if "__" not in variable or not variable.startswith(PREFIX) or variable.startswith("TOOLFOLD_INPUT_"):
            continue
        section, _, key = variable.removeprefix(PREFIX).casefold().partition("__")
        bounds = SECTIONS.get(section, {}).get(key)
        if bounds is None:
            known = [variable_of(name, field) for name, fields in SECTIONS.items() for field in fields]
            meant = nearest(variable, known)
            report.error((variable,), "names no setting", f"Did you mean {meant}?" if meant else "Unset it.")
            continue
        value = check.bounded(_parsed(environ[variable], bounds), bounds, report, (variable,))
        if value is not None:
            result.setdefault(section, {})[key] = value
    return result


def variable_of(section: str, key: str) -> str:
    return f"{PREFIX}{section}__{key}".upper()


def _parsed(text: str, bounds: Bounds) -> Any:
    """The number a variable's text stands for; what is none stays text and is refused by the check."""
    if bounds.kind in {int, float}:
        with contextlib.suppress(ValueError):
            return int(text) if bounds.kind is int else float(text)
    if bounds.kind is bool and text.casefold() in {"true", "false", "1", "0"}:
        return text.casefold() in {"true", "1"}
    return text
