"""Tools for OpenAI's models, in the shapes of Chat Completions and of Responses. Plain dictionaries in and out."""

import asyncio
from collections.abc import Iterable
from typing import Any

from toolfold.adapters.toolkit import Toolkit, get_field


class OpenAITools(Toolkit):
    """The tools of a gateway or surface for OpenAI's clients, and for every service that speaks like them."""

    async def chat_tools(self) -> list[dict[str, Any]]:
        """The `tools` of a Chat Completions request."""
        return [{"type": "function", "function": _function(one)} for one in await self.definitions()]

    async def responses_tools(self) -> list[dict[str, Any]]:
        """The `tools` of a Responses request."""
        return [{"type": "function", **_function(one), "strict": False} for one in await self.definitions()]

    async def run_chat(self, message: Any) -> list[dict[str, Any]]:
        """Runs the tool calls of an assistant message, all at once, and gives the messages to send after it."""
        calls = list(get_field(message, "tool_calls") or ())
        functions = [get_field(call, "function") for call in calls]
        done = await asyncio.gather(
            *(self.call(get_field(one, "name"), get_field(one, "arguments")) for one in functions)
        )
        return [
            {"role": "tool", "tool_call_id": get_field(call, "id"), "content": called.text}
            for call, called in zip(calls, done, strict=True)
        ]

    async def run_responses(self, response: Any) -> list[dict[str, Any]]:
        """Runs the function calls of a response, or of a list of its output items, and gives the items to send next."""
        items: Iterable[Any] = response if isinstance(response, list) else get_field(response, "output") or ()
        calls = [item for item in items if get_field(item, "type") == "function_call"]
        done = await asyncio.gather(*(self.call(get_field(one, "name"), get_field(one, "arguments")) for one in calls))
        return [
            {"type": "function_call_output", "call_id": get_field(call, "call_id"), "output": called.text}
            for call, called in zip(calls, done, strict=True)
        ]


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["inputSchema"]}
