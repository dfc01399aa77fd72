"""Arguments that would do: what was given where it fits, and the plainest value where it does not.

For error messages. It follows local references, and gives up on depth rather than go round in circles.
"""

from typing import Any

_MAX_DEPTH = 6

_PLAIN: dict[str, Any] = {
    "string": "text",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def example_for(schema: Any, arguments: Any = None) -> Any:
    """An example of a schema, as near to `arguments` as it can be."""
    return _example(schema, arguments, schema, 0)


def _example(schema: Any, value: Any, root: Any, depth: int) -> Any:
    schema = _resolve(schema, root)
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return value
    if "const" in schema:
        return schema["const"]
    if value is None and "default" in schema:
        return schema["default"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return value if value in schema["enum"] else schema["enum"][0]
    return _example_of_type(schema, value, root, depth)


def _example_of_type(schema: dict[str, Any], value: Any, root: Any, depth: int) -> Any:
    kinds = _kinds(schema, root)
    if not kinds:
        return value
    if "object" in kinds and (isinstance(value, dict) or value is None):
        return _object(schema, value or {}, root, depth)
    if any(_is(value, kind) for kind in kinds):
        return value if value is not None else _PLAIN.get(kinds[0])
    return _convert(value, kinds[0])


def _kinds(schema: dict[str, Any], root: Any) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if isinstance(kind, list):
        return [name for name in kind if isinstance(name, str)]
    if "properties" in schema:
        return ["object"]
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(keyword)
        if isinstance(parts, list):
            return [name for part in parts for name in _kinds_of(part, root)]
    return []


def _kinds_of(part: Any, root: Any) -> list[str]:
    part = _resolve(part, root)
    kind = part.get("type") if isinstance(part, dict) else None
    return [kind] if isinstance(kind, str) else []


def _object(schema: dict[str, Any], value: dict[str, Any], root: Any, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = [name for name in schema.get("required", ()) if isinstance(name, str)]
    closed = schema.get("additionalProperties") is False
    allowed = [name for name in value if name in properties or not closed]
    names = dict.fromkeys((*required, *allowed))
    return {name: _example(properties.get(name, True), value.get(name), root, depth + 1) for name in names}


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, ()))


def _convert(value: Any, kind: str) -> Any:
    """`"5"` for an integer is most likely meant as 5."""
    if isinstance(value, str) and kind in {"integer", "number"}:
        try:
            return int(value) if kind == "integer" else float(value)
        except ValueError:
            return _PLAIN[kind]
    if kind == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if kind == "array" and value is not None:
        return [value]
    return _PLAIN.get(kind)


def _resolve(schema: Any, root: Any) -> Any:
    """What a local reference leads to; nothing where it leads nowhere."""
    for _ in range(_MAX_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            return schema
        schema = root
        for step in reference.removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            schema = schema.get(name) if isinstance(schema, dict) and name else schema
    return True
