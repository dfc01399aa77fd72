"""From JSON Schema to models: what a tool takes and returns, as a compact description that the child builds from.

It keeps what a type can say: kinds, fields, which are required, enums, defaults, null, maps, recursion. Ranges,
patterns and the like are not here: the host checks every call against the schema itself. Nothing that the schema allows
may be refused by a model, so what cannot be told becomes "any".
"""

from collections import deque
from typing import Any

from msgspec import UNSET

from toolfold.schema_walk import Document, Node
from toolfold.schema_walk.paths import ANY, ITEMS, Step
from toolfold.scripts.identifiers import field_name, pascal_case, unused_name
from toolfold.scripts.values import FieldSpec, ModelSpec, TypeSpec

_MAX_MODELS = 300
"""Per schema. What lies beyond, breadth first, is "any"."""
_MAX_NESTING = 20
"""Of lists in lists and unions in unions, which make no model of their own."""
_MAX_LITERALS = 200
_MAX_DOC = 500

_PLAIN = {"string": "str", "integer": "int", "number": "num", "boolean": "bool", "null": "null"}


class ModelBuilder:
    """Makes the models of one tool. Names start with the tool's own, so that a module can hold many tools."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._taken: set[str] = set()
        self._names: dict[int, str] = {}
        self._kept: list[Document] = []
        self._queue: deque[tuple[Node, str]] = deque()
        self.models: list[ModelSpec] = []

    def parameters(self, schema: Any) -> str:
        """The model of the arguments; one without fields where the schema says nothing."""
        root = self._root(schema)
        name = self._model(root, "Params")
        self._drain(strict=True)
        return name

    def result(self, schema: Any) -> TypeSpec:
        """The type of a result."""
        root = self._root(schema)
        plain = root.kind == "object" and root.names and not root.nullable
        made: TypeSpec = ["obj", self._model(root, "Result")] if plain else self._type(root, "Result", 0)
        self._drain(strict=False)
        return made

    def _root(self, schema: Any) -> Node:
        document = Document(schema if isinstance(schema, dict) else {})
        self._kept.append(document)  # nodes are known by their identity, so the document must stay
        return document.root

    def _drain(self, *, strict: bool) -> None:
        first = strict
        while self._queue:
            node, name = self._queue.popleft()
            self.models.append(self._fields(node, name, strict=first))
            first = False

    def _model(self, node: Node, hint: str) -> str:
        if id(node) not in self._names:
            name = unused_name(self._prefix + hint, self._taken)
            self._names[id(node)] = name
            self._queue.append((node, name))
        return self._names[id(node)]

    def _fields(self, node: Node, name: str, *, strict: bool) -> ModelSpec:
        """`strict`: keys that the schema does not name are taken only where it says so."""
        fields = []
        taken: set[str] = set()
        own = node.required
        for key in node.names:
            child = node.child(Step("key", key))
            if child is None:
                continue
            default = child.says("default")
            kind = self._type(child, pascal_case(key), 0)
            fields.append(
                FieldSpec(
                    name=unused_name(field_name(key), taken),
                    key=key,
                    type=kind,
                    required=key in own,
                    nullable=_takes_null(kind),
                    default=UNSET if default is None else default,
                    doc=_doc(child),
                )
            )
        return ModelSpec(name=name, fields=tuple(fields), extra=self._extra(node, strict), doc=_doc(node))

    def _extra(self, node: Node, strict: bool) -> TypeSpec | None:
        values = node.child(ANY)
        if values is not None:
            return self._type(values, "Value", 0)
        if node.closed or (strict and node.names and node.says("additionalProperties") is not True):
            return None
        return "any"

    def _type(self, node: Node, hint: str, depth: int) -> TypeSpec:
        if depth > _MAX_NESTING or node.kind in {"any", "unknown", "never"}:
            return "any"
        literals = _literals(node)
        if literals is not None:
            return _nullable(["lit", literals], node)
        if node.alternatives and not node.facts.reading.fields:
            return _nullable(_union([self._type(one, hint, depth + 1) for _, one in node.alternatives]), node)
        kinds = sorted(node.kinds) or ["null" if node.nullable else "any"]
        return _nullable(_union([self._kind(kind, node, hint, depth) for kind in kinds]), node)

    def _kind(self, kind: str, node: Node, hint: str, depth: int) -> TypeSpec:
        if kind in _PLAIN:
            return _PLAIN[kind]
        if kind in {"array", "tuple"}:
            items = node.child(ITEMS)
            return ["list", "any" if items is None else self._type(items, f"{hint}Item", depth + 1)]
        if kind != "object":
            return "any"
        if node.names:
            if id(node) not in self._names and len(self._names) >= _MAX_MODELS:
                return ["map", "any"]
            return ["obj", self._model(node, pascal_case(node.facts.reading.title) if _has_short_title(node) else hint)]
        values = node.child(ANY)
        return ["map", "any" if values is None else self._type(values, f"{hint}Value", depth + 1)]


def _has_short_title(node: Node) -> bool:
    title = node.facts.reading.title
    return bool(title) and len(title) <= 40 and title[0].isalpha()


def _doc(node: Node) -> str:
    text = node.says("description")
    return text.strip()[:_MAX_DOC] if isinstance(text, str) else ""


def _literals(node: Node) -> list[Any] | None:
    """The values of an enum, where all of them can be written as a literal."""
    values = node.enum
    if not values or len(values) > _MAX_LITERALS or not all(isinstance(value, str | int | None) for value in values):
        return None
    return values


def _union(types: list[TypeSpec]) -> TypeSpec:
    flat: list[TypeSpec] = []
    for one in types:
        for part in one[1] if one[0] == "or" else [one]:
            if part == "any":
                return "any"
            if part not in flat:
                flat.append(part)
    return flat[0] if len(flat) == 1 else ["or", flat]


def _takes_null(kind: TypeSpec) -> bool:
    if kind in ("any", "null"):
        return True
    if kind[0] == "lit":
        return None in kind[1]
    return kind[0] == "or" and any(_takes_null(part) for part in kind[1])


def _nullable(kind: TypeSpec, node: Node) -> TypeSpec:
    return _union([kind, "null"]) if node.nullable and not _takes_null(kind) else kind
