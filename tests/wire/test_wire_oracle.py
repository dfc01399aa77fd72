"""The official SDK's servers as the oracle: stdio and streamable HTTP, both eras, and the oldest transport."""

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from msgspec import Raw
from pydantic import BaseModel
from starlette.types import ASGIApp
from wire_helpers import FORMS, QUICK, names, opened, raw, text_of, until, value

from toolfold.errors import RemoteError
from toolfold.types import Era
from toolfold.wire import Connection, Handlers, HttpTarget, StdioTarget, WireOptions

ERAS = pytest.mark.parametrize("era", [None, "legacy"], ids=["modern", "legacy"])


class Name(BaseModel):
    name: str


def oracle() -> MCPServer:
    server = MCPServer("oracle", instructions="Ask me.", version="1.2")

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    @server.tool()
    async def count(steps: int, ctx: Context) -> str:
        """Tells its progress."""
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, "counting")
        return "counted"

    @server.tool()
    async def wait(seconds: float) -> str:
        """Waits."""
        await asyncio.sleep(seconds)
        return "waited"

    @server.tool()
    async def greet(ctx: Context) -> str:
        """Asks who is there."""
        answer = await ctx.elicit("Who is there?", Name)
        return f"hello {answer.data.name}" if answer.action == "accept" else "hello stranger"

    @server.prompt()
    def ask(topic: str) -> str:
        return f"Tell me about {topic}"

    @server.resource("note://one")
    def note() -> str:
        return "a note"

    return server


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The SDK configures logging for the whole process."""
    before = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:], logging.root.level = before


@contextlib.asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    task = asyncio.ensure_future(server.serve([listener]))
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


async def check(connection: Connection, era: Era, steps: int = 3) -> None:
    """What every way to the oracle must give. A plain JSON answer cannot carry progress: then `steps` is 0."""
    info = connection.info
    assert (info.name, info.version, info.instructions, info.era) == ("oracle", "1.2", "Ask me.", era)
    assert await names(connection) == ["add", "count", "wait", "greet"]
    results = await asyncio.gather(*(connection.call_tool("add", raw({"a": n, "b": 1})) for n in range(10)))
    assert [value(result)["structuredContent"]["result"] for result in results] == list(range(1, 11))
    told: list[Raw] = []
    assert text_of(await connection.call_tool("count", raw({"steps": 3}), on_progress=told.append)) == "counted"
    assert [value(params)["progress"] for params in told] == [1, 2, 3][:steps]
    assert "isError" in value(await connection.call_tool("add", raw({"a": "x"})))
    prompt = value(await connection.request("prompts/get", raw({"name": "ask", "arguments": {"topic": "tea"}})))
    assert prompt["messages"][0]["content"]["text"] == "Tell me about tea"
    resource = value(await connection.request("resources/read", raw({"uri": "note://one"})))
    assert resource["contents"][0]["text"] == "a note"
    with pytest.raises(RemoteError):
        await connection.request("no/such")
    call = asyncio.ensure_future(connection.call_tool("wait", raw({"seconds": 60})))
    await asyncio.sleep(0.05)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()


@ERAS
@pytest.mark.requirement("G-01")
def test_the_official_server_over_stdio(era: Era | None) -> None:
    target = StdioTarget(sys.executable, (__file__,), {"PYTHONWARNINGS": "ignore"})

    async def main() -> None:
        async with opened(target, QUICK, era=era) as connection:
            await check(connection, era or "modern")

    asyncio.run(main())


@ERAS
@pytest.mark.requirement("G-01")
@pytest.mark.parametrize(
    "how", [{}, {"json_response": True}, {"stateless_http": True}], ids=["sse", "json", "stateless"]
)
def test_the_official_server_over_http(era: Era | None, how: dict[str, Any]) -> None:
    async def main() -> None:
        async with (
            served(oracle().streamable_http_app(**how)) as url,
            opened(HttpTarget(url + "/mcp"), QUICK, era=era) as connection,
        ):
            await check(connection, era or "modern", steps=0 if how.get("json_response") else 3)

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_official_server_over_the_oldest_transport() -> None:
    async def main() -> None:
        async with (
            served(oracle().sse_app()) as url,
            opened(HttpTarget(url + "/sse"), QUICK) as connection,
        ):
            await check(connection, "legacy")

    asyncio.run(main())


async def jane(method: str, params: Raw) -> Raw:
    assert method == "elicitation/create"
    return raw({"action": "accept", "content": {"name": "Jane"}})


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_official_legacy_server_may_ask_during_a_call(transport: str) -> None:
    async def greeted(target: StdioTarget | HttpTarget) -> str:
        async with opened(target, FORMS, era="legacy") as connection:
            return text_of(await connection.call_tool("greet", raw({}), on_input=jane))

    async def main() -> str:
        if transport == "stdio":
            return await greeted(StdioTarget(sys.executable, (__file__,), {"PYTHONWARNINGS": "ignore"}))
        async with served(oracle().streamable_http_app()) as url:
            return await greeted(HttpTarget(url + "/mcp"))

    assert asyncio.run(main()) == "hello Jane"


def test_a_session_that_the_official_server_forgot_is_renewed() -> None:
    async def main() -> None:
        app = oracle()
        async with served(app.streamable_http_app()) as url:
            noise: list[str] = []
            target = HttpTarget(url + "/mcp")
            async with opened(target, QUICK, Handlers(on_noise=noise.append), era="legacy") as connection:
                assert len(await names(connection)) == 4
                app.session_manager._server_instances.clear()
                assert len(await names(connection)) == 4

    asyncio.run(main())


def test_uvloop_serves_as_well() -> None:
    uvloop = pytest.importorskip("uvloop")
    target = StdioTarget(sys.executable, (__file__,), {"PYTHONWARNINGS": "ignore"})

    async def main() -> None:
        async with opened(target, WireOptions(close_grace_s=1)) as connection:
            await check(connection, "modern")

    uvloop.run(main())


if __name__ == "__main__":
    oracle().run("stdio")
