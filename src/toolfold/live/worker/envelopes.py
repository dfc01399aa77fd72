"""The envelopes `{"ok": true, "result": …}` and `{"ok": false, "error": …}`, and the errors with fixed codes.

`kind` is "internal" where the caller made no mistake. `session` tells what became of the session. The host uses these
functions too: the module imports nothing but the standard library.
"""

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


def _internal(code: str, message: str, session: str, next_action: str, **more: Any) -> dict[str, Any]:
    return failure(code, message, kind="internal", session=session, next_action=next_action, **more)


def inspect_timeout(seconds: float, partial: dict[str, Any]) -> dict[str, Any]:
    """`partial` holds the sections that were complete by then."""
    message = f"inspect took longer than {seconds:g} s and was ended; the session is as it was"
    more = {"partial": partial} if partial else {}
    next_action = "inspect a part of the object, or its type: type(x)"
    return _internal("inspect_timeout", message, SESSION_KEPT, next_action, **more)


def eval_timeout(seconds: float, session: str) -> dict[str, Any]:
    state = {
        SESSION_KEPT: "nothing it did has stayed",
        SESSION_INTERRUPTED: "it was interrupted where it stood, and what it had changed by then has stayed",
    }
    message = f"the evaluation took longer than {seconds:g} s and was ended; {state[session]}"
    return _internal("eval_timeout", message, session, "ask for less at a time")


def eval_crashed(ending: str) -> dict[str, Any]:
    """The evaluation ended the session's process, and the snapshot from before it continues."""
    message = f"the evaluation ended its own process: it {ending}; nothing it did has stayed"
    next_action = "leave out what ends the process; the session goes on as it was"
    return _internal("eval_crashed", message, SESSION_KEPT, next_action)


def session_lost(ending: str) -> dict[str, Any]:
    message = f"the session's process {ending}; its names are gone and a new, empty session has begun"
    return _internal("session_lost", message, _SESSION_LOST, "run what set the session up again")


def invalid_arguments(message: str) -> dict[str, Any]:
    return failure("invalid_arguments", message, next_action='give {"expr": "<a Python expression>"}')
