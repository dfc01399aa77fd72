"""The OpenAI Agents SDK: its server classes, and the function tools that it makes of them for a model."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from client_scenario import Answer, Connection, Target, play

agents: Any = import_module("agents")
servers: Any = import_module("agents.mcp")


class AgentsConnection:
    def __init__(self, server: Any) -> None:
        self._server = server

    async def instructions(self) -> str:
        return self._server.session.instructions or ""

    async def tools(self) -> Sequence[dict[str, Any]]:
        made = await servers.MCPUtil.get_all_function_tools(
            [self._server],
            convert_schemas_to_strict=True,
            run_context=agents.RunContextWrapper(context=None),
            agent=agents.Agent(name="one"),
        )
        return [
            {"name": tool.name, "description": tool.description, "schema": tool.params_json_schema} for tool in made
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        result = await self._server.call_tool(name, arguments)
        return Answer(result.content[0].text, bool(result.is_error))


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    if target.url:
        server = servers.MCPServerStreamableHttp(params={"url": target.url}, client_session_timeout_seconds=60)
    else:
        params = {"command": target.command[0], "args": list(target.command[1:])}
        server = servers.MCPServerStdio(params=params, client_session_timeout_seconds=60)
    async with server:
        yield AgentsConnection(server)


if __name__ == "__main__":
    play(connect)
