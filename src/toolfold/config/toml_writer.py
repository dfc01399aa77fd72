"""Writes TOML: strings, numbers, flags, lists and tables. Whatever it writes, `tomllib` reads back as the same value.

It writes new text only; existing text is never reformatted. Dates and `None` are refused.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_SPECIAL = re.compile(r'[\x00-\x1f"\\\x7f\u0085\u2028\u2029]')
_WIDTH = 100


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("TOML cannot hold half of a surrogate pair")
    return '"' + _SPECIAL.sub(lambda match: _escape(match.group()), text) + '"'


def _value(item: Any) -> str:
    """A value in one piece; a table inside becomes an inline table."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, (int, float)):
        return repr(item)
    if isinstance(item, str):
        return _string(item)
    if isinstance(item, Mapping):
        pairs = ", ".join(f"{_key(name)} = {_value(inner)}" for name, inner in item.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(item, Sequence):
        return _array([_value(inner) for inner in item])
    raise TypeError(f"TOML has no form for {type(item).__name__}")


def format_table(path: Sequence[str], content: Mapping[str, Any]) -> str:
    """`[path]` with its values, then one table for each table inside, with a blank line between."""
    lines = [f"[{'.'.join(_key(part) for part in path)}]"]
    lines += [f"{_key(name)} = {_value(item)}" for name, item in content.items() if not isinstance(item, Mapping)]
    blocks = ["\n".join(lines) + "\n"]
    blocks += [format_table((*path, name), item) for name, item in content.items() if isinstance(item, Mapping)]
    return "\n".join(blocks)


def _array(parts: list[str]) -> str:
    line = f"[{', '.join(parts)}]"
    if len(line) <= _WIDTH or len(parts) < 2:
        return line
    return "[\n" + "".join(f"  {part},\n" for part in parts) + "]"


def _escape(char: str) -> str:
    return _ESCAPES.get(char) or f"\\u{ord(char):04X}"
