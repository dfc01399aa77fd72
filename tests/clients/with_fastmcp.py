"""The client of FastMCP."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from client_scenario import Answer, Connection, Target, play

fastmcp: Any = import_module("fastmcp")
transports: Any = import_module("fastmcp.client.transports")


class FastConnection:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def instructions(self) -> str:
        return self._client.instructions or ""

    async def tools(self) -> Sequence[dict[str, Any]]:
        return [tool.model_dump(mode="json", by_alias=True) for tool in await self._client.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        result = await self._client.call_tool(name, arguments, raise_on_error=False)
        return Answer(result.content[0].text, result.is_error)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    # Kept alive, as is its default, the server would outlive the client.
    stdio = (
        None if target.url else transports.StdioTransport(target.command[0], list(target.command[1:]), keep_alive=False)
    )
    async with fastmcp.Client(stdio or target.url, cache=False) as client:
        yield FastConnection(client)


if __name__ == "__main__":
    play(connect)
