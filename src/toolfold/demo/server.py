"""Python functions as an MCP server on stdin and stdout: what the demo servers are built on.

`toolfold.wire.serving` speaks the protocol; this application answers `tools/list` and `tools/call`. The schemas are
built when they are first asked for, so that a server starts fast.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Raw, Struct

from toolfold import __version__
from toolfold.errors import InvalidArguments
from toolfold.types import EMPTY_OBJECT, Caller
from toolfold.upstream.function_tool import (
    Function,
    FunctionTool,
    exception_result,
    invalid_arguments_result,
    make_function_tool,
)
from toolfold.wire.jsonrpc import DECODE_ERRORS, INVALID_PARAMS, METHOD_NOT_FOUND, encode
from toolfold.wire.serving import About, Client, Exchange, NotificationHub, RpcError, Server
from toolfold.wire.serving.stdio import serve_stdio, take_standard_streams

# The tools are functions of this program: they do not change while it runs.
_LIST_TTL_MS = 3_600_000


class _CallParams(Struct):
    name: str = ""
    arguments: Raw = EMPTY_OBJECT


class _FunctionApp:
    """An application whose tools are functions. They never change, so clients may keep the list."""

    def __init__(self, name: str, functions: Iterable[Function], *, instructions: str = "") -> None:
        self.hub = NotificationHub()
        self._about = About(
            info={"name": name, "version": __version__},
            capabilities={"tools": {}},
            instructions=instructions,
            ttl_ms=_LIST_TTL_MS,
            cache_scope="public",
        )
        self._functions = tuple(functions)
        self._tools: dict[str, FunctionTool] = {}

    async def about(self, caller: Caller) -> About:
        return self._about

    async def handle(self, exchange: Exchange) -> Raw:
        if exchange.method == "tools/list":
            result: dict[str, object] = {"tools": [tool.definition.raw for tool in self._load().values()]}
            return Raw(encode(result | ({"ttlMs": _LIST_TTL_MS, "cacheScope": "public"} if exchange.modern else {})))
        if exchange.method == "tools/call":
            return await self._call(exchange.params)
        raise RpcError(METHOD_NOT_FOUND, f"this server has no method {exchange.method!r}")

    async def _call(self, raw: Raw) -> Raw:
        try:
            params = msgspec.json.decode(raw, type=_CallParams)
        except DECODE_ERRORS as error:
            raise RpcError(INVALID_PARAMS, f"the params of tools/call cannot be read: {error}") from None
        tool = self._load().get(params.name)
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"there is no tool {params.name!r}; there are: {', '.join(self._load())}")
        return await _run_in_thread(lambda: _call(tool, params.arguments))

    def _load(self) -> dict[str, FunctionTool]:
        # Schemas take a while to build: the handshake does not wait for them.
        if not self._tools:
            self._tools = {tool.definition.name: tool for tool in map(make_function_tool, self._functions)}
        return self._tools

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        """No notification changes what is served."""

    async def left(self, caller: Caller) -> None:
        """No state is held for a client."""

    async def watch_resource(self, uri: str, caller: Caller) -> None:
        raise RpcError(METHOD_NOT_FOUND, "this server has no resources")

    async def unwatch_resource(self, uri: str, caller: Caller) -> None:
        """Nothing is watched."""


async def _run_in_thread(call: Callable[[], Raw]) -> Raw:
    """Runs one call in a thread of its own."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Raw] = loop.create_future()

    def run() -> None:
        value = call()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the client left meanwhile
            loop.call_soon_threadsafe(lambda: None if result.done() else result.set_result(value))

    # Not `asyncio.to_thread`: the end of the loop waits for its workers, and a server must end when its client leaves.
    threading.Thread(target=run, daemon=True).start()
    return await result


def _call(tool: FunctionTool, arguments: Raw) -> Raw:
    """Runs a tool; whatever goes wrong in it is a result."""
    try:
        bound = tool.bind(arguments)
        return tool.result(asyncio.run(bound()) if tool.is_async else bound())
    except InvalidArguments as error:
        return invalid_arguments_result(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the model reads what went wrong and can act on it
        return exception_result(error)


def serve(name: str, functions: Iterable[Function], *, instructions: str = "") -> None:
    """Serves functions on this process's stdin and stdout until the client closes them.

    What a function prints, or a program it starts, goes to stderr: stdout is for messages alone.
    """

    async def run() -> None:
        await serve_stdio(Server(app), read_from=read_from, write_to=write_to)

    app = _FunctionApp(name, functions, instructions=instructions)
    read_from, write_to = take_standard_streams()
    asyncio.run(run())
