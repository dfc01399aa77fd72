"""A surface as a pydantic-ai toolset: `Agent(model, toolsets=[SurfaceToolset(gateway)])`.

The surface's instructions become part of the agent's prompt.
"""

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolfold.adapters.toolkit import Toolkit, ToolSource
from toolfold.types import LOCAL, Caller

_MAX_RETRIES = 3
# The surface checks arguments: what is wrong with them becomes an answer that the model can act on.
_ANY_ARGUMENTS = SchemaValidator(core_schema.any_schema())


class SurfaceToolset(AbstractToolset[Any]):
    """The tools of a gateway or surface for pydantic-ai."""

    def __init__(self, source: ToolSource, *, caller: Caller = LOCAL, toolset_id: str = "toolfold") -> None:
        self._toolkit = Toolkit(source, caller=caller)
        self._id = toolset_id

    @property
    def id(self) -> str | None:
        return self._id

    async def get_instructions(self, ctx: RunContext[Any]) -> str:
        return await self._toolkit.instructions()

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {
            tool["name"]: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool["name"],
                    description=tool.get("description"),
                    parameters_json_schema=tool["inputSchema"],
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
