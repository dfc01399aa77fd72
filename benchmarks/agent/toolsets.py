"""Two ways to offer the same servers to a model: every definition natively, or toolfold's surface.

Both are real: the first speaks with each server over stdio, the second with `toolfold serve`, as any MCP client would.
Servers are started on the first call, in both.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from benchmarks.agent.loop import Toolset
from toolfold.errors import ToolfoldError
from toolfold.model import ToolOffer
from toolfold.types import ServerSpec
from toolfold.wire import Connection, HttpTarget, StdioTarget, Target, WireOptions, connect

MAX_NAME = 64
"""The longest name of a tool that providers take."""
OPTIONS = WireOptions(client_name="toolfold-bench")


class AllTools:
    """Every definition of every server, as `SERVER_TOOL`."""

    def __init__(self, servers: Sequence[ServerSpec], definitions: dict[str, list[dict[str, Any]]]) -> None:
        self._servers = {spec.name: spec for spec in servers}
        self._open: dict[str, Connection] = {}
        self._lock = asyncio.Lock()
        self._targets: dict[str, tuple[str, str]] = {}
        self._by_server: dict[str, list[ToolOffer]] = {}
        for server, tools in definitions.items():
            self._take(server, tools)
        self._offers = tuple(chain.from_iterable(self._by_server.values()))

    def _take(self, server: str, tools: Sequence[dict[str, Any]]) -> None:
        self._targets = {name: target for name, target in self._targets.items() if target[0] != server}
        self._by_server[server] = []
        for tool in tools:
            name = native_name(f"{server}.{tool['name']}")
            self._targets[name] = (server, tool["name"])
            schema = tool.get("inputSchema") or {"type": "object"}
            self._by_server[server].append(ToolOffer(name, str(tool.get("description") or ""), schema))

    async def list_again(self, server: str) -> None:
        """Its tools changed."""
        self._take(server, await listed(await self._connection(server)))
        self._offers = tuple(chain.from_iterable(self._by_server.values()))

    async def instructions(self) -> str:
        return ""

    async def offers(self) -> tuple[ToolOffer, ...]:
        return self._offers

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        if name not in self._targets:
            return f"There is no tool {name!r}."
        server, tool = self._targets[name]
        try:
            connection = await self._connection(server)
        except ToolfoldError as error:
            return f"error: {error.message}"
        return await called(connection, tool, arguments)

    async def _connection(self, server: str) -> Connection:
        async with self._lock:
            if server not in self._open:
                self._open[server] = await connect(target(self._servers[server]), options=OPTIONS)
        return self._open[server]

    async def aclose(self) -> None:
        await asyncio.gather(*(one.aclose() for one in self._open.values()))


class Surface:
    """The tools of `toolfold serve`, and what it tells a client at the start."""

    def __init__(self, connection: Connection, without: frozenset[str] = frozenset()) -> None:
        self._connection = connection
        self._without = without
        self._offers: tuple[ToolOffer, ...] = ()

    async def instructions(self) -> str:
        return self._connection.info.instructions

    async def offers(self) -> tuple[ToolOffer, ...]:
        if not self._offers:
            self._offers = tuple(
                ToolOffer(one["name"], one["description"], one["inputSchema"])
                for one in await listed(self._connection)
                if one["name"] not in self._without
            )
        return self._offers

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return await called(self._connection, name, arguments)


@asynccontextmanager
async def all_tools(
    servers: Sequence[ServerSpec], definitions: dict[str, list[dict[str, Any]]]
) -> AsyncIterator[Toolset]:
    toolset = AllTools(servers, definitions)
    try:
        yield toolset
    finally:
        await toolset.aclose()


@asynccontextmanager
async def surface(
    config: Path, home: Path, *profile: str, without: frozenset[str] = frozenset()
) -> AsyncIterator[Toolset]:
    command = ("-P", "-m", "toolfold", "--config", str(config), "--home", str(home), "serve", *profile)
    program = StdioTarget(sys.executable, command, cwd=str(config.parent))
    # Most clients speak the handshake era; there the tools are the same from the first turn to the last.
    connection = await connect(program, options=OPTIONS, era="legacy")
    try:
        yield Surface(connection, without)
    finally:
        await connection.aclose()


async def definitions_of(servers: Sequence[ServerSpec]) -> dict[str, list[dict[str, Any]]]:
    """What each server lists, asked once."""
    found = {}
    for spec in servers:
        connection = await connect(target(spec), options=OPTIONS)
        try:
            found[spec.name] = await listed(connection)
        finally:
            await connection.aclose()
    return found


async def listed(connection: Connection) -> list[dict[str, Any]]:
    return [msgspec.json.decode(raw) for raw in (await connection.list_tools()).tools]


async def called(connection: Connection, tool: str, arguments: dict[str, Any]) -> str:
    """The text of a result, as clients give it to a model."""
    try:
        raw = await connection.call_tool(tool, Raw(msgspec.json.encode(arguments)))
    except ToolfoldError as error:
        return f"error: {error.message}"
    result = msgspec.json.decode(raw)
    texts = [block["text"] for block in result.get("content") or () if block.get("type") == "text"]
    return "\n".join(texts) or json.dumps(result.get("structuredContent"))


def native_name(tool_id: str) -> str:
    """A name that every provider takes."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", tool_id)[-MAX_NAME:]


def target(spec: ServerSpec) -> Target:
    return HttpTarget(spec.url) if spec.url else StdioTarget(spec.command, spec.args, spec.env, spec.cwd)


def config_text(servers: Sequence[ServerSpec]) -> str:
    """The servers as a `toolfold.toml`."""
    lines: list[str] = []
    for spec in servers:
        lines.append(f"[servers.{spec.name}]")
        if spec.url:
            lines.append(f"url = {json.dumps(spec.url)}")
            continue
        lines += [f"command = {json.dumps(spec.command)}", f"args = {json.dumps(spec.args)}"]
        if spec.cwd:
            lines.append(f"cwd = {json.dumps(spec.cwd)}")
        if spec.env:
            lines.append(f"[servers.{spec.name}.env]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in spec.env.items()]
    return "\n".join(lines) + "\n"
