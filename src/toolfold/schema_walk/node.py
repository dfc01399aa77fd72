"""A schema as a node: what kind of value it is, how that is called in one word, and what can be below it.

Nodes are made when they are asked for and settled once. The same schema is the same node wherever it is referred to, so
work is linear in the schemas looked at, not in the paths that lead there. A document is for one thread at a time.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from toolfold.schema_walk.keywords import MEANINGFUL, Reading, read_keywords
from toolfold.schema_walk.paths import ANY, ITEMS, Step
from toolfold.schema_walk.references import Part, Resolver

# --- What is known about a node once its schemas are read: its kind, its label, its keys, its alternatives.

PRIMITIVES = ("string", "integer", "number", "boolean", "null")
MAX_LABEL_PARTS = 4
MAX_LABEL_CHARS = 32


class _Settled(Protocol):
    """A node whose facts can be asked for."""

    @property
    def facts(self) -> "_Facts[Any]": ...


_N = TypeVar("_N", bound=_Settled)


class _Facts(Generic[_N]):
    """The facts of one node, worked out once from its reading and from the nodes of its alternatives."""

    __slots__ = (
        "alternatives",
        "core",
        "has_items",
        "is_map",
        "kind",
        "kinds",
        "names",
        "nullable",
        "places",
        "reading",
        "unresolved",
    )

    def __init__(self, reading: Reading, candidates: Sequence[tuple[str, _N]]) -> None:
        self.reading = reading
        chosen = _chosen(reading, candidates)
        self.names: dict[str, list[_N]] = {name: [] for name in reading.fields}
        """Each declared key, with the alternatives that declare it, too."""
        for _, node in chosen:
            for name in node.facts.names:
                self.names.setdefault(name, []).append(node)
        theirs = [node.facts for _, node in chosen]
        self.is_map: bool = bool(reading.entries) or any(facts.is_map for facts in theirs)
        self.places: int = max([len(reading.prefix), *(facts.places for facts in theirs)])
        self.core: frozenset[int] = frozenset(reading.core).union(*(facts.core for facts in theirs))
        self.kinds: frozenset[str] = frozenset()
        self.nullable = False
        self._judge(theirs, any(node.facts.may_be_null() for _, node in candidates))
        self.unresolved = self._missing(theirs)
        containers = any(facts.is_container() for facts in theirs)
        self.kind = self._kind(several=len(chosen) > 1 and containers)
        self.has_items = self._items(theirs)
        # Where the alternatives are only plain values, the kinds say it all.
        self.alternatives: list[tuple[str, _N]] = _labelled(chosen) if containers or not self.kinds else []

    @property
    def label(self) -> str:
        """The type in one word: `string`, `object?`, `union<string|User>`; `?` says that it may be null."""
        mark = "?" if self.nullable else ""
        if self.kind != "union":
            return self.kind + mark
        names = [name for name, _ in self.alternatives] or sorted(self.kinds, key=_order)
        shown = names[:MAX_LABEL_PARTS]
        if len(names) > MAX_LABEL_PARTS:
            shown.append(f"+{len(names) - MAX_LABEL_PARTS}")
        return f"union<{'|'.join(shown)}>{mark}"

    def may_be_null(self) -> bool:
        return self.nullable or self.kinds == {"null"}

    def is_container(self) -> bool:
        """Whether something is, or may be, below it."""
        return bool(self.core or self.names or self.unresolved or self.kinds & {"object", "array", "tuple"})

    def _judge(self, theirs: "list[_Facts[Any]]", null_alternative: bool) -> None:
        own = _kinds_of(self.reading)
        joined = frozenset(kind for facts in theirs for kind in facts.kinds or ("any",))
        both = own and joined
        kinds = (own & joined or own) if both else own or joined
        null = "null" in kinds or self.reading.nullable or (null_alternative and not own)
        if "number" in kinds:
            kinds = kinds - {"integer"}
        self.kinds = kinds - {"null"} or kinds
        self.nullable = null and self.kinds != {"null"}

    def _missing(self, theirs: "list[_Facts[Any]]") -> str:
        """The reference that leads nowhere, where nothing else says what is here."""
        if self.names or self.kinds - {"any", "unknown"}:
            return ""
        missing = self.reading.unresolved or next((facts.unresolved for facts in theirs if facts.unresolved), "")
        if missing:
            self.kinds = frozenset({"unknown"})
        return missing

    def _kind(self, *, several: bool) -> str:
        if several and not self.reading.fields and self.kinds not in ({"array"}, {"unknown"}):
            return "union"
        if len(self.kinds) == 1:
            return next(iter(self.kinds))
        return "union" if self.kinds else "any"

    def _items(self, theirs: "list[_Facts[Any]]") -> bool:
        reading = self.reading
        if reading.items or (reading.spare and not reading.prefix) or any(facts.has_items for facts in theirs):
            return True
        return "array" in self.kinds and not self.places


def _chosen(reading: Reading, candidates: Sequence[tuple[str, _N]]) -> list[tuple[str, _N]]:
    """The alternatives that say something, each once, unions inside unions flattened."""
    found: dict[int, tuple[str, _N]] = {}
    declared = reading.types is not None or bool(reading.fields)
    for name, node in candidates:
        facts = node.facts
        if facts.kind == "union" and facts.alternatives:
            found.update((id(inner), (label, inner)) for label, inner in facts.alternatives)
        elif facts.kinds != {"null"} and (facts.kinds or facts.names or facts.unresolved or not declared):
            found.setdefault(id(node), (name or _plain_name(facts.reading.title), node))
    return _without_twins(list(found.values()))


def _without_twins(found: list[tuple[str, _N]]) -> list[tuple[str, _N]]:
    """Leaves out alternatives that could not be told apart: two plain strings, two maps of numbers."""
    kept: dict[object, tuple[str, _N]] = {}
    for name, node in found:
        kept.setdefault(_look(node.facts) or id(node), (name, node))
    return list(kept.values())


def _look(facts: _Facts[Any]) -> tuple[object, ...] | None:
    """What a node without declared fields looks like; `None` where it takes more than a glance."""
    reading = facts.reading
    if facts.names or reading.unions or facts.has_items or facts.places or facts.unresolved:
        return None
    look: list[object] = [facts.kinds]
    for value, _ in reading.entries:
        if not isinstance(value, dict) or not all(isinstance(item, str | int) for item in value.values()):
            return None
        look.append(frozenset(value.items()))
    return tuple(look)


def _labelled(found: list[tuple[str, _N]]) -> list[tuple[str, _N]]:
    """Gives each alternative a label that no other has: its name, or its type, with a number where needed."""
    taken: set[str] = set()
    following: dict[str, int] = {}
    labelled = []
    for name, node in found:
        facts = node.facts
        named = name if facts.is_container() else ""
        label = base = named or re.sub(r"[<|]", "_", facts.label.rstrip("?").rstrip(">"))
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
        kinds = {"object"} if reading.fields or reading.entries or reading.closed else set()
        kinds |= {"array"} if reading.items or reading.prefix or reading.spare else set()
    if "array" in kinds and reading.prefix:
        kinds = kinds - {"array"} | {"tuple"}
    return frozenset(kinds)


def _type_of(value: Any) -> str:
    """The JSON type of a decoded value."""
    if value is None:
        return "null"
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
    return re.sub(r"[^\w.-]+", "_", name).strip("_")[:MAX_LABEL_CHARS] if isinstance(name, str) else ""


def _order(kind: str) -> tuple[int, str]:
    return (PRIMITIVES.index(kind) if kind in PRIMITIVES else len(PRIMITIVES), kind)


MAX_NESTED_UNIONS = 40
"""Unions inside unions are followed this deep; below that a node says that it is unknown."""

PLAIN = re.compile(rf"(?:{'|'.join(PRIMITIVES)})(?:\|(?:{'|'.join(PRIMITIVES)}))*")

TOO_DEEP = "unions nested too deep"

_NOTES = frozenset(
    {"$ref", "$comment", "title", "description", "default", "example", "examples", "deprecated", "readOnly"}
)
"""A schema with no other keyword is nothing but the reference it holds."""


class Document:
    """One schema document, and the nodes made from it so far."""

    def __init__(self, schema: Any) -> None:
        self.resolver = Resolver(schema)
        self.visits = 0
        """How many schemas were looked at: the work done."""
        self.nesting = 0
        self._nodes: dict[tuple[int, ...], Node] = {}
        self._unions: dict[tuple[int, ...], Node] = {}
        self._plain: dict[str, _Facts[Node]] = {}
        self.root = self.node([(schema, self.resolver.home)])

    def node(self, parts: Sequence[Part]) -> "Node":
        """The node where all of `parts` hold at once."""
        if len(parts) == 1:
            part = self._hop(parts[0])
            alone = (id(part[0]),)
            found = self._nodes.get(alone)
            if found is None:
                found = self._nodes[alone] = Node(self, (part,), ())
            return found
        unique = {id(part[0]): part for part in map(self._hop, parts)}
        key = tuple(unique)
        if key not in self._nodes:
            self._nodes[key] = Node(self, tuple(unique.values()), ())
        return self._nodes[key]

    def union(self, nodes: Iterable["Node"]) -> "Node":
        """The node where one of `nodes` holds."""
        unique = {id(node): node for node in nodes}
        if len(unique) == 1:
            return next(iter(unique.values()))
        key = tuple(unique)
        if key not in self._unions:
            self._unions[key] = Node(self, (), tuple(unique.values()))
        return self._unions[key]

    def plain(self, parts: Sequence[Part]) -> _Facts["Node"] | None:
        """The facts of a value that says no more than its type: most fields. They are shared."""
        if len(parts) != 1 or not isinstance(parts[0][0], dict):
            return None
        schema = parts[0][0]
        name = schema.get("type")
        key = "|".join(map(str, name)) if isinstance(name, list) else name
        if not isinstance(key, str) or not MEANINGFUL.isdisjoint(schema):
            return None
        if not PLAIN.fullmatch(key):
            return None
        if key not in self._plain:
            self._plain[key] = _Facts(read_keywords(self.resolver, [({"type": name}, self.resolver.home)]), [])
        return self._plain[key]

    def anything(self) -> "Node":
        return self.node([(True, self.resolver.home)])

    def _hop(self, part: Part) -> Part:
        """Follows references that stand alone, so that the target and the reference are one node."""
        for _ in range(MAX_NESTED_UNIONS):
            schema, home = part
            if not isinstance(schema, dict) or "$ref" not in schema:
                break
            reference = schema["$ref"]
            if not isinstance(reference, str) or schema.keys() - _NOTES:
                break
            target = self.resolver.find(reference, home)
            if target is None:
                break
            part = target
        return part


class Node:
    """One place in the tree. Its facts are worked out when something is first asked of it."""

    __slots__ = ("_children", "_facts", "_given", "_parts", "document", "settling")

    def __init__(self, document: Document, parts: tuple[Part, ...], given: "tuple[Node, ...]") -> None:
        self.document = document
        self.settling = False
        self._parts = parts
        self._given = given
        self._facts: _Facts[Node] | None = None
        self._children: dict[Step, Node] = {}

    @property
    def facts(self) -> _Facts["Node"]:
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

    def says(self, keyword: str) -> Any:
        """The value of a keyword that stands in this schema itself, such as `default`; `None` where none does."""
        return next((part[keyword] for part, _ in self._parts if isinstance(part, dict) and keyword in part), None)

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
    def alternatives(self) -> list[tuple[str, "Node"]]:
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
        if step not in self._children:
            found = self._find(step)
            if found is None:
                return None
            self._children[step] = found
        return self._children[step]

    def _find(self, step: Step) -> "Node | None":
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
        theirs = [child for child in (node.child(step) for node in facts.names[step.name]) if child is not None]
        if own:
            node = self.document.node(own)
            if not theirs or not (node.kind == "any" or node.is_open):
                return node
        return self.document.union(theirs)

    def _item(self) -> "Node | None":
        """What an item is. In a tuple without further items: one of its places."""
        facts = self.facts
        if not facts.has_items:
            places = [self._place(place) for place in range(facts.places)]
            return self.document.union(place for place in places if place is not None) if places else None
        reading = facts.reading
        own = reading.items or ([] if reading.prefix else reading.spare)
        if not own and not any(node.facts.has_items for _, node in self.alternatives):
            return self.document.anything()
        return self._join([own] if own else [], ITEMS)

    def _place(self, place: int) -> "Node | None":
        own = self.facts.reading.prefix
        if place < len(own):
            return self.document.node(own[place])
        return self._join([], Step("index", str(place))) if place < self.facts.places else None

    def _join(self, own: list[list[Part]], step: Step) -> "Node":
        nodes = [self.document.node(parts) for parts in own]
        below = (node.child(step) for _, node in self.alternatives)
        return self.document.union([*nodes, *(node for node in below if node is not None)])

    def _settle(self) -> _Facts["Node"]:
        document = self.document
        plain = document.plain(self._parts)
        if plain is not None:
            document.visits += 1
            return plain
        reading = read_keywords(document.resolver, self._parts)
        document.visits += max(1, reading.size)
        if document.nesting >= MAX_NESTED_UNIONS and (reading.unions or self._given):
            reading.unresolved = TOO_DEEP
            return _Facts(reading, [])
        candidates = [(_name_of(part), document.node([part])) for union in reading.unions for part in union]
        candidates.extend(("", node) for node in self._given)
        self.settling = True
        document.nesting += 1
        try:
            # A candidate that is being settled is this very union again, and adds nothing to it.
            return _Facts(reading, [(name, node) for name, node in candidates if not node.settling])
        finally:
            self.settling = False
            document.nesting -= 1
