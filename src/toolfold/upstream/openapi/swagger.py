"""Rewrites a Swagger 2.0 document as OpenAPI 3.0, as far as its operations need it.

It moves things to where version 3 has them and checks nothing: a part of the wrong kind is left as it is.
"""

from typing import Any

Json = dict[str, Any]

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_SCHEMA_KEYS = (
    "type", "format", "items", "enum", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "multipleOf",
)  # fmt: skip
_MOVED = {
    "#/definitions/": "#/components/schemas/",
    "#/responses/": "#/components/responses/",
}


def from_swagger(old: Json) -> Json:
    """The same interface as a version 3 document."""
    new: Json = {
        "openapi": "3.0.3",
        "info": old.get("info", {}),
        "servers": _servers(old),
        "components": {
            "schemas": old.get("definitions", {}),
            "responses": {name: _response(item, _produces(old)) for name, item in _dict(old.get("responses")).items()},
        },
        "paths": {path: _path(item, old) for path, item in _dict(old.get("paths")).items()},
    }
    moved: Json = _move_references(new)
    return moved


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _produces(old: Json) -> list[str]:
    return _texts(old.get("produces")) or ["application/json"]


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _servers(old: Json) -> list[Json]:
    base = str(old.get("basePath", "/"))
    host = old.get("host")
    if not host:
        return [{"url": base}]
    return [{"url": f"{scheme}://{host}{base}"} for scheme in _texts(old.get("schemes")) or ["https"]]


def _path(item: Any, old: Json) -> Any:
    if not isinstance(item, dict):
        return item
    shared = [_resolve(parameter, old) for parameter in _list(item.get("parameters"))]
    return {
        key: _operation(value, shared, old) if key in _METHODS and isinstance(value, dict) else value
        for key, value in item.items()
        if key != "parameters"
    }


def _resolve(parameter: Any, old: Json) -> Json:
    """Parameters are written out, since those for bodies move elsewhere."""
    reference = _dict(parameter).get("$ref", "")
    if isinstance(reference, str) and reference.startswith("#/parameters/"):
        return _dict(_dict(old.get("parameters")).get(reference.removeprefix("#/parameters/")))
    return _dict(parameter)


def _operation(operation: Json, shared: list[Json], old: Json) -> Json:
    own = [_resolve(parameter, old) for parameter in _list(operation.get("parameters"))]
    named = {(str(item.get("in")), str(item.get("name"))): item for item in [*shared, *own]}
    parameters = list(named.values())
    consumes = _texts(operation.get("consumes")) or _texts(old.get("consumes")) or ["application/json"]
    produces = _texts(operation.get("produces")) or _produces(old)
    new = {key: value for key, value in operation.items() if key not in {"consumes", "produces"}}
    new["parameters"] = [_parameter(item) for item in parameters if item.get("in") not in ("body", "formData")]
    if body := _body(parameters, consumes):
        new["requestBody"] = body
    new["responses"] = {
        str(status): _response(item, produces) for status, item in _dict(operation.get("responses")).items()
    }
    return new


def _schema(item: Json) -> Json:
    return {key: item[key] for key in _SCHEMA_KEYS if key in item}


def _parameter(item: Json) -> Json:
    new: Json = {key: item[key] for key in ("name", "in", "description", "required", "deprecated") if key in item}
    new["schema"] = _schema(item)
    collection = item.get("collectionFormat", "csv")
    if item.get("type") == "array" and item.get("in") == "query":
        styles = {"ssv": "spaceDelimited", "pipes": "pipeDelimited"}
        new["style"] = styles.get(str(collection), "form")
        new["explode"] = collection == "multi"
    return new


def _body(parameters: list[Json], consumes: list[str]) -> Json:
    for item in parameters:
        if item.get("in") == "body":
            content = {media: {"schema": item.get("schema", {})} for media in consumes}
            body = {"content": content, "required": bool(item.get("required"))}
            return body | ({"description": item["description"]} if "description" in item else {})
    fields = [item for item in parameters if item.get("in") == "formData"]
    if not fields:
        return {}
    has_file = any(item.get("type") == "file" for item in fields)
    media = (
        "multipart/form-data"
        if has_file or consumes == ["multipart/form-data"]
        else ("application/x-www-form-urlencoded")
    )
    properties = {}
    for item in fields:
        kind = {"type": "string", "format": "binary"} if item.get("type") == "file" else _schema(item)
        properties[str(item.get("name"))] = kind | (
            {"description": item["description"]} if "description" in item else {}
        )
    schema: Json = {"type": "object", "properties": properties}
    required = [str(item.get("name")) for item in fields if item.get("required")]
    if required:
        schema["required"] = required
    return {"content": {media: {"schema": schema}}, "required": bool(required)}


def _response(item: Any, produces: list[str]) -> Any:
    if not isinstance(item, dict) or "schema" not in item:
        return item
    new = {key: value for key, value in item.items() if key not in {"schema", "examples"}}
    new["content"] = {media: {"schema": item["schema"]} for media in produces}
    return new


def _move_references(value: Any) -> Any:
    if isinstance(value, dict):
        new = {key: _move_references(item) for key, item in value.items()}
        reference = new.get("$ref")
        if isinstance(reference, str):
            for old, moved in _MOVED.items():
                if reference.startswith(old):
                    new["$ref"] = moved + reference.removeprefix(old)
        return new
    return [_move_references(item) for item in value] if isinstance(value, list) else value
