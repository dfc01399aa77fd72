"""The client of the official Python SDK, version 1, as most Python programs still have it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Any

from client_scenario import Answer, Connection, Target, play

mcp: Any = import_module("mcp")
http: Any = import_module("mcp.client.streamable_http")


class OldConnection:
    def __init__(self, session: Any, told: str) -> None:
        self._session = session
        self._told = told

    async def instructions(self) -> str:
        return self._told

    async def tools(self) -> Sequence[dict[str, Any]]:
        return [tool.model_dump(mode="json") for tool in (await self._session.list_tools()).tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        result = await self._session.call_tool(name, arguments)
        return Answer(result.content[0].text, result.isError)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    async with AsyncExitStack() as stack:
        if target.url:
            read, write, _ = await stack.enter_async_context(http.streamablehttp_client(target.url))
        else:
            server = mcp.StdioServerParameters(command=target.command[0], args=list(target.command[1:]))
            read, write = await stack.enter_async_context(mcp.stdio_client(server))
        session = await stack.enter_async_context(mcp.ClientSession(read, write))
        begun = await session.initialize()
        yield OldConnection(session, begun.instructions or "")


if __name__ == "__main__":
    play(connect)
