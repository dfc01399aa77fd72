"""The OpenAPI 3.1 document, written from the definitions that the model-facing tools are written from."""

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, structs

from toolfold import __version__
from toolfold.errors import InvalidArguments
from toolfold.faces.surface.definitions import DISCOVERY, Definition
from toolfold.gateway import Gateway
from toolfold.live.manager import OFFERS
from toolfold.types import Caller
from toolfold.wire.jsonrpc import DECODE_ERRORS

if TYPE_CHECKING:
    from starlette.requests import Request


# --- What the HTTP face answers, as JSON Schemas and examples for the OpenAPI document. Plain values.

TEXT: dict[str, Any] = {"type": "string"}
WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
PATH: dict[str, Any] = {"type": "array", "items": TEXT, "description": "A category, from the root; [] is the root."}
TAGS: dict[str, Any] = {"type": "array", "items": TEXT}
NEXT_CURSOR: dict[str, Any] = {"type": ["string", "null"], "description": "Opaque; null where nothing follows."}
SCHEMA: dict[str, Any] = {"type": ["object", "boolean"], "description": "JSON Schema, as its server wrote it."}
CONFIDENCE: dict[str, Any] = {
    "type": ["number", "null"],
    "minimum": 0,
    "maximum": 1,
    "description": "The probability that it fits the request; null where nothing was asked.",
}


def _closed(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    """An object with just these properties, all there except those named."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _many(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _ref(name)}


SCHEMAS: dict[str, Any] = {
    "Node": _closed({"name": TEXT, "path": PATH, "summary": TEXT, "tags": TAGS}),
    "Pointer": {
        **_closed({"tool_id": TEXT, "path": PATH, "summary": TEXT, "tags": TAGS, "confidence": CONFIDENCE}),
        "description": "The least that is needed to decide whether to expand a tool.",
    },
    "FoundNode": _closed({"path": PATH, "summary": TEXT, "confidence": CONFIDENCE}),
    "Listing": _closed({"path": PATH, "nodes": _many("Node"), "tools": _many("Pointer"), "next_cursor": NEXT_CURSOR}),
    "FoundNodes": _closed({"results": _many("FoundNode")}),
    "FoundTools": _closed({"category_path": PATH, "results": _many("Pointer"), "next_cursor": NEXT_CURSOR}),
    "ExpandedTool": {
        "type": "object",
        "properties": {
            "tool_id": TEXT,
            "path": PATH,
            "summary": TEXT,
            "description": TEXT,
            "args_schema": SCHEMA,
            "result_schema": {**SCHEMA, "type": ["object", "boolean", "null"]},
            "version": {"type": "integer", "minimum": 1, "description": "Give it as expect_version of call_tool."},
            "tags": TAGS,
        },
        "required": ["tool_id", "path", "summary", "args_schema", "result_schema", "version"],
    },
    "CallToolResult": {
        "type": "object",
        "description": "What the tool's server answered, untouched (MCP's CallToolResult).",
        "properties": {
            "content": {"type": "array", "items": {"type": "object"}},
            "isError": {"type": "boolean", "description": "The tool itself says that it failed."},
        },
    },
    "Inspection": {
        "type": "object",
        "properties": {
            "tool_id": TEXT,
            "field_path": TEXT,
            "node_type": TEXT,
            "children": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": TEXT, "type": TEXT}, "required": ["name", "type"]},
            },
            "flattened_fields": {"type": "array", "items": TEXT},
            "total_child_fields": WHOLE,
            "truncated": {"type": "boolean"},
        },
        "required": ["tool_id", "field_path", "node_type", "children", "flattened_fields", "truncated"],
    },
    "Text": _closed({"text": TEXT}),
    "ScriptResult": {
        "type": "object",
        "description": "How the script ended, what it printed, and its summary.",
        "properties": {
            "ok": {"type": "boolean"},
            "outcome": TEXT,
            "answer": {"description": "The final JSON summary."},
            "stdout": TEXT,
            "stderr": TEXT,
            "needs": {"type": "array", "items": {"type": "object"}, "description": "What each need became."},
            "calls": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["ok", "outcome", "stdout", "stderr", "needs", "calls"],
    },
    "Envelope": {
        "type": "object",
        "description": "What was found, or why not.",
        "properties": {
            "ok": {"type": "boolean"},
            "result": {"description": "Where it is ok."},
            "error": {"type": ["object", "null"], "description": "Where it is not: its code, a message, what to do."},
        },
        "required": ["ok"],
    },
    "AgentEvents": {
        "type": "string",
        "description": "Server-sent events, one to each step of the run; the last one is `report`.",
    },
    "Servers": _closed(
        {
            "servers": {
                "type": "array",
                "items": _closed(
                    {"name": TEXT, "transport": TEXT, "status": TEXT, "tools": {"type": ["integer", "null"]}}
                ),
            }
        }
    ),
    "Instructions": _closed({"instructions": TEXT}),
    "Health": _closed({"status": TEXT, "version": TEXT, "catalogue": {"enum": ["ready", "not built"]}}),
    "Error": _closed(
        {
            "error": _closed(
                {
                    "code": {**TEXT, "description": "Stable, for programs."},
                    "message": {**TEXT, "description": "What happened."},
                    "hints": {"type": "array", "description": "What would work, from the real catalogue.", "items": {}},
                    "next_action": {**TEXT, "description": "What to do next."},
                }
            )
        }
    ),
}

ANSWERS = {
    "list": "Listing",
    "search_nodes": "FoundNodes",
    "search_tool_by_category": "FoundTools",
    "expand_tool": "ExpandedTool",
    "call_tool": "CallToolResult",
    "inspect_tool_output": "Inspection",
    "tool_output": "Text",
    "run_script": "ScriptResult",
}

REQUESTS: dict[str, Any] = {
    "list": {"path": ["Coding", "Refactoring"], "limit": 10},
    "search_nodes": {"query": "oauth login", "limit": 5},
    "search_tool_by_category": {
        "query": "rename a symbol across the codebase",
        "category_path": ["Coding", "Refactoring"],
        "limit": 5,
        "cursor": None,
    },
    "expand_tool": {"tool_id": "refactor.rename_symbol"},
    "call_tool": {
        "tool_id": "refactor.rename_symbol",
        "args": {"project_root": ".", "symbol": "old_name", "new_name": "new_name"},
        "expect_version": 1,
    },
    "inspect_tool_output": {"tool_id": "refactor.rename_symbol", "field_path": ""},
    "tool_output": {"handle": "0b6f3c1e-6d0f-4d8e-9f6a-2f6a1d3c5b7e", "extract": "orders[3].email", "mode": "auto"},
    "run_script": {"code": "print(1 + 1)"},
    "list_globals": {},
    "inspect": {"expr": "orders"},
    "eval_expr": {"expr": "len(orders)"},
    "run_agent": {"task": "find the tool that renames a symbol"},
}

ERROR_EXAMPLE: dict[str, Any] = {
    "error": {
        "code": "TOOL_NOT_FOUND",
        "message": "there is no tool 'refactor.rename_symbl'",
        "hints": ["refactor.rename_symbol"],
        "next_action": "use one of the ids in hints, or find the tool with list or a search",
    }
}


# --- `POST /v1/live/NAME`: the three tools of a live Python session. A client's requests share the session it names

SESSION_HEADER = "toolfold-session"
MAX_SESSION_NAME = 100


async def dispatch_live(gateway: Gateway, caller: Caller, request: "Request", body: Raw) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(body, type=dict[str, Any])
    except DECODE_ERRORS as error:
        raise InvalidArguments(
            f"the body must be one JSON object: {error}", next_action='send {"expr": "…"}'
        ) from error
    session = request.headers.get(SESSION_HEADER, "")[:MAX_SESSION_NAME]
    asking = structs.replace(caller, session=f"http-{session}")
    return await gateway.living.sessions.dispatch(asking, request.path_params["name"], given)


REASONS = {
    400: "The body is not JSON, or the cursor is none that fits.",
    401: "The key is missing or unknown.",
    403: "The caller may not do this, or the page's origin is not allowed.",
    404: "No such category, tool, field or handle, or nothing fits: hints name what is near.",
    409: "The tool changed, was not expanded, or needs an answer that nobody can give here.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "The arguments do not fit: hints name each field.",
    500: "toolfold itself failed.",
    502: "A tool server or a model could not be reached or understood.",
    503: "There is no catalogue yet, or something that is needed is not there now.",
    504: "A tool server did not answer in time.",
    507: "There is no room to store a result.",
}

ALWAYS = (400, 401, 403, 413, 415, 422, 500, 503)
FURTHER = {
    "list": (404,),
    "search_nodes": (404,),
    "search_tool_by_category": (404,),
    "expand_tool": (404,),
    "call_tool": (404, 409, 502, 504, 507),
    "inspect_tool_output": (404,),
    "tool_output": (404, 502, 504),
    "run_script": (404, 409, 502, 504, 507),
}


@cache
def document() -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "toolfold",
            "version": __version__,
            "summary": "Find, understand and call any of many tools.",
            "description": (
                "Browse or search for a tool, expand it, call it. Every error has a `code`, a `message`, `hints` and "
                "a `next_action`."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "./"}],
        "security": [{"key": []}, {}],
        "tags": [{"name": "operations"}, {"name": "live"}, {"name": "agents"}, {"name": "state"}],
        "paths": {
            **{f"/v1/{one.name}": {"post": _operation(one)} for one in DISCOVERY},
            **{f"/v1/live/{one.name}": {"post": _live(one.name, one.description, one.parameters)} for one in OFFERS},
            "/v1/agents/runs": {"post": _agent_run()},
            "/v1/servers": _get_operation("servers", "The servers behind this gateway.", "Servers"),
            "/v1/instructions": _get_operation(
                "instructions", "What to tell a model before its first call.", "Instructions"
            ),
            "/healthz": _get_operation("health", "Whether toolfold is up.", "Health"),
        },
        "components": {
            "schemas": SCHEMAS,
            "responses": {str(status): _error_response(reason) for status, reason in REASONS.items()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Definition) -> dict[str, Any]:
    return {
        "operationId": one.name,
        "summary": one.description.partition(": ")[0].partition(". ")[0].rstrip("."),
        "description": one.description,
        "tags": ["operations"],
        "requestBody": {
            "required": bool(one.required),
            "content": {"application/json": {"schema": one.input_schema, "example": REQUESTS[one.name]}},
        },
        "responses": {
            "200": _answer(ANSWERS[one.name]),
            **{str(status): _error(status) for status in sorted((*ALWAYS, *FURTHER[one.name]))},
        },
    }


def _live(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    session = {
        "name": SESSION_HEADER,
        "in": "header",
        "required": False,
        "schema": {"type": "string", "pattern": "^[\\w-]{1,100}$"},
    }
    return {
        "operationId": name,
        "summary": f"{name} in a live Python session.",
        "description": description,
        "tags": ["live"],
        "parameters": [{**session, "description": "Requests that name the same session share it."}],
        "requestBody": {
            "required": bool(parameters.get("required")),
            "content": {"application/json": {"schema": parameters, "example": REQUESTS[name]}},
        },
        "responses": {"200": _answer("Envelope"), **{str(status): _error(status) for status in sorted((*ALWAYS, 409))}},
    }


def _agent_run() -> dict[str, Any]:
    schema = _closed({"task": {**TEXT, "minLength": 1}, "agent": TEXT}, "agent")
    told = {
        "description": "Each event as it happens.",
        "content": {"text/event-stream": {"schema": _ref("AgentEvents")}},
    }
    return {
        "operationId": "run_agent",
        "summary": "Runs an agent, and tells what it does.",
        "tags": ["agents"],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": REQUESTS["run_agent"]}},
        },
        "responses": {"200": told, **{str(status): _error(status) for status in sorted((*ALWAYS, 404, 502))}},
    }


def _get_operation(name: str, summary: str, answer: str) -> dict[str, Any]:
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "tags": ["state"],
            "responses": {"200": _answer(answer), **{str(status): _error(status) for status in (401, 403, 500, 503)}},
        }
    }


def _answer(schema: str) -> dict[str, Any]:
    return {"description": "The answer.", "content": {"application/json": {"schema": _ref(schema)}}}


def _error(status: int) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/{status}"}


def _error_response(reason: str) -> dict[str, Any]:
    return {
        "description": reason,
        "content": {"application/json": {"schema": _ref("Error"), "example": ERROR_EXAMPLE}},
    }
