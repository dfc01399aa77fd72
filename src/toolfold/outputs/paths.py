"""Paths into a JSON value: `a.b[0]`, `a[].b` for every item, `["a.b"]` for an odd key, `$` for the whole.

Values, not schemas: those have their own paths in `schema_walk`. Above: `references.py`.
"""

import difflib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

Step = str | int | None
"""A key, a place, or `None` for every item."""

MOST_NEAR = 5
MOST_LOOKED_AT = 2000
DEEPEST = 6

_STEP = re.compile(r'\.?([^.\[\]"$]+)|\[(-?\d{1,9})\]|\[\]|\[("(?:[^"\\]|\\.)*")\]')
_PLAIN = re.compile(r'[^.\[\]"$]+')


def read_path(text: str) -> list[Step] | None:
    """The steps, or `None` where the text is no path."""
    rest = text.strip().removeprefix("$")
    steps: list[Step] = []
    position = 0
    while position < len(rest):
        found = _STEP.match(rest, position)
        if found is None:
            return None
        if found[1] is not None:
            steps.append(found[1])
        elif found[2] is not None:
            steps.append(int(found[2]))
        elif found[3] is not None:
            try:
                steps.append(msgspec.json.decode(found[3], type=str))
            except msgspec.DecodeError:
                return None
        else:
            steps.append(None)
        position = found.end()
    return steps


def at_path(value: Any, steps: list[Step]) -> Any:
    """What is there. Raises `LookupError`."""
    for number, step in enumerate(steps):
        fits = isinstance(value, dict if isinstance(step, str) else list)
        if not fits:
            raise LookupError(step)
        if step is None:
            return [at_path(item, steps[number + 1 :]) for item in value]
        value = value[step]
    return value


def near_paths(value: Any, wanted: str) -> list[str]:
    """Paths that exist and are spelled most like the one that was wanted."""
    known = []
    for path in _paths(value, "", 0):
        known.append(path)
        if len(known) >= MOST_LOOKED_AT:
            break
    return difflib.get_close_matches(wanted, known, n=MOST_NEAR, cutoff=0.5) or known[:MOST_NEAR]


def _paths(value: Any, at: str, depth: int) -> Iterator[str]:
    """All paths, those of one level before the next ones; of a list the first item stands for all."""
    if depth >= DEEPEST:
        return
    below: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        below = [(_joined(at, key), item) for key, item in value.items()]
    elif isinstance(value, list) and value:
        below = [(f"{at}[0]", value[0])]
    yield from (path for path, _ in below)
    for path, item in below:
        yield from _paths(item, path, depth + 1)


def _joined(at: str, key: str) -> str:
    if _PLAIN.fullmatch(key):
        return f"{at}.{key}" if at else key
    return f"{at}[{msgspec.json.encode(key).decode()}]"
