"""From JSON Schema to models: what a tool takes and returns, as a compact description that the child builds from.

It keeps what a type can say: kinds, fields, which are required, enums, defaults, null, maps, recursion. Ranges,
patterns and the like are left out: the host checks every call against the schema itself. Above: `tool_specs.py`. Below:
`schema_walk`, which resolves references and combinations.
"""

from collections import deque
from typing import Any

from msgspec import UNSET

from toolfold.schema_walk import Document, Node
from toolfold.schema_walk.paths import ANY, ITEMS, Step
from toolfold.scripts.identifiers import field_name, pascal_case, unused_name
from toolfold.scripts.values import FieldSpec, ModelSpec, TypeSpec

# Per schema. What lies beyond, breadth first, is "any".
_MAX_MODELS = 300
# Of lists in lists and unions in unions, which make no model of their own.
_MAX_NESTING = 20
_MAX_LITERALS = 200
_MAX_DOC = 500

_PLAIN = {"string": "str", "integer": "int", "number": "num", "boolean": "bool", "null": "null"}


class ModelBuilder:
    """Builds the models of one tool. Names start with the tool's own, so that a module can hold many tools.

    A model refuses nothing that the schema allows: what a type cannot say becomes "any".
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._taken: set[str] = set()
        self._names: dict[int, str] = {}
        self._documents: list[Document] = []
        self._queue: deque[tuple[Node, str]] = deque()
        self.models: list[ModelSpec] = []

    def parameters(self, schema: Any) -> str:
        """Returns the name of the arguments' model; one without fields where the schema says nothing."""
        name = self._model(self._root(schema), "Params")
        self._build_queued(strict=True)
        return name

    def result(self, schema: Any) -> TypeSpec:
        root = self._root(schema)
        if root.kind == "object" and root.names == ["result"]:
            # A list in the wrapper that makes it an object: a script gets the list.
            inner = root.child(Step("key", "result"))
            root = inner if inner is not None and inner.kind == "array" else root
        plain = root.kind == "object" and root.names and not root.nullable
        kind: TypeSpec = ["obj", self._model(root, "Result")] if plain else self._type(root, "Result", 0)
        self._build_queued(strict=False)
        return kind

    def _root(self, schema: Any) -> Node:
        document = Document(schema if isinstance(schema, dict) else {})
        self._documents.append(document)  # nodes are known by their identity, so the document must stay
        return document.root

    def _build_queued(self, *, strict: bool) -> None:
        """`strict` holds for the first model only: the parameters themselves."""
        while self._queue:
            node, name = self._queue.popleft()
            self.models.append(self._fields(node, name, strict=strict))
            strict = False

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
        required = node.required
        for key in node.names:
            child = node.child(Step("key", key))
            if child is None:
                continue
            default = child.keyword("default")
            kind = self._type(child, pascal_case(key), 0)
            fields.append(
                FieldSpec(
                    name=unused_name(field_name(key), taken),
                    key=key,
                    type=kind,
                    required=key in required,
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
        if node.closed or (strict and node.names and node.keyword("additionalProperties") is not True):
            return None
        return "any"

    def _type(self, node: Node, hint: str, depth: int) -> TypeSpec:
        if depth > _MAX_NESTING or node.kind in {"any", "unknown", "never"}:
            return "any"
        literals = _literals(node)
        if literals is not None:
            return _nullable(["lit", literals], node)
        if node.alternatives and not node.facts.reading.fields:
            return _nullable(_union([self._type(part, hint, depth + 1) for _, part in node.alternatives]), node)
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
            return ["obj", self._model(node, _title(node) or hint)]
        values = node.child(ANY)
        return ["map", "any" if values is None else self._type(values, f"{hint}Value", depth + 1)]


def _title(node: Node) -> str:
    """The title as a class name, where it is short enough for one."""
    title = node.facts.reading.title
    return pascal_case(title) if title and len(title) <= 40 and title[0].isalpha() else ""


def _doc(node: Node) -> str:
    text = node.keyword("description")
    return text.strip()[:_MAX_DOC] if isinstance(text, str) else ""


def _literals(node: Node) -> list[Any] | None:
    """The values of an enum, where all of them can be written as a literal."""
    values = node.enum
    if not values or len(values) > _MAX_LITERALS or not all(isinstance(value, str | int | None) for value in values):
        return None
    return values


def _union(types: list[TypeSpec]) -> TypeSpec:
    flat: list[TypeSpec] = []
    for kind in types:
        for part in kind[1] if kind[0] == "or" else [kind]:
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
