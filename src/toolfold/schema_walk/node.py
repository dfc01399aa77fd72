"""A schema as a node: what kind of value it is, its type in one word, and what can be below it.

Nodes are made when they are asked for and settled once. The same schema is the same node wherever it is referred to, so
work is linear in the schemas read, not in the paths that lead there. A document is for one thread at a time.

The rules for unions stand here, in `_Facts`: alternatives that say nothing new are dropped, unions inside unions are
flattened, and alternatives that are all plain values become one node that has several types.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from toolfold.schema_walk.keywords import MEANINGFUL, Part, Reading, Resolver, read_keywords
from toolfold.schema_walk.paths import ANY, ITEMS, Step

PRIMITIVES = ("string", "integer", "number", "boolean", "null")

_MAX_LABEL_PARTS = 4
_MAX_LABEL_CHARS = 32
# Unions inside unions are followed this deep, so that a schema built to recurse costs no stack; below that a node says
# that it is unknown.
_MAX_NESTED_UNIONS = 40
_TOO_DEEP = "unions nested too deep"
_PLAIN = re.compile(rf"(?:{'|'.join(PRIMITIVES)})(?:\|(?:{'|'.join(PRIMITIVES)}))*")
# A schema with no other keyword is nothing but the reference it holds.
_NOTES = frozenset(
    {"$ref", "$comment", "title", "description", "default", "example", "examples", "deprecated", "readOnly"}
)


class Document:
    """One schema document, and the nodes made from it so far."""

    def __init__(self, schema: Any) -> None:
        self.resolver = Resolver(schema)
        # How many schemas were read: the work done.
        self.visits = 0
        self.nesting = 0
        # Keyed by the identity of schemas, which the document keeps alive.
        self._nodes: dict[tuple[int, ...], Node] = {}
        self._unions: dict[tuple[int, ...], Node] = {}
        self._plain: dict[str, _Facts] = {}
        self.root = self.node([(schema, self.resolver.home)])

    def node(self, parts: Sequence[Part]) -> "Node":
        """The node where all of `parts` hold at once."""
        if len(parts) == 1:  # the usual case, and the hot one
            part = self._hop(parts[0])
            unique = {id(part[0]): part}
        else:
            unique = {id(part[0]): part for part in map(self._hop, parts)}
        key = tuple(unique)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(self, tuple(unique.values()), ())
        return node

    def union(self, nodes: Iterable["Node"]) -> "Node":
        """The node where one of `nodes` holds."""
        unique = {id(node): node for node in nodes}
        if len(unique) == 1:
            return next(iter(unique.values()))
        key = tuple(unique)
        if key not in self._unions:
            self._unions[key] = Node(self, (), tuple(unique.values()))
        return self._unions[key]

    def union_within(self, parts: Sequence[Part], nodes: Sequence["Node"]) -> "Node":
        """The node where all of `parts` hold, and one of `nodes`."""
        node = self.node(parts)
        if not nodes or node.kind in PRIMITIVES:
            return node
        unique = {id(inner): inner for inner in nodes if inner is not node}
        key = (id(node), *unique)
        if key not in self._unions:
            self._unions[key] = Node(self, node.parts, tuple(unique.values())) if unique else node
        return self._unions[key]

    def plain(self, parts: Sequence[Part]) -> "_Facts | None":
        """The facts of a value that says no more than its type: most fields. They are shared."""
        if len(parts) != 1 or not isinstance(parts[0][0], dict):
            return None
        schema = parts[0][0]
        name = schema.get("type")
        key = "|".join(map(str, name)) if isinstance(name, list) else name
        if not isinstance(key, str) or not MEANINGFUL.isdisjoint(schema) or not _PLAIN.fullmatch(key):
            return None
        if key not in self._plain:
            self._plain[key] = _Facts(read_keywords(self.resolver, [({"type": name}, self.resolver.home)]), [])
        return self._plain[key]

    def anything(self) -> "Node":
        return self.node([(True, self.resolver.home)])

    def _hop(self, part: Part) -> Part:
        """Follows references that stand alone, so that the target and the reference are one node."""
        # Bounded: references may form a circle.
        for _ in range(_MAX_NESTED_UNIONS):
            schema, home = part
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str) or schema.keys() - _NOTES:
                break
            target = self.resolver.find(reference, home)
            if target is None:
                break
            part = target
        return part


class Node:
    """One place in the tree. Its facts are worked out when something is first asked of it."""

    __slots__ = ("_alternatives", "_children", "_facts", "document", "parts", "settling")

    def __init__(self, document: Document, parts: tuple[Part, ...], alternatives: "tuple[Node, ...]") -> None:
        self.document = document
        self.settling = False
        self.parts = parts
        self._alternatives = alternatives
        self._facts: _Facts | None = None
        self._children: dict[Step, Node] = {}

    @property
    def facts(self) -> "_Facts":
        if self._facts is None:
            self._facts = self._settle()
        return self._facts

    @property
    def kind(self) -> str:
        """`object`, `array`, `tuple`, `union`, a primitive type, `any`, `never`, or `unknown`: a lost reference."""
        return self.facts.kind

    @property
    def label(self) -> str:
        """Its type in one word: `string`, `object?`, `union<string|User>`; `?` says that it may be null."""
        return self.facts.label

    @property
    def nullable(self) -> bool:
        return self.facts.nullable

    @property
    def kinds(self) -> frozenset[str]:
        """Every type it may have, `null` aside; empty where the schema does not say."""
        return self.facts.kinds

    @property
    def names(self) -> list[str]:
        """The declared keys, in the order of the schema."""
        return list(self.facts.names)

    @property
    def required(self) -> set[str]:
        return self.facts.reading.required

    @property
    def enum(self) -> list[Any] | None:
        """The values it is limited to, where the schema lists them."""
        return self.facts.reading.enum

    def keyword(self, name: str) -> Any:
        """The value of a keyword that stands in this schema itself, such as `default`; `None` where none does."""
        return next((part[name] for part, _ in self.parts if isinstance(part, dict) and name in part), None)

    @property
    def patterns(self) -> list[str]:
        """The patterns that keys of a map follow."""
        return self.facts.reading.patterns

    @property
    def closed(self) -> bool:
        """Whether the schema says that there are no keys but the declared ones."""
        return self.facts.reading.closed

    @property
    def unresolved(self) -> str:
        """The reference that could not be followed, where nothing else says what is here."""
        return self.facts.unresolved

    @property
    def alternatives(self) -> "list[tuple[str, Node]]":
        """The labelled alternatives of a union; empty where there is nothing to choose."""
        return self.facts.alternatives

    @property
    def core(self) -> frozenset[int]:
        """What makes it look the way it does below; equal for a node and its recursive return, empty for a leaf."""
        return self.facts.core

    @property
    def steps(self) -> list[Step]:
        """Every step down from here. A plain array has one: its items."""
        facts = self.facts
        steps = [Step("key", name) for name in facts.names]
        if facts.is_map:
            steps.append(ANY)
        steps.extend(Step("index", str(place)) for place in range(facts.places))
        if facts.has_items:
            steps.append(ITEMS)
        return steps

    @property
    def has_steps(self) -> bool:
        facts = self.facts
        return bool(facts.names or facts.is_map or facts.places or facts.has_items)

    @property
    def is_map(self) -> bool:
        """Whether all its keys are data: it declares none, and says what the values are."""
        facts = self.facts
        return facts.is_map and not (facts.names or facts.has_items or facts.places)

    @property
    def is_open(self) -> bool:
        """Whether it may be an object of which nothing is declared: its keys are unknown."""
        return "object" in self.facts.kinds and not self.has_steps and not self.facts.reading.closed

    def child(self, step: Step) -> "Node | None":
        """The node one step down, or `None` where there is no such step."""
        child = self._children.get(step)
        if child is None:
            child = self._resolve(step)
            if child is not None:
                self._children[step] = child
        return child

    def _resolve(self, step: Step) -> "Node | None":
        if step.kind == "key":
            return self._field(step)
        if step.kind == "any":
            return self._join([[part] for part in self.facts.reading.entries], ANY) if self.facts.is_map else None
        if step.kind == "items":
            return self._item()
        if step.kind == "index":
            return self._place(int(step.name))
        return next((node for label, node in self.alternatives if label == step.name), None)

    def _field(self, step: Step) -> "Node | None":
        facts = self.facts
        if step.name not in facts.names:
            return None
        own = facts.reading.fields.get(step.name)
        declared = [child for child in (node.child(step) for node in facts.names[step.name]) if child is not None]
        return self.document.union_within(own, declared) if own else self.document.union(declared)

    def _item(self) -> "Node | None":
        """What an item is. In a tuple without further items: one of its places."""
        facts = self.facts
        if not facts.has_items:
            places = [self._place(place) for place in range(facts.places)]
            return self.document.union(place for place in places if place is not None) if places else None
        own = facts.reading.item_parts
        if not own and not any(node.facts.has_items for _, node in self.alternatives):
            return self.document.anything()
        return self._join([own] if own else [], ITEMS)

    def _place(self, place: int) -> "Node | None":
        if place >= self.facts.places:
            return None
        own, step = self.facts.reading.prefix, Step("index", str(place))
        below = [child for child in (node.child(step) for _, node in self.alternatives) if child is not None]
        return self.document.union_within(own[place], below) if place < len(own) else self.document.union(below)

    def _join(self, own: list[list[Part]], step: Step) -> "Node":
        nodes = [self.document.node(parts) for parts in own]
        below = (node.child(step) for _, node in self.alternatives)
        return self.document.union([*nodes, *(node for node in below if node is not None)])

    def _settle(self) -> "_Facts":
        document = self.document
        plain = document.plain(self.parts)
        if plain is not None:
            document.visits += 1
            return plain
        reading = read_keywords(document.resolver, self.parts)
        document.visits += max(1, reading.size)
        if document.nesting >= _MAX_NESTED_UNIONS and (reading.unions or self._alternatives):
            reading.unresolved = _TOO_DEEP
            return _Facts(reading, [])
        candidates = [(_name_of(part), document.node([part])) for union in reading.unions for part in union]
        candidates.extend(("", node) for node in self._alternatives)
        self.settling = True
        document.nesting += 1
        try:
            # A candidate that is being settled is this very union again, and adds nothing to it.
            return _Facts(reading, [(name, node) for name, node in candidates if not node.settling])
        finally:
            self.settling = False
            document.nesting -= 1


class _Facts:
    """The facts of one node, worked out once from its reading and from the nodes of its alternatives."""

    __slots__ = (
        *("alternatives", "core", "has_items", "is_map", "kind", "kinds", "names", "nullable", "places", "reading"),
        "unresolved",
    )

    def __init__(self, reading: Reading, candidates: Sequence[tuple[str, Node]]) -> None:
        self.reading = reading
        chosen = _chosen(reading, candidates)
        self.names = _declared_names(reading, chosen)
        theirs = [node.facts for _, node in chosen]
        self.is_map: bool = any((reading.entries, *(facts.is_map for facts in theirs)))
        self.places: int = max([len(reading.prefix), *(facts.places for facts in theirs)])
        self.core: frozenset[int] = frozenset(reading.core).union(*(facts.core for facts in theirs))
        self.kinds, self.nullable = self._types(theirs, candidates)
        self.unresolved = self._missing(theirs)
        if self.unresolved:
            self.kinds = frozenset({"unknown"})
        containers = any(facts.is_container() for facts in theirs)
        self.kind = self._kind(alternatives=len(chosen) if containers else 1)
        self.has_items = self._items(theirs)
        # Where the alternatives are only plain values, the kinds say it all.
        self.alternatives: list[tuple[str, Node]] = _labelled(chosen) if containers or not self.kinds else []

    @property
    def label(self) -> str:
        """The type in one word: `string`, `object?`, `union<string|User>`; `?` says that it may be null."""
        mark = "?" if self.nullable else ""
        if self.kind != "union":
            return self.kind + mark
        names = [name for name, _ in self.alternatives] or sorted(self.kinds, key=_order)
        parts = names[:_MAX_LABEL_PARTS]
        if len(names) > _MAX_LABEL_PARTS:
            parts.append(f"+{len(names) - _MAX_LABEL_PARTS}")
        return f"union<{'|'.join(parts)}>{mark}"

    def may_be_null(self) -> bool:
        return self.nullable or self.kinds == {"null"}

    def says_something(self) -> bool:
        return bool(self.kinds or self.names or self.unresolved) and self.kinds != {"null"}

    def is_container(self) -> bool:
        """Whether something is, or may be, below it."""
        return bool(self.core or self.names or self.unresolved or self.kinds & {"object", "array", "tuple"})

    def _types(self, theirs: "list[_Facts]", candidates: Sequence[tuple[str, Node]]) -> tuple[frozenset[str], bool]:
        """Every type it may have, and whether it may be null."""
        own = _kinds_of(self.reading)
        kinds = _joined_kinds(own, theirs)
        null = "null" in kinds or self.reading.nullable
        if not own:
            null = null or any(node.facts.may_be_null() for _, node in candidates)
        if "number" in kinds:
            kinds -= {"integer"}
        kinds = kinds - {"null"} or kinds
        return kinds, null and kinds != {"null"}

    def _missing(self, theirs: "list[_Facts]") -> str:
        """The reference that leads nowhere, where nothing else says what is here."""
        if self.names or self.kinds - {"any", "unknown"}:
            return ""
        return self.reading.unresolved or next((facts.unresolved for facts in theirs if facts.unresolved), "")

    def _kind(self, *, alternatives: int) -> str:
        # With fields of its own it is an object, whatever else the alternatives add.
        if alternatives > 1 and not self.reading.fields and self.kinds not in ({"array"}, {"unknown"}):
            return "union"
        if len(self.kinds) == 1:
            return next(iter(self.kinds))
        return "union" if self.kinds else "any"

    def _items(self, theirs: "list[_Facts]") -> bool:
        if self.reading.item_parts or any(facts.has_items for facts in theirs):
            return True
        return "array" in self.kinds and not self.places


def _declared_names(reading: Reading, chosen: Sequence[tuple[str, Node]]) -> dict[str, list[Node]]:
    """Each declared key, with the alternatives that declare it, too."""
    names: dict[str, list[Node]] = {name: [] for name in reading.fields}
    for _, node in chosen:
        for name in node.facts.names:
            names.setdefault(name, []).append(node)
    return names


def _joined_kinds(own: frozenset[str], theirs: list[_Facts]) -> frozenset[str]:
    joined = frozenset(kind for facts in theirs for kind in facts.kinds or ("any",))
    # Where the schema and its alternatives exclude each other, its own word counts.
    return own & joined or own or joined


def _chosen(reading: Reading, candidates: Sequence[tuple[str, Node]]) -> list[tuple[str, Node]]:
    """The alternatives that say something, each once, unions inside unions flattened."""
    chosen: dict[int, tuple[str, Node]] = {}
    declared = reading.types is not None or bool(reading.fields)
    for name, node in candidates:
        facts = node.facts
        if facts.kind == "union" and facts.alternatives:
            chosen.update((id(inner), (label, inner)) for label, inner in facts.alternatives)
        elif facts.says_something() or (not declared and not facts.kinds):
            chosen.setdefault(id(node), (name or _plain_name(facts.reading.title), node))
    return _distinct(chosen.values())


def _distinct(alternatives: Iterable[tuple[str, Node]]) -> list[tuple[str, Node]]:
    """Alternatives that could not be told apart are one: two plain strings, two maps of numbers."""
    distinct: dict[object, tuple[str, Node]] = {}
    for name, node in alternatives:
        distinct.setdefault(_appearance(node.facts) or id(node), (name, node))
    return list(distinct.values())


def _appearance(facts: _Facts) -> tuple[object, ...] | None:
    """What a node without declared fields looks like; `None` where it takes more than a glance."""
    reading = facts.reading
    if facts.names or reading.unions or facts.has_items or facts.places or facts.unresolved:
        return None
    appearance: list[object] = [facts.kinds]
    for value, _ in reading.entries:
        if not isinstance(value, dict) or not all(isinstance(item, str | int) for item in value.values()):
            return None
        appearance.append(frozenset(value.items()))
    return tuple(appearance)


def _labelled(alternatives: list[tuple[str, Node]]) -> list[tuple[str, Node]]:
    """Gives each alternative a label that no other has: its name, or its type, with a number where needed."""
    taken: set[str] = set()
    following: dict[str, int] = {}
    labelled = []
    for name, node in alternatives:
        facts = node.facts
        label = base = (name if facts.is_container() else "") or re.sub(
            r"[<|]", "_", facts.label.rstrip("?").rstrip(">")
        )
        while label in taken:
            number = following.get(base, 2)
            label, following[base] = f"{base}{number}", number + 1
        taken.add(label)
        labelled.append((label, node))
    return labelled


def _kinds_of(reading: Reading) -> frozenset[str]:
    """The types a reading itself names or implies."""
    if reading.never:
        return frozenset({"never"})
    if reading.types is not None:
        kinds = set(reading.types)
    elif reading.enum:
        kinds = {_type_of(value) for value in reading.enum}
    else:
        kinds = _implied_kinds(reading)
    if "array" in kinds and reading.prefix:
        kinds = kinds - {"array"} | {"tuple"}
    return frozenset(kinds)


def _implied_kinds(reading: Reading) -> set[str]:
    implied = {
        "object": reading.fields or reading.entries or reading.closed,
        "array": reading.items or reading.prefix or reading.spare,
    }
    return {kind for kind, holds in implied.items() if holds}


def _type_of(value: Any) -> str:
    """The JSON type of a decoded value."""
    if value is None:
        return "null"
    # `bool` first: it is a subclass of `int`.
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def _name_of(part: Part) -> str:
    """What an alternative is called by its reference or title."""
    schema = part[0]
    if not isinstance(schema, dict):
        return ""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _plain_name(reference.rstrip("/").rpartition("/")[2].lstrip("#"))
    return _plain_name(schema.get("title"))


def _plain_name(name: Any) -> str:
    """A name as it can stand between angle brackets."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_")[:_MAX_LABEL_CHARS] if isinstance(name, str) else ""


def _order(kind: str) -> tuple[int, str]:
    return (PRIMITIVES.index(kind) if kind in PRIMITIVES else len(PRIMITIVES), kind)
