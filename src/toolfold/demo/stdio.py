"""A small MCP server over stdio for a handful of Python functions, of both eras.

It needs no event loop: the main thread reads messages and answers the short ones, and each tool call has a thread of
its own. It starts fast, and the schemas are made when they are first asked for. It is what the demo servers stand on;
the gateway's own MCP face is another thing and knows far more.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder, encode

from toolfold import __version__
from toolfold.errors import InvalidArguments
from toolfold.upstream.function_tool import (
    Function,
    FunctionTool,
    exception_result,
    invalid_arguments_result,
    make_function_tool,
)

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
LIST_TTL_MS = 3_600_000
LAST_ANSWERS_S = 1.0
"""How long calls that still run may go on once the client has closed its side."""

_PREFIX = "io.modelcontextprotocol/"
_PARSE, _REQUEST, _METHOD, _PARAMS, _VERSION = -32700, -32600, -32601, -32602, -32022


class _Message(Struct):
    id: Raw | UnsetType = UNSET
    method: str = ""
    params: Raw = Raw(b"{}")


class _Meta(Struct):
    version: str | None = msgspec.field(name=f"{_PREFIX}protocolVersion", default=None)
    capabilities: Raw | UnsetType = msgspec.field(name=f"{_PREFIX}clientCapabilities", default=UNSET)


class _Params(Struct, rename="camel"):
    meta: _Meta = msgspec.field(name="_meta", default_factory=_Meta)
    protocol_version: str = ""
    name: str = ""
    arguments: Raw = Raw(b"{}")
    request_id: Raw | UnsetType = UNSET


_message = Decoder(_Message)
_params = Decoder(_Params)


class _Refused(Exception):
    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class StdioServer:
    """Answers messages that it reads from one stream, on another."""

    def __init__(
        self, name: str, functions: Iterable[Function], *, instructions: str = "", version: str = __version__
    ) -> None:
        self._info = {"name": name, "version": version}
        self._instructions = instructions
        self._functions = tuple(functions)
        self._tools: dict[str, FunctionTool] | None = None
        self._lock = threading.Lock()
        self._running: dict[bytes, threading.Thread] = {}
        self._cancelled: set[bytes] = set()
        self._out: BinaryIO | None = None

    def run(self, source: BinaryIO, out: BinaryIO) -> None:
        """Serves until `source` ends."""
        self._out = out
        try:
            for line in source:
                if line.strip():
                    self._handle(line)
            self._finish()
        except BrokenPipeError:
            return  # The client is gone: there is nobody left to answer.

    def _finish(self) -> None:
        until = time.monotonic() + LAST_ANSWERS_S
        for thread in list(self._running.values()):
            thread.join(max(0.0, until - time.monotonic()))

    def _handle(self, line: bytes) -> None:
        try:
            message = _message.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            code = _REQUEST if isinstance(error, msgspec.ValidationError) else _PARSE
            self._send_error(b"null", _Refused(code, f"this message cannot be read: {error}"))
            return
        if not message.method:
            return  # A response: this server asks nothing.
        if message.id is UNSET:
            self._notified(message)
            return
        request = bytes(message.id)
        try:
            params = _read_params(message)
            modern = _check_era(message.method, params)
            if message.method == "tools/call":
                self._start_call(request, params, modern)
            else:
                self._send(request, self._answer(message.method, params, modern), modern)
        except _Refused as error:
            self._send_error(request, error)

    def _notified(self, message: _Message) -> None:
        if message.method != "notifications/cancelled":
            return
        try:
            wanted = _read_params(message).request_id
        except _Refused:
            return
        if wanted is not UNSET and bytes(wanted) in self._running:
            self._cancelled.add(bytes(wanted))

    def _answer(self, method: str, params: _Params, modern: bool) -> bytes:
        match method:
            case "initialize":
                return self._initialised(params)
            case "server/discover":
                return self._discovered()
            case "tools/list":
                return self._listed(modern)
            case "ping" if not modern:
                return b"{}"
        raise _Refused(_METHOD, f"this server has no method {method!r}")

    def _initialised(self, params: _Params) -> bytes:
        version = params.protocol_version if params.protocol_version in LEGACY else LEGACY[0]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": self._info}
        return encode(result | ({"instructions": self._instructions} if self._instructions else {}))

    def _discovered(self) -> bytes:
        result = {
            "supportedVersions": [MODERN],
            "capabilities": {"tools": {}},
            "_meta": {f"{_PREFIX}serverInfo": self._info},
            "ttlMs": LIST_TTL_MS,
            "cacheScope": "public",
        }
        return encode(result | ({"instructions": self._instructions} if self._instructions else {}))

    def _listed(self, modern: bool) -> bytes:
        result: dict[str, object] = {"tools": [tool.definition.raw for tool in self.tools().values()]}
        return encode(result | ({"ttlMs": LIST_TTL_MS, "cacheScope": "public"} if modern else {}))

    def tools(self) -> dict[str, FunctionTool]:
        """The tools by name, made on the first use."""
        with self._lock:
            if self._tools is None:
                made = [make_function_tool(function) for function in self._functions]
                self._tools = {tool.definition.name: tool for tool in made}
            return self._tools

    def _start_call(self, request: bytes, params: _Params, modern: bool) -> None:
        tool = self.tools().get(params.name)
        if tool is None:
            names = ", ".join(self.tools())
            raise _Refused(_PARAMS, f"there is no tool {params.name!r}; there are: {names}")
        thread = threading.Thread(target=self._call, args=(request, tool, params.arguments, modern), daemon=True)
        self._running[request] = thread
        thread.start()

    def _call(self, request: bytes, tool: FunctionTool, arguments: Raw, modern: bool) -> None:
        try:
            result = _called(tool, arguments)
            if request not in self._cancelled:
                self._send(request, bytes(result), modern)
        except BrokenPipeError:
            return  # As in `run`.
        finally:
            self._cancelled.discard(request)
            self._running.pop(request, None)

    def _send(self, request: bytes, result: bytes, modern: bool) -> None:
        if modern:
            result = b'{"resultType":"complete",' + result[1:]
        self._write(b'{"jsonrpc":"2.0","id":' + request + b',"result":' + result + b"}\n")

    def _send_error(self, request: bytes, error: _Refused) -> None:
        body: dict[str, object] = {"code": error.code, "message": str(error)}
        if error.data is not None:
            body["data"] = error.data
        self._write(b'{"jsonrpc":"2.0","id":' + request + b',"error":' + encode(body) + b"}\n")

    def _write(self, line: bytes) -> None:
        if self._out is None:
            return
        with self._lock:
            self._out.write(line)
            self._out.flush()


def _called(tool: FunctionTool, arguments: Raw) -> Raw:
    """Runs a tool; whatever goes wrong in it is a result."""
    try:
        bound = tool.bind(arguments)
        if tool.is_async:
            import asyncio

            return tool.result(asyncio.run(bound()))
        return tool.result(bound())
    except InvalidArguments as error:
        return invalid_arguments_result(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the model reads what went wrong and can act on it
        return exception_result(error)


def _read_params(message: _Message) -> _Params:
    try:
        return _params.decode(message.params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Refused(_PARAMS, f"the params of {message.method} cannot be read: {error}") from None


def _check_era(method: str, params: _Params) -> bool:
    """Whether a request is of the modern era. Refuses one that claims to be and is not complete."""
    version = params.meta.version
    if version is None or method == "initialize":
        if method == "server/discover":
            raise _Refused(_PARAMS, f"`_meta` must hold {_PREFIX}protocolVersion")
        return False
    if version != MODERN:
        raise _Refused(
            _VERSION, f"unsupported protocol version {version}", {"supported": [MODERN], "requested": version}
        )
    if params.meta.capabilities is UNSET:
        raise _Refused(_PARAMS, f"`_meta` must hold {_PREFIX}clientCapabilities")
    return True


def serve(name: str, functions: Iterable[Callable[..., object]], *, instructions: str = "") -> None:
    """Serves functions on this process's stdin and stdout until the client closes them.

    What a function prints, or a program it starts, goes to stderr: stdout is for messages alone.
    """
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        StdioServer(name, functions, instructions=instructions).run(sys.stdin.buffer, out)
