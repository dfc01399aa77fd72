"""The envelopes: `{"ok": true, "result": …}` and `{"ok": false, "error": …}`, and the errors that have fixed codes."""

from typing import Any

from toolfold.live.worker.originals import BUILTINS

globals()["__builtins__"] = BUILTINS

SESSION_KEPT = "kept"
SESSION_INTERRUPTED = "interrupted"
_SESSION_LOST = "lost"


def success(result: dict[str, Any]) -> dict[str, Any]:
    return {"ok": True, "result": result}


def failure(code: str, message: str, **more: Any) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message, **more}}


def inspect_timeout(seconds: float, partial: dict[str, Any]) -> dict[str, Any]:
    """`kind` says that it is no fault of the caller; `partial` is what was known by then."""
    more = {"partial": partial} if partial else {}
    return failure(
        "inspect_timeout",
        f"inspect took longer than {seconds:g} s and was ended; the session is as it was",
        kind="internal",
        session=SESSION_KEPT,
        next_action="inspect a part of the object, or its type: type(x)",
        **more,
    )


def eval_timeout(seconds: float, session: str) -> dict[str, Any]:
    state = {
        SESSION_KEPT: "nothing it did has stayed",
        SESSION_INTERRUPTED: "it was interrupted where it stood, and what it had changed by then has stayed",
    }
    return failure(
        "eval_timeout",
        f"the evaluation took longer than {seconds:g} s and was ended; {state[session]}",
        kind="internal",
        session=session,
        next_action="ask for less at a time",
    )


def eval_crashed(ending: str) -> dict[str, Any]:
    """The session died of the evaluation, and the snapshot from before it goes on."""
    return failure(
        "eval_crashed",
        f"the evaluation ended its own process: it {ending}; nothing it did has stayed",
        kind="internal",
        session=SESSION_KEPT,
        next_action="leave out what ends the process; the session goes on as it was",
    )


def session_lost(ending: str) -> dict[str, Any]:
    return failure(
        "session_lost",
        f"the session's process {ending}; its names are gone and a new, empty session has begun",
        kind="internal",
        session=_SESSION_LOST,
        next_action="run what set the session up again",
    )


def invalid_arguments(message: str) -> dict[str, Any]:
    return failure("invalid_arguments", message, next_action='give {"expr": "<a Python expression>"}')
