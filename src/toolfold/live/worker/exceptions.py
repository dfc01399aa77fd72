"""Exceptions told shortly: type, message, the last frames, and what caused them. Cycles and large groups are bounded.

It also writes the error of an evaluation that failed, from the same parts.
"""

import linecache
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from toolfold.live.worker.bounded_repr import error_text
from toolfold.live.worker.introspection import is_derived, plain_name, type_name
from toolfold.live.worker.limits import CAUSES_MAX, FRAMES_MAX, MESSAGE_MAX, TRACEBACK_MAX
from toolfold.live.worker.originals import BUILTINS, Attempt

globals()["__builtins__"] = BUILTINS

_CAUSE = BaseException.__dict__["__cause__"]
_CONTEXT = BaseException.__dict__["__context__"]
_SUPPRESS_CONTEXT = BaseException.__dict__["__suppress_context__"]
_TRACE = BaseException.__dict__["__traceback__"]
_WORKER_PATH = "toolfold/live/worker"


def _message_of(error: BaseException) -> str | None:
    attempt = Attempt()
    with attempt:
        said = str(error)
        return str.__getitem__(said, slice(0, MESSAGE_MAX))
    return None


def exception_section(value: BaseException) -> dict[str, Any]:
    found: dict[str, Any] = {"exc_type": type_name(type(value)), "message": _message_of(value)}
    trace = _traceback_text(value)
    found["traceback"] = trace or None
    causes = [error_text(cause) for cause in _causes_of(value)]
    if causes:
        found["causes"] = causes
    if is_derived(type(value), BaseExceptionGroup):
        inner = BaseExceptionGroup.__dict__["exceptions"].__get__(value)
        found["exceptions"] = [error_text(error) for error in inner[:CAUSES_MAX]]
        found["exceptions_total"] = len(inner)
    return found


def _causes_of(value: BaseException) -> Iterator[BaseException]:
    """The chain of causes, the nearest first, each once."""
    seen = {id(value)}
    current: BaseException | None = value
    for _ in range(CAUSES_MAX):
        if current is None:
            return
        cause = _CAUSE.__get__(current)
        if cause is None and not _SUPPRESS_CONTEXT.__get__(current):
            cause = _CONTEXT.__get__(current)
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause
        current = cause


def user_frames(trace: TracebackType | None) -> TracebackType | None:
    """The trace from the first frame that is not the worker's own."""
    while trace is not None and _WORKER_PATH in trace.tb_frame.f_code.co_filename.replace("\\", "/"):
        trace = trace.tb_next
    return trace


def _traceback_text(error: BaseException) -> str:
    """The last frames, one line each, with the source line where it is known."""
    trace = user_frames(_TRACE.__get__(error))
    frames: list[tuple[str, int, str]] = []
    total = 0
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append((code.co_filename, trace.tb_lineno or 0, code.co_name))
        del frames[:-FRAMES_MAX]
        total += 1
        trace = trace.tb_next
    lines = [f"  … {total - len(frames)} frames above"] if total > len(frames) else []
    for file, line, name in frames:
        lines.append(f'  File "{plain_name(file)}", line {line}, in {plain_name(name)}')
        source = linecache.getline(file, line).strip()
        if source:
            lines.append(f"    {source[:200]}")
    return "\n".join(lines)[-TRACEBACK_MAX:]


def error_section(error: BaseException) -> dict[str, Any]:
    """A failed evaluation, as the envelope's `error`."""
    found: dict[str, Any] = {
        "code": "python_exception",
        "message": error_text(error, MESSAGE_MAX),
        "exc_type": type_name(type(error)),
    }
    attempt = Attempt()
    with attempt:
        found["traceback"] = _traceback_text(error) or None
    if type(error) is SystemExit:
        code = error.code
        found["exit_code"] = code if type(code) is int else 0 if code is None else 1
    return found
