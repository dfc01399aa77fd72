"""An upstream that dies while a person is asked on its behalf, seen by an official client of the modern era."""

import asyncio
from pathlib import Path

import mcp_types as types
import pytest
from mcp_client_helpers import RecordingClient, on_port, text_of
from misbehaving_stdio import misbehaving_spec

from toolfold import Gateway, Settings
from toolfold.errors import ServerClosed
from toolfold.faces.mcp_server.profiles import open_app


class Slow(RecordingClient):
    """A person in whose time the server dies."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway

    async def elicit(self, context: object, params: object) -> types.ElicitResult:
        with pytest.raises(ServerClosed):
            await self._gateway.call_tool("odd.crash", {})
        return types.ElicitResult(action="accept", content={"name": "ann"})


@pytest.mark.requirement("G-04")
async def test_a_modern_client_hears_that_the_server_died_while_a_person_was_asked(tmp_path: Path) -> None:
    settings = Settings(servers=(misbehaving_spec("odd", "--era", "legacy"),), home=tmp_path)
    async with Gateway(settings) as gateway, open_app(gateway, "discovery") as app, on_port(app) as address:
        await gateway.build()
        async with asyncio.timeout(30), Slow(gateway).client(address, "modern") as client:
            answer = await client.call_tool("call_tool", {"tool_id": "odd.ask", "args": {}})
            assert "SERVER_CLOSED" in text_of(answer)
