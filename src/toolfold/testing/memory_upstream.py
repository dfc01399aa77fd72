"""An upstream in memory, for tests: tools as dictionaries or functions, scripted results, faults as switches.

No process, no connection. It keeps the same contract as the real ones, so that what is tested with it holds for them.
For a server that misbehaves on a real wire see `tests/servers` in the repository.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.errors import InvalidArguments, ServerClosed, UpstreamError
from toolfold.types import CallContext, Listing, Outcome, ServerInfo, ServerSpec, ToolCall
from toolfold.upstream.base import Hooks
from toolfold.upstream.definitions import read_definitions
from toolfold.upstream.function_tool import (
    FunctionTool,
    error_result,
    exception_result,
    invalid_arguments_result,
    make_function_tool,
)

Script = Callable[[ToolCall], Any]
"""Answers a call: with a whole `CallToolResult` as a dictionary, or with any other value, which becomes its text."""


class MemoryUpstream:
    """A server of tools that lives in the test.

        shop = MemoryUpstream("shop", [{"name": "find_order", "inputSchema": {"type": "object"}}])
        shop.answer("find_order", {"id": 7})
        async with Pool([shop.spec], make=shop.make) as pool: ...

    The switches may be changed at any time: `open_error`, `list_error`, `call_error` are raised; `delay` is awaited in
    front of each open, listing and call (an event, to hold them until the test lets them go). `opened`, `listed`,
    `closed` count; `calls` and `contexts` hold what was asked, and for whom.
    """

    def __init__(
        self,
        name: str,
        tools: Iterable[dict[str, Any] | Callable[..., Any]] = (),
        *,
        info: ServerInfo | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        self._spec = ServerSpec(name=name, transport="functions", document="memory")
        self._info = info if info is not None else ServerInfo(name=name, version="1")
        self._hooks = Hooks()
        self._tools: dict[str, dict[str, Any]] = {}
        self._functions: dict[str, FunctionTool] = {}
        self._answers: dict[str, list[Any]] = {}
        self._is_open = False
        self._dead = asyncio.Event()
        self.ttl_ms = ttl_ms
        self.open_error: UpstreamError | None = None
        self.list_error: UpstreamError | None = None
        self.call_error: UpstreamError | None = None
        self.delay: asyncio.Event | None = None
        self.pid_shown: int | None = None
        self.opened = 0
        self.listed = 0
        self.closed = 0
        self.calls: list[ToolCall] = []
        self.contexts: list[CallContext] = []
        self.set_tools(tools)

    def set_tools(self, tools: Iterable[dict[str, Any] | Callable[..., Any]]) -> None:
        """Replaces all tools. Call `changed` to tell whoever runs this upstream."""
        self._tools, self._functions = {}, {}
        for tool in tools:
            if callable(tool):
                made = make_function_tool(tool)
                self._functions[made.definition.name] = made
                self._tools[made.definition.name] = msgspec.json.decode(made.definition.raw)
            else:
                # A tool without a name is kept: how such a one is read is worth a test.
                self._tools[str(tool.get("name", f"#{len(self._tools)}"))] = tool

    def answer(self, tool: str, *results: Any) -> None:
        """Scripts the results of a tool, one a call; the last one stays. A function is asked with the call."""
        self._answers[tool] = list(results)

    def changed(self) -> None:
        """Says that the list of tools changed."""
        if self._hooks.on_changed is not None:
            self._hooks.on_changed(self._spec.name)

    def die(self, reason: str = "it was told to die") -> None:
        """Ends the connection as a server does that crashes."""
        self._is_open = False
        self._dead.set()
        if self._hooks.on_closed is not None:
            self._hooks.on_closed(self._spec.name, reason)

    def make(self, spec: ServerSpec, hooks: Hooks) -> "MemoryUpstream":
        """Gives itself to a pool: `Pool([memory.spec], make=memory.make)`."""
        self._spec = spec
        self._hooks = hooks
        return self

    @property
    def spec(self) -> ServerSpec:
        return self._spec

    @property
    def pid(self) -> int | None:
        return self.pid_shown

    async def open(self) -> ServerInfo:
        self.opened += 1
        self._dead = asyncio.Event()
        await self._wait()
        if self.open_error is not None:
            raise self.open_error
        self._is_open = True
        return self._info

    async def listing(self) -> Listing:
        self.listed += 1
        await self._wait()
        self._check(self.list_error)
        raws = [Raw(msgspec.json.encode(tool)) for tool in self._tools.values()]
        tools, warnings = read_definitions(raws)
        return Listing(server=self._spec.name, tools=tools, info=self._info, ttl_ms=self.ttl_ms, warnings=warnings)

    async def call(self, call: ToolCall, context: CallContext) -> Outcome:
        name = call.tool.name
        self.calls.append(call)
        self.contexts.append(context)
        await self._wait()
        self._check(self.call_error)
        if answers := self._answers.get(name):
            value = answers.pop(0) if len(answers) > 1 else answers[0]
            return _outcome(value(call) if callable(value) else value)
        if name in self._functions:
            return await self._run(self._functions[name], call)
        if name in self._tools:
            return _outcome({"content": []})
        return Outcome(raw=error_result(f"There is no tool {name!r}."), is_error=True)

    async def _run(self, tool: FunctionTool, call: ToolCall) -> Outcome:
        try:
            value = tool.bind(call.arguments)()
            if isinstance(value, Awaitable):
                value = await value
        except InvalidArguments as error:
            return Outcome(raw=invalid_arguments_result(error), is_error=True)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool's own error, whatever it is, is a result
            return Outcome(raw=exception_result(error), is_error=True)
        return Outcome(raw=tool.result(value))

    async def aclose(self) -> None:
        self._is_open = False
        self.closed += 1

    async def _wait(self) -> None:
        """Holds on while `delay` says so, or until the connection dies."""
        if self.delay is None:
            return
        dead = self._dead
        held = [asyncio.create_task(self.delay.wait()), asyncio.create_task(dead.wait())]
        try:
            await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in held:
                task.cancel()
        if dead.is_set():
            raise ServerClosed(f"{self._spec.name} ended during the call", server=self._spec.name)

    def _check(self, error: UpstreamError | None) -> None:
        if not self._is_open:
            raise ServerClosed(f"{self._spec.name} is not open", server=self._spec.name)
        if error is not None:
            raise error


def _outcome(value: Any) -> Outcome:
    if isinstance(value, dict) and "content" in value:
        return Outcome(raw=Raw(msgspec.json.encode(value)), is_error=value.get("isError") is True)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Outcome(raw=Raw(msgspec.json.encode({"content": [{"type": "text", "text": text}]})))
