"""Arguments that would do: what was given where it fits, and the plainest value where it does not.

For error messages. It follows local references, and gives up on depth rather than go round in circles.
"""

from typing import Any

MAX_DEPTH = 6

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


def example_for(schema: Any, given: Any = None) -> Any:
    """An example of a schema, as near to `given` as it can be told."""
    return _example(schema, given, schema, 0)


def _example(schema: Any, given: Any, root: Any, depth: int) -> Any:
    schema = _followed(schema, root)
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return given
    for keyword in ("const", "default"):
        if keyword in schema and (given is None or keyword == "const"):
            return schema[keyword]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return given if given in schema["enum"] else schema["enum"][0]
    kinds = _kinds(schema, root)
    if "object" in kinds and (isinstance(given, dict) or given is None):
        return _object(schema, given or {}, root, depth)
    if any(_is(given, kind) for kind in kinds) or not kinds:
        return given if given is not None or not kinds else _PLAIN.get(kinds[0])
    return _converted(given, kinds[0])


def _kinds(schema: dict[str, Any], root: Any) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if isinstance(kind, list):
        return [one for one in kind if isinstance(one, str)]
    if "properties" in schema:
        return ["object"]
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(keyword)
        if isinstance(parts, list):
            return [found for part in parts for found in _kinds_of(part, root)]
    return []


def _kinds_of(part: Any, root: Any) -> list[str]:
    part = _followed(part, root)
    kind = part.get("type") if isinstance(part, dict) else None
    return [kind] if isinstance(kind, str) else []


def _object(schema: dict[str, Any], given: dict[str, Any], root: Any, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = [name for name in schema.get("required", ()) if isinstance(name, str)]
    closed = schema.get("additionalProperties") is False
    kept = [name for name in given if name in properties or not closed]
    names = dict.fromkeys((*required, *kept))
    return {name: _example(properties.get(name, True), given.get(name), root, depth + 1) for name in names}


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, ()))


def _converted(given: Any, kind: str) -> Any:
    """`"5"` for an integer is most likely meant as 5."""
    if isinstance(given, str) and kind in {"integer", "number"}:
        try:
            return int(given) if kind == "integer" else float(given)
        except ValueError:
            return _PLAIN[kind]
    if kind == "string" and isinstance(given, (int, float)) and not isinstance(given, bool):
        return str(given)
    if kind == "array" and given is not None:
        return [given]
    return _PLAIN.get(kind)


def _followed(schema: Any, root: Any) -> Any:
    """What a local reference leads to; nothing where it leads nowhere."""
    for _ in range(MAX_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            return schema
        schema = root
        for step in reference.removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            schema = schema.get(name) if isinstance(schema, dict) and name else schema
    return True
