"""An MCP upstream over HTTP, against the official server."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from mcp.server import MCPServer
from tool_calls import CONTEXT, tool_call

from toolfold.errors import ServerUnavailable, UpstreamError
from toolfold.types import Era, ServerSpec
from toolfold.upstream.pool import Pool


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of an official server that runs in a thread."""
    server = MCPServer("official")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ValueError("no luck")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(server.streamable_http_app(), log_level="critical", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            running.should_exit = True
            thread.join()


@pytest.mark.requirement("G-01")
@pytest.mark.parametrize("era", [None, "legacy", "modern"])
def test_an_official_server_is_listed_and_called_in_each_era(address: str, era: Era | None) -> None:
    async def main() -> Any:
        known: dict[str, Era] = {"web": era} if era is not None else {}
        async with Pool([ServerSpec(name="web", transport="http", url=address)], known_eras=known) as pool:
            listing = await pool.listing("web")
            added = await pool.call(tool_call("add", "web", a=1, b=2), CONTEXT)
            failed = await pool.call(tool_call("fail", "web"), CONTEXT)
            return listing, added, failed, pool.state("web")

    listing, added, failed, state = asyncio.run(main())
    assert [tool.name for tool in listing.tools] == ["add", "fail"]
    assert listing.tools[0].description == "Add two numbers."
    assert json.loads(bytes(added.result))["structuredContent"] == {"result": 3}
    assert (added.is_error, failed.is_error) == (False, True)
    assert state.info.era == (era or "modern")
    assert (state.status, state.pid, state.shown) == ("ready", None, address)


def test_an_address_where_nobody_listens_is_told_without_the_headers() -> None:
    async def main() -> UpstreamError:
        spec = ServerSpec(
            name="web",
            transport="http",
            url="http://127.0.0.1:9/mcp?key=secret-key-1",
            headers={"Authorization": "Bearer secret-token-1"},
            secrets=("secret-key-1", "secret-token-1"),
        )
        async with Pool([spec]) as pool:
            with pytest.raises(ServerUnavailable) as caught:
                await pool.ensure("web")
            assert pool.state("web").error
            return caught.value

    error = asyncio.run(main())
    assert error.server == "web"
    assert "secret" not in json.dumps(error.as_dict())
    assert error.__cause__ is None
