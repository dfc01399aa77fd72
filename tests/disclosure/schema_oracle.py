"""The paths of a schema, found the plain way: a second opinion that shares only the quoting with the code under test.

Knows local pointers, `properties`, `items`, `prefixItems`, maps, `allOf`, unions and the root's envelope. Follows
recursion to the depth it is given and no further.
"""

from typing import Any

from toolfold.schema_walk.paths import quote_key

COMBINED = ("allOf", "anyOf", "oneOf")
ENVELOPE = {"data", "error", "successful", "graphql_errors", "graphql_extensions"}


class Below:
    """Everything that can be directly below a place."""

    def __init__(self) -> None:
        self.fields: dict[str, list[Any]] = {}
        self.values: list[Any] = []
        self.items: list[Any] = []
        self.places: list[list[Any]] = []
        self.is_array = False


def gather(root: Any, schema: Any, below: Below, seen: set[int]) -> None:
    if not isinstance(schema, dict) or id(schema) in seen:
        return
    seen.add(id(schema))
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        target = root
        for token in reference[2:].split("/") if len(reference) > 1 else []:
            target = (
                target[int(token)] if isinstance(target, list) else target[token.replace("~1", "/").replace("~0", "~")]
            )
        gather(root, target, below, seen)
    for keyword in COMBINED:
        for part in schema.get(keyword, ()):
            gather(root, part, below, seen)
    for name, part in schema.get("properties", {}).items():
        below.fields.setdefault(name, []).append(part)
    if isinstance(schema.get("additionalProperties"), dict) and schema["additionalProperties"]:
        below.values.append(schema["additionalProperties"])
    items = schema.get("items")
    places = items if isinstance(items, list) else schema.get("prefixItems", [])
    for place, part in enumerate(places):
        below.places.extend([[]] if place == len(below.places) else [])
        below.places[place].append(part)
    if isinstance(items, dict):
        below.items.append(items)
    kinds = schema.get("type")
    below.is_array = below.is_array or kinds == "array" or (isinstance(kinds, list) and "array" in kinds)


def below_of(root: Any, schemas: list[Any]) -> Below:
    below = Below()
    seen: set[int] = set()
    for schema in schemas:
        gather(root, schema, below, seen)
    return below


def leaves(root: Any, depth: int) -> set[str]:
    """The paths of all leaves with at most `depth` keys."""
    found: set[str] = set()
    start = below_of(root, [root])
    schemas = start.fields["data"] if "data" in start.fields and set(start.fields) <= ENVELOPE else [root]
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
