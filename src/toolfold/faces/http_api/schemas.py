"""What the HTTP face answers, as JSON Schemas and examples for the OpenAPI document. Plain values."""

from typing import Any

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


def closed(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    """An object with just these properties, all there except those named."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def many(name: str) -> dict[str, Any]:
    return {"type": "array", "items": ref(name)}


SCHEMAS: dict[str, Any] = {
    "Node": closed({"name": TEXT, "path": PATH, "summary": TEXT, "tags": TAGS}),
    "Pointer": {
        **closed({"tool_id": TEXT, "path": PATH, "summary": TEXT, "tags": TAGS, "confidence": CONFIDENCE}),
        "description": "The least that is needed to decide whether to expand a tool.",
    },
    "FoundNode": closed({"path": PATH, "summary": TEXT, "confidence": CONFIDENCE}),
    "Listing": closed({"path": PATH, "nodes": many("Node"), "tools": many("Pointer"), "next_cursor": NEXT_CURSOR}),
    "FoundNodes": closed({"results": many("FoundNode")}),
    "FoundTools": closed({"category_path": PATH, "results": many("Pointer"), "next_cursor": NEXT_CURSOR}),
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
    "Text": closed({"text": TEXT}),
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
    "Servers": closed(
        {
            "servers": {
                "type": "array",
                "items": closed(
                    {"name": TEXT, "transport": TEXT, "status": TEXT, "tools": {"type": ["integer", "null"]}}
                ),
            }
        }
    ),
    "Instructions": closed({"instructions": TEXT}),
    "Health": closed({"status": TEXT, "version": TEXT, "catalogue": {"enum": ["ready", "not built"]}}),
    "Error": closed(
        {
            "error": closed(
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
