"""pydantic-ai: an agent whose model is a function that asks for one tool, so that everything in between is real."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from client_scenario import Answer, Connection, Target, play

ai: Any = import_module("pydantic_ai")
functions: Any = import_module("pydantic_ai.models.function")
messages: Any = import_module("pydantic_ai.messages")
mcp: Any = import_module("pydantic_ai.mcp")
transports: Any = import_module("fastmcp.client.transports")


class AgentConnection:
    """Each call is a run of an agent; what the model is shown is what is looked at."""

    def __init__(self, toolset: Any) -> None:
        self._toolset = toolset

    async def _run(self, parts: Sequence[Any]) -> tuple[Any, Any]:
        """What the model saw in its last request: its information, and the last part of the conversation."""
        seen: list[Any] = []
        left = list(parts)

        def answer(conversation: Any, info: Any) -> Any:
            seen[:] = [info, conversation[-1].parts[-1]]
            return messages.ModelResponse(parts=[left.pop(0) if left else messages.TextPart("done")])

        await ai.Agent(functions.FunctionModel(answer), toolsets=[self._toolset]).run("go")
        return seen[0], seen[1]

    async def instructions(self) -> str:
        info, _ = await self._run([])
        return info.instructions or ""

    async def tools(self) -> Sequence[dict[str, Any]]:
        info, _ = await self._run([])
        return [
            {"name": tool.name, "description": tool.description, "schema": tool.parameters_json_schema}
            for tool in info.function_tools
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        _, part = await self._run([messages.ToolCallPart(name, arguments)])
        return Answer(part.model_response_str(wrap_if_error=False), part.outcome != "success")


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    stdio = (
        None if target.url else transports.StdioTransport(target.command[0], list(target.command[1:]), keep_alive=False)
    )
    async with mcp.MCPToolset(stdio or target.url, cache_tools=False, include_instructions=True) as toolset:
        yield AgentConnection(toolset)


if __name__ == "__main__":
    play(connect)
