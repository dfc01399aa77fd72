"""Exceptions in short: type, message, the last frames, and what caused them. Cycles and large groups are bounded.

`exception_section` is part of an `inspect` answer; `error_section` is the error of an evaluation that failed.
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

# Read through the slots of the base: a subclass may define properties of these names.
_CAUSE = BaseException.__dict__["__cause__"]
_CONTEXT = BaseException.__dict__["__context__"]
_SUPPRESS_CONTEXT = BaseException.__dict__["__suppress_context__"]
_TRACE = BaseException.__dict__["__traceback__"]
_WORKER_PATH = "toolfold/live/worker"


def _message_of(error: BaseException) -> str | None:
    with Attempt():
        return str.__getitem__(str(error), slice(0, MESSAGE_MAX))
    return None


def exception_section(value: BaseException) -> dict[str, Any]:
    section: dict[str, Any] = {"exc_type": type_name(type(value)), "message": _message_of(value)}
    section["traceback"] = _traceback_text(value) or None
    causes = [error_text(cause) for cause in _causes_of(value)]
    if causes:
        section["causes"] = causes
    if is_derived(type(value), BaseExceptionGroup):
        inner = BaseExceptionGroup.__dict__["exceptions"].__get__(value)
        section["exceptions"] = [error_text(error) for error in inner[:CAUSES_MAX]]
        section["exceptions_total"] = len(inner)
    return section


def _causes_of(value: BaseException) -> Iterator[BaseException]:
    """The chain of causes, the nearest first, each once."""
    visited = {id(value)}
    for _ in range(CAUSES_MAX):
        cause = _CAUSE.__get__(value)
        if cause is None and not _SUPPRESS_CONTEXT.__get__(value):
            cause = _CONTEXT.__get__(value)
        if cause is None or id(cause) in visited:
            return
        visited.add(id(cause))
        yield cause
        value = cause


def user_frames(trace: TracebackType | None) -> TracebackType | None:
    """The trace from the first frame that is not the worker's own."""
    while trace is not None and _WORKER_PATH in trace.tb_frame.f_code.co_filename.replace("\\", "/"):
        trace = trace.tb_next
    return trace


def _traceback_text(error: BaseException) -> str:
    """The last frames, one line each, with the source line where there is one."""
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
    section: dict[str, Any] = {
        "code": "python_exception",
        "message": error_text(error, MESSAGE_MAX),
        "exc_type": type_name(type(error)),
    }
    with Attempt():
        section["traceback"] = _traceback_text(error) or None
    if type(error) is SystemExit:
        code = error.code
        section["exit_code"] = code if type(code) is int else 0 if code is None else 1
    return section
