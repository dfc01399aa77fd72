"""The function that runs in the confined child: takes one script, runs it as `__main__`, tells how it went.

Nothing here guards anything; see `toolfold.sandbox`. It is imported by the zygote, before children are forked, so that
a child has all it needs in memory.
"""

import ast
import asyncio
import builtins
import inspect
import linecache
import socket
import sys
from collections.abc import Callable, Coroutine
from types import CodeType, ModuleType
from typing import Any, NoReturn

from msgspec.json import Decoder, encode

from toolfold.errors import InputRefused
from toolfold.sandbox.frames import read_frame
from toolfold.scripts.runtime import exit_report as telling
from toolfold.scripts.runtime.host_link import HostLink
from toolfold.scripts.runtime.models import dump
from toolfold.scripts.runtime.modules import ScriptModules
from toolfold.scripts.values import MAX_WARNING, MAX_WARNINGS, StartFrame

_FIRST_FRAME_BYTES = 64 << 20
_VALUE_HOOK = "__toolfold_value__"

_start_decoder = Decoder(StartFrame)
_asyncio_run = asyncio.run


def main(channel: socket.socket) -> None:
    """The entry of the sandbox."""
    frame = read_frame(channel, _FIRST_FRAME_BYTES)
    if frame is not None:
        _Script(_start_decoder.decode(frame), channel).run()


class _ScriptEnded(Exception):
    """The script raised something; `told` says what."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__("the script ended")
        self.told = told


class _Script:
    """One script in its process."""

    def __init__(self, start: StartFrame, channel: socket.socket) -> None:
        self._start = start
        self._link = HostLink(channel, start.calls_at_once, start.heard_bytes)
        self._warnings: list[str] = []
        self._returned: Any = None
        self._last: Any = None
        self._declarations = ScriptModules(start, self._link, self._warn)

    def run(self) -> None:
        """Runs it and reports. What a script raises is part of the report, whatever it is."""
        told: dict[str, Any] = {"op": "done", "outcome": "finished"}
        try:
            self._execute()
        except _ScriptEnded as ended:
            told |= ended.told
        self._report(told)

    def _report(self, told: dict[str, Any]) -> None:
        value = self._returned if self._returned is not None else self._last
        answer: Any = None
        try:
            answer = dump(value)
            if len(encode(answer)) > self._start.answer_bytes:
                self._warn(f"the final summary is over {self._start.answer_bytes:,} bytes and was dropped")
                answer = None
        except (TypeError, ValueError, RecursionError, AttributeError) as error:
            self._warn(f"what the script returned is no JSON: {error}")
            answer = None
        told["answer"] = answer
        told["warnings"] = self._warnings
        telling.flush_streams()
        self._link.tell(told)

    def _warn(self, text: str) -> None:
        if text not in self._warnings and len(self._warnings) < MAX_WARNINGS:
            self._warnings.append(text[:MAX_WARNING])

    def _execute(self) -> None:
        try:
            self._run_source()
        except BaseException as error:
            raise _ScriptEnded(telling.describe_end(error, self._start)) from error

    def _run_source(self) -> None:
        name, source = self._start.name, self._start.source
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source, name)
        idle = _has_uncalled_main(tree)
        module = self._prepared(name)
        code: CodeType = compile(
            _capture_values(tree), name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        if code.co_flags & inspect.CO_COROUTINE:
            _asyncio_run(eval(code, module.__dict__))  # noqa: S307 - running the script is what this is for
        else:
            exec(code, module.__dict__)  # noqa: S102 - as above
        if idle:
            made = module.__dict__["main"]()
            self._returned = _asyncio_run(made) if inspect.iscoroutine(made) else made

    def _prepared(self, name: str) -> ModuleType:
        self._declarations.install()
        telling.open_line_buffered_streams()
        asyncio.run = self._noted(asyncio.run)
        builtins.input = _refuse_input
        builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # the usual ones also close standard input
        sys.breakpointhook = _refuse_debugger
        sys.argv = [name, *self._start.args]
        module = ModuleType("__main__")
        module.__dict__.update(
            {
                "__file__": name,
                _VALUE_HOOK: self._value,
                "use_tools": self._declarations.use_tools,
                "__builtins__": builtins,
            }
        )
        sys.modules["__main__"] = module
        return module

    def _value(self, value: Any) -> Any:
        """Told the value of each expression at the top level."""
        if value is not None:
            self._last = value
        return value

    def _noted(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """`asyncio.run`, which remembers what `main()` returned: a script has no other way to give it."""

        def noted(main: Coroutine[Any, Any, Any], **options: Any) -> Any:
            value = run(main, **options)
            if getattr(getattr(main, "cr_code", None), "co_name", "") == "main":
                self._returned = value
            return value

        return noted


def _has_uncalled_main(tree: ast.Module) -> bool:
    """Whether the script has a `main` that nothing in it mentions: then it is meant to be run."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    if not any(isinstance(node, functions) and node.name == "main" for node in tree.body):
        return False
    return not any(isinstance(node, ast.Name) and node.id == "main" for node in ast.walk(tree))


def _capture_values(tree: ast.Module) -> ast.Module:
    """The tree with the value of each expression at its top level, and under `__main__`, shown to the harness."""
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
