"""The keywords of one schema and of everything it includes, gathered into one reading.

What must hold together (`allOf`, the target of a `$ref`, a union with one real alternative) is merged here. What holds
only sometimes (`then`, `else`, `dependentSchemas`) adds fields and restricts nothing. Unions are kept as they stand.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from toolfold.schema_walk.references import Home, Part, Resolver, home_of

_TYPE_NAME = re.compile(r"[A-Za-z][\w-]{0,31}", re.ASCII)


class Reading:
    """What a schema says, by purpose. Made by `read`, then only looked at."""

    __slots__ = (
        "closed",
        "core",
        "entries",
        "enum",
        "fields",
        "found",
        "items",
        "never",
        "nullable",
        "patterns",
        "prefix",
        "required",
        "resolver",
        "size",
        "soft",
        "spare",
        "stack",
        "structural",
        "title",
        "types",
        "unions",
        "unresolved",
    )

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.types: set[str] | None = None
        self.nullable = False
        self.never = False
        self.title = ""
        self.fields: dict[str, list[Part]] = {}
        self.required: set[str] = set()
        self.entries: list[Part] = []
        """The values of a map, one schema per kind of key."""
        self.patterns: list[str] = []
        self.closed = False
        self.items: list[Part] = []
        self.spare: list[Part] = []
        """What the items may be where nothing better says so."""
        self.prefix: list[list[Part]] = []
        self.unions: list[list[Part]] = []
        self.enum: list[Any] | None = None
        self.unresolved = ""
        self.core: list[int] = []
        """The identity of each schema that says what is below: two nodes with the same core look the same."""
        self.found: set[int] = set()
        self.stack: list[tuple[Any, Home, bool]] = []
        self.soft = False
        self.structural = False
        self.size = 0


def read_keywords(resolver: Resolver, parts: Iterable[Part]) -> Reading:
    """Gathers `parts`, which all hold at once. Each schema is looked at once, so references to itself end."""
    reading = Reading(resolver)
    reading.stack = [(schema, home, False) for schema, home in parts]
    reading.stack.reverse()
    while reading.stack:
        schema, home, soft = reading.stack.pop()
        if schema is False and not soft:
            reading.never = True
        if not isinstance(schema, dict) or id(schema) in reading.found:
            continue
        reading.found.add(id(schema))
        reading.size += 1
        reading.soft, reading.structural = soft, False
        inside = home_of(schema, home)
        for keyword, value in schema.items():
            handler = _HANDLERS.get(keyword)
            if handler is not None:
                handler(reading, value, inside, schema)
        if reading.structural:
            reading.core.append(id(schema))
    return reading


def _is_null(schema: Any) -> bool:
    """Whether a schema, without following anything, allows `null` alone."""
    if not isinstance(schema, dict):
        return False
    if schema.get("type") in ("null", ["null"]) or schema.get("enum") == [None]:
        return True
    return "const" in schema and schema["const"] is None


def _meet(one: set[str], other: set[str]) -> set[str]:
    """The types both allow; an integer is a number. Types that exclude each other: the later word counts."""
    both = one & other
    if ("number" in one and "integer" in other) or ("integer" in one and "number" in other):
        both.add("integer")
    return both or other


def _names(value: Any) -> set[str]:
    listed = value if isinstance(value, list) else [value]
    return {name for name in listed if isinstance(name, str) and _TYPE_NAME.fullmatch(name)}


def _type(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    names = _names(value)
    if names and "any" not in names and not reading.soft:
        reading.types = names if reading.types is None else _meet(reading.types, names)


def _ref(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    _follow(reading, value, home, dynamic=False)


def _dynamic_ref(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    _follow(reading, value, home, dynamic=True)


def _follow(reading: Reading, value: Any, home: Home, *, dynamic: bool) -> None:
    if not isinstance(value, str):
        return
    target = reading.resolver.find(value, home, dynamic=dynamic)
    if target is None:
        reading.unresolved = reading.unresolved or value
    else:
        reading.stack.append((target[0], target[1], reading.soft))


def _all(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if isinstance(value, list):
        reading.stack.extend((part, home, reading.soft) for part in reversed(value))


def _any(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if not isinstance(value, list):
        return
    real = [part for part in value if part is not False and not _is_null(part)]
    if len(real) < len(value) and any(_is_null(part) for part in value):
        reading.nullable = True
        if not real:
            reading.types = {"null"} if reading.types is None else reading.types
    if len(real) == 1:
        reading.stack.append((real[0], home, reading.soft))
    elif real:
        reading.structural = True
        reading.unions.append([(part, home) for part in real])


def _sometimes(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    reading.stack.append((value, home, True))


def _sometimes_each(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if isinstance(value, dict):
        reading.stack.extend((part, home, True) for part in value.values())


def _properties(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        reading.structural = True
        for name, part in value.items():
            reading.fields.setdefault(str(name), []).append((part, home))


def _additional(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if value is False:
        reading.closed = reading.closed or not reading.soft
    elif isinstance(value, dict) and value:
        reading.structural = True
        reading.entries.append((value, home))


def _patterns(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    for pattern, part in value.items() if isinstance(value, dict) else ():
        if part is not False:
            reading.structural = True
            reading.patterns.append(str(pattern))
            reading.entries.append((part, home))


def _items(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if isinstance(value, list):
        _prefix(reading, value, home, schema)
    elif value is not False:
        reading.structural = True
        reading.items.append((value, home))


def _prefix(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if isinstance(value, list) and value:
        reading.structural = True
        for place, part in enumerate(value):
            if place == len(reading.prefix):
                reading.prefix.append([])
            reading.prefix[place].append((part, home))


def _additional_items(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if isinstance(schema.get("items"), list) and isinstance(value, dict):
        _items(reading, value, home, schema)


def _spare_items(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if isinstance(value, dict):
        reading.structural = True
        reading.spare.append((value, home))


def _enum(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if isinstance(value, list) and not reading.soft:
        reading.enum = value


def _const(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if not reading.soft:
        reading.enum = [value]


def _required(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if isinstance(value, list) and not reading.soft:
        reading.required.update(name for name in value if isinstance(name, str))


def _nullable(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    reading.nullable = reading.nullable or value is True


def _title(reading: Reading, value: Any, home: Home, schema: dict[str, Any]) -> None:
    if isinstance(value, str) and not reading.soft:
        reading.title = reading.title or value


_HANDLERS: dict[str, Callable[[Reading, Any, Home, dict[str, Any]], None]] = {
    "$ref": _ref,
    "$dynamicRef": _dynamic_ref,
    "$recursiveRef": _ref,
    "additionalItems": _additional_items,
    "additionalProperties": _additional,
    "allOf": _all,
    "anyOf": _any,
    "const": _const,
    "contains": _spare_items,
    "dependencies": _sometimes_each,
    "dependentSchemas": _sometimes_each,
    "else": _sometimes,
    "enum": _enum,
    "items": _items,
    "nullable": _nullable,
    "oneOf": _any,
    "patternProperties": _patterns,
    "prefixItems": _prefix,
    "properties": _properties,
    "required": _required,
    "then": _sometimes,
    "title": _title,
    "type": _type,
    "unevaluatedItems": _spare_items,
    "unevaluatedProperties": _additional,
}

MEANINGFUL = frozenset(_HANDLERS) - {"type", "title", "required"}
"""The keywords that say more of a plain value than its type."""
