"""The names of a session: `list_globals`, and completion at the prompt. Neither runs code of the session."""

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
_COMPLETIONS_MAX = 200


def _is_listed(name: object, value: object) -> bool:
    if type(name) is not str or name.startswith(_OWN_PREFIX):
        return False
    return not (name.startswith("__") and name.endswith("__")) and not is_derived(type(value), types.ModuleType)


def list_globals(names: dict[Any, Any]) -> dict[str, Any]:
    """The names with their types, sorted: all, or as many as an answer holds, and then `total` has their number."""
    entries = [
        {"name": plain_name(name), "type_name": type_name(type(value))}
        for name, value in list(names.items())
        if _is_listed(name, value)
    ]
    entries.sort(key=lambda entry: entry["name"])
    room = PAYLOAD_MAX - 200
    for number, entry in enumerate(entries):
        room -= len(dumps(entry)) + 1
        if room < 0:
            return {"globals": entries[:number], "truncated": True, "total": len(entries)}
    return {"globals": entries}


def completions(text: str, names: dict[Any, Any]) -> list[str]:
    """The words that may stand in place of the dotted name at the end of `text`."""
    *path, start = text.split(".")
    private = start.startswith("_")
    prefix = "".join(f"{part}." for part in path)
    words = sorted(name for name in _candidates(path, names) if name.startswith(start))
    return [prefix + name for name in words if private or name[:1] != "_"][:_COMPLETIONS_MAX]


def _candidates(path: list[str], names: dict[Any, Any]) -> list[str]:
    if not path:
        return [name for name in {**dict.fromkeys(keyword.kwlist), **BUILTINS, **names} if type(name) is str]
    value = _resolve_path(path, names)
    return [] if value is MISSING else list(static_names(value))


def _resolve_path(path: list[str], names: dict[Any, Any]) -> Any:
    value = names.get(path[0], BUILTINS.get(path[0], MISSING))
    for name in path[1:]:
        if value is MISSING:
            return MISSING
        own = instance_dict(value) or {}
        value = own[name] if name in own else type_attribute(value if is_class(value) else type(value), name)
    return value
