"""Templates, and how figures and times are written in them.

Everything that is put into a template is escaped, whatever it is: nothing here or in a page marks text as safe.
"""

import time
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
_NOTHING = "\u2013"
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SPANS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_AMOUNTS = ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k"))


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([HERE / "html", HERE / "static"]),  # a file that is kept holds its style itself
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        amount=_amount,
        size=_size,
        clock=_clock,
        ago=_ago,
        span=_span,
        json=_json,
        iso=_iso,
        path=_path,
        counted=_counted,
    )
    environment.globals["assets"] = _asset_version()
    return environment


def _render(template: str, **values: Any) -> bytes:
    """A page. What servers say may hold halves of characters, which no page can."""
    return _environment().get_template(template).render(**values).encode("utf-8", "replace")


@cache
def _asset_version() -> str:
    """Part of each address below static/: browsers keep those for good."""
    digest = sha256()
    for file in sorted((HERE / "static").rglob("*.*")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _amount(value: float | None) -> str:
    """`1,234`, `56.7 k`, `1.2 M`."""
    if value is None:
        return _NOTHING
    for unit, name in _AMOUNTS:
        if abs(value) >= unit:
            return f"{value / (1_000 if name == 'k' else unit):,.1f} {name}"
    return f"{round(value):,}"


def _counted(count: int, nouns: str) -> str:
    """`1 tool`, `2 tools`; the first of the words is the plural."""
    noun, _, rest = nouns.partition(" ")
    if count == 1:
        noun = noun[: -2 if noun.endswith("ches") else -1]
    return " ".join(filter(None, (f"{count:,}", noun, rest)))


def _size(value: float | None) -> str:
    if value is None:
        return _NOTHING
    for unit, name in _SIZES:
        if value >= unit:
            return f"{value / unit:,.1f} {name}"
    return f"{value:,.0f} B"


def _span(seconds: float | None) -> str:
    """`4 ms`, `1.2 s`, `3 min`."""
    if seconds is None:
        return _NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 or not seconds else "<1 ms"
    for unit, name in _SPANS:
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.1f} s"


def _ago(at: float) -> str:
    passed = max(time.time() - at, 0.0)
    return "just now" if passed < 5 else f"{_span(passed) if passed >= 60 else f'{passed:.0f} s'} ago"


def _clock(at: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return time.strftime(form, time.localtime(at))


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _json(value: Any, *, indent: int = 0) -> str:
    text = msgspec.json.encode(value, enc_hook=str)
    return (msgspec.json.format(text, indent=indent) if indent else text).decode("utf-8", "replace")


def _path(path: Sequence[str]) -> str:
    return " \u203a ".join(path)
