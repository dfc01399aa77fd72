"""Tools for Anthropic's Messages API. Plain dictionaries in and out; pictures stay pictures."""

import asyncio
from typing import Any

from toolfold.adapters.toolkit import Toolkit, ToolResult, get_field

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class AnthropicTools(Toolkit):
    """The tools of a gateway or surface for Anthropic's client."""

    async def tools(self) -> list[dict[str, Any]]:
        """The `tools` of a request."""
        return [
            {"name": one["name"], "description": one.get("description", ""), "input_schema": one["inputSchema"]}
            for one in await self.definitions()
        ]

    async def run(self, message: Any) -> dict[str, Any] | None:
        """Runs the tool calls of a message, all at once, and gives the one user message to send after it; `None` where
        there are none."""
        calls = [block for block in get_field(message, "content") or () if get_field(block, "type") == "tool_use"]
        if not calls:
            return None
        done = await asyncio.gather(*(self.call(get_field(one, "name"), get_field(one, "input")) for one in calls))
        results = [_tool_result(get_field(call, "id"), called) for call, called in zip(calls, done, strict=True)]
        return {"role": "user", "content": results}


def _tool_result(call_id: str, called: ToolResult) -> dict[str, Any]:
    pictures = [
        {"type": "image", "source": {"type": "base64", "media_type": block["mimeType"], "data": block["data"]}}
        for block in called.content
        if block.get("type") == "image" and block.get("mimeType") in _IMAGE_TYPES
    ]
    blocks = [block for block in called.content if not (block.get("type") == "image" and pictures)]
    text = ToolResult(blocks, called.is_error, called.structured).text
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": [*content, *pictures],
        "is_error": called.is_error,
    }
