"""The keywords of one schema and of everything it includes, gathered into one reading.

What must hold together (`allOf`, the target of a `$ref`, a union with one real alternative) is merged here. What holds
only sometimes (`then`, `else`, `dependentSchemas`) adds fields and restricts nothing. Unions are kept as they stand.

References are pointers, anchors and ids inside one document; one that leaves the document is never followed.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from msgspec import Struct

# How many values the search for ids and anchors looks at before it gives up.
MAX_INDEXED = 400_000

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
_PLAIN = frozenset({"const", "enum", "default", "example", "examples", "required"})


class _Home(NamedTuple):
    """The resource a schema belongs to: what `#` means there."""

    root: Any
    uri: str


# A schema and the resource it stands in.
Part = tuple[Any, _Home]


def _home_of(schema: Any, outer: _Home) -> _Home:
    """The resource that holds `schema`: a new one where it has an `$id` of its own."""
    if isinstance(schema, dict) and schema is not outer.root:
        name = schema.get("$id")
        if isinstance(name, str) and not name.startswith("#"):
            uri = _joined(outer.uri, name)
            return outer if uri is None else _Home(schema, uri)
    return outer


def _joined(base: str, address: str) -> str | None:
    """The address as seen from `base`, without its fragment; `None` where one of them is none."""
    try:
        return urldefrag(urljoin(base, address))[0]
    except ValueError:
        return None


class Resolver:
    """Finds what a reference of one document means. Answers are kept, so each reference is looked up once."""

    def __init__(self, schema: Any) -> None:
        name = schema.get("$id") if isinstance(schema, dict) else None
        self.home = _Home(schema, (_joined("", name) or "") if isinstance(name, str) else "")
        self._known: dict[tuple[int, str, bool], Part | None] = {}
        self._index: _Index | None = None

    def find(self, reference: str, home: _Home, *, dynamic: bool = False) -> Part | None:
        """The schema a reference means, or `None` where it is not in this document."""
        # By identity: schemas are dictionaries, and the document keeps them alive.
        key = (id(home.root), reference, dynamic)
        if key not in self._known:
            self._known[key] = self._find(reference, home, dynamic)
        return self._known[key]

    def _find(self, reference: str, home: _Home, dynamic: bool) -> Part | None:
        address, _, fragment = reference.partition("#")
        if address:
            uri = _joined(home.uri, address)
            resource = None if uri is None else self._resource(uri, home)
            if resource is None:
                return None
            home = resource
        fragment = unquote(fragment) if "%" in fragment else fragment
        if not fragment:
            return home.root, home
        if fragment.startswith("/"):
            # Some writers put an `$id` inside and still count their pointers from the top of the document.
            return _point(home, fragment) or (_point(self.home, fragment) if home is not self.home else None)
        return self._anchor(fragment, home, dynamic)

    def _resource(self, uri: str, home: _Home) -> _Home | None:
        for near in (home, self.home):
            if near.uri and near.uri == uri:
                return near
        return self._table().homes.get(uri)

    def _anchor(self, name: str, home: _Home, dynamic: bool) -> Part | None:
        table = self._table()
        if dynamic and (home.uri, name) in table.dynamic and (self.home.uri, name) in table.dynamic:
            home = self.home
        return table.anchors.get((home.uri, name))

    def _table(self) -> "_Index":
        if self._index is None:
            self._index = _Index(self.home)
        return self._index


class _Index:
    """Every `$id`, `$anchor` and `$dynamicAnchor` of a document."""

    def __init__(self, home: _Home) -> None:
        self.homes: dict[str, _Home] = {home.uri: home}
        self.anchors: dict[tuple[str, str], Part] = {}
        self.dynamic: set[tuple[str, str]] = set()
        stack: list[tuple[Any, _Home, bool]] = [(home.root, home, False)]
        left = MAX_INDEXED
        while stack and left:
            left -= 1
            value, inside, is_map = stack.pop()
            if isinstance(value, dict) and not is_map:
                inside = self._note(value, inside)
            stack.extend((item, inside, in_map) for item, in_map in _nested(value, is_map))

    def _note(self, schema: dict[str, Any], outer: _Home) -> _Home:
        inside = _home_of(schema, outer)
        if inside is not outer:
            self.homes.setdefault(inside.uri, inside)
        name = schema.get("$id")
        if isinstance(name, str) and name.startswith("#"):  # draft-07 wrote anchors as ids
            self.anchors.setdefault((inside.uri, name[1:]), (schema, inside))
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self.anchors.setdefault((inside.uri, anchor), (schema, inside))
                if keyword == "$dynamicAnchor":
                    self.dynamic.add((inside.uri, anchor))
        return inside


def _nested(value: Any, is_map: bool) -> Iterator[tuple[Any, bool]]:
    """What may hold schemas inside a value, and whether its keys are names instead of keywords."""
    if isinstance(value, list):
        yield from ((item, False) for item in value)
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, (dict, list)) and (is_map or key not in _PLAIN):
                yield item, not is_map and key in _MAPS


def _point(home: _Home, pointer: str) -> Part | None:
    """Follows a JSON pointer from the top of a resource."""
    value: Any = home.root
    for token in pointer[1:].split("/"):
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
        home = _home_of(value, home)
    return value, home


_TYPE_NAME = re.compile(r"[A-Za-z][\w-]{0,31}", re.ASCII)


class Reading(Struct, eq=False):
    """What a schema and all it includes say, by purpose. Made by `read_keywords`, then only read."""

    resolver: Resolver
    types: set[str] | None = None
    nullable: bool = False
    never: bool = False
    title: str = ""
    fields: dict[str, list[Part]] = {}
    required: set[str] = set()
    entries: list[Part] = []
    """The values of a map, one schema per kind of key."""
    patterns: list[str] = []
    closed: bool = False
    items: list[Part] = []
    spare: list[Part] = []
    """What the items may be where nothing better says so."""
    prefix: list[list[Part]] = []
    unions: list[list[Part]] = []
    enum: list[Any] | None = None
    unresolved: str = ""
    core: list[int] = []
    """The identity of each schema that says what is below: two nodes with the same core look the same."""
    size: int = 0
    """How many schemas were read."""

    stack: list[tuple[Any, _Home, bool]] = []
    """Schemas still to be read, each with whether it holds only sometimes."""
    soft: bool = False
    """Whether the schema being read holds only sometimes."""
    structural: bool = False
    """Whether the schema being read says what is below."""

    @property
    def item_parts(self) -> list[Part]:
        """What each item is. In a tuple, what may follow its places."""
        telling = [part for part in self.items if part[0] not in (True, {})]
        return telling or ([] if self.prefix else self.spare) or self.items


def read_keywords(resolver: Resolver, parts: Iterable[Part]) -> Reading:
    """Gathers `parts`, which all hold at once. Each schema is looked at once, so references to itself end."""
    reading = Reading(resolver, stack=[(schema, home, False) for schema, home in parts][::-1])
    visited: set[int] = set()
    while reading.stack:
        schema, home, soft = reading.stack.pop()
        if schema is False and not soft:
            reading.never = True
        if not isinstance(schema, dict) or id(schema) in visited:
            continue
        visited.add(id(schema))
        reading.size += 1
        reading.soft, reading.structural = soft, False
        inside = _home_of(schema, home)
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


def _meet(first: set[str], second: set[str]) -> set[str]:
    """The types both allow; an integer is a number. Types that exclude each other: the later word counts."""
    both = first & second
    if ("number" in first and "integer" in second) or ("integer" in first and "number" in second):
        both.add("integer")
    return both or second


def _names(value: Any) -> set[str]:
    listed = value if isinstance(value, list) else [value]
    return {name for name in listed if isinstance(name, str) and _TYPE_NAME.fullmatch(name)}


def _type(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    names = _names(value)
    if names and "any" not in names and not reading.soft:
        reading.types = names if reading.types is None else _meet(reading.types, names)


def _ref(reading: Reading, value: Any, home: _Home, schema: dict[str, Any], *, dynamic: bool = False) -> None:
    if not isinstance(value, str):
        return
    target = reading.resolver.find(value, home, dynamic=dynamic)
    if target is None:
        reading.unresolved = reading.unresolved or value
    else:
        reading.stack.append((target[0], target[1], reading.soft))


def _all(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if isinstance(value, list):
        reading.stack.extend((part, home, reading.soft) for part in reversed(value))


def _any(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if not isinstance(value, list):
        return
    real = [part for part in value if part is not False and not _is_null(part)]
    if any(map(_is_null, value)):
        _allow_null(reading, alone=not real)
    if len(real) == 1:
        reading.stack.append((real[0], home, reading.soft))
    elif real:
        reading.structural = True
        reading.unions.append([(part, home) for part in real])


def _allow_null(reading: Reading, *, alone: bool) -> None:
    reading.nullable = True
    if alone and reading.types is None:
        reading.types = {"null"}


def _sometimes(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    reading.stack.append((value, home, True))


def _sometimes_each(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if isinstance(value, dict):
        reading.stack.extend((part, home, True) for part in value.values())


def _properties(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        reading.structural = True
        for name, part in value.items():
            reading.fields.setdefault(str(name), []).append((part, home))


def _additional(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if value is False:
        reading.closed = reading.closed or not reading.soft
    elif isinstance(value, dict) and value:
        reading.structural = True
        reading.entries.append((value, home))


def _patterns(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    for pattern, part in value.items() if isinstance(value, dict) else ():
        if part is not False:
            reading.structural = True
            reading.patterns.append(str(pattern))
            reading.entries.append((part, home))


def _items(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if isinstance(value, list):
        _prefix(reading, value, home, schema)
    elif value is not False:
        reading.structural = True
        reading.items.append((value, home))


def _prefix(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if isinstance(value, list) and value:
        reading.structural = True
        for place, part in enumerate(value):
            if place == len(reading.prefix):
                reading.prefix.append([])
            reading.prefix[place].append((part, home))


def _additional_items(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if isinstance(schema.get("items"), list) and isinstance(value, dict):
        _items(reading, value, home, schema)


def _spare_items(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if isinstance(value, dict):
        reading.structural = True
        reading.spare.append((value, home))


def _unevaluated_items(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    """What follows the places of a tuple, or stands where nothing better says what the items are."""
    (_items if "prefixItems" in schema and isinstance(value, dict) else _spare_items)(reading, value, home, schema)


def _enum(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if isinstance(value, list) and not reading.soft:
        reading.enum = value


def _const(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if not reading.soft:
        reading.enum = [value]


def _required(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if isinstance(value, list) and not reading.soft:
        reading.required.update(name for name in value if isinstance(name, str))


def _nullable(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    reading.nullable = reading.nullable or value is True


def _title(reading: Reading, value: Any, home: _Home, schema: dict[str, Any]) -> None:
    if isinstance(value, str) and not reading.soft:
        reading.title = reading.title or value


_HANDLERS: dict[str, Callable[[Reading, Any, _Home, dict[str, Any]], None]] = {
    "$ref": _ref,
    "$dynamicRef": partial(_ref, dynamic=True),
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
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _additional,
}

# The keywords that say more of a plain value than its type.
MEANINGFUL = frozenset(_HANDLERS) - {"type", "title", "required"}
