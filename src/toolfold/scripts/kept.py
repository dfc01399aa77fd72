"""Scripts that are kept by name: files in a folder, each with its lock, and for everybody the tools `scripts.NAME`.

A tool is described by the script's docstring and the parameters of its function `main`, which are read and never run
here: a script runs in the sandbox alone. It gets the tools of its lock, under the policy of whoever calls it; where one
of them is another by now it does not start. Above: the gateway, the command line. Below: `runner.py`.
"""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Optional, Union

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import ConfigError, InvalidArguments, ScriptError, ToolfoldError
from toolfold.scripts.declarations import parse_script
from toolfold.scripts.lock import SUFFIX, Lock
from toolfold.scripts.runner import ScriptRunner
from toolfold.scripts.values import ScriptResult
from toolfold.text import replace_surrogates
from toolfold.types import CallContext, Listing, Outcome, ServerInfo, ServerSpec, ToolCall
from toolfold.upstream.base import file_stamp
from toolfold.upstream.function_tool import FunctionTool, error_result, invalid_arguments_result, make_function_tool
from toolfold.upstream.threads import run_in_thread

__all__ = ["SERVER", "_KeptScript", "_KeptScripts"]

SERVER = "scripts"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,47}")
_MAX_SCRIPTS = 500
# What may stand in the parameters of `main`: they are read here, where nothing of a script is run.
_TYPES = {"Any": Any, "Literal": Literal, "Optional": Optional, "Union": Union}
_TYPES |= {kind.__name__: kind for kind in (str, int, float, bool, list, dict, tuple, set)}
_LITERALS = (ast.Name, ast.Constant, ast.Subscript, ast.BinOp, ast.BitOr, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp)
_SIMPLE = (*_LITERALS, ast.USub, ast.Load, ast.arguments, ast.arg, ast.Set)


class _KeptScript(Struct, frozen=True):
    """One script of a folder: `NAME.py`, and `NAME.py.lock` beside it."""

    path: Path

    @staticmethod
    def of(folder: Path, name: str) -> "_KeptScript":
        """Raises `ConfigError` for what cannot be a name."""
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} cannot name a script", next_action="take up to 48 letters, digits, - and _, a letter first"
            )
        return _KeptScript(folder / f"{name}.py")

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def lock_path(self) -> Path:
        return Path(f"{self.path}{SUFFIX}")

    @property
    def lock(self) -> Lock | None:
        """`None`: it was never locked. Raises `ScriptError`."""
        return Lock.load(_read_file(self.lock_path), self.lock_path.name) if self.lock_path.exists() else None

    def text(self) -> str:
        """What the file holds, be it Python or not. Raises `ScriptError`."""
        if not self.path.exists():
            raise ScriptError(f"there is no script {self.name!r}", next_action="see: toolfold scripts list")
        return _read_file(self.path).decode("utf-8", "replace")

    def read(self) -> str:
        """Its text, which was checked. Raises `ScriptError`."""
        self.text()
        return parse_script(_read_file(self.path), self.path.name)[0]

    def tool(self) -> FunctionTool:
        """Raises `ScriptError` and `ConfigError` where it cannot be one."""
        tree = ast.parse(self.read(), self.path.name)
        main = _main(tree)
        parameters = main.args if main is not None else ast.arguments([], [], None, [], [], None, [])
        for node in ast.walk(parameters):
            if not isinstance(node, _SIMPLE) or (isinstance(node, ast.Name) and node.id not in _TYPES):
                raise ScriptError(
                    f"{self.path.name}: a parameter of main has something else than a plain type and a literal default",
                    next_action=f"annotate with {', '.join(sorted(_TYPES))}, as in `limit: int = 10`",
                )
        stub = ast.FunctionDef("main", parameters, [ast.parse("return locals()").body[0]], [], None, lineno=1)
        names = dict(_TYPES)
        # Names of types and literals, and nothing that could be called.
        exec(compile(ast.fix_missing_locations(ast.Module([stub], [])), self.path.name, "exec"), names)  # noqa: S102
        function: Any = names["main"]
        function.__name__ = function.__qualname__ = self.name
        text = (main and ast.get_docstring(main)) or ast.get_docstring(tree) or f"The script {self.name}."
        function.__doc__ = replace_surrogates(text)
        return make_function_tool(function)

    def source(self, arguments: dict[str, Any]) -> str:
        """What is run: the script, and a call of its `main` where it does not call it itself."""
        source = self.read()
        main = _main(ast.parse(source))
        if main is None:
            return source
        awaited = "await " if isinstance(main, ast.AsyncFunctionDef) else ""
        encoded = msgspec.json.encode(arguments).decode()
        return f"{source}\n{awaited}main(**__import__('json').loads({encoded!r}))\n"


def _read_file(path: Path) -> bytes:
    """Raises `ScriptError`, also for what is no file: a pipe would be waited for without end."""
    try:
        if not path.is_file():
            raise ScriptError(f"{path.name} is no file", next_action=f"remove {path}")
        return path.read_bytes()
    except OSError as error:
        raise ScriptError(
            f"{path.name} cannot be read: {error.strerror}", next_action=f"check who may read {path}, or remove it"
        ) from None


def _main(tree: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function `main`, unless the script calls it itself."""
    found = None
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "main":
            found = node
        elif any(isinstance(part, ast.Call) and ast.unparse(part.func) == "main" for part in ast.walk(node)):
            return None
    return found


class _KeptScripts:
    """The upstream `scripts`."""

    pid: int | None = None

    def __init__(self, folder: Path, runner: Callable[[], ScriptRunner], wall_s: float) -> None:
        self.spec = ServerSpec(name=SERVER, transport="functions", document=str(folder), call_timeout_s=wall_s)
        self.limited_by = "wall_s of [scripts]"
        self._folder = folder
        self._runner = runner
        self._seen: tuple[object, ...] = ()

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.py") if _NAME.fullmatch(path.stem))[:_MAX_SCRIPTS]

    def _state(self) -> tuple[object, ...]:
        return tuple((path.name, file_stamp(path)) for path in self._files())

    @property
    def outdated(self) -> bool:
        """Whether a script came, went or was edited since they were listed."""
        return self._state() != self._seen

    async def open(self) -> ServerInfo:
        self._seen = self._state()
        return ServerInfo(name=SERVER)

    async def listing(self) -> Listing:
        def read() -> Listing:
            self._seen = self._state()
            tools, warnings = [], []
            for path in self._files():
                try:
                    tools.append(_KeptScript(path).tool().definition)
                except ToolfoldError as error:
                    warnings.append(f"{path.name} is left out: {error.message.removeprefix(f'{path.name}, ')}")
            return Listing(server=SERVER, tools=tuple(tools), info=ServerInfo(name=SERVER), warnings=tuple(warnings))

        return await run_in_thread(read)

    async def call(self, call: ToolCall, context: CallContext) -> Outcome:
        script = _KeptScript.of(self._folder, call.tool.name)
        try:
            arguments = script.tool().bind(call.arguments)()
        except InvalidArguments as error:
            return Outcome(raw=invalid_arguments_result(error), is_error=True)
        runner = self._runner()
        result = await runner.run_kept(script.source(arguments), script.lock, script.path.name, context, _is_no_script)
        if result.ok and result.stored is None:
            return Outcome(raw=_result(result))
        return Outcome(raw=error_result(runner.as_text(result)), is_error=not result.ok)

    async def aclose(self) -> None:
        """Nothing is open: the runner ends what runs."""


def _is_no_script(tool_id: str) -> bool:
    """Scripts call tools, and not each other: that could go on without end."""
    return not tool_id.startswith(f"{SERVER}.")


def _result(result: ScriptResult) -> Raw:
    """What it printed, and what it returned."""
    answer = result.answer
    texts = [result.stdout.rstrip("\n")] if result.stdout.strip() else []
    notes = [f"[warning: {warning}]" for warning in result.warnings]
    if result.unsaid is not None or not (texts or notes):
        texts.append(answer if isinstance(answer, str) else msgspec.json.encode(answer).decode())
    body: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in (*texts, *notes)]}
    if isinstance(answer, (dict, list)):
        body["structuredContent"] = answer if isinstance(answer, dict) else {"result": answer}
    return Raw(msgspec.json.encode(body))
