"""Random output schemas of all keywords, the same for the same seed."""

import random
from typing import Any

KEYS = (
    "id",
    "name",
    "status",
    "user_id",
    "createdAt",
    "a",
    "b",
    "items",
    "a.b",
    "x y",
    "data",
    "total",
    "next",
    "deep",
)
PLAIN = ("string", "integer", "number", "boolean", "null")
DEFINITIONS = ("one", "two", "three")


class SchemaMaker:
    """Makes one schema after the other. Most are small; a few are wide, deep, or refer to themselves."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def schema(self) -> dict[str, Any]:
        body = self._object(3) if self._random.random() < 0.8 else self._any(3)
        body = body if isinstance(body, dict) else {}
        return {**body, "$defs": {name: self._any(2) for name in DEFINITIONS}}

    def _any(self, depth: int) -> Any:
        if depth <= 0 or self._random.random() < 0.35:
            return self._leaf()
        return self._random.choice(
            (self._object, self._object, self._array, self._tuple, self._map, self._union, self._all, self._conditional)
        )(depth - 1)

    def _leaf(self) -> Any:
        kind = self._random.randrange(12)
        if kind < 5:
            return {"type": self._random.choice(PLAIN)}
        return (
            {"type": [self._random.choice(PLAIN[:4]), "null"]},
            {"enum": ["a", "b", None]},
            {"const": 3},
            self._random.choice((True, {}, False)),
            {"type": "object"},
            {"$ref": f"#/$defs/{self._random.choice(DEFINITIONS)}"},
            {"$ref": self._random.choice(("#", "https://example.org/x", "#/$defs/none"))},
        )[kind - 5]

    def _properties(self, depth: int) -> dict[str, Any]:
        width = self._random.choice((0, 1, 2, 3, 4, 12 if depth > 2 else 2))
        names = self._random.sample(KEYS, min(width, len(KEYS)))
        return {name: self._any(depth) for name in names}

    def _object(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": self._properties(depth)}
        extra = self._random.randrange(10)
        if extra < 4:
            schema |= (
                (
                    {"additionalProperties": False},
                    {"additionalProperties": self._any(depth - 1)},
                    {"patternProperties": {"^x-": self._any(depth - 1)}},
                    {self._random.choice(("anyOf", "oneOf")): [self._object(depth - 1) for _ in range(2)]},
                )[extra]
                if depth > 0
                else {}
            )
        if self._random.random() < 0.1:
            schema["type"] = ["object", "null"]
        return schema

    def _array(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array"}
        return {**schema, "items": self._any(depth)} if self._random.random() < 0.9 else schema

    def _tuple(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array", "prefixItems": [self._any(depth) for _ in range(2)]}
        return {**schema, "items": self._random.choice((False, self._any(depth)))}

    def _map(self, depth: int) -> dict[str, Any]:
        keyword = self._random.choice(("additionalProperties", "patternProperties"))
        inner = self._any(depth)
        return {"type": "object", keyword: inner if keyword == "additionalProperties" else {"^[a-z]+$": inner}}

    def _union(self, depth: int) -> dict[str, Any]:
        parts = [self._any(depth) for _ in range(self._random.randrange(1, 4))]
        parts += [{"type": "null"}] if self._random.random() < 0.3 else []
        return {self._random.choice(("anyOf", "oneOf")): parts}

    def _all(self, depth: int) -> dict[str, Any]:
        return {"allOf": [self._object(depth) for _ in range(self._random.randrange(1, 3))]}

    def _conditional(self, depth: int) -> dict[str, Any]:
        schema = self._object(depth)
        schema["if"] = {"properties": {"status": {"const": "a"}}}
        schema["then"] = {"properties": self._properties(depth - 1)}
        if self._random.random() < 0.5:
            schema["else"] = {"properties": self._properties(depth - 1)}
        else:
            schema["dependentSchemas"] = {"a": {"properties": self._properties(depth - 1)}}
        return schema
