"""From an observed shape to a JSON Schema, and from both to the schema that is shown.

What is declared comes first, unless it says nothing. A declaration that results contradict stays as it is, and the
contradictions are reported. Values are not kept, so `enum`, `const`, formats and ranges cannot be checked here.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from toolfold.disclosure.observed import Observed, Shape
from toolfold.schema_walk import Document, Node
from toolfold.schema_walk.paths import ANY, ITEMS, Step, join

MARK = "x-observed"
MAX_CONTRADICTIONS = 20
_ORDER = ("object", "array", "string", "integer", "number", "boolean", "null")


class Contradiction(Struct, frozen=True):
    """One thing that results did and the declared schema does not allow."""

    path: str
    declared: str
    seen: str
    count: int
    """How many of the values looked at."""


def to_schema(observed: Observed) -> dict[str, Any]:
    """A JSON Schema that fits everything observed, marked with the number of results it comes from."""
    return {**_schema(observed.shape), MARK: {"calls": observed.calls}}


def observed_calls(schema: Any) -> int | None:
    """How many results a schema comes from; `None` for a declared one."""
    mark = schema.get(MARK) if isinstance(schema, dict) else None
    calls = mark.get("calls") if isinstance(mark, dict) else None
    return calls if isinstance(calls, int) else None


def result_schema(declared: Any, observed: Observed | None) -> Any:
    """The schema to show: the declared one, or the observed one where that says nothing and something was seen."""
    if observed is not None and says_nothing(declared):
        return to_schema(observed)
    return declared


def says_nothing(schema: Any) -> bool:
    """Whether a declaration tells a reader nothing: absent, an open object, or a `result` around one."""
    if not isinstance(schema, dict):
        return True
    root = Document(schema).root
    if root.kind == "object" and root.names == ["result"]:
        inner = root.child(Step("key", "result"))
        return inner is None or _is_vague(inner)
    return _is_vague(root)


def contradictions(observed: Observed, declared: Any) -> list[Contradiction]:
    """Where the results do not fit the declared schema: wrong types, missing or undeclared fields."""
    if not isinstance(declared, dict):
        return []
    return list(islice(_compare(observed.shape, Document(declared).root, ""), MAX_CONTRADICTIONS))


def _is_vague(node: Node) -> bool:
    for _ in range(4):
        items = node.child(ITEMS) if node.kind == "array" else None
        if items is None:
            break
        node = items
    return node.kind == "any" or node.is_open


def _schema(shape: Shape) -> dict[str, Any]:
    types = {kind for kind in shape.types if kind != "integer" or "number" not in shape.types}
    names = [kind for kind in _ORDER if kind in types]
    schema: dict[str, Any] = {"type": names[0] if len(names) == 1 else names} if names else {}
    if shape.fields:
        schema["properties"] = {key: _schema(part) for key, part in shape.fields.items()}
        always = [key for key, part in shape.fields.items() if part.count >= shape.types.get("object", 0)]
        if always:
            schema["required"] = always
    if shape.values is not None:
        schema["additionalProperties"] = _schema(shape.values)
    if shape.items is not None:
        schema["items"] = _schema(shape.items)
    return schema


def _compare(shape: Shape, node: Node, path: str) -> Iterator[Contradiction]:
    if node.kind in {"any", "unknown"}:
        return
    for kind, count in shape.types.items():
        if not _allows(node, kind):
            yield Contradiction(path, node.label, kind, count)
    yield from _compare_fields(shape, node, path)
    below = [(ITEMS, shape.items), (ANY, shape.values)]
    below.extend((Step("key", key), part) for key, part in shape.fields.items())
    for step, part in below:
        child = node.child(step) if part is not None else None
        if child is not None and part is not None:
            yield from _compare(part, child, join(path, step))


def _compare_fields(shape: Shape, node: Node, path: str) -> Iterator[Contradiction]:
    objects = shape.types.get("object", 0)
    if not objects or "object" not in node.kinds or shape.folded:
        return
    for name in sorted(node.required):
        seen = shape.fields[name].count if name in shape.fields else 0
        if seen < objects and shape.values is None:
            yield Contradiction(join(path, Step("key", name)), "required", "missing", objects - seen)
    if node.closed and not node.is_map and node.kind == "object":
        for name, part in shape.fields.items():
            if node.child(Step("key", name)) is None:
                yield Contradiction(join(path, Step("key", name)), "no such field", "present", part.count)


def _allows(node: Node, kind: str) -> bool:
    if kind == "null":
        return node.nullable or node.kind == "null"
    if kind == "array":
        return not node.kinds.isdisjoint({"array", "tuple", "any"})
    if kind == "integer":
        return not node.kinds.isdisjoint({"integer", "number", "any"})
    return kind in node.kinds or "any" in node.kinds
