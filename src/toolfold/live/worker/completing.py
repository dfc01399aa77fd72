"""Completion at the prompt: names of the session and of Python, and static members after a dot. It runs no code."""

import keyword
from typing import Any

from toolfold.live.worker.keep import BUILTINS
from toolfold.live.worker.members import static_names
from toolfold.live.worker.static import MISSING, instance_dict, is_class, on_type

globals()["__builtins__"] = BUILTINS

SHOWN = 200


def completions(text: str, names: dict[Any, Any]) -> list[str]:
    """The words that may stand in place of the dotted name at the end of `text`."""
    *path, start = text.split(".")
    found: list[str]
    if not path:
        found = [name for name in {**dict.fromkeys(keyword.kwlist), **BUILTINS, **names} if type(name) is str]
    else:
        value = _walk(path, names)
        found = [] if value is MISSING else list(static_names(value))
    prefix = "".join(f"{part}." for part in path)
    fits = sorted(name for name in found if name.startswith(start) and (start.startswith("_") or name[:1] != "_"))
    return [prefix + name for name in fits[:SHOWN]]


def _walk(path: list[str], names: dict[Any, Any]) -> Any:
    value = names.get(path[0], BUILTINS.get(path[0], MISSING))
    for name in path[1:]:
        if value is MISSING:
            return MISSING
        own = instance_dict(value) or {}
        value = own[name] if name in own else on_type(value if is_class(value) else type(value), name)
    return value
