"""How a script's end is told: exit codes, and exceptions by the script's own line, without the frames around it."""

import asyncio
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from toolfold.errors import InputRefused, ToolfoldError
from toolfold.scripts.values import Start

MAX_MESSAGE = 2_000
MAX_TRACEBACK = 6_000
MAX_FRAMES = 12

_OURS = (str(Path(__file__).resolve().parents[2]) + os.sep, str(Path(asyncio.__file__).parent) + os.sep, "<frozen ")


def end_of(error: BaseException, start: Start) -> dict[str, Any]:
    """What ended a script, by name."""
    if isinstance(error, SystemExit):
        return exit_of(error)
    if isinstance(error, KeyboardInterrupt):
        return {"outcome": "interrupted"}
    kinds = ((InputRefused, "input_refused"), (MemoryError, "out_of_memory"))
    outcome = next((name for kind, name in kinds if isinstance(error, kind)), "failed")
    return {"outcome": outcome, "error": problem(error, start)}


def exit_of(leaving: SystemExit) -> dict[str, Any]:
    """`exit()` is 0, `exit(3)` is 3, and a text is written to standard error, as Python does it."""
    code = leaving.code
    if code is None or isinstance(code, int):
        return {"outcome": "exited", "code": int(code or 0) & 0xFF}
    sys.stderr.write(f"{code}\n")
    return {"outcome": "exited", "code": 1}


def problem(error: BaseException, start: Start) -> dict[str, Any]:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    if isinstance(error, SyntaxError) and error.filename == start.name:
        line: int | None = error.lineno
    else:
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == start.name), None)
    lines = start.source.splitlines()
    source = lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ""
    shown = traceback.format_list(frames[-MAX_FRAMES:]) + [
        line.removeprefix("toolfold.errors.") for line in traceback.format_exception_only(error)
    ]
    return {
        "type": _whole(type(error).__name__[:200]),
        "message": _whole(_text(error)[:MAX_MESSAGE]),
        "line": line,
        "source": _whole(source[:300]),
        "traceback": _whole("".join(shown)[-MAX_TRACEBACK:]),
        "next_action": _whole(_advice(error)[:MAX_MESSAGE]),
    }


def _advice(error: BaseException) -> str:
    if isinstance(error, ToolfoldError):
        return error.next_action
    if isinstance(error, (AttributeError, TypeError)) and "'coroutine' object" in _text(error):
        return "tools are awaited: write `await` before the call, in brackets where its result is used at once"
    return ""


def _whole(text: str) -> str:
    """A text that can be sent: halves of surrogate pairs are written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except (Exception, SystemExit):  # noqa: BLE001 - a script's exception may be unable to say anything
        return "(its message cannot be read)"


def flush() -> None:
    """Gets what was printed out, as far as the script left its streams whole."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError, TypeError):
            continue


def by_line() -> None:
    """Lets go of each line as it is printed, so that it is there even if the script has to be ended."""
    # New ones: those of the zygote were made for other files.
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - a descriptor, for as long as the process lives
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - as above
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]  # they stand for the same files
