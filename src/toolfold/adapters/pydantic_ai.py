"""A surface as a pydantic-ai toolset: `Agent(model, toolsets=[SurfaceToolset(gateway)])`.

The surface's instructions become part of the agent's prompt. With `defer=True` all tools are hidden until they are
found, by pydantic-ai's tool search with ours behind it:

    tools = SurfaceToolset(gateway, defer=True)
    Agent(model, toolsets=[tools], capabilities=[ToolSearch(strategy=tools.search)])
"""

from collections.abc import Sequence
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolfold.adapters.toolkit import Toolkit, ToolSource
from toolfold.errors import ConfigError
from toolfold.types import LOCAL, Caller

_MAX_RETRIES = 3
_MAX_QUERIES = 10
# The surface checks arguments: what is wrong with them becomes an answer that the model can act on.
_ANY_ARGUMENTS = SchemaValidator(core_schema.any_schema())


class SurfaceToolset(AbstractToolset[Any]):
    """The tools of a gateway or surface for pydantic-ai."""

    def __init__(
        self, source: ToolSource, *, caller: Caller = LOCAL, toolset_id: str = "toolfold", defer: bool = False
    ) -> None:
        self._toolkit = Toolkit(source, caller=caller, defer=defer)
        self._id = toolset_id

    @property
    def id(self) -> str | None:
        return self._id

    async def get_instructions(self, ctx: RunContext[Any]) -> str:
        return await self._toolkit.instructions()

    async def search(self, ctx: RunContext[Any], queries: Sequence[str], tools: Sequence[ToolDefinition]) -> list[str]:
        """The strategy of a `ToolSearch`: the names of the tools that fit, the best first."""
        deferred = self._toolkit.deferred
        if deferred is None:
            raise ConfigError("these tools are not deferred", next_action="make the toolset with defer=True")
        known = {tool.name for tool in tools}
        found = [await deferred.find({"query": query}) for query in queries[:_MAX_QUERIES]]
        return list(dict.fromkeys(name for one in found for name in one.names if name in known))

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        deferred = self._toolkit.deferred
        shown = () if deferred is None else deferred.always
        return {
            tool["name"]: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool["name"],
                    description=tool.get("description"),
                    parameters_json_schema=tool["inputSchema"],
                    defer_loading=deferred is not None and tool["name"] not in shown,
                ),
                max_retries=_MAX_RETRIES,
                args_validator=_ANY_ARGUMENTS,
            )
            for tool in await self._toolkit.definitions()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        return (await self._toolkit.call(name, tool_args)).text
