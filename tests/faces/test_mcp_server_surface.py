"""Any surface as an MCP server, met by the official client over both transports and in both eras."""

import asyncio
import contextlib
import json
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_client_helpers import RecordingClient, on_port, text_of
from small_surface import NAMES, SmallSurface

from toolfold.faces.mcp_server.surface_app import SurfaceApp

SCRIPT = Path(__file__).with_name("small_surface.py")

each_way = pytest.mark.parametrize("transport", ["stdio", "http"])
each_era = pytest.mark.parametrize("era", ["legacy", "modern"])


@contextlib.asynccontextmanager
async def served(transport: str) -> AsyncIterator[Any]:
    if transport == "stdio":
        yield StdioServerParameters(command=sys.executable, args=[str(SCRIPT)])
        return
    app = SurfaceApp(SmallSurface())
    async with on_port(app) as url:
        yield url
    app.aclose()


def play(transport: str, era: str, scene: Callable[[Client, RecordingClient], Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        recorder = RecordingClient()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the official client warns of what the modern era has not
            async with (
                asyncio.timeout(60),
                served(transport) as server,
                recorder.client(server, era, **more) as client,
            ):
                await scene(client, recorder)

    asyncio.run(main())


@pytest.mark.requirement("G-02", "G-04")
@each_way
@each_era
def test_a_surface_is_served_over_each_transport_in_each_era(transport: str, era: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        if era == "legacy":
            assert client.instructions == "Use echo."
            assert client.server_info is not None
            assert client.server_info.name == "toolfold"
        assert client.server_capabilities is not None
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == [*NAMES, "more"]
        assert (await client.list_tools()).model_dump_json() == listed.model_dump_json()
        given: Any = {"com.example/a": 1}
        answer = json.loads(text_of(await client.call_tool("echo", {"x": ["ü", 1]}, meta=given)))
        assert answer["given"] == {"x": ["ü", 1]}
        assert answer["meta"]["com.example/a"] == 1
        assert json.loads(text_of(await client.call_tool("echo")))["given"] == {}

    play(transport, era, scene)


@pytest.mark.requirement("G-04")
@each_way
@each_era
def test_progress_and_questions_of_a_surface_reach_its_client(transport: str, era: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        steps: list[float] = []

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        await client.call_tool("steps", progress_callback=progress)
        assert steps == [1, 2]
        assert json.loads(text_of(await client.call_tool("ask")))["action"] == "accept"
        assert recorder.asked == ["Who?"]

    play(transport, era, scene)


@each_way
@each_era
def test_what_a_surface_does_not_have_is_said_so(transport: str, era: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("nothing")
        assert unknown.value.error.code == -32602
        assert unknown.value.error.data["hints"] == list(NAMES)
        with pytest.raises(MCPError) as missing:
            await client.list_prompts()
        assert missing.value.error.code == -32601
        with pytest.raises(MCPError, match="elicitation"):
            await client.call_tool("ask")

    play(transport, era, scene, able=False)


@pytest.mark.requirement("G-04", "O-10")
@each_way
def test_a_client_that_listens_sees_a_new_tool_when_it_is_there_and_is_told(transport: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        async with client.listen(tools_list_changed=True) as subscription:
            assert [tool.name for tool in (await client.list_tools()).tools] == list(NAMES)
            await client.call_tool("store")
            assert type(await anext(subscription)).__name__ == "ToolsListChanged"
            assert [tool.name for tool in (await client.list_tools()).tools] == [*NAMES, "more"]

    play(transport, "modern", scene)


@pytest.mark.requirement("G-04")
@each_way
def test_a_legacy_client_is_told_when_the_list_of_tools_changes(transport: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        await client.call_tool("store")
        await recorder.wait_for("notifications/tools/list_changed")

    play(transport, "legacy", scene)


@pytest.mark.parametrize("cursor", ["x", ""])
@each_way
def test_19_a_cursor_of_nowhere_is_refused(transport: str, cursor: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        with pytest.raises(MCPError) as refused:
            await client.list_tools(cursor=cursor)
        assert refused.value.error.code == -32602

    play(transport, "modern", scene)
