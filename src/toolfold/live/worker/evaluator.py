"""Runs user code among the session's names: an expression, or statements as at a prompt.

A top-level `await` runs on an event loop that lives as long as the evaluation; tasks left over are cancelled with it.
Whatever the code raises becomes the envelope's error.
"""

import ast
import builtins
import inspect
import io
import sys
from typing import Any

from toolfold.live.worker.bounded_repr import safe_repr
from toolfold.live.worker.exceptions import error_section, user_frames
from toolfold.live.worker.limits import OUTPUT_MAX, REPR_MAX
from toolfold.live.worker.originals import BUILTINS, Attempt
from toolfold.live.worker.sources import SourceCache

# The session's `sys.stdout` and `sys.stderr`: one object each for the whole session, whose target changes.

globals()["__builtins__"] = BUILTINS


class _CapturedText:
    """The head of what was written, and how much there was."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._left = OUTPUT_MAX
        self._dropped = 0

    def write(self, text: str) -> None:
        piece = str.__getitem__(text, slice(0, self._left))
        if piece:
            self._parts.append(piece)
            self._left -= len(piece)
        self._dropped += str.__len__(text) - len(piece)

    def text(self) -> str:
        head = "".join(self._parts)
        return f"{head}… (+{self._dropped} characters)" if self._dropped else head


class _ByteStream(io.RawIOBase):
    """`sys.stdout.buffer` during capture."""

    def __init__(self, stream: "_TextStream") -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)


class _TextStream(io.TextIOBase):
    """One of the two streams."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.captured: _CapturedText | None = None
        self._bytes = _ByteStream(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base declares an attribute
        return "utf-8"

    @property
    def buffer(self) -> Any:
        return self._bytes if self.captured is not None else getattr(self._real, "buffer", self._bytes)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self.captured is not None:
            self.captured.write(text)
        elif self._real is not None:
            self._real.write(text)
        return len(text)

    def flush(self) -> None:
        if self.captured is None and self._real is not None:
            self._real.flush()

    def isatty(self) -> bool:
        return self.captured is None and self._real is not None and bool(self._real.isatty())

    def fileno(self) -> int:
        if self.captured is not None or self._real is None:
            raise io.UnsupportedOperation("fileno")
        return int(self._real.fileno())

    def close(self) -> None:
        """Does nothing: user code that closes `sys.stdout` would end the output of the session."""


class _Streams:
    """Both streams of a session."""

    def __init__(self) -> None:
        self.out = sys.stdout = _TextStream(sys.stdout)
        self.err = sys.stderr = _TextStream(sys.stderr)

    def capture(self) -> None:
        self.out.captured = _CapturedText()
        self.err.captured = _CapturedText()

    def release(self) -> tuple[str, str]:
        """Ends the capture and returns what was written to each."""
        out, err = (stream.captured.text() if stream.captured else "" for stream in (self.out, self.err))
        self.out.captured = self.err.captured = None
        return out, err

    def flush(self) -> None:
        self.out.flush()
        self.err.flush()


globals()["__builtins__"] = BUILTINS

_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_FUTURE_FLAGS = 0x1FFF000  # the compiler flags of `from __future__ import …`, which stay for the session
_STATEMENTS = 'give one expression: (x := 1) assigns a name, exec("""…""") runs statements, and what they change stays'
_eval = eval
_compile = compile
_gettrace, _settrace = sys.gettrace, sys.settrace
_getprofile, _setprofile = sys.getprofile, sys.setprofile


class Evaluator:
    """The names of a session, and how code runs among them."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.sources = SourceCache()
        self._streams = _Streams()
        self._flags = 0
        self._trace: Any = None
        self._profile: Any = None

    def value_of(self, expression: str) -> Any:
        """The value of an expression, without capture and without `await`: for `inspect`, in a forked child."""
        code = _compile(expression.strip(), "<inspect>", "eval", self._flags, dont_inherit=True)
        return _eval(code, self.names)

    def evaluate(self, expression: str) -> dict[str, Any]:
        """`eval_expr`."""

        def run() -> str:
            text = expression.strip()
            code = _compile(text, self.sources.add(text), "eval", self._flags | _AWAIT, dont_inherit=True)
            return safe_repr(self._run(code), REPR_MAX, user_code=True)

        answer = self._captured(run)
        if not answer["ok"] and answer["error"]["exc_type"] == "SyntaxError":
            answer["error"]["next_action"] = _STATEMENTS
        return answer

    def execute(self, text: str) -> dict[str, Any]:
        """Statements. The value of a last expression is in the answer, as at a prompt, and stored as `_`."""
        return self._captured(lambda: self._statements(text))

    def interact(self, text: str) -> dict[str, Any]:
        """As `execute`, for a person at a terminal: output and tracebacks go there at once."""
        value: str | None = None
        self._resume_tracing()
        with Attempt() as attempt:
            value = self._statements(text)
        self._suspend_tracing()
        if attempt.error is not None:
            if type(attempt.error) is not SystemExit:
                self._print_traceback(attempt.error)
            self._store_error(attempt.error)
            return {"ok": False, "error": error_section(attempt.error)}
        if value is not None:
            self._streams.out.write(value + "\n")
        self._streams.flush()
        return {"ok": True, "result": {"value_repr": value, "stdout": "", "stderr": ""}}

    def _captured(self, run: Any) -> dict[str, Any]:
        value: str | None = None
        self._streams.capture()
        self._resume_tracing()
        with Attempt() as attempt:
            value = run()
        self._suspend_tracing()
        out, err = self._streams.release()
        if attempt.error is not None:
            self._store_error(attempt.error)
            return {"ok": False, "error": {**error_section(attempt.error), "stdout": out, "stderr": err}}
        return {"ok": True, "result": {"value_repr": value, "stdout": out, "stderr": err}}

    def _statements(self, text: str) -> str | None:
        name = self.sources.add(text)
        flags = self._flags | _AWAIT
        tree = _compile(text, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        last = tree.body.pop() if tree.body and type(tree.body[-1]) is ast.Expr else None
        codes = []
        if tree.body:
            codes.append(_compile(tree, name, "exec", flags, dont_inherit=True))
            self._flags |= codes[0].co_flags & _FUTURE_FLAGS
        if last is not None:
            codes.append(_compile(ast.Expression(last.value), name, "eval", flags, dont_inherit=True))
        value = self._run(*codes)
        if last is None or value is None:
            return None
        vars(builtins)["_"] = value
        return safe_repr(value, REPR_MAX, user_code=True)

    def _run(self, *codes: Any) -> Any:
        """The value of the last one. Where one awaits something, all run on one event loop."""
        if any(code.co_flags & inspect.CO_COROUTINE for code in codes):
            import asyncio

            with asyncio.Runner() as runner:
                return runner.run(self._run_async(codes))
        value = None
        for code in codes:
            value = _eval(code, self.names)
        return value

    async def _run_async(self, codes: tuple[Any, ...]) -> Any:
        value = None
        for code in codes:
            value = _eval(code, self.names)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value

    # The session's own trace and profile functions see its code and never the worker's.

    def _resume_tracing(self) -> None:
        if self._trace is not None:
            _settrace(self._trace)
        if self._profile is not None:
            _setprofile(self._profile)

    def _suspend_tracing(self) -> None:
        self._trace, self._profile = _gettrace(), _getprofile()
        _settrace(None)
        _setprofile(None)

    def _store_error(self, error: BaseException) -> None:
        """As a prompt does, so that the last error can be inspected; `_exc` is a short name for it."""
        sys.last_type, sys.last_value = type(error), error
        sys.last_traceback = user_frames(error.__traceback__)
        vars(sys)["last_exc"] = error
        vars(builtins)["_exc"] = error

    def _print_traceback(self, error: BaseException) -> None:
        import traceback

        with Attempt() as attempt:
            lines = traceback.format_exception(type(error), error, user_frames(error.__traceback__))
            self._streams.flush()
            self._streams.err.write("".join(lines))
            self._streams.flush()
        if attempt.failed:
            self._streams.err.write(error_section(error)["message"] + "\n")
