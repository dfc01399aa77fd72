"""The whole of one tool, for a model that is about to call it. The only place from which a schema is shown."""

from typing import Any

from toolfold.types import Tool


def expanded(tool: Tool) -> dict[str, Any]:
    """The whole of one tool, schemas as its server sent them."""
    definition = tool.definition
    return {
        "tool_id": tool.tool_id,
        "path": list(tool.paths[0]) if tool.paths else [],
        "summary": tool.summary,
        "description": definition.description,
        "args_schema": definition.input_schema,
        "result_schema": definition.output_schema,
        "version": tool.version,
        "tags": list(tool.tags),
    }
