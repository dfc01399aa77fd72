"""The tools of the fixture server, by the names that the suite asks for. What each must do stands in the suite."""

import asyncio
import json
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from fixture_input import (
    AUDIO,
    IMAGE,
    MODERN,
    NAME,
    ROOTS,
    Context,
    Result,
    Wanted,
    asked,
    content,
    declared,
    form,
    resource,
    sampling,
    text,
)
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError

SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

bus = InMemorySubscriptionBus()


async def logging_tool(ctx: Context, params: Any) -> Result:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)
        await asyncio.sleep(0.02)
    return content(text("logged"))


async def progress_tool(ctx: Context, params: Any) -> Result:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await asyncio.sleep(0.02)
    return content(text("done"))


async def sampling_tool(ctx: Context, params: Any) -> Result:
    prompt = str((params.arguments or {}).get("prompt", ""))
    answer = await asked(ctx, params, {"answer": sampling(prompt, 100)})
    return content(text(f"LLM response: {json.dumps(answer['answer'])}"))


async def elicitation_tool(ctx: Context, params: Any) -> Result:
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    message = str((params.arguments or {}).get("message", ""))
    answer = await asked(ctx, params, {"user": form(message, fields, list(fields))})
    return content(text(f"User response: {json.dumps(answer['user'])}"))


async def defaults_tool(ctx: Context, params: Any) -> Result:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    answer = await asked(ctx, params, {"form": form("Please check", fields)})
    return content(text(f"Elicitation completed: {json.dumps(answer['form'])}"))


async def enums_tool(ctx: Context, params: Any) -> Result:
    titled = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
    options = ["option1", "option2", "option3"]
    names = ["Option One", "Option Two", "Option Three"]
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    answer = await asked(ctx, params, {"form": form("Please choose", fields)})
    return content(text(f"Elicitation completed: {json.dumps(answer['form'])}"))


async def missing_capability_tool(ctx: Context, params: Any) -> Result:
    if not declared(ctx, "sampling/createMessage"):
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs sampling", needed)
    return content(text("sampling is there"))


async def trigger_tools(ctx: Context, params: Any) -> Result:
    await bus.publish(ToolsListChanged())
    if ctx.protocol_version != MODERN:
        await ctx.session.send_tool_list_changed()
    return content(text("told"))


async def trigger_prompts(ctx: Context, params: Any) -> Result:
    await bus.publish(PromptsListChanged())
    if ctx.protocol_version != MODERN:
        await ctx.session.send_prompt_list_changed()
    return content(text("told"))


async def update_tool(ctx: Context, params: Any) -> Result:
    """Not of the suite: tells that a resource changed."""
    await bus.publish(ResourceUpdated(uri="test://watched-resource"))
    if ctx.protocol_version != MODERN:
        await ctx.session.send_resource_updated("test://watched-resource")
    return content(text("told"))


cancelled: list[str] = []


async def slow_tool(ctx: Context, params: Any) -> Result:
    """Not of the suite: reports progress once and then never answers; without a token it tells who was cancelled."""
    if ctx.meta is None or ctx.meta.get("progress_token", ctx.meta.get("progressToken")) is None:
        return content(text(json.dumps(cancelled)))
    await ctx.session.report_progress(1, 2)
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.append("slow")
    return content()


async def meta_tool(ctx: Context, params: Any) -> Result:
    """Not of the suite: what came with the call, and what goes with the result."""
    given = dict(ctx.meta or {})
    kept = {key: value for key, value in given.items() if not key.startswith("io.modelcontextprotocol/")}
    kept["version"] = ctx.protocol_version
    return {**content(text(json.dumps(kept, default=str))), "_meta": {"com.example/back": [1, 2]}}


async def name_tool(ctx: Context, params: Any) -> Result:
    answer = await asked(ctx, params, {"user_name": NAME})
    return content(text(f"Hello, {(answer['user_name'].get('content') or {}).get('name')}!"))


async def question_tool(ctx: Context, params: Any) -> Result:
    answer = await asked(ctx, params, {"capital_question": sampling("What is the capital of France?", 100)})
    return content(text(json.dumps(answer)))


async def roots_tool(ctx: Context, params: Any) -> Result:
    answer = await asked(ctx, params, {"client_roots": ROOTS})
    return content(text(json.dumps(answer)))


async def state_tool(ctx: Context, params: Any) -> Result:
    await asked(ctx, params, {"confirm": form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])}, "state-1")
    kept = ctx.protocol_version != MODERN or params.request_state == "state-1"
    return content(text("state-ok" if kept else "state lost"))


async def several_tool(ctx: Context, params: Any) -> Result:
    wanted = {"user_name": NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}
    return content(text(json.dumps(await asked(ctx, params, wanted, "several"))))


async def rounds_tool(ctx: Context, params: Any) -> Result:
    second = form("Step 2: What is your favourite colour?", {"color": {"type": "string"}}, ["color"])
    if ctx.protocol_version == MODERN and params.request_state == "round-2":
        await asked(ctx, params, {"step2": second}, "round-2")
        return content(text("all steps done"))
    first = form("Step 1: What is your name?", {"name": {"type": "string"}}, ["name"])
    await asked(ctx, params, {"step1": first}, "round-1")
    if ctx.protocol_version == MODERN:
        raise Wanted({"step2": second}, "round-2")
    await asked(ctx, params, {"step2": second})
    return content(text("all steps done"))


async def capabilities_tool(ctx: Context, params: Any) -> Result:
    wanted = {"name": NAME, "greeting": sampling("Generate a greeting", 50)}
    able = {key: request for key, request in wanted.items() if declared(ctx, request["method"])}
    return content(text(json.dumps(await asked(ctx, params, able) if able else {})))


def constant(result: dict[str, Any]) -> "Tool":
    async def tool(ctx: Context, params: Any) -> Result:
        return result

    return tool


Tool = Callable[[Context, Any], Awaitable[Result]]
MIXED = resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
EMBEDDED = resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
TOOLS: dict[str, Tool] = {
    "test_simple_text": constant(content(text("This is a simple text response for testing."))),
    "test_image_content": constant(content(IMAGE)),
    "test_audio_content": constant(content(AUDIO)),
    "test_embedded_resource": constant(content(EMBEDDED)),
    "test_multiple_content_types": constant(content(text("Multiple content types test:"), IMAGE, MIXED)),
    "test_error_handling": constant(content(text("This tool intentionally returns an error for testing"), error=True)),
    "test_tool_with_logging": logging_tool,
    "test_logging_tool": logging_tool,
    "test_tool_with_progress": progress_tool,
    "test_sampling": sampling_tool,
    "test_elicitation": elicitation_tool,
    "test_elicitation_sep1034_defaults": defaults_tool,
    "test_elicitation_sep1330_enums": enums_tool,
    "json_schema_2020_12_tool": constant(content(text("fine"))),
    "test_custom_header": constant(content(text("fine"))),
    "extra_update_resource": update_tool,
    "extra_slow": slow_tool,
    "extra_meta": meta_tool,
    "test_missing_capability": missing_capability_tool,
    "test_streaming_elicitation": name_tool,
    "test_trigger_tool_change": trigger_tools,
    "test_trigger_prompt_change": trigger_prompts,
    "test_input_required_result_elicitation": name_tool,
    "test_input_required_result_sampling": question_tool,
    "test_input_required_result_list_roots": roots_tool,
    "test_input_required_result_request_state": state_tool,
    "test_input_required_result_tampered_state": state_tool,
    "test_input_required_result_multiple_inputs": several_tool,
    "test_input_required_result_multi_round": rounds_tool,
    "test_input_required_result_capabilities": capabilities_tool,
}
STRING = {"type": "string"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "json_schema_2020_12_tool": SCHEMA_2020,
    "test_custom_header": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
    "test_sampling": {"type": "object", "properties": {"prompt": STRING}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": STRING}, "required": ["message"]},
}


async def list_tools(ctx: Context, params: Any) -> Result:
    plain = {"type": "object", "properties": {}}
    tools = [
        {"name": name, "description": f"The suite's {name}", "inputSchema": SCHEMAS.get(name, plain)} for name in TOOLS
    ]
    return {"tools": tools}


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Result:
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name}")
    try:
        return await tool(ctx, params)
    except Wanted as wanted:
        return wanted.result
