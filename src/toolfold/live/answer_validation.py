"""Checks what a session's process answered. It runs user code, so nothing it says is trusted.

Required keys are checked strictly, everything else is left as it is: a section that is missing or new breaks nothing.
"""

import json
from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolfold.live.worker.envelopes import failure

ANSWER_MAX_BYTES = 256 * 1024
_INSPECT_MAX_CHARS = 32 * 1024  # of an `inspect` or `list_globals` answer, as JSON in its widest form
_Kind = Literal[
    "none", "bool", "number", "string", "bytes", "mapping", "sequence", "set", "iterator", "generator", "coroutine",
    "async_generator", "callable", "class", "module", "exception", "object", "other",
]  # fmt: skip


class _Type(Struct):
    name: str
    module: str
    qualified: str


class _Inspection(Struct):
    type: _Type
    kind: _Kind


class _Global(Struct):
    name: str
    type_name: str


class _Globals(Struct):
    globals: list[_Global]


class _Completions(Struct):
    words: list[str]


class _Evaluation(Struct):
    stdout: str
    stderr: str
    value_repr: str | None = None


class _Error(Struct):
    code: str
    message: str


_RESULTS: dict[str, type[Struct]] = {"list_globals": _Globals, "inspect": _Inspection, "complete": _Completions}


def validate(operation: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, or an error in its place that says what was wrong with it."""
    problem = _problem(operation, answer)
    if not problem:
        return answer
    return failure(
        "invalid_result_shape",
        f"the session's process answered {operation} with {problem}",
        kind="internal",
        next_action="ask again; if it stays so, start a new session",
    )


def _problem(operation: str, answer: dict[str, Any]) -> str:
    if operation in {"inspect", "list_globals"} and (size := len(json.dumps(answer))) > _INSPECT_MAX_CHARS:
        return f"{size} characters, where {_INSPECT_MAX_CHARS} are allowed"
    ok = answer.get("ok")
    if not isinstance(ok, bool):
        return "no envelope"
    try:
        if ok:
            msgspec.convert(answer.get("result"), _RESULTS.get(operation, _Evaluation))
        else:
            msgspec.convert(answer.get("error"), _Error)
    except msgspec.ValidationError as error:
        return f"a wrong {'result' if ok else 'error'}: {error}"
    return ""
