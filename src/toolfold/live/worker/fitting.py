"""Keeps a whole answer below its bound, whatever the object: the longest text is halved until all fits."""

from typing import Any

from toolfold.live.worker.frames import dumps
from toolfold.live.worker.keep import BUILTINS
from toolfold.live.worker.limits import PAYLOAD_MAX

globals()["__builtins__"] = BUILTINS

# Where long texts stand, and the mark that one was cut: (section, field, mark).
_TEXTS = (
    ("repr", "text", "truncated"),
    ("doc", "text", "truncated"),
    ("callable", "source_preview", "source_truncated"),
    ("callable", "doc", "doc_truncated"),
    ("callable", "signature", "signature_truncated"),
    ("exception", "message", "message_truncated"),
    ("exception", "traceback", "traceback_truncated"),
)
_LISTS = (
    ("sample", "items"),
    ("members", "data"),
    ("members", "callables"),
    ("exception", "causes"),
    ("exception", "exceptions"),
)


def fit(result: dict[str, Any]) -> dict[str, Any]:
    """The same result, with texts halved and lists shortened until it fits."""
    while len(dumps(result)) > PAYLOAD_MAX:
        places: list[tuple[int, str, str, str]] = []
        for section, field, mark in _TEXTS:
            held = result.get(section)
            if type(held) is dict and type(held.get(field)) is str:
                places.append((len(dumps(held[field])), section, field, mark))
        for section, field in _LISTS:
            held = result.get(section)
            if type(held) is dict and held.get(field):
                places.append((len(dumps(held[field])), section, field, "truncated"))
        if not places:
            return {key: result[key] for key in ("type", "kind")}
        _, section, field, mark = max(places)
        held = result[section]
        held[field] = held[field][: len(held[field]) // 2]
        held[mark] = True
        if field == "items":
            held["shown"] = len(held[field])
    return result
