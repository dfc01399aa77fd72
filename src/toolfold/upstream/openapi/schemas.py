"""Schemas of an OpenAPI document as JSON Schema 2020-12 that stands alone.

A local reference becomes an entry of `$defs`, once, so that recursion is safe. What a tool would carry in all is
bounded: definitions are taken nearest first, and those past the bound accept anything, so that a bounded schema never
refuses what the whole one allows. References to other documents are never read; they accept anything, too.
"""

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Raw, Struct

Json = dict[str, Any]
_Side = Literal["request", "response"]

# The `$defs` of one schema take at most the first; where many operations share the total, less, but the second.
_MAX_SCHEMA_BYTES = 256 * 1024
_MIN_SCHEMA_BYTES = 16 * 1024
_MAX_TOTAL_BYTES = 32 * 1024 * 1024

_MAX_DEPTH = 64

# Words of OpenAPI alone: JSON Schema has other forms for them, or none.
_DROPPED = frozenset({"discriminator", "xml", "externalDocs", "nullable", "example"})
# Keywords that hold a schema, a list of schemas, and schemas by name.
_ONE = (
    "items", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties",
    "additionalProperties",
)  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")


def as_dict(value: Any) -> Json:
    """The value where it is an object, else an empty one: documents are anybody's and may hold anything anywhere."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class _Definition(Struct, frozen=True):
    """One entry of `$defs`, converted once for the whole document."""

    raw: Raw
    uses: tuple[str, ...]
    """The references that stand in it, as pointers of the document."""
    kind: str
    """Its `type` where that is plain to see."""


class SchemaConverter:
    """Converts the schemas of one document, and remembers what it converted."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.warnings: dict[str, None] = {}
        self.max_bytes = _MAX_SCHEMA_BYTES
        # Version 3.0: its schemas are not quite JSON Schema.
        self.is_old = str(document.get("openapi", "")).startswith("3.0")
        self._definitions: dict[tuple[_Side, str], _Definition] = {}
        self._names: dict[str, str] = {}
        self._pointer_of: dict[str, str] = {}

    def share(self, operations: int) -> None:
        """Divides the total among so many operations."""
        self.max_bytes = max(_MIN_SCHEMA_BYTES, min(_MAX_SCHEMA_BYTES, _MAX_TOTAL_BYTES // max(operations, 1)))

    def find(self, reference: object) -> Any:
        """What a local reference points at, or `None`."""
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        node: Any = self.document
        for part in reference[2:].split("/"):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
        return node

    def follow(self, value: Any) -> Any:
        """The object itself where `value` is a reference to it, through a few steps."""
        for _ in range(10):  # references may form a circle
            if not isinstance(value, dict) or "$ref" not in value:
                return value
            value = self.find(value["$ref"])
        return None

    def kind(self, schema: Json, side: _Side) -> str:
        """The one `type` a converted schema is known to have, or an empty text."""
        kind = schema.get("type")
        if isinstance(kind, str):
            return kind
        if kind is None and "properties" in schema:
            return "object"
        if "allOf" in schema:
            kinds = {self.kind(part, side) for part in schema["allOf"] if isinstance(part, dict)} - {""}
            return kinds.pop() if len(kinds) == 1 else ""
        pointer = self._pointer(schema.get("$ref"))
        return "" if pointer is None else self._definition(pointer, side).kind

    def convert(self, schema: Any, side: _Side) -> Json:
        """One schema; its references point into the `$defs` that `definitions` gives for it."""
        converted = self._schema(schema, side, 0)
        return converted if isinstance(converted, dict) else ({} if converted else {"not": {}})

    def definitions(self, parts: Any, side: _Side) -> dict[str, Raw]:
        """Every definition that `parts` needs, nearest first, up to the bound."""
        definitions: dict[str, Raw] = {}
        waiting = deque(self._pointers(parts))
        left = self.max_bytes
        while waiting:
            pointer = waiting.popleft()
            name = self._names[pointer]
            if name in definitions:
                continue
            definition = self._definition(pointer, side)
            left -= len(bytes(definition.raw))
            if left < 0 and definitions:
                definitions[name] = _truncated_definition(pointer, definition.kind)
                continue
            definitions[name] = definition.raw
            waiting.extend(definition.uses)
        return definitions

    def _name_for(self, pointer: str) -> str:
        """A name in `$defs` for a pointer: its last part, made different where two would share it."""
        if pointer not in self._names:
            base = re.sub(r"[^A-Za-z0-9_.\-]", "_", unquote(pointer).rsplit("/", 1)[-1]) or "schema"
            name, number = base, 2
            while name in self._pointer_of:
                name, number = f"{base}_{number}", number + 1
            self._names[pointer] = name
            self._pointer_of[name] = pointer
        return self._names[pointer]

    def _definition(self, pointer: str, side: _Side) -> _Definition:
        if (side, pointer) in self._definitions:
            return self._definitions[side, pointer]
        # A first, empty entry: a schema that is nothing but a reference to itself ends here.
        self._definitions[side, pointer] = _Definition(Raw(b"{}"), (), "")
        converted = self.convert(self.find(pointer), side)
        uses = tuple(dict.fromkeys(self._pointers(converted)))
        definition = _Definition(Raw(msgspec.json.encode(converted)), uses, self.kind(converted, side))
        self._definitions[side, pointer] = definition
        return definition

    def _pointers(self, value: Any) -> Iterator[str]:
        """The document's pointers behind every `$ref` in something converted."""
        waiting = deque([value])
        while waiting:
            part = waiting.popleft()
            if isinstance(part, dict):
                pointer = self._pointer(part.get("$ref"))
                if pointer is not None:
                    yield pointer
                waiting.extend(part.values())
            elif isinstance(part, list):
                waiting.extend(part)

    def _pointer(self, reference: object) -> str | None:
        if not isinstance(reference, str):
            return None
        return self._pointer_of.get(reference.removeprefix("#/$defs/"))

    def _schema(self, schema: Any, side: _Side, depth: int) -> Json | bool:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return {}
        if "$ref" in schema:
            return self._reference(schema, side, depth)
        new = {key: self._keyword(key, value, side, depth + 1) for key, value in schema.items() if key not in _DROPPED}
        _drop_other_side(new, schema, side)
        return _modern(new, schema) if self.is_old else new

    def _keyword(self, key: str, value: Any, side: _Side, depth: int) -> Any:
        """The value of one keyword, with the schemas inside it converted."""
        if key in _ONE and isinstance(value, dict):
            return self._schema(value, side, depth)
        if key in _MANY and isinstance(value, list):
            return [self._schema(part, side, depth) for part in value]
        if key in _MAPS and isinstance(value, dict):
            return {name: self._schema(part, side, depth) for name, part in value.items()}
        return value

    def _reference(self, schema: Json, side: _Side, depth: int) -> Json:
        reference = schema["$ref"]
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        if self.find(reference) is None:
            text = str(reference)[:200]
            self.warnings[f"the reference {text!r} is not in the document; anything is accepted there"] = None
            return {"description": f"{text}: not in the document."}
        new: Json = {"$ref": f"#/$defs/{self._name_for(reference)}"}
        if self.is_old:
            # Version 3.0 ignores what stands beside a reference, but people write a description there.
            described = {"description": rest["description"]} if "description" in rest else {}
            return described | ({"anyOf": [new, {"type": "null"}]} if rest.get("nullable") is True else new)
        others = self._schema(rest, side, depth + 1) if rest else {}
        return (others if isinstance(others, dict) else {}) | new


def _truncated_definition(pointer: str, kind: str) -> Raw:
    name = pointer.rsplit("/", 1)[-1]
    schema: Json = {"description": f"{name}: left out here, since the whole schema is too large."}
    return Raw(msgspec.json.encode(schema | ({"type": kind} if kind else {})))


def _drop_other_side(new: Json, schema: Json, side: _Side) -> None:
    """Leaves out the properties that only the other direction has."""
    mark = "readOnly" if side == "request" else "writeOnly"
    properties = as_dict(schema.get("properties"))
    hidden = {name for name, part in properties.items() if as_dict(part).get(mark) is True}
    if not hidden:
        return
    new["properties"] = {name: part for name, part in new["properties"].items() if name not in hidden}
    if isinstance(new.get("required"), list):
        new["required"] = [name for name in new["required"] if name not in hidden]


def _modern(new: Json, schema: Json) -> Json:
    """The words of version 3.0 that JSON Schema 2020-12 says otherwise."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if new.get(exclusive) is True and bound in new:
            new[exclusive] = new.pop(bound)
        elif isinstance(new.get(exclusive), bool):
            del new[exclusive]
    return _nullable(new) if schema.get("nullable") is True else new


def _nullable(new: Json) -> Json:
    if isinstance(new.get("enum"), list) and None not in new["enum"]:
        new["enum"] = [*new["enum"], None]
    if isinstance(new.get("type"), str):
        return new | {"type": [new["type"], "null"]}
    if "type" not in new and any(key in new for key in _MANY):
        outer = {key: new.pop(key) for key in ("description", "title", "default") if key in new}
        return outer | {"anyOf": [new, {"type": "null"}]}
    return new
