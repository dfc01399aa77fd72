"""Python functions as an upstream: no process, no connection, the same contract as every other source of tools.

Asynchronous functions run on the loop; the others each run in a thread of their own, so that a slow one holds up
nothing. A thread cannot be stopped from outside: after a time-out or a cancellation the caller goes on and the thread
ends when the function does. Threads are daemons, so they never hold up the end of the program.
"""

import asyncio
import importlib
import inspect
import sys
from collections.abc import Iterable
from hashlib import sha256
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary

from msgspec import Raw

from toolfold.errors import ConfigError, InvalidArguments, ServerTimeout, ServerUnavailable
from toolfold.types import CallContext, Listing, Outcome, ServerInfo, ServerSpec, ToolCall
from toolfold.upstream.base import call_timeout, file_stamp
from toolfold.upstream.function_tool import (
    Function,
    FunctionTool,
    error_result,
    exception_result,
    invalid_arguments_result,
    make_function_tool,
    tool,
)
from toolfold.upstream.threads import run_in_thread

__all__ = ["Function", "FunctionsUpstream", "tool"]

# How many functions without `async` run at once, those that were abandoned included; further calls wait their turn.
_MAX_THREADS = 32

# Of each module that functions were taken from: its file as it was then.
_stamps: WeakKeyDictionary[ModuleType, tuple[int, ...]] = WeakKeyDictionary()


def _load_functions(document: str, folder: str | None) -> tuple[list[Function], str]:
    """The functions that a module or a file names, or one of them, and the file. Raises `ServerUnavailable`."""
    module_name, _, name = document.rpartition(":") if document.rfind(":") > document.rfind(".") else (document, "", "")
    try:
        module = _renewed(_import_module(module_name, folder))
    except (Exception, SystemExit) as error:
        # Whatever the person's module raises while it is imported, it is the reason the server cannot start.
        beside = f" or lies in {folder}" if folder else ""
        raise ServerUnavailable(
            f"the module {module_name!r} cannot be imported: {type(error).__name__}: {error}",
            next_action=f"Check the name in `functions`, and that the module is installed where toolfold runs{beside}.",
        ) from error
    functions, file = _public_functions(module), module.__file__ or ""
    if not name:
        return list(functions.values()), file
    function = getattr(module, name, None)
    if not callable(function):
        raise ServerUnavailable(
            f"{module_name!r} has no function {name!r}",
            hints=sorted(functions),
            next_action=f"Name one of: {', '.join(sorted(functions)) or 'none is defined there'}.",
        )
    return [function], file


def _renewed(module: ModuleType) -> ModuleType:
    """The module, executed anew where its file was edited since. Where that fails the old one stays.

    As a new module: one that is reloaded in place keeps what was deleted from its file. Calls that run go on in the
    old one.
    """
    loader, path = getattr(module.__spec__, "loader", None), module.__file__ or ""
    stamp = file_stamp(path)
    if _stamps.setdefault(module, stamp) == stamp or module.__spec__ is None or not isinstance(loader, SourceLoader):
        return module
    # What the module defines looks itself up there while it is executed.
    fresh = sys.modules[module.__name__] = module_from_spec(module.__spec__)
    try:
        # The loader itself would take compiled code of the same second and length for the file's.
        exec(loader.source_to_code(loader.get_data(path), path), vars(fresh))  # noqa: S102 - the owner's own module
    except (Exception, SystemExit) as error:
        sys.modules[module.__name__] = module
        raise ImportError(f"{type(error).__name__}: {error}") from error
    _stamps[fresh] = stamp
    return fresh


def _import_module(name: str, folder: str | None) -> ModuleType:
    """A module by its name, or a file. Its folder is looked in last: nothing there hides an installed module."""
    file = Path(name) if name.endswith(".py") else None
    folder = folder if file is None else str(file.parent)
    if folder and folder not in sys.path:
        sys.path.append(folder)
    if file is None:
        return importlib.import_module(name)
    # Two files of one name are two modules, and neither is one that is installed.
    own_name = f"_{file.stem}_{sha256(bytes(file)).hexdigest()[:12]}"
    if own_name in sys.modules:
        return sys.modules[own_name]
    spec = spec_from_file_location(own_name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = sys.modules[own_name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own_name]
        raise
    return module


def _public_functions(module: ModuleType) -> dict[str, Function]:
    """Every function `__all__` names, or else every public one that the module itself defines."""
    exported = getattr(module, "__all__", None)
    if exported is not None:
        listed = {name: getattr(module, name, None) for name in exported}
        return {name: value for name, value in listed.items() if inspect.isroutine(value)}
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and inspect.isfunction(value) and value.__module__ == module.__name__
    }


class FunctionsUpstream:
    """An upstream over functions: those that `spec.document` names, or those given.

    `FunctionsUpstream.of("shop", [find_order, cancel_order])` is the short way for a program's own functions.
    """

    pid: int | None = None

    def __init__(
        self, spec: ServerSpec, functions: Iterable[Function] | None = None, *, default_timeout_s: float = 60.0
    ) -> None:
        self.spec = spec
        self._functions = None if functions is None else tuple(functions)
        self._default_timeout_s = default_timeout_s
        self._tools: dict[str, FunctionTool] = {}
        self._file = ""
        self._stamp: tuple[int, ...] = ()
        self._turns = asyncio.Semaphore(_MAX_THREADS)

    @classmethod
    def of(
        cls, name: str, functions: Iterable[Function], *, call_timeout_s: float | None = None
    ) -> "FunctionsUpstream":
        """An upstream over a program's own functions. Raises `ConfigError` at once for one that cannot be a tool."""
        listed = tuple(functions)
        _make_tools(listed)
        return cls(ServerSpec(name=name, transport="functions", call_timeout_s=call_timeout_s), listed)

    @property
    def outdated(self) -> bool:
        """Whether the module was edited since it was read. What it imports is not looked at."""
        return bool(self._file) and file_stamp(self._file) != self._stamp

    async def open(self) -> ServerInfo:
        await self._read()
        return ServerInfo(name=self.spec.name)

    async def _read(self) -> None:
        self._stamp = file_stamp(self._file)  # also where it fails: what is wrong is read once
        try:
            self._tools = await run_in_thread(self._load)
        except ServerUnavailable as error:
            error.server = self.spec.name
            raise
        except ConfigError as error:
            raise ServerUnavailable(
                error.message, server=self.spec.name, hints=error.hints, next_action=error.next_action
            ) from error

    def _load(self) -> dict[str, FunctionTool]:
        if self._functions is not None:
            return _make_tools(self._functions)
        functions, file = _load_functions(self.spec.document, self.spec.cwd)
        if file != self._file:
            self._file, self._stamp = file, file_stamp(file)
        return _make_tools(functions)

    async def listing(self) -> Listing:
        if self.outdated:
            await self._read()
        tools = tuple(tool.definition for tool in self._tools.values())
        return Listing(server=self.spec.name, tools=tools, info=ServerInfo(name=self.spec.name))

    async def call(self, call: ToolCall, context: CallContext) -> Outcome:
        """Calls a function, which reports no progress and asks nothing."""
        name = call.tool.name
        function = self._tools.get(name)
        if function is None:
            return _error(error_result(f"There is no tool {name!r}. There are: {', '.join(self._tools)}."))
        try:
            bound = function.bind(call.arguments)
        except InvalidArguments as error:
            return _error(invalid_arguments_result(error))
        seconds = call_timeout(self.spec, context, self._default_timeout_s)
        try:
            async with asyncio.timeout(seconds) as deadline:
                try:
                    if function.is_async:
                        value = await bound()
                    else:
                        await self._turns.acquire()
                        value = await run_in_thread(bound, ended=self._turns.release)
                except TimeoutError as error:
                    # The function's own time-out is its result; only ours is the server's fault.
                    if deadline.expired():
                        raise
                    return _error(exception_result(error))
        except TimeoutError:
            raise ServerTimeout(
                f"{name} did not end within {seconds:g} s",
                server=self.spec.name,
                next_action="Raise `call_timeout_s` for this server, or ask for less.",
            ) from None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool's own error, whatever it is, is a result
            return _error(exception_result(error))
        result = function.result(value)
        return Outcome(raw=result, is_error=bytes(result).endswith(b'"isError":true}'))

    async def aclose(self) -> None:
        self._tools = {}


def _make_tools(functions: Iterable[Function]) -> dict[str, FunctionTool]:
    """Tools by name. Raises `ConfigError`, also for two functions of one name."""
    tools: dict[str, FunctionTool] = {}
    for function in functions:
        function_tool = make_function_tool(function)
        name = function_tool.definition.name
        if name in tools:
            raise ConfigError(
                f"two functions would both be the tool {name!r}.", next_action='Name one with @tool(name="…").'
            )
        tools[name] = function_tool
    return tools


def _error(result: Raw) -> Outcome:
    return Outcome(raw=result, is_error=True)
