"""Paths into a JSON value, read and written in one way for requests and for references.

`a.b[0]`, `a[-1]`, `items.0.name`; `a[].b`, `a[*].b`, `a.*` for every member; `["odd key"]`, `['odd key']`; `$` for all.
Values, not schemas: those have their own paths in `schema_walk`. Above: `references.py`, `local/json_index.py`.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

# A key, an index, or `None` for every member. A key of digits is an index where there is a list.
Step = str | int | None

MAX_SIMILAR = 5
MAX_COMPARED = 2000
MAX_DEPTH = 6

# Possessive quantifiers: a path comes from a model, and no text may make this backtrack.
_STEP = re.compile(
    r"""(?P<key>(?:\.|\A\.?+)[^.\[\]"]++)|\[(?P<place>-?\d{1,18})\]|(?P<every>\[\*?\])"""
    r"""|\[(?P<quoted>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')\]"""
)
_PLAIN = re.compile(r"[A-Za-z_@][\w$@-]*|\$[\w$@-]+")
_INNER = re.compile(r"""\\.|\"""", re.DOTALL)


def parse_path(text: str) -> list[Step] | None:
    """The steps, or `None` where the text is no path."""
    rest = re.sub(r"\A\$(?=[.\[]|\Z)", "", text.strip())
    steps: list[Step] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            return None
        if match["key"] is not None:
            key = match["key"].removeprefix(".")
            steps.append(None if key == "*" else key)
        elif match["place"] is not None:
            steps.append(int(match["place"]))
        elif match["every"] is not None:
            steps.append(None)
        else:
            try:
                steps.append(msgspec.json.decode(_double_quoted(match["quoted"]), type=str))
            except msgspec.DecodeError:
                return None
        position = match.end()
    return steps


def _double_quoted(literal: str) -> str:
    if literal.startswith('"'):
        return literal
    signs = {"\\'": "'", '"': '\\"'}
    return '"' + _INNER.sub(lambda match: signs.get(match[0], match[0]), literal[1:-1]) + '"'


def format_path(steps: Sequence[Step]) -> str:
    """The written form. `read_path` reads it back."""
    return "".join(map(_format_step, steps)).removeprefix(".") or "$"


def _format_step(step: Step) -> str:
    if isinstance(step, str):
        return f".{step}" if _PLAIN.fullmatch(step) else f"[{msgspec.json.encode(step).decode()}]"
    return "[]" if step is None else f"[{step}]"


def list_index(step: Step) -> int | None:
    """The index into a list that a step names; `None` where it names none."""
    if isinstance(step, str):
        return int(step) if step.isdecimal() and len(step) < 19 else None
    return step


# Under which an SDK puts a value that is no object, and which the envelope of an answer has as its root.
WRAPPERS = ("result", "data")


def reroot(steps: Sequence[Step], keys: list[str] | int) -> list[Step]:
    """The same path from the root that a document has: `keys` of an object, or the number of items of a list.

    A schema shows `result[3]` where the document may be the list itself, and the other way round.
    """
    first = steps[0] if steps else None
    if isinstance(keys, int):
        return list(steps[1:] if first in WRAPPERS else steps)
    inner = keys if len(keys) == 1 else [key for key in keys if key == "data"]
    return list(steps) if not steps or str(first) in keys else [*inner, *steps]


def resolve_path(value: Any, steps: Sequence[Step]) -> Any:
    """The value at a path. Raises `LookupError`."""
    for number, step in enumerate(steps):
        if step is None and isinstance(value, dict | list):
            members = value.values() if isinstance(value, dict) else value
            return [resolve_path(member, steps[number + 1 :]) for member in members]
        index = list_index(step)
        if isinstance(value, dict):
            value = value[str(step)]
        elif isinstance(value, list) and index is not None:
            value = value[index]
        else:
            raise LookupError(step)
    return value


def similar_paths(value: Any, wanted: str) -> list[str]:
    """Paths that exist and are spelled most like the one that was wanted."""
    paths = []
    for path in _paths(value, (), 0):
        paths.append(format_path(path))
        if len(paths) >= MAX_COMPARED:
            break
    return difflib.get_close_matches(wanted, paths, n=MAX_SIMILAR, cutoff=0.5) or paths[:MAX_SIMILAR]


def _paths(value: Any, at: tuple[Step, ...], depth: int) -> Iterator[tuple[Step, ...]]:
    """All paths, those of one level before the next ones; of a list the first item stands for all."""
    if depth >= MAX_DEPTH:
        return
    below: list[tuple[tuple[Step, ...], Any]] = []
    if isinstance(value, dict):
        below = [((*at, key), item) for key, item in value.items()]
    elif isinstance(value, list) and value:
        below = [((*at, 0), value[0])]
    yield from (path for path, _ in below)
    for path, item in below:
        yield from _paths(item, path, depth + 1)
