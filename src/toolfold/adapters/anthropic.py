"""Tools for Anthropic's Messages API. Plain dictionaries in and out; images stay images."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from toolfold.adapters.deferred import SEARCH_DESCRIPTION, SEARCH_NAME, SEARCH_SCHEMA
from toolfold.adapters.toolkit import Toolkit, ToolResult, get_field

# The API refuses a request with an image of another type: those become text that names them.
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class AnthropicTools(Toolkit):
    """The tools of a gateway or surface for Anthropic's client. With `defer` they are marked for `defer_loading`, and a
    search tool of our own answers with references to them."""

    async def tools(self, messages: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """The `tools` of a request. Deferred ones are those that `messages`, the conversation so far, refer to."""
        if self.deferred is None:
            return [_tool(tool) for tool in await self.definitions()]
        loaded = [_tool(tool) for tool in await self.deferred.definitions(self.deferred.always)]
        found = await self.deferred.definitions(_referred(messages))
        search = {"name": SEARCH_NAME, "description": SEARCH_DESCRIPTION, "input_schema": SEARCH_SCHEMA}
        return [search, *loaded, *({**_tool(tool), "defer_loading": True} for tool in found)]

    async def run(self, message: Any) -> dict[str, Any] | None:
        """Runs the tool calls of a message concurrently. Returns the user message to send next, if there are any."""
        calls = [block for block in get_field(message, "content") or () if get_field(block, "type") == "tool_use"]
        if not calls:
            return None
        return {"role": "user", "content": await asyncio.gather(*map(self._answer, calls))}

    async def _answer(self, call: Any) -> dict[str, Any]:
        name, arguments, call_id = (get_field(call, field) for field in ("name", "input", "id"))
        if self.deferred is None or name != SEARCH_NAME:
            return _tool_result(call_id, await self.call(name, arguments))
        found = await self.deferred.find(arguments)
        content = [{"type": "tool_reference", "tool_name": one} for one in found.names]
        text = [{"type": "text", "text": found.problem}]
        return {
            "type": "tool_result",
            "tool_use_id": call_id,
            "content": content or text,
            "is_error": found.is_error,
        }


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool.get("description", ""), "input_schema": tool["inputSchema"]}


def _referred(messages: Iterable[Any]) -> Iterator[str]:
    """The names of tools that results in a conversation refer to."""
    for message in messages:
        for block in _blocks(message):
            if get_field(block, "type") == "tool_result":
                for part in _blocks(block):
                    if get_field(part, "type") == "tool_reference":
                        yield str(get_field(part, "tool_name"))


def _blocks(value: Any) -> Iterable[Any]:
    content = get_field(value, "content")
    return content if isinstance(content, (list, tuple)) else ()


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
