"""A schema as a node: what kind of value it is, how that is called in one word, and what can be below it.

Nodes are made when they are asked for and settled once. The same schema is the same node wherever it is referred to, so
work is linear in the schemas looked at, not in the paths that lead there. A document is for one thread at a time.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from toolfold.schema_walk.facts import PRIMITIVES, Facts, name_of
from toolfold.schema_walk.paths import ANY, ITEMS, Step
from toolfold.schema_walk.read import MEANINGFUL, read
from toolfold.schema_walk.resolve import Part, Resolver

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
        self._plain: dict[str, Facts[Node]] = {}
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

    def plain(self, parts: Sequence[Part]) -> Facts["Node"] | None:
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
            self._plain[key] = Facts(read(self.resolver, [({"type": name}, self.resolver.home)]), [])
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
        self._facts: Facts[Node] | None = None
        self._children: dict[Step, Node] = {}

    @property
    def facts(self) -> Facts["Node"]:
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

    def _settle(self) -> Facts["Node"]:
        document = self.document
        plain = document.plain(self._parts)
        if plain is not None:
            document.visits += 1
            return plain
        reading = read(document.resolver, self._parts)
        document.visits += max(1, reading.size)
        if document.nesting >= MAX_NESTED_UNIONS and (reading.unions or self._given):
            reading.unresolved = TOO_DEEP
            return Facts(reading, [])
        candidates = [(name_of(part), document.node([part])) for union in reading.unions for part in union]
        candidates.extend(("", node) for node in self._given)
        self.settling = True
        document.nesting += 1
        try:
            # A candidate that is being settled is this very union again, and adds nothing to it.
            return Facts(reading, [(name, node) for name, node in candidates if not node.settling])
        finally:
            self.settling = False
            document.nesting -= 1
