"""One JSON record as text: whole where it is short, else the members that the request names and as many more as fit."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from toolfold import tokens
from toolfold.outputs.local.literals import decode
from toolfold.outputs.paths import Step, show_path

LONG_VALUE = 600


def render_record(raw: bytes, forms: Sequence[str], allowance: int) -> str:
    """`forms` are what the request looks for, lower case."""
    try:
        value = decode(raw)
    except ValueError:
        return clipped(raw.decode(errors="replace"), allowance * 4)
    text = compact(value)
    if tokens.count(text) <= allowance:
        return text
    leaves = [(show_path(steps), compact(leaf)) for steps, leaf in walk(value, [])]
    own = [score(leaf, forms) for leaf in leaves]
    near = [value + 0.4 * max(own[max(0, at - 3) : at + 4]) for at, value in enumerate(own)]
    scored = sorted(range(len(leaves)), key=lambda at: (-near[at], at))
    longest = min(LONG_VALUE, allowance * 2)
    kept: list[int] = []
    spent = 0
    for at in scored:
        cost = tokens.count(leaves[at][0]) + tokens.count(leaves[at][1][:longest]) + 3
        if spent + cost > allowance:
            continue
        spent += cost
        kept.append(at)
    lines = [f"{leaves[at][0]}: {around(leaves[at][1], forms, longest)}" for at in sorted(kept)]
    if len(kept) < len(leaves):
        lines.append(f"({len(leaves) - len(kept)} more values in this record)")
    return "\n".join(lines)


def score(leaf: tuple[str, str], forms: Sequence[str]) -> float:
    path, value = leaf[0].lower(), leaf[1].lower()
    return sum((form in path) + 1.5 * (form in value) for form in forms) - 0.1 * path.count(".")


def compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} more characters)"


def around(text: str, forms: Sequence[str], longest: int = LONG_VALUE) -> str:
    """A long value, cut around the first thing that the request looks for."""
    if len(text) <= longest:
        return text
    low = text.lower()
    at = min((low.find(form) for form in forms if form in low), default=0)
    start = max(0, at - longest // 3)
    return f"{'… ' if start else ''}{text[start : start + longest]} … ({len(text)} characters in all)"


def walk(value: Any, steps: list[Step]) -> Iterator[tuple[list[Step], Any]]:
    """Every leaf with its path."""
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from walk(member, [*steps, str(key)])
    elif isinstance(value, list) and value:
        for number, member in enumerate(value):
            yield from walk(member, [*steps, number])
    else:
        yield steps, value
