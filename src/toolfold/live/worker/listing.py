"""`list_globals`: the names of the session with their types, sorted. It runs no code of the session.

Left out are modules, names that start and end with two underscores, names that start with `_toolfold`, and keys that
are no plain strings.
"""

import types
from typing import Any

from toolfold.live.worker.frames import dumps
from toolfold.live.worker.keep import BUILTINS
from toolfold.live.worker.limits import PAYLOAD_MAX
from toolfold.live.worker.static import derives, name_of, text_of

globals()["__builtins__"] = BUILTINS

OWN = "_toolfold"


def shown(name: object, value: object) -> bool:
    if type(name) is not str or name.startswith(OWN):
        return False
    return not (name.startswith("__") and name.endswith("__")) and not derives(type(value), types.ModuleType)


def list_globals(names: dict[Any, Any]) -> dict[str, Any]:
    """All names, or as many as an answer holds; `total` then tells how many there are."""
    entries = [
        {"name": text_of(name), "type_name": name_of(type(value))}
        for name, value in list(names.items())
        if shown(name, value)
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
