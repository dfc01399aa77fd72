"""The settings: ways in which the same servers are offered to a model.

    all_tools        every definition in the prompt, called directly
    surface          `toolfold serve`, without scripts
    scripts          `toolfold serve`, with them
    fastmcp_search   FastMCP before the same servers, with its tool search (BM25)
    fastmcp_code     FastMCP before the same servers, with its code mode

All but the first are one process for all tasks, with a new MCP session for each. When functions come or go between two
turns, `settle` waits until the setting shows it: a person who adds a server waits for it, too.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from benchmarks.agent.loop import Toolset
from benchmarks.agent.toolsets import OPTIONS, AllTools, Surface, called, config_text, definitions_of
from benchmarks.bfcl.servers import Playground, Servers
from benchmarks.peers import can_import, peer_python
from benchmarks.processes import free_port, started
from toolfold.errors import ConfigError
from toolfold.wire import Connection, HttpTarget, connect

OURS = ("all_tools", "surface", "scripts")
PEERS = ("fastmcp_search", "fastmcp_code")
SETTLE_S = 60.0
BUILD_S = 900.0

_FASTMCP = """\
import json, sys
from fastmcp.server import create_proxy
port, code, servers = int(sys.argv[1]), sys.argv[2] == "fastmcp_code", json.loads(sys.argv[3])
proxy = create_proxy({"mcpServers": {name: {"url": url} for name, url in servers.items()}}, name="proxy")
if code:
    from fastmcp.experimental.transforms.code_mode import CodeMode
    proxy.add_transform(CodeMode())
else:
    from fastmcp.server.transforms.search import BM25SearchTransform
    proxy.add_transform(BM25SearchTransform())
proxy.run("http", host="127.0.0.1", port=port, show_banner=False)
"""


class Setting(Protocol):
    """One way, ready for tasks."""

    def session(self) -> AbstractAsyncContextManager["InOrder"]:
        """The toolset of one task."""

    async def settle(self, changed: dict[str, bool]) -> None:
        """Waits until these tools are offered (true) or gone (false)."""


class InOrder:
    """A toolset whose calls run one after the other, as the official executor runs them."""

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._lock = asyncio.Lock()
        self.read: list[tuple[str, str]] = []
        """What was called, and what the model read."""
        self.instructions = toolset.instructions
        self.offers = toolset.offers

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        async with self._lock:
            self.read.append((name, await self._toolset.call(name, arguments)))
            return self.read[-1][1]


class _Direct:
    def __init__(self, tools: AllTools) -> None:
        self._tools = tools

    @asynccontextmanager
    async def session(self) -> AsyncIterator[InOrder]:
        yield InOrder(self._tools)

    async def settle(self, changed: dict[str, bool]) -> None:
        for server in {tool_id.partition(".")[0] for tool_id in changed}:
            await self._tools.list_again(server)


class _Served:
    """An MCP server that stands before the others; a search for a tool's name shows whether it is there."""

    def __init__(self, url: str, control: Connection, search: str, shown: str, without: frozenset[str]) -> None:
        self._target = HttpTarget(url)
        self._control = control
        self._search = search
        self._shown = shown
        self._without = without

    @asynccontextmanager
    async def session(self) -> AsyncIterator[InOrder]:
        connection = await connect(self._target, options=OPTIONS, era="legacy")
        try:
            yield InOrder(Surface(connection, self._without))
        finally:
            await connection.aclose()

    async def settle(self, changed: dict[str, bool]) -> None:
        until = time.monotonic() + SETTLE_S
        for tool_id, there in changed.items():
            while await self._shows(tool_id) != there:
                if time.monotonic() > until:
                    raise ConfigError(
                        f"{tool_id} {'did not come' if there else 'stayed'} for {SETTLE_S:g} s",
                        next_action="look into list_changed: a task cannot be played like this",
                    )
                await asyncio.sleep(0.1)

    async def _shows(self, tool_id: str) -> bool:
        server, _, name = tool_id.partition(".")
        answer = await called(self._control, self._search, {"query": f"{server} {name}"})
        return self._shown.format(server=server, name=name) in answer.replace('": "', '":"')


@asynccontextmanager
async def opened(name: str, playground: Playground, folder: Path, peers: Path | None = None) -> AsyncIterator[Setting]:
    """A setting over the servers of a playground that is served."""
    async with AsyncExitStack() as stack:
        if name == "all_tools":
            tools = AllTools(playground.specs, await definitions_of(playground.specs))
            stack.push_async_callback(tools.aclose)
            yield _Direct(tools)
            return
        processes = stack.enter_context(ExitStack())
        port = free_port()
        if name in PEERS:
            servers = json.dumps({spec.name: spec.url for spec in playground.specs})
            command = [str(fastmcp_python(peers)), "-c", _FASTMCP, str(port), name, servers]
            search, shown = ("search_tools", '"name":"{server}_{name}"')
            if name == "fastmcp_code":
                search, shown = ("search", "{server}_{name}")
        else:
            command = [*await built(playground, folder), "serve", "--profile", "discovery"]
            command += ["--http", f"127.0.0.1:{port}"]
            search, shown = ("search_tool_by_category", '"tool_id":"{server}.{name}"')
        await asyncio.to_thread(started, command, port, processes)
        url = f"http://127.0.0.1:{port}/mcp"
        control = await connect(HttpTarget(url), options=OPTIONS, era="legacy")
        stack.push_async_callback(control.aclose)
        without = frozenset({"run_script"}) if name == "surface" else frozenset()
        yield _Served(url, control, search, shown, without)


async def built(servers: Servers, folder: Path) -> list[str]:
    """Builds a catalogue of all servers. Gives the command that serves from it."""
    config = folder / "toolfold.toml"
    config.write_text(config_text(servers.specs), encoding="utf-8")
    toolfold = [sys.executable, "-P", "-m", "toolfold", "--config", str(config), "--home", str(folder / "home")]
    null = asyncio.subprocess.DEVNULL
    building = await asyncio.create_subprocess_exec(*toolfold, "build", stdout=null)
    try:
        async with asyncio.timeout(BUILD_S):
            if await building.wait():
                raise ConfigError("the catalogue could not be built", next_action="see what it wrote above")
    finally:
        if building.returncode is None:
            building.kill()
            await building.wait()
    return toolfold


def fastmcp_python(peers: Path | None) -> Path:
    python = peer_python(peers, "fastmcp")
    if python is None or not can_import(python, "fastmcp"):
        raise ConfigError(
            "FastMCP is not there to compare with",
            next_action="make DIR/fastmcp an environment with fastmcp[code-mode], and give --peers DIR",
        )
    return python
