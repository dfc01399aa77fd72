"""Shared by the tests of the MCP face: serve an application on a port, and meet it with the official client."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client

import fork_server
from toolfold.faces.mcp_server.http import Site, listening_socket, run_site
from toolfold.types import LOCAL, Caller
from toolfold.wire.serving import App, Server
from toolfold.wire.serving.http import McpHttpApp
from toolfold.wire.serving.http_guard import HttpGuard

MODES = {"legacy": "legacy", "modern": "2026-07-28"}
FIXTURE = Path(__file__).parents[1] / "conformance" / "fixture_server.py"


def local(headers: Mapping[str, str]) -> Caller:
    return LOCAL


@contextlib.asynccontextmanager
async def on_port(app: App) -> AsyncIterator[str]:
    """The address under which an application is served."""
    async with mcp_on_port(McpHttpApp(Server(app), HttpGuard(identify=local))) as url:
        yield url


@contextlib.asynccontextmanager
async def mcp_on_port(mcp: McpHttpApp) -> AsyncIterator[str]:
    """The address under which MCP is served."""
    bound = listening_socket("127.0.0.1", 0)
    stop = asyncio.Event()
    serving = asyncio.create_task(run_site(Site(mcp), bound, stop))
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
    finally:
        await mcp.aclose()
        stop.set()
        await serving


def command(home: Path, *options: str, extra: str = "") -> list[str]:
    """`toolfold serve` in front of the fixture server. `extra` stands in its configuration, too."""
    config = home / "toolfold.toml"
    config.write_text(f'[servers.fixture]\ncommand = "{sys.executable}"\nargs = ["{FIXTURE}"]\n{extra}')
    return [sys.executable, "-m", "toolfold", "--config", str(config), "--home", str(home), "serve", *options]


@contextlib.contextmanager
def served_over_http(home: Path, *options: str, extra: str = "") -> Iterator[str]:
    """The address of a gateway that runs in a process of its own."""
    started = command(home, "--http", "127.0.0.1:0", *options, extra=extra)
    with fork_server.Popen(started, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            assert "serving on " in said, said + process.stderr.read()
            yield said.split("serving on ")[1].strip()
        finally:
            process.terminate()
            assert process.wait(20) == 0, process.stderr.read()


class RecordingClient:
    """What a client was told and asked, with an answer to everything."""

    def __init__(self) -> None:
        self.logs: list[Any] = []
        self.asked: list[str] = []
        self.changes: asyncio.Queue[str] = asyncio.Queue()

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(params.data)

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"username": "ann", "email": "a@b.c", "name": "ann"})

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        self.asked.append("sampling")
        said = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=said, model="m")

    async def roots(self, context: Any) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///here"}]})

    async def message(self, message: Any) -> None:
        method = getattr(message, "method", None) or getattr(getattr(message, "root", None), "method", None)
        if method is not None:
            self.changes.put_nowait(str(method))

    def client(self, server: Any, era: str, *, able: bool = True, **more: Any) -> Client:
        """An official client; without `able` it declares nothing."""
        given: dict[str, Any] = {"logging_callback": self.log, "message_handler": self.message}
        if able:
            given |= {
                "elicitation_callback": self.elicit,
                "sampling_callback": self.sample,
                "list_roots_callback": self.roots,
            }
        return Client(server, mode=MODES[era], read_timeout_seconds=20, cache=None, **given, **more)

    async def wait_for(self, method: str) -> None:
        """Waits until a notification of that method came."""
        async with asyncio.timeout(10):
            while await self.changes.get() != method:
                pass


def text_of(result: Any) -> str:
    return str(result.content[0].text)
