"""A surface as a pydantic-ai toolset: `Agent(model, toolsets=[SurfaceToolset(gateway)])`.

The surface's instructions go with it into the agent's prompt. Arguments are checked by the surface and the tool's own
schema, not here: what is wrong with them is an answer that the model can act on.
"""

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolfold.adapters.toolkit import Toolkit, ToolSource
from toolfold.types import LOCAL, Caller

_MAX_RETRIES = 3
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
            one["name"]: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=one["name"],
                    description=one.get("description"),
                    parameters_json_schema=one["inputSchema"],
                ),
                max_retries=_MAX_RETRIES,
                args_validator=_ANY_ARGUMENTS,
            )
            for one in await self._toolkit.definitions()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        return (await self._toolkit.call(name, tool_args)).text
