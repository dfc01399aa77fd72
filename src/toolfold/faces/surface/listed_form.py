"""The form that clients demand of what is listed: a member of another type is left out, or it would cost them the list.

Official clients read a list whole or not at all, and here it is that of all servers. Above: the lists of tools and of
all else.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

__all__ = ["sound_entry"]


class _Icon(Struct):
    src: str
    mimeType: str = ""  # noqa: N815
    sizes: list[str] = []
    theme: str = ""


class _Execution(Struct):
    taskSupport: Literal["forbidden", "optional", "required"] = "forbidden"  # noqa: N815


_TEXTS = dict.fromkeys(("title", "description", "mimeType", "lastModified"), str)
_HINTS = dict.fromkeys(("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "required"), bool)
# The members that have a type; all others go on as they are.
_TYPES: Mapping[str, Any] = {
    **_TEXTS,
    **_HINTS,
    "size": int,
    "priority": float,
    "audience": list[Literal["user", "assistant"]],
    "icons": list[_Icon],
    "execution": _Execution,
    "annotations": dict[str, Any],
    "_meta": dict[str, Any],
    "arguments": list[Any],
}


def _in_form(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def sound_entry(sent: Mapping[str, Any]) -> dict[str, Any]:
    """A listed entry without the members that no client could read."""
    entry = {key: value for key, value in sent.items() if key not in _TYPES or _in_form(value, _TYPES[key])}
    if "annotations" in entry:
        entry["annotations"] = sound_entry(entry["annotations"])
    if "arguments" in entry:
        named = (one for one in entry["arguments"] if isinstance(one, dict) and isinstance(one.get("name"), str))
        entry["arguments"] = [sound_entry(one) for one in named]
    return entry
