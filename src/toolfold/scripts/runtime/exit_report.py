"""What ended a script, for the host: exit codes, and exceptions by the script's own line, without our frames."""

import asyncio
import os
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from toolfold.errors import InputRefused, ToolfoldError
from toolfold.scripts.values import StartFrame

_MAX_MESSAGE = 2_000
_MAX_TRACEBACK = 6_000
_MAX_FRAMES = 12
_MAX_LEAVES = 10
_MAX_CAUSE = 300
# What scripts ask for that work on data, in the order of how often.
_LIBRARIES = (
    *("numpy", "pandas", "polars", "pyarrow", "duckdb", "scipy", "sklearn", "sympy", "networkx", "matplotlib"),
    *("yaml", "dateutil", "lxml", "bs4", "regex", "pydantic", "msgspec"),
)

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
    frames = _script_frames(error)
    line = _line_of(error, start)
    lines = start.source.splitlines()
    source = lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ""
    text = traceback.format_list(frames[-_MAX_FRAMES:]) + [
        line.removeprefix("toolfold.errors.") for line in traceback.format_exception_only(error)
    ]
    advice = next((advice for one in _leaves(error) if (advice := _advice(one))), "")
    return {
        "type": _encodable(type(error).__name__[:200]),
        "message": _encodable(_full_message(error, start)[:_MAX_MESSAGE]),
        "line": line,
        "source": _encodable(source[:300]),
        "traceback": _encodable("".join(text)[-_MAX_TRACEBACK:]),
        "next_action": _encodable(advice[:_MAX_MESSAGE]),
    }


def _script_frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OWN_FILES)]


def _line_of(error: BaseException, start: StartFrame) -> int | None:
    """The script's own line; of a group, that of its first error."""
    if isinstance(error, SyntaxError) and error.filename == start.name:
        return error.lineno
    first = _leaves(error)[0]
    return next((frame.lineno for frame in reversed(_script_frames(first)) if frame.filename == start.name), None)


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors in a group, and in the groups in it, the first of them; any other error alone."""
    leaves: list[BaseException] = []
    stack = [error]
    while stack and len(leaves) < _MAX_LEAVES:
        one = stack.pop()
        if isinstance(one, BaseExceptionGroup):
            stack.extend(reversed(one.exceptions))
        else:
            leaves.append(one)
    return leaves


def _full_message(error: BaseException, start: StartFrame) -> str:
    """What an error says, with what caused it; of a group, each error in it with its line."""
    if not isinstance(error, BaseExceptionGroup):
        cause = error.__cause__
        why = f" (caused by {type(cause).__name__}: {_message_of(cause)[:_MAX_CAUSE]})" if cause is not None else ""
        return _message_of(error) + why
    leaves = _leaves(error)
    parts = [error.message]
    for leaf in leaves:
        line = _line_of(leaf, start)
        parts.append(f"{type(leaf).__name__}{f' in line {line}' if line else ''}: {_full_message(leaf, start)}")
    return "\n  ".join(parts)


def _advice(error: BaseException) -> str:
    if isinstance(error, ToolfoldError):
        return error.next_action
    if isinstance(error, (AttributeError, TypeError)) and "'coroutine' object" in _message_of(error):
        return "tools are awaited: write `await` before the call, in brackets where its result is used at once"
    if isinstance(error, ModuleNotFoundError) and not (error.name or "servers").startswith("servers"):
        return _what_there_is()
    return ""


def _what_there_is() -> str:
    found = ", ".join(name for name in _LIBRARIES if find_spec(name) is not None)
    return f"there is the standard library and {found}; nothing can be installed, so use these, or let a tool do it"


def _encodable(text: str) -> str:
    """Writes lone surrogates out, which JSON cannot carry."""
    return text.encode("utf-8", "backslashreplace").decode()


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except (Exception, SystemExit):  # noqa: BLE001 - a script's exception may be unable to say anything
        return "(its message cannot be read)"
