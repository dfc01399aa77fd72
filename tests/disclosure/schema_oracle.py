"""The paths of a schema, found the plain way: a second opinion that shares only the quoting with the code under test.

Knows local pointers, `properties`, `items`, `prefixItems`, maps, `allOf`, unions, conditions and the root's envelope.
Follows recursion to the depth it is given and no further.
"""

from typing import Any

from toolfold.schema_walk.paths import quote_key

COMBINED = ("allOf", "anyOf", "oneOf")
ENVELOPE = {"data", "error", "status", "successful", "graphql_errors", "graphql_extensions"}


class Below:
    """Everything that can be directly below a place."""

    def __init__(self) -> None:
        self.fields: dict[str, list[Any]] = {}
        self.values: list[Any] = []
        self.items: list[Any] = []
        self.places: list[list[Any]] = []
        self.is_array = False
        self.is_object = False


def gather(root: Any, schema: Any, below: Below, seen: set[int]) -> None:
    if not isinstance(schema, dict) or id(schema) in seen:
        return
    seen.add(id(schema))
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        gather(root, target_of(root, reference), below, seen)
    parts = [part for keyword in COMBINED for part in schema.get(keyword, ())]
    parts += [schema.get("then"), schema.get("else"), *schema.get("dependentSchemas", {}).values()]
    for part in parts:
        gather(root, part, below, seen)
    for name, part in schema.get("properties", {}).items():
        below.fields.setdefault(name, []).append(part)
    if isinstance(schema.get("additionalProperties"), dict) and schema["additionalProperties"]:
        below.values.append(schema["additionalProperties"])
    below.values.extend(part for part in schema.get("patternProperties", {}).values() if part is not False)
    items = schema.get("items")
    places = items if isinstance(items, list) else schema.get("prefixItems", [])
    for place, part in enumerate(places):
        below.places.extend([[]] if place == len(below.places) else [])
        below.places[place].append(part)
    if isinstance(items, dict) or items is True:
        below.items.append(items)
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    below.is_array = below.is_array or "array" in kinds
    below.is_object = below.is_object or "object" in kinds


def target_of(root: Any, reference: str) -> Any:
    target = root
    for token in reference[2:].split("/") if len(reference) > 1 else []:
        name = token.replace("~1", "/").replace("~0", "~")
        target = target[int(name)] if isinstance(target, list) else target.get(name)
    return target


def below_of(root: Any, schemas: list[Any]) -> Below:
    below = Below()
    seen: set[int] = set()
    for schema in schemas:
        gather(root, schema, below, seen)
    return below


def is_envelope(root: Any, start: Below) -> bool:
    if "data" not in start.fields or start.values or start.items or start.places or not set(start.fields) <= ENVELOPE:
        return False
    data = below_of(root, start.fields["data"])
    return bool(data.fields or data.values or data.items or data.places or data.is_array or data.is_object)


def leaves(root: Any, depth: int) -> set[str]:
    """The paths of all leaves with at most `depth` keys."""
    found: set[str] = set()
    start = below_of(root, [root])
    schemas = start.fields["data"] if is_envelope(root, start) else [root]
    stack: list[tuple[list[Any], str, int, int]] = [(schemas, "", 0, 0)]
    while stack:
        here, path, keys, brackets = stack.pop()
        below = below_of(root, here)
        steps = [(parts, dotted(path, name), keys + 1, 0) for name, parts in below.fields.items()]
        steps.extend([(below.values, f"{path}.*" if path else "*", keys + 1, 0)] if below.values else [])
        steps.extend((parts, f"{path}[{place}]", keys + 1, 0) for place, parts in enumerate(below.places))
        if below.items or (below.is_array and not below.places):
            steps.append((below.items, f"{path}[]", keys, brackets + 1))
        if not steps and path:
            found.add(path)
        stack.extend(step for step in steps if step[2] <= depth and step[3] < 4)
    return found


def dotted(path: str, name: str) -> str:
    text = quote_key(name)
    return f"{path}.{text}" if path and not text.startswith("[") else path + text
