"""The OpenAPI 3.1 document, written from the definitions that the model-facing tools are written from."""

from functools import cache
from typing import Any

from toolfold import __version__
from toolfold.faces.http_api.live import HEADER
from toolfold.faces.http_api.schemas import ANSWERS, ERROR_EXAMPLE, REQUESTS, SCHEMAS, TEXT, closed, ref
from toolfold.faces.surface.definitions import DISCOVERY, Definition
from toolfold.gateway.living import OFFERS

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
            "/v1/servers": _reading("servers", "The servers behind this gateway.", "Servers"),
            "/v1/instructions": _reading("instructions", "What to tell a model before its first call.", "Instructions"),
            "/healthz": _reading("health", "Whether toolfold is up.", "Health"),
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
        "name": HEADER,
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
    schema = closed({"task": {**TEXT, "minLength": 1}, "agent": TEXT}, "agent")
    told = {
        "description": "Each event as it happens.",
        "content": {"text/event-stream": {"schema": ref("AgentEvents")}},
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


def _reading(name: str, summary: str, answer: str) -> dict[str, Any]:
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "tags": ["state"],
            "responses": {"200": _answer(answer), **{str(status): _error(status) for status in (401, 403, 500, 503)}},
        }
    }


def _answer(schema: str) -> dict[str, Any]:
    return {"description": "The answer.", "content": {"application/json": {"schema": ref(schema)}}}


def _error(status: int) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/{status}"}


def _error_response(reason: str) -> dict[str, Any]:
    return {
        "description": reason,
        "content": {"application/json": {"schema": ref("Error"), "example": ERROR_EXAMPLE}},
    }
