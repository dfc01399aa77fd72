"""Tools for Anthropic's Messages API. Plain dictionaries in and out; images stay images."""

from typing import Any

from toolfold.adapters.toolkit import Toolkit, ToolResult, get_field

# The API refuses a request with an image of another type: those become text that names them.
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class AnthropicTools(Toolkit):
    """The tools of a gateway or surface for Anthropic's client."""

    async def tools(self) -> list[dict[str, Any]]:
        """The `tools` of a request."""
        return [
            {"name": tool["name"], "description": tool.get("description", ""), "input_schema": tool["inputSchema"]}
            for tool in await self.definitions()
        ]

    async def run(self, message: Any) -> dict[str, Any] | None:
        """Runs the tool calls of a message concurrently. Returns the user message to send next, if there are any."""
        calls = [block for block in get_field(message, "content") or () if get_field(block, "type") == "tool_use"]
        if not calls:
            return None
        results = zip(calls, await self.call_all(calls, "input"), strict=True)
        return {"role": "user", "content": [_tool_result(get_field(call, "id"), result) for call, result in results]}


def _tool_result(call_id: str, result: ToolResult) -> dict[str, Any]:
    images = [
        {"type": "image", "source": {"type": "base64", "media_type": block["mimeType"], "data": block["data"]}}
        for block in result.content
        if block.get("type") == "image" and block.get("mimeType") in _IMAGE_TYPES
    ]
    others = [block for block in result.content if not (block.get("type") == "image" and images)]
    text = ToolResult(others, result.is_error, result.structured).text
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": [*content, *images],
        "is_error": result.is_error,
    }
