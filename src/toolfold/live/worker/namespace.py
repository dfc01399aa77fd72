"""`list_globals`: the names of the session with their types, sorted. It runs no code of the session.

Left out are modules, names that start and end with two underscores, names that start with `_toolfold`, and keys that
are no plain strings.
"""

import keyword
import types
from typing import Any

from toolfold.live.worker.frames import dumps
from toolfold.live.worker.introspection import (
    MISSING,
    instance_dict,
    is_class,
    is_derived,
    plain_name,
    static_names,
    type_attribute,
    type_name,
)
from toolfold.live.worker.limits import PAYLOAD_MAX
from toolfold.live.worker.originals import BUILTINS

globals()["__builtins__"] = BUILTINS

_OWN_PREFIX = "_toolfold"


def _is_listed(name: object, value: object) -> bool:
    if type(name) is not str or name.startswith(_OWN_PREFIX):
        return False
    return not (name.startswith("__") and name.endswith("__")) and not is_derived(type(value), types.ModuleType)


def list_globals(names: dict[Any, Any]) -> dict[str, Any]:
    """All names, or as many as an answer holds; `total` then tells how many there are."""
    entries = [
        {"name": plain_name(name), "type_name": type_name(type(value))}
        for name, value in list(names.items())
        if _is_listed(name, value)
    ]
    entries.sort(key=lambda entry: entry["name"])
    room = PAYLOAD_MAX - 200
    kept: list[dict[str, str]] = []
    for entry in entries:
        room -= len(dumps(entry)) + 1
        if room < 0:
            return {"globals": kept, "truncated": True, "total": len(entries)}
        kept.append(entry)
    return {"globals": kept}


# --- Completion at the prompt: names of the session and of Python, and static members after a dot. It runs no code.

globals()["__builtins__"] = BUILTINS

_COMPLETIONS_MAX = 200


def completions(text: str, names: dict[Any, Any]) -> list[str]:
    """The words that may stand in place of the dotted name at the end of `text`."""
    *path, start = text.split(".")
    found: list[str]
    if not path:
        found = [name for name in {**dict.fromkeys(keyword.kwlist), **BUILTINS, **names} if type(name) is str]
    else:
        value = _resolve_path(path, names)
        found = [] if value is MISSING else list(static_names(value))
    prefix = "".join(f"{part}." for part in path)
    fits = sorted(name for name in found if name.startswith(start) and (start.startswith("_") or name[:1] != "_"))
    return [prefix + name for name in fits[:_COMPLETIONS_MAX]]


def _resolve_path(path: list[str], names: dict[Any, Any]) -> Any:
    value = names.get(path[0], BUILTINS.get(path[0], MISSING))
    for name in path[1:]:
        if value is MISSING:
            return MISSING
        own = instance_dict(value) or {}
        value = own[name] if name in own else type_attribute(value if is_class(value) else type(value), name)
    return value
