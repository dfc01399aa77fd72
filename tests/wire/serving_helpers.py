"""Shared by the tests of the serving side: an application of a few methods, a pipe and an HTTP port to serve it on."""

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
from msgspec import Raw

from toolfold.errors import ToolfoldError
from toolfold.faces.mcp_server.http import Site, listening_socket, run_site
from toolfold.types import Caller
from toolfold.wire.pipes import PipeWriter
from toolfold.wire.serving import About, Client, Exchange, NotificationHub, RpcError, ServeOptions, Server
from toolfold.wire.serving.http import McpHttpApp
from toolfold.wire.serving.http_connection import ConnectionLimits
from toolfold.wire.serving.http_guard import HttpGuard
from toolfold.wire.serving.peers import Peers
from toolfold.wire.serving.stdio import serve_stdio

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


class EchoApp:
    """Echoes parameters, asks the client, waits, fails, and publishes. `log` is what happened."""

    def __init__(self) -> None:
        self.hub = NotificationHub()
        self.log: list[str] = []
        self.started = asyncio.Event()
        self.watched: list[str] = []

    async def about(self, caller: Caller) -> About:
        able: dict[str, Any] = {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "logging": {},
        }
        return About(info={"name": "echo", "version": "1"}, capabilities=able, instructions="Echo.")

    async def handle(self, exchange: Exchange) -> Raw:
        match exchange.method:
            case "echo":
                return raw({"given": json.loads(bytes(exchange.params)), "caller": exchange.caller.name})
            case "tools/list":
                return raw({"tools": []})
            case "tools/call":
                return await self._call(exchange)
            case "broken":
                raise ValueError("a bug")
            case "unkind":
                raise ToolfoldError("no such thing", next_action="ask for another")
        raise RpcError(-32601, f"no {exchange.method}")

    async def _call(self, exchange: Exchange) -> Raw:
        params = json.loads(bytes(exchange.params))
        match params["name"]:
            case "ask":
                form = raw({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}})
                count = params.get("arguments", {}).get("times", 1)
                answers = await asyncio.gather(*(exchange.ask("elicitation/create", form) for _ in range(count)))
                self.log.append("answered")
                return raw({"content": [{"type": "text", "text": json.dumps([json.loads(bytes(a)) for a in answers])}]})
            case "wait":
                self.started.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.log.append("cancelled")
                    raise
            case "steps":
                for step in range(3):
                    exchange.progress(raw({"progressToken": 0, "progress": step}))
        return raw({"content": [{"type": "text", "text": exchange.caller.name}]})

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        self.log.append(method)

    async def left(self, caller: Caller) -> None:
        self.log.append(f"left {caller.name}")

    async def watch_resource(self, uri: str, caller: Caller) -> None:
        self.watched.append(uri)

    async def unwatch_resource(self, uri: str, caller: Caller) -> None:
        self.watched.remove(uri)


def modern(method: str, params: dict[str, Any] | None = None, *, key: Any = 1, able: Any = None) -> dict[str, Any]:
    """A request of the modern era."""
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": able or {}}
    given = dict(params or {})
    return {
        "jsonrpc": "2.0",
        "id": key,
        "method": method,
        "params": {**given, "_meta": {**meta, **given.get("_meta", {})}},
    }


def legacy(method: str, params: dict[str, Any] | None = None, *, key: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": key, "method": method, "params": params or {}}


def hello(version: str = "2025-11-25", able: Any = None, *, key: Any = 0) -> dict[str, Any]:
    said = {"protocolVersion": version, "capabilities": able or {}, "clientInfo": {"name": "t", "version": "1"}}
    return legacy("initialize", said, key=key)


class Pipe:
    """The client's end of a pipe."""

    def __init__(self, reader: asyncio.StreamReader, writer: PipeWriter, hang_up: Callable[[], None]) -> None:
        self._reader = reader
        self._writer = writer
        self.hang_up = hang_up

    def write(self, *lines: bytes) -> None:
        self._writer.write(b"".join(line + b"\n" for line in lines))

    def send(self, *messages: object) -> None:
        self.write(*(json.dumps(message).encode() for message in messages))

    async def read(self) -> Any:
        async with asyncio.timeout(10):
            return json.loads(await self._reader.readline())

    async def ask(self, message: dict[str, Any]) -> Any:
        self.send(message)
        return await self.read()


@contextlib.asynccontextmanager
async def on_pipe(app: EchoApp, options: ServeOptions | None = None) -> AsyncIterator[Pipe]:
    """Serves the application on a pipe."""
    (read_from, client_writes), (client_reads, write_to) = os.pipe(), os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(client_reads, "rb")
    )
    serving = asyncio.create_task(serve_stdio(Server(app, options), read_from=read_from, write_to=write_to))
    os.set_blocking(client_writes, False)
    writer = PipeWriter(client_writes, lambda: None)
    try:
        yield Pipe(reader, writer, transport.close)
        writer.close()
        async with asyncio.timeout(10):
            await serving
    finally:
        writer.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        transport.close()


class Port:
    """An HTTP port that serves MCP, and a client for it."""

    def __init__(self, number: int, client: httpx2.AsyncClient, mcp: McpHttpApp) -> None:
        self.number = number
        self.url = f"http://127.0.0.1:{number}/mcp"
        self.client = client
        self.mcp = mcp
        self._numbers = itertools.count(100)

    async def post(self, message: object, **headers: str) -> httpx2.Response:
        return await self.client.post(self.url, json=message, headers=self.headers(message, **headers))

    def headers(self, message: object, **more: str) -> dict[str, str]:
        """The headers that belong to a message; `more` changes them, an empty one is left out."""
        found = {"Accept": "application/json, text/event-stream"}
        if isinstance(message, dict) and META + "protocolVersion" in message.get("params", {}).get("_meta", {}):
            params = message["params"]
            found |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
            if "name" in params:
                found["Mcp-Name"] = params["name"]
        found |= {name.replace("_", "-"): value for name, value in more.items()}
        return {name: value for name, value in found.items() if value}

    async def session(self, version: str = "2025-11-25", able: Any = None, **headers: str) -> str:
        answer = await self.post(hello(version, able), **headers)
        assert answer.status_code == 200, answer.text
        name = answer.headers["mcp-session-id"]
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.post(done, Mcp_Session_Id=name, **headers)).status_code == 202
        return str(name)


def events(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and len(line) > 6]


@contextlib.asynccontextmanager
async def on_http(
    app: EchoApp,
    options: ServeOptions | None = None,
    guard: HttpGuard | None = None,
    limits: ConnectionLimits | None = None,
    peers: Peers | None = None,
) -> AsyncIterator[Port]:
    """Serves the application over HTTP."""
    mcp = McpHttpApp(Server(app, options, peers), guard)
    bound = listening_socket("127.0.0.1", 0)
    stop = asyncio.Event()
    serving = asyncio.create_task(run_site(Site(mcp), bound, stop, limits))
    try:
        async with httpx2.AsyncClient(timeout=10) as client:
            yield Port(bound.getsockname()[1], client, mcp)
    finally:
        await mcp.aclose()
        stop.set()
        await serving
