"""The OpenAPI 3.1 document of the HTTP face: what each address takes, answers and refuses.

Operations are written from the definitions that the model-facing tools are written from; what they answer stands in
`openapi.json`. Above: `app.py`, which serves it, and `page.py`, which renders it.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from toolfold import __version__
from toolfold.faces.surface.definitions import DISCOVERY
from toolfold.live.manager import OFFERS

# Names the live session that a client's requests share.
SESSION_HEADER = "toolfold-session"
MAX_SESSION_NAME = 100

POST_STATUSES = (400, 401, 403, 413, 415, 422, 500, 503)
GET_STATUSES = (401, 403, 500, 503)
RUN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"task": {"type": "string", "minLength": 1}, "agent": {"type": "string"}},
    "required": ["task"],
    "additionalProperties": False,
}
LEAF_SCHEMAS: dict[str, dict[str, Any]] = {
    "read_resource": {
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "An address, or a URI that one server alone has."}},
        "required": ["uri"],
        "additionalProperties": False,
    },
    "get_prompt": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name"],
        "additionalProperties": False,
    },
}


@cache
def _data() -> dict[str, Any]:
    """The fixed parts: the outer document with all schemas, the reasons of statuses, and examples."""
    data: dict[str, Any] = json.loads(Path(__file__).with_name("openapi.json").read_text(encoding="utf-8"))
    return data


@cache
def document() -> dict[str, Any]:
    data = _data()
    fixed = data["document"]
    responses = {status: _error_response(reason) for status, reason in data["reasons"].items()}
    components = {**fixed["components"], "responses": responses}
    return {**fixed, "info": {**fixed["info"], "version": __version__}, "paths": _paths(), "components": components}


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    about: dict[str, Any]
    for operation in DISCOVERY:
        summary = operation.description.partition(": ")[0].partition(". ")[0].rstrip(".")
        about = {"summary": summary, "description": operation.description, "tags": ["operations"]}
        answer = _data()["answers"][operation.name]
        content = _content("The answer.", "application/json", answer["schema"])
        paths[f"/v1/{operation.name}"] = _post(
            operation.name, about, operation.input_schema, content, tuple(answer["statuses"])
        )
    for offer in OFFERS:
        about = {
            "summary": f"{offer.name} in a live Python session.",
            "description": offer.description,
            "tags": ["live"],
            "parameters": [_data()["session_parameter"]],
        }
        envelope = _content("The answer.", "application/json", "Envelope")
        paths[f"/v1/live/{offer.name}"] = _post(offer.name, about, offer.parameters, envelope, (409,))
    paths["/v1/agents/runs"] = _post(
        "run_agent",
        {"summary": "Runs an agent, and tells what it does.", "tags": ["agents"]},
        RUN_SCHEMA,
        _content("Each event as it happens.", "text/event-stream", "AgentEvents"),
        (404, 502),
    )
    whole = _get("output", "A stored output of the caller, whole, as it is.", "Bytes", "*/*", (404,))
    whole["get"]["parameters"] = [_data()["handle_parameter"]]
    paths["/v1/outputs/{handle}"] = whole
    for name, summary in (
        ("resources", "Resources of all servers, in pages."),
        ("resource-templates", "Templates that make addresses of resources, in pages."),
        ("prompts", "Prompts of all servers, in pages."),
        ("skills", "Skills of all servers, in pages."),
    ):
        page = paths[f"/v1/{name}"] = _get(f"list_{name.replace('-', '_')}", summary, "LeafPage", statuses=(400,))
        page["get"]["parameters"] = [_data()["cursor_parameter"]]
    for name, summary in (("read_resource", "What a resource holds."), ("get_prompt", "A prompt, filled in.")):
        answer = _content("What its server answered, with our addresses.", "application/json", "LeafResult")
        about = {"summary": summary, "tags": ["operations"]}
        paths[f"/v1/{name}"] = _post(name, about, LEAF_SCHEMAS[name], answer, (404, 409, 429, 502, 504))
    paths["/v1/servers"] = _get("servers", "The servers behind this gateway.", "Servers")
    paths["/v1/sign-ins"] = _get("sign_ins", "Where the caller has signed in with an account of its own.", "SignIns")
    begin = _get("sign_in", "The address at which the caller signs in.", "SignInAddress", statuses=(404, 502, 504))
    end = _get("sign_out", "Signs the caller out.", "SignedOut", statuses=(404, 502, 504))
    own = {"parameters": [_data()["server_parameter"]]}
    paths["/v1/sign-ins/{server}"] = {"post": {**begin["get"], **own}, "delete": {**end["get"], **own}}
    paths["/v1/instructions"] = _get("instructions", "What to tell a model before its first call.", "Instructions")
    paths["/healthz"] = _get("health", "Whether the process answers.", "Health")
    paths["/readyz"] = _get("ready", "Whether it takes requests: 503 says what is missing.", "Ready")
    paths["/readyz"]["get"]["responses"]["503"] = _content("It does not, now.", "application/json", "Ready")
    for method, path, name, summary, example in _data()["admin"]:
        paths.setdefault(f"/v1/admin/{path}", {})[method] = _admin(path, name, summary, example)
    return paths


def _admin(path: str, name: str, summary: str, example: dict[str, Any] | None) -> dict[str, Any]:
    """An operation for administrators; what a body may hold is what the table of the configuration may."""
    about: dict[str, Any] = {"operationId": name, "summary": summary, "tags": ["admin"]}
    if "{name}" in path:
        about["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    if example:
        content = {"application/json": {"schema": {"type": "object"}, "example": example}}
        about["requestBody"] = {"required": True, "content": content}
    answer = _content("The answer.", "application/json", "Administered")
    return {**about, "responses": _responses(answer, (*POST_STATUSES, 404, 409))}


def _post(
    name: str, about: dict[str, Any], schema: dict[str, Any], answer: dict[str, Any], statuses: tuple[int, ...]
) -> dict[str, Any]:
    return {
        "post": {
            "operationId": name,
            **about,
            "requestBody": {
                "required": bool(schema.get("required")),
                "content": {"application/json": {"schema": schema, "example": _data()["examples"][name]}},
            },
            "responses": _responses(answer, (*POST_STATUSES, *statuses)),
        }
    }


def _get(
    name: str, summary: str, schema: str, media_type: str = "application/json", statuses: tuple[int, ...] = ()
) -> dict[str, Any]:
    answer = _content("The answer.", media_type, schema)
    about = {"operationId": name, "summary": summary, "tags": ["state"]}
    return {"get": {**about, "responses": _responses(answer, (*GET_STATUSES, *statuses))}}


def _content(description: str, media_type: str, schema: str) -> dict[str, Any]:
    return {"description": description, "content": {media_type: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}}


def _responses(answer: dict[str, Any], statuses: tuple[int, ...]) -> dict[str, Any]:
    errors = {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}
    return {"200": answer, **errors}


def _error_response(reason: str) -> dict[str, Any]:
    content = {
        "application/json": {"schema": {"$ref": "#/components/schemas/Error"}, "example": _data()["error_example"]}
    }
    return {"description": reason, "content": content}
