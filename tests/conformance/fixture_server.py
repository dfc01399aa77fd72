"""The server that the official conformance suite expects to find, written with the official SDK.

    python fixture_server.py            on stdio
    python fixture_server.py PORT       streamable HTTP on loopback

Its tools, prompts and resources have the names that the suite asks for; what each must do stands in the suite.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import mcp_types as types
from fixture_input import IMAGE, Context, Result, Wanted, asked, form, red_pixel, resource, text
from fixture_tools import Tool, bus, call_tool, list_tools
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

watched: set[str] = set()


def message(block: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": block}


def with_arguments(given: dict[str, str]) -> list[dict[str, Any]]:
    return [message(text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"))]


def with_resource(given: dict[str, str]) -> list[dict[str, Any]]:
    embedded = resource(given.get("resourceUri", ""), "text/plain", "Embedded resource content for testing.")
    return [message(embedded), message(text("Please process the embedded resource above."))]


PROMPTS: dict[str, tuple[list[str], Callable[[dict[str, str]], list[dict[str, Any]]]]] = {
    "test_simple_prompt": ([], lambda given: [message(text("This is a simple prompt for testing."))]),
    "test_prompt_with_arguments": (["arg1", "arg2"], with_arguments),
    "test_prompt_with_embedded_resource": (["resourceUri"], with_resource),
    "test_prompt_with_image": ([], lambda given: [message(IMAGE), message(text("Please analyze the image above."))]),
    "test_input_required_result_prompt": ([], lambda given: [message(text("with context"))]),
}
CONTEXT = form("What context should the prompt use?", {"context": {"type": "string"}}, ["context"])
STATIC: dict[str, dict[str, str]] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": red_pixel()},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched."},
}


async def list_prompts(ctx: Context, params: Any) -> Result:
    return {
        "prompts": [
            {
                "name": name,
                "description": f"The suite's {name}",
                "arguments": [{"name": argument, "required": True} for argument in arguments],
            }
            for name, (arguments, _) in PROMPTS.items()
        ]
    }


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Result:
    if params.name not in PROMPTS:
        raise MCPError(types.INVALID_PARAMS, f"unknown prompt {params.name}")
    try:
        if params.name == "test_input_required_result_prompt":
            await asked(ctx, params, {"user_context": CONTEXT})
    except Wanted as wanted:
        return wanted.result
    return {"messages": PROMPTS[params.name][1](params.arguments or {})}


async def list_resources(ctx: Context, params: Any) -> Result:
    return {
        "resources": [{"uri": uri, "name": uri, "mimeType": one["mimeType"]} for uri, one in STATIC.items()],
        "ttlMs": 1000,
    }


async def list_templates(ctx: Context, params: Any) -> Result:
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
    return {"resourceTemplates": [template]}


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> Result:
    uri = str(params.uri)
    if uri in STATIC:
        return {"contents": [{"uri": uri, **STATIC[uri]}]}
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.split("/")[3]
        data = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": data}]}
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


async def subscribe(ctx: Context, params: types.SubscribeRequestParams) -> Result:
    watched.add(str(params.uri))
    return {}


async def unsubscribe(ctx: Context, params: types.UnsubscribeRequestParams) -> Result:
    watched.discard(str(params.uri))
    return {}


async def complete(ctx: Context, params: Any) -> Result:
    return {"completion": {"values": [f"{params.argument.value}1"], "total": 1, "hasMore": False}}


async def set_level(ctx: Context, params: Any) -> Result:
    return {}


RESULTS: dict[str, type[BaseModel]] = {
    "tools/list": types.ListToolsResult,
    "tools/call": types.CallToolResult,
    "prompts/list": types.ListPromptsResult,
    "prompts/get": types.GetPromptResult,
    "resources/list": types.ListResourcesResult,
    "resources/templates/list": types.ListResourceTemplatesResult,
    "resources/read": types.ReadResourceResult,
    "completion/complete": types.CompleteResult,
}


def typed(handler: Tool, kind: type[BaseModel]) -> Tool:
    """The handler with its result as the SDK's own value, which adds what each era wants."""

    async def wrapped(ctx: Context, params: Any) -> Result:
        result = await handler(ctx, params)
        wanted = isinstance(result, dict) and result.get("resultType") == "input_required"
        return (types.InputRequiredResult if wanted else kind).model_validate(result)

    return wrapped


def made() -> Server[Any]:
    server: Server[Any] = Server("conformance-fixture", version="1.0.0", on_subscriptions_listen=ListenHandler(bus))
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="fixture"))
    handlers: list[tuple[str, type[BaseModel], Any]] = [
        ("tools/list", types.PaginatedRequestParams, list_tools),
        ("tools/call", types.CallToolRequestParams, call_tool),
        ("prompts/list", types.PaginatedRequestParams, list_prompts),
        ("prompts/get", types.GetPromptRequestParams, get_prompt),
        ("resources/list", types.PaginatedRequestParams, list_resources),
        ("resources/templates/list", types.PaginatedRequestParams, list_templates),
        ("resources/read", types.ReadResourceRequestParams, read_resource),
        ("resources/subscribe", types.SubscribeRequestParams, subscribe),
        ("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe),
        ("completion/complete", types.CompleteRequestParams, complete),
        ("logging/setLevel", types.SetLevelRequestParams, set_level),
    ]
    for method, kind, handler in handlers:
        server.add_request_handler(method, kind, typed(handler, RESULTS.get(method, types.EmptyResult)))
    return server


async def on_stdio() -> None:
    server = made()
    changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(changes))


def main() -> None:
    if len(sys.argv) == 1:
        asyncio.run(on_stdio())
        return
    import uvicorn

    uvicorn.run(made().streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")


if __name__ == "__main__":
    main()
