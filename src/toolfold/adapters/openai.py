"""Tools for OpenAI's models, in the shapes of Chat Completions and of Responses. Plain dictionaries in and out."""

import re
from collections.abc import Iterable
from typing import Any

from toolfold.adapters.deferred import SEARCH_DESCRIPTION, SEARCH_SCHEMA, _Found
from toolfold.adapters.toolkit import Toolkit, ToolSource, get_field
from toolfold.errors import ConfigError
from toolfold.types import LOCAL, Caller


class OpenAITools(Toolkit):
    """The tools of a gateway or surface for OpenAI's clients, and for every service that speaks like them. With
    `defer`, for Responses alone, the model gets `tool_search`, executed here, and the definitions of what it finds."""

    def __init__(
        self, source: ToolSource, *, caller: Caller = LOCAL, defer: bool = False, namespaces: bool = False
    ) -> None:
        """`namespaces`: what a search found is grouped by its servers, each as a namespace of the Responses API."""
        super().__init__(source, caller=caller, defer=defer)
        self._namespaces = namespaces

    async def chat_tools(self) -> list[dict[str, Any]]:
        """The `tools` of a Chat Completions request."""
        if self.deferred is not None:
            raise ConfigError(
                "Chat Completions has no tool search", next_action="use responses_tools, or leave `defer` out"
            )
        return [{"type": "function", "function": _function(tool)} for tool in await self.definitions()]

    async def responses_tools(self) -> list[dict[str, Any]]:
        """The `tools` of a Responses request."""
        if self.deferred is None:
            return [_responses_function(tool) for tool in await self.definitions()]
        search = {
            "type": "tool_search",
            "execution": "client",
            "description": SEARCH_DESCRIPTION,
            "parameters": SEARCH_SCHEMA,
        }
        loaded = await self.deferred.definitions(self.deferred.always)
        return [search, *map(_responses_function, loaded)]

    async def run_chat(self, message: Any) -> list[dict[str, Any]]:
        """Runs the tool calls of an assistant message concurrently, and returns the messages to send after it."""
        calls = list(get_field(message, "tool_calls") or ())
        results = await self.call_all([get_field(call, "function") for call in calls], "arguments")
        return [
            {"role": "tool", "tool_call_id": get_field(call, "id"), "content": result.text}
            for call, result in zip(calls, results, strict=True)
        ]

    async def run_responses(self, response: Any) -> list[dict[str, Any]]:
        """Runs the function calls and searches of a response, or of a list of its output items. Returns the items to
        send next."""
        items: Iterable[Any] = response if isinstance(response, list) else get_field(response, "output") or ()
        found = [await self._search(item) for item in items if _is_search(item)]
        calls = [item for item in items if get_field(item, "type") == "function_call"]
        results = await self.call_all(calls, "arguments")
        answers = [
            {"type": "function_call_output", "call_id": get_field(call, "call_id"), "output": result.text}
            for call, result in zip(calls, results, strict=True)
        ]
        return [*found, *answers]

    async def _search(self, item: Any) -> dict[str, Any]:
        """What a search found, defined. One that fails finds nothing: the item has no place for the reason."""
        found = await self.deferred.find(get_field(item, "arguments")) if self.deferred is not None else _Found()
        tools = await self.deferred.definitions(found.names) if self.deferred is not None else []
        functions = [{**_responses_function(tool), "defer_loading": True} for tool in tools]
        return {
            "type": "tool_search_output",
            "execution": "client",
            "call_id": get_field(item, "call_id"),
            "status": "completed",
            "tools": await self._grouped(functions) if self._namespaces else functions,
        }

    async def _grouped(self, functions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The functions in namespaces of their servers. Their names stay whole: a call is found by its name alone."""
        servers = await self.deferred.servers() if self.deferred is not None else {}
        groups: dict[str, list[dict[str, Any]]] = {}
        for function in functions:
            groups.setdefault(servers.get(function["name"], "tools"), []).append(function)
        return [
            {
                "type": "namespace",
                "name": re.sub(r"[^A-Za-z0-9_-]", "_", name),
                "description": f"Tools of the server {name}",
                "tools": group,
            }
            for name, group in groups.items()
        ]


def _is_search(item: Any) -> bool:
    return (get_field(item, "type"), get_field(item, "execution")) == ("tool_search_call", "client")


def _responses_function(tool: dict[str, Any]) -> dict[str, Any]:
    # Strict mode refuses schemas with optional fields, which most tools have.
    return {"type": "function", **_function(tool), "strict": False}


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["inputSchema"]}
