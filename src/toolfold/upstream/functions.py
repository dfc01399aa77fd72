"""Python functions as an upstream: no process, no connection, the same contract as every other source of tools.

Asynchronous functions run on the loop; the others each run in a thread of their own, so that a slow one holds up
nothing. A thread cannot be stopped from outside: after a time-out or a cancellation the caller goes on and the thread
ends when the function does. Threads are daemons, so they never hold up the end of the program.
"""

import asyncio
import importlib
import inspect
from collections.abc import Iterable
from types import ModuleType

from msgspec import Raw

from toolfold.errors import ConfigError, InvalidArguments, ServerTimeout, ServerUnavailable
from toolfold.types import Call, Listing, Outcome, ServerInfo, ServerSpec
from toolfold.upstream.base import OnInput, OnProgress
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

__all__ = ["Function", "FunctionsUpstream", "_load_functions", "tool"]

_MAX_THREADS = 32
"""How many functions without `async` run at once, those that were given up included; further calls wait their turn."""


def _load_functions(document: str) -> list[Function]:
    """The functions that `package.module` or `package.module:name` names. Raises `ServerUnavailable`."""
    module_name, _, name = document.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        # Whatever the person's module raises while it is imported, it is the reason the server cannot start.
        raise ServerUnavailable(
            f"the module {module_name!r} cannot be imported: {type(error).__name__}: {error}",
            next_action="Check the name in `document`, and that the module is installed where toolfold runs.",
        ) from error
    functions = _public_functions(module)
    if not name:
        return list(functions.values())
    found = getattr(module, name, None)
    if not callable(found):
        raise ServerUnavailable(
            f"{module_name!r} has no function {name!r}",
            hints=sorted(functions),
            next_action=f"Name one of: {', '.join(sorted(functions)) or 'none is defined there'}.",
        )
    return [found]


def _public_functions(module: ModuleType) -> dict[str, Function]:
    """Every function `__all__` names, or else every public one that the module itself defines."""
    named = getattr(module, "__all__", None)
    if named is not None:
        listed = {name: getattr(module, name, None) for name in named}
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

    def __init__(self, spec: ServerSpec, functions: Iterable[Function] | None = None) -> None:
        self._spec = spec
        self._functions = None if functions is None else tuple(functions)
        self._tools: dict[str, FunctionTool] = {}
        self._turns = asyncio.Semaphore(_MAX_THREADS)

    @classmethod
    def of(cls, name: str, functions: Iterable[Function], *, call_timeout_s: float = 60.0) -> "FunctionsUpstream":
        """An upstream over a program's own functions. Raises `ConfigError` at once for one that cannot be a tool."""
        listed = tuple(functions)
        _tools_of(listed)
        return cls(ServerSpec(name=name, transport="functions", call_timeout_s=call_timeout_s), listed)

    @property
    def spec(self) -> ServerSpec:
        return self._spec

    @property
    def pid(self) -> int | None:
        return None

    async def open(self) -> ServerInfo:
        try:
            self._tools = await run_in_thread(self._load)
        except ServerUnavailable as error:
            error.server = self._spec.name
            raise
        except ConfigError as error:
            raise ServerUnavailable(
                error.message, server=self._spec.name, hints=error.hints, next_action=error.next_action
            ) from error
        return ServerInfo(name=self._spec.name)

    def _load(self) -> dict[str, FunctionTool]:
        return _tools_of(self._functions if self._functions is not None else _load_functions(self._spec.document))

    async def listing(self) -> Listing:
        return Listing(
            server=self._spec.name,
            tools=tuple(tool.definition for tool in self._tools.values()),
            info=ServerInfo(name=self._spec.name),
        )

    async def call(
        self, call: Call, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Outcome:
        del on_progress, on_input  # A plain function reports no progress and asks nothing.
        found = self._tools.get(call.tool)
        if found is None:
            return _error(error_result(f"There is no tool {call.tool!r}. There are: {', '.join(self._tools)}."))
        try:
            bound = found.bind(call.arguments)
        except InvalidArguments as error:
            return _error(invalid_arguments_result(error))
        seconds = call.timeout_s if call.timeout_s is not None else self._spec.call_timeout_s
        try:
            async with asyncio.timeout(seconds) as deadline:
                try:
                    if found.is_async:
                        value = await bound()
                    else:
                        await self._turns.acquire()
                        value = await run_in_thread(bound, ended=self._turns.release)
                except TimeoutError as error:
                    if deadline.expired():
                        raise
                    return _error(exception_result(error))
        except TimeoutError:
            raise ServerTimeout(
                f"{call.tool} did not end within {seconds:g} s",
                server=self._spec.name,
                next_action="Raise `call_timeout_s` for this server, or ask for less.",
            ) from None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool's own error, whatever it is, is a result
            return _error(exception_result(error))
        result = found.result(value)
        return Outcome(result=result, is_error=_is_error(result))

    async def aclose(self) -> None:
        self._tools = {}


def _tools_of(functions: Iterable[Function]) -> dict[str, FunctionTool]:
    """Tools by name. Raises `ConfigError`, also for two functions of one name."""
    tools: dict[str, FunctionTool] = {}
    for function in functions:
        made = make_function_tool(function)
        name = made.definition.name
        if name in tools:
            raise ConfigError(
                f"two functions would both be the tool {name!r}.", next_action='Name one with @tool(name="…").'
            )
        tools[name] = made
    return tools


def _error(result: Raw) -> Outcome:
    return Outcome(result=result, is_error=True)


def _is_error(result: Raw) -> bool:
    return bytes(result).endswith(b'"isError":true}')
