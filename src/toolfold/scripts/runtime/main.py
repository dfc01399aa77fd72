"""The entry of a script's child: takes one script, runs it as `__main__`, reports how it went.

The zygote imports this module before children are forked, so that a child has all it needs in memory. Above:
`toolfold.sandbox`, which calls `main`, and `runner.py`, which names it. Below: the rest of `runtime`.
"""

import ast
import asyncio
import builtins
import gc
import inspect
import linecache
import os
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from msgspec.json import Decoder, encode

from toolfold.errors import InputRefused, ToolfoldError
from toolfold.sandbox.frames import read_frame
from toolfold.scripts.runtime.functions import Binding
from toolfold.scripts.runtime.host_link import HostLink
from toolfold.scripts.runtime.models import dump
from toolfold.scripts.runtime.modules import ScriptModules
from toolfold.scripts.values import MAX_WARNING, MAX_WARNINGS, StartFrame

# What ended a script, for the host: exit codes, and exceptions by the script's own line, without our frames.

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


def _describe_end(error: BaseException, start: StartFrame) -> dict[str, Any]:
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
    if isinstance(error, NameError) and (modules := _modules_with(error.name or "")):
        return f"write `from {modules[0]} import {error.name}` below use_tools, or call what use_tools returns"
    if isinstance(error, ModuleNotFoundError) and not (error.name or "servers").startswith("servers"):
        return _what_there_is()
    return ""


def _modules_with(name: str) -> list[str]:
    """The servers' modules that have a function of this name."""
    return [key for key, module in sys.modules.items() if key.startswith("servers.") and name in dir(module)]


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


_FIRST_FRAME_BYTES = 64 << 20
_VALUE_HOOK = "__toolfold_value__"
# Characters of a large summary that go in one frame.
_PIECE_CHARS = 500_000
# Calls on the stack that a coroutine remembers: a binding's own, and the script's.
_ORIGIN_DEPTH = 2

_start_decoder = Decoder(StartFrame)
# The script's own is replaced, see `_recording`.
_asyncio_run = asyncio.run


def main(channel: socket.socket) -> None:
    """The entry of the sandbox."""
    frame = read_frame(channel, _FIRST_FRAME_BYTES)
    if frame is not None:
        _Script(_start_decoder.decode(frame), channel).run()


class _ScriptEnded(Exception):
    """The script raised something; `report` says what."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__("the script ended")
        self.report = report


class _Script:
    """One script in its process."""

    def __init__(self, start: StartFrame, channel: socket.socket) -> None:
        self._start = start
        self._link = HostLink(channel, start.calls_at_once, start.frame_bytes)
        self._warnings: list[str] = []
        self._returned: Any = None
        self._last_value: Any = None
        self._modules = ScriptModules(start, self._link, self._warn)

    def run(self) -> None:
        """Runs the script and reports. What it raises is part of the report, whatever it is."""
        report: dict[str, Any] = {"op": "done", "outcome": "finished"}
        try:
            self._execute()
        except _ScriptEnded as ended:
            report |= ended.report
        else:
            self._warn_unawaited()
        report["answer"] = self._answer()
        report["warnings"] = self._warnings
        _flush_streams()
        self._link.notify(report)

    def _execute(self) -> None:
        # Also SystemExit and KeyboardInterrupt: they are ordinary ends of a script.
        try:
            self._run_source()
        except BaseException as error:
            raise _ScriptEnded(_describe_end(error, self._start)) from error

    def _answer(self) -> Any:
        """The summary; `None` where there is none, and where it is so large that it is sent in pieces."""
        try:
            answer = dump(self._returned if self._returned is not None else self._last_value, summary=True)
            encoded = encode(answer)
        except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
            self._warn(f"what the script returned is no JSON: {error}")
            return None
        if len(encoded) <= self._start.answer_bytes:
            return answer
        if len(encoded) > self._start.summary_bytes:
            self._warn(f"the summary is over {self._start.summary_bytes:,} bytes and was dropped: return less")
            return None
        text = encoded.decode()
        for at in range(0, len(text), _PIECE_CHARS):
            self._link.notify({"op": "summary", "piece": text[at : at + _PIECE_CHARS]})
        return None

    def _warn(self, text: str) -> None:
        if text not in self._warnings and len(self._warnings) < MAX_WARNINGS:
            self._warnings.append(text[:MAX_WARNING])

    def _warn_unawaited(self) -> None:
        """Of what the script still holds; the rest was told when it was dropped."""
        for value in gc.get_objects():
            if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
                self._on_unawaited(value)
                value.close()

    def _on_unawaited(self, coroutine: Any) -> None:
        """Called by Python with a coroutine that was dropped before it ran."""
        origin = getattr(coroutine, "cr_origin", None) or ()
        line = next((line for file, line, _ in origin if file == self._start.name), None)
        name = coroutine.__name__
        where = f"line {line}: " if line is not None else ""
        self._warn(f"{where}{name}() was not awaited, so it did not run: write `await {name}(…)`")

    def _run_source(self) -> None:
        name, source = self._start.name, self._start.source
        # Tracebacks show the script's lines, though there is no such file.
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source, name)
        call_main = _has_uncalled_main(tree)
        module = self._prepare(name)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: CodeType = compile(_capture_values(tree), name, "exec", flags=flags, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            _asyncio_run(eval(code, module.__dict__))  # noqa: S307 - running the script is what this is for
        else:
            exec(code, module.__dict__)  # noqa: S102 - as above
        if call_main:
            returned = module.__dict__["main"]()
            self._returned = _asyncio_run(returned) if inspect.iscoroutine(returned) else returned

    def _prepare(self, name: str) -> ModuleType:
        self._modules.install()
        _open_line_buffered_streams()
        asyncio.run = self._recording(asyncio.run)
        builtins.input = _refuse_input
        builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # the usual ones also close standard input
        sys.breakpointhook = _refuse_debugger
        sys.set_coroutine_origin_tracking_depth(_ORIGIN_DEPTH)
        # Python asks for it by this name; its own writes six lines that end in one of ours.
        vars(warnings)["_warn_unawaited_coroutine"] = self._on_unawaited
        sys.argv = [name, *self._start.args]
        module = ModuleType("__main__")
        module.__dict__.update(
            {
                "__file__": name,
                _VALUE_HOOK: self._record_value,
                "use_tools": self._modules.use_tools,
                "open_output": self._modules.open_output,
                "__builtins__": builtins,
            }
        )
        sys.modules["__main__"] = module
        return module

    def _record_value(self, value: Any) -> Any:
        """Called with the value of each expression at the top level."""
        bindings = isinstance(value, Binding) or (isinstance(value, list) and value and isinstance(value[0], Binding))
        if value is not None and not bindings and not inspect.iscoroutine(value):
            self._last_value = value
        return value

    def _recording(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `asyncio.run` to record what `main()` returned: a script has no other way to give it."""

        def recording_run(main: Coroutine[Any, Any, Any], **options: Any) -> Any:
            value = run(main, **options)
            if getattr(getattr(main, "cr_code", None), "co_name", "") == "main":
                self._returned = value
            return value

        return recording_run


def _has_uncalled_main(tree: ast.Module) -> bool:
    """Whether the script has a `main` that nothing in it mentions: then it is meant to be run."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    if not any(isinstance(node, functions) and node.name == "main" for node in tree.body):
        return False
    return not any(isinstance(node, ast.Name) and node.id == "main" for node in ast.walk(tree))


def _capture_values(tree: ast.Module) -> ast.Module:
    """Passes the value of each expression at the top level, and under `if __name__ …`, to the hook."""
    for body in [tree.body, *(node.body for node in tree.body if isinstance(node, ast.If))]:
        for statement in body:
            if isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant):
                call = ast.Call(ast.Name(_VALUE_HOOK, ast.Load()), [statement.value], [])
                statement.value = ast.fix_missing_locations(ast.copy_location(call, statement.value))
    return tree


def _refuse_input(prompt: object = "") -> NoReturn:
    raise InputRefused("a script cannot ask for input", next_action="put what is needed into the script")


def _refuse_debugger(*args: Any, **options: Any) -> NoReturn:
    raise InputRefused("there is no debugger for a script", next_action="print what you want to see")


def _open_line_buffered_streams() -> None:
    """Lets go of each line as it is printed, so that it is there even if the script has to be killed."""
    # New streams: those of the zygote were made for other files.
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - a descriptor, for as long as the process lives
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - as above
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]  # they stand for the same files


def _flush_streams() -> None:
    """Flushes what was printed, as far as the script left its streams whole."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError, TypeError):
            continue
