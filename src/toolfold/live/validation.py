"""Checks what a session's process answered. It runs a person's code, so nothing it says is taken on trust.

Required keys are checked strictly, everything else is left as it is: a section that is missing or new breaks nothing.
"""

import json
from typing import Any

from toolfold.live.worker.envelopes import failure

_KINDS = frozenset(
    {
        *("none", "bool", "number", "string", "bytes", "mapping", "sequence", "set", "iterator", "generator"),
        *("coroutine", "async_generator", "callable", "class", "module", "exception", "object", "other"),
    }
)
ANSWER_MAX_BYTES = 256 * 1024
"""Bytes of one answer on its way to the host."""
_INSPECT_MAX_CHARS = 32 * 1024
"""Characters of what a look brings back, as JSON in its widest form."""


def validate(operation: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, or an error in its place that says what was wrong with it."""
    wrong = _problem(operation, answer)
    if not wrong:
        return answer
    return failure(
        "invalid_result_shape",
        f"the session's process answered {operation} with {wrong}",
        kind="internal",
        next_action="ask again; if it stays so, start a new session",
    )


def _problem(operation: str, answer: dict[str, Any]) -> str:
    if operation in {"inspect", "list_globals"} and (size := len(json.dumps(answer))) > _INSPECT_MAX_CHARS:
        return f"{size} characters, where {_INSPECT_MAX_CHARS} are allowed"
    ok = answer.get("ok")
    if not isinstance(ok, bool):
        return "no envelope"
    if not ok:
        error = answer.get("error")
        return "" if isinstance(error, dict) and _has_strings(error, "code", "message") else "an error without code"
    result = answer.get("result")
    if not isinstance(result, dict):
        return "no result"
    check = {"list_globals": _globals, "inspect": _inspection, "complete": _completions}.get(operation, _evaluation)
    return check(result)


def _globals(result: dict[str, Any]) -> str:
    names = result.get("globals")
    whole = isinstance(names, list) and all(
        isinstance(one, dict) and _has_strings(one, "name", "type_name") for one in names
    )
    return "" if whole else "no list of names and types"


def _inspection(result: dict[str, Any]) -> str:
    kind = result.get("type")
    if not isinstance(kind, dict) or not _has_strings(kind, "name", "module", "qualified"):
        return "no type"
    return "" if result.get("kind") in _KINDS else "no kind"


def _evaluation(result: dict[str, Any]) -> str:
    value = result.get("value_repr")
    whole = (value is None or isinstance(value, str)) and _has_strings(result, "stdout", "stderr")
    return "" if whole else "no value_repr, stdout and stderr"


def _completions(result: dict[str, Any]) -> str:
    words = result.get("words")
    return "" if isinstance(words, list) and all(isinstance(word, str) for word in words) else "no list of words"


def _has_strings(value: dict[str, Any], *keys: str) -> bool:
    return all(isinstance(value.get(key), str) for key in keys)
