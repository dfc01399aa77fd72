"""LangChain's MCP adapters: tools of one open session, called as an agent calls them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from client_scenario import Answer, Connection, Target, play

adapters: Any = import_module("langchain_mcp_adapters.client")
loading: Any = import_module("langchain_mcp_adapters.tools")


class LangChainConnection:
    def __init__(self, client: Any, session: Any) -> None:
        self._client = client
        self._session = session

    async def _loaded(self) -> list[Any]:
        tools: list[Any] = await loading.load_mcp_tools(self._session, handle_tool_errors=True)
        return tools

    async def instructions(self) -> str:
        (info,) = (await self._client.get_server_info()).values()
        return info.instructions or ""

    async def tools(self) -> Sequence[dict[str, Any]]:
        return [
            {"name": tool.name, "description": tool.description, "schema": tool.args_schema}
            for tool in await self._loaded()
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        tool = next(tool for tool in await self._loaded() if tool.name == name)
        message = await tool.ainvoke({"name": name, "args": arguments, "id": "1", "type": "tool_call"})
        return Answer(message.content[0]["text"], message.status == "error")


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    stdio = {"transport": "stdio", "command": target.command[0], "args": target.command[1:]} if target.command else None
    client = adapters.MultiServerMCPClient({"toolfold": stdio or {"transport": "http", "url": target.url}})
    async with client.session("toolfold") as session:
        yield LangChainConnection(client, session)


if __name__ == "__main__":
    play(connect)
