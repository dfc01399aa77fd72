"""Random values that fit a JSON Schema, more or less: whoever uses them asks a validator first."""

import random
from typing import Any

_PLAIN: dict[str, list[Any]] = {
    "string": ["", "text", "ünï", "2024-01-15", "5", "true"],
    "integer": [0, 1, 7, -3, 2**40],
    "number": [0, 1, 2.5, -0.25, 10**20],
    "boolean": [True, False],
    "null": [None],
}


class Instances:
    """Values for one schema document, the same for the same seed."""

    def __init__(self, root: Any, seed: int) -> None:
        self._root = root
        self._random = random.Random(seed)

    def value(self, schema: Any, depth: int = 0) -> Any:
        schema = self._followed(schema)
        if not isinstance(schema, dict):
            return self._random.choice(["x", 1, None, {"a": [1]}, [True]])
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._random.choice(schema["enum"])
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword) and "properties" not in schema:
                return self.value(self._random.choice(schema[keyword]), depth + 1)
        if schema.get("allOf") and "properties" not in schema:
            merged: dict[str, Any] = {}
            for part in schema["allOf"]:
                merged |= self._followed(part) if isinstance(self._followed(part), dict) else {}
            return self.value(merged, depth + 1)
        return self._typed(schema, depth)

    def _typed(self, schema: dict[str, Any], depth: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else None)
        kind = self._random.choice(kind) if isinstance(kind, list) and kind else kind
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            count = 0 if depth > 5 else max(schema.get("minItems", 0), self._random.randint(0, 2))
            return [self.value(schema.get("items", True), depth + 1) for _ in range(count)]
        if kind == "integer" and "minimum" in schema:
            return schema["minimum"] if isinstance(schema["minimum"], int) else 1
        return self._random.choice(_PLAIN.get(kind or "", ["any", 3, None]))

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = schema.get("required") or []
        chosen = [key for key in properties if key in required or (depth < 5 and self._random.random() < 0.6)]
        made = {key: self.value(properties[key], depth + 1) for key in chosen}
        extra = schema.get("additionalProperties")
        if extra not in (None, False) and depth < 5 and self._random.random() < 0.5:
            made["some-extra key"] = self.value(extra, depth + 1)
        return made

    def _followed(self, schema: Any) -> Any:
        for _ in range(20):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str) or not reference.startswith("#"):
                return schema
            schema = self._root
            for step in filter(None, reference[1:].split("/")):
                name = step.replace("~1", "/").replace("~0", "~")
                schema = schema[int(name)] if isinstance(schema, list) else schema.get(name, True)
        return True
