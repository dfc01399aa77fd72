"""Tools for OpenAI's models, in the shapes of Chat Completions and of Responses. Plain dictionaries in and out."""

from collections.abc import Iterable
from typing import Any

from toolfold.adapters.toolkit import Toolkit, get_field


class OpenAITools(Toolkit):
    """The tools of a gateway or surface for OpenAI's clients, and for every service that speaks like them."""

    async def chat_tools(self) -> list[dict[str, Any]]:
        """The `tools` of a Chat Completions request."""
        return [{"type": "function", "function": _function(tool)} for tool in await self.definitions()]

    async def responses_tools(self) -> list[dict[str, Any]]:
        """The `tools` of a Responses request."""
        # Strict mode refuses schemas with optional fields, which most tools have.
        return [{"type": "function", **_function(tool), "strict": False} for tool in await self.definitions()]

    async def run_chat(self, message: Any) -> list[dict[str, Any]]:
        """Runs the tool calls of an assistant message concurrently, and returns the messages to send after it."""
        calls = list(get_field(message, "tool_calls") or ())
        results = await self.call_all([get_field(call, "function") for call in calls], "arguments")
        return [
            {"role": "tool", "tool_call_id": get_field(call, "id"), "content": result.text}
            for call, result in zip(calls, results, strict=True)
        ]

    async def run_responses(self, response: Any) -> list[dict[str, Any]]:
        """Runs the function calls of a response, or of a list of its output items. Returns the items to send next."""
        items: Iterable[Any] = response if isinstance(response, list) else get_field(response, "output") or ()
        calls = [item for item in items if get_field(item, "type") == "function_call"]
        results = await self.call_all(calls, "arguments")
        return [
            {"type": "function_call_output", "call_id": get_field(call, "call_id"), "output": result.text}
            for call, result in zip(calls, results, strict=True)
        ]


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["inputSchema"]}
