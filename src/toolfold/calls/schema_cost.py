"""How much work a schema can make of one check, at most, worked out from the schema alone.

A schema of a few lines can cost more steps than there are atoms: unions that refer to each other double them with each
level, recursive ones with each level of the arguments. The estimate counts every alternative as tried, so it is never
too low; real schemas cost a few dozen steps for each value. Above: the check of arguments. Below: the resolver.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

from toolfold.schema_walk.keywords import Part, Resolver

# Deeper chains of references and schemas inside schemas count as endless: a validator would recurse as deep.
_MAX_LEVELS = 100
# Look-around and back-references are matched by trying, up to the limit that the validator is given.
_TRYING = re.compile(r"\(\?[=!<]|\\[1-9k]")
_TRYING_STEPS = 2_000.0

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_HERE = ("not", "if", "then", "else")
_HERE_LISTS = ("allOf", "anyOf", "oneOf")
_HERE_MAPS = ("dependentSchemas", "dependencies")
# Of these at most one holds for a value below; of the others all do.
_ONE_BELOW = ("additionalProperties", "items", "additionalItems", "unevaluatedProperties", "unevaluatedItems")
_EACH_BELOW = ("contains", "propertyNames")


class SchemaCost:
    """The cost of one schema. Answers are kept for each depth of arguments that was asked for."""

    def __init__(self, schema: Any) -> None:
        self._resolver = Resolver(schema)
        self._root: Part = (schema, self._resolver.home)
        self._known: dict[tuple[int, int], float] = {}
        self._steps: dict[int, float] = {}

    def steps(self, depth: int) -> float:
        """The steps for each value of arguments that are nested `depth` deep; infinite where there is no bound."""
        if depth not in self._steps:
            self._known = {}  # what ended at the level limit of one depth may not end there in another
            self._steps[depth] = self._cost(self._root, depth, 0)
        return self._steps[depth]

    def patterns(self) -> int:
        """How many regular expressions the schema holds, anywhere: compiling one takes up to two milliseconds."""
        count, stack = 0, [self._root[0]]
        while stack:
            value = stack.pop()
            stack.extend(value if isinstance(value, list) else value.values() if isinstance(value, dict) else ())
            count += sum(1 for _ in _patterns(value)) if isinstance(value, dict) else 0
        return count

    def _cost(self, part: Part, depth: int, level: int) -> float:
        schema = part[0]
        if not isinstance(schema, dict):
            return 1.0
        key = (id(schema), depth)
        if key not in self._known:
            # A schema that includes itself finds this and has no end.
            self._known[key] = math.inf
            self._known[key] = self._sum(schema, part, depth, level + 1) if level < _MAX_LEVELS else math.inf
        return self._known[key]

    def _sum(self, schema: dict[str, Any], part: Part, depth: int, level: int) -> float:
        def cost(inner: Any, depth: int) -> float:
            return self._cost((inner, part[1]), depth, level)

        here = sum(cost(inner, depth) for inner in _applied_here(schema)) + self._referred(schema, part, depth, level)
        # What is not evaluated is found by evaluating all the rest once more.
        here *= 2 if "unevaluatedProperties" in schema or "unevaluatedItems" in schema else 1
        below = 0.0
        if depth:
            below = max((cost(inner, depth - 1) for inner in _one_of_below(schema)), default=0.0)
            below += sum(cost(inner, depth - 1) for inner in _each_below(schema))
        return _own_cost(schema) + here + below

    def _referred(self, schema: dict[str, Any], part: Part, depth: int, level: int) -> float:
        total = 0.0
        for keyword in _REFERENCES:
            reference = schema.get(keyword)
            if isinstance(reference, str):
                target = self._resolver.find(reference, part[1], dynamic=keyword == "$dynamicRef")
                total += math.inf if target is None else self._cost(target, depth, level)
        return total


def _patterns(schema: dict[str, Any]) -> Iterator[str]:
    named = schema.get("patternProperties")
    for pattern in (schema.get("pattern"), *(named if isinstance(named, dict) else ())):
        if isinstance(pattern, str):
            yield pattern


def _own_cost(schema: dict[str, Any]) -> float:
    values = schema.get("enum")
    cost = 1.0 + (len(values) / 16 if isinstance(values, list) else 0.0)
    return cost + sum(_TRYING_STEPS if _TRYING.search(pattern) else 1.0 for pattern in _patterns(schema))


def _applied_here(schema: dict[str, Any]) -> Iterator[Any]:
    """The schemas that hold for the same value."""
    for keyword in _HERE:
        if keyword in schema:
            yield schema[keyword]
    for keyword in _HERE_LISTS:
        if isinstance(schema.get(keyword), list):
            yield from schema[keyword]
    for keyword in _HERE_MAPS:
        if isinstance(schema.get(keyword), dict):
            yield from schema[keyword].values()


def _one_of_below(schema: dict[str, Any]) -> Iterator[Any]:
    if isinstance(schema.get("properties"), dict):
        yield from schema["properties"].values()
    for keyword in (*_ONE_BELOW, "prefixItems"):
        inner = schema.get(keyword)
        if isinstance(inner, list):
            yield from inner
        elif inner is not None:
            yield inner


def _each_below(schema: dict[str, Any]) -> Iterator[Any]:
    if isinstance(schema.get("patternProperties"), dict):
        yield from schema["patternProperties"].values()
    for keyword in _EACH_BELOW:
        if keyword in schema:
            yield schema[keyword]
