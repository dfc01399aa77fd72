"""What ended a script, for the host: exit codes, and exceptions by the script's own line, without our frames."""

import asyncio
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from toolfold.errors import InputRefused, ToolfoldError
from toolfold.scripts.values import StartFrame

_MAX_MESSAGE = 2_000
_MAX_TRACEBACK = 6_000
_MAX_FRAMES = 12

# Frames of these say nothing to the author of a script.
_OWN_FILES = (
    str(Path(__file__).resolve().parents[2]) + os.sep,
    str(Path(asyncio.__file__).parent) + os.sep,
    "<frozen ",
)


def describe_end(error: BaseException, start: StartFrame) -> dict[str, Any]:
    """Names what ended a script."""
    if isinstance(error, SystemExit):
        return _describe_exit(error)
    if isinstance(error, KeyboardInterrupt):
        return {"outcome": "interrupted"}
    kinds = ((InputRefused, "input_refused"), (MemoryError, "out_of_memory"))
    outcome = next((name for kind, name in kinds if isinstance(error, kind)), "failed")
    return {"outcome": outcome, "error": _describe_problem(error, start)}


def _describe_exit(leaving: SystemExit) -> dict[str, Any]:
    """`exit()` is 0, `exit(3)` is 3, and a text is written to standard error, as Python does it."""
    code = leaving.code
    if code is None or isinstance(code, int):
        return {"outcome": "exited", "code": int(code or 0) & 0xFF}
    sys.stderr.write(f"{code}\n")
    return {"outcome": "exited", "code": 1}


def _describe_problem(error: BaseException, start: StartFrame) -> dict[str, Any]:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OWN_FILES)]
    if isinstance(error, SyntaxError) and error.filename == start.name:
        line: int | None = error.lineno
    else:
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == start.name), None)
    lines = start.source.splitlines()
    source = lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ""
    text = traceback.format_list(frames[-_MAX_FRAMES:]) + [
        line.removeprefix("toolfold.errors.") for line in traceback.format_exception_only(error)
    ]
    return {
        "type": _encodable(type(error).__name__[:200]),
        "message": _encodable(_message_of(error)[:_MAX_MESSAGE]),
        "line": line,
        "source": _encodable(source[:300]),
        "traceback": _encodable("".join(text)[-_MAX_TRACEBACK:]),
        "next_action": _encodable(_advice(error)[:_MAX_MESSAGE]),
    }


def _advice(error: BaseException) -> str:
    if isinstance(error, ToolfoldError):
        return error.next_action
    if isinstance(error, (AttributeError, TypeError)) and "'coroutine' object" in _message_of(error):
        return "tools are awaited: write `await` before the call, in brackets where its result is used at once"
    return ""


def _encodable(text: str) -> str:
    """Writes lone surrogates out, which JSON cannot carry."""
    return text.encode("utf-8", "backslashreplace").decode()


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except (Exception, SystemExit):  # noqa: BLE001 - a script's exception may be unable to say anything
        return "(its message cannot be read)"
