"""What is known about a node once its schemas are read: its kind, its label, its keys, its alternatives.

The rules for unions stand here. Alternatives that say nothing new are dropped, unions inside unions are flattened, and
alternatives that are all plain values become one node that has several types.
"""

import re
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from toolfold.schema_walk.read import Reading
from toolfold.schema_walk.resolve import Part

PRIMITIVES = ("string", "integer", "number", "boolean", "null")
MAX_LABEL_PARTS = 4
MAX_LABEL_CHARS = 32


class Settled(Protocol):
    """A node whose facts can be asked for."""

    @property
    def facts(self) -> "Facts[Any]": ...


N = TypeVar("N", bound=Settled)


class Facts(Generic[N]):
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

    def __init__(self, reading: Reading, candidates: Sequence[tuple[str, N]]) -> None:
        self.reading = reading
        chosen = _chosen(reading, candidates)
        self.names: dict[str, list[N]] = {name: [] for name in reading.fields}
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
        self.alternatives: list[tuple[str, N]] = _labelled(chosen) if containers or not self.kinds else []

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

    def _judge(self, theirs: "list[Facts[Any]]", null_alternative: bool) -> None:
        own = _kinds_of(self.reading)
        joined = frozenset(kind for facts in theirs for kind in facts.kinds or ("any",))
        both = own and joined
        kinds = (own & joined or own) if both else own or joined
        null = "null" in kinds or self.reading.nullable or (null_alternative and not own)
        if "number" in kinds:
            kinds = kinds - {"integer"}
        self.kinds = kinds - {"null"} or kinds
        self.nullable = null and self.kinds != {"null"}

    def _missing(self, theirs: "list[Facts[Any]]") -> str:
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

    def _items(self, theirs: "list[Facts[Any]]") -> bool:
        reading = self.reading
        if reading.items or (reading.spare and not reading.prefix) or any(facts.has_items for facts in theirs):
            return True
        return "array" in self.kinds and not self.places


def _chosen(reading: Reading, candidates: Sequence[tuple[str, N]]) -> list[tuple[str, N]]:
    """The alternatives that say something, each once, unions inside unions flattened."""
    found: dict[int, tuple[str, N]] = {}
    declared = reading.types is not None or bool(reading.fields)
    for name, node in candidates:
        facts = node.facts
        if facts.kind == "union" and facts.alternatives:
            found.update((id(inner), (label, inner)) for label, inner in facts.alternatives)
        elif facts.kinds != {"null"} and (facts.kinds or facts.names or facts.unresolved or not declared):
            found.setdefault(id(node), (name or plain(facts.reading.title), node))
    return _without_twins(list(found.values()))


def _without_twins(found: list[tuple[str, N]]) -> list[tuple[str, N]]:
    """Leaves out alternatives that could not be told apart: two plain strings, two maps of numbers."""
    kept: dict[object, tuple[str, N]] = {}
    for name, node in found:
        kept.setdefault(_look(node.facts) or id(node), (name, node))
    return list(kept.values())


def _look(facts: Facts[Any]) -> tuple[object, ...] | None:
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


def _labelled(found: list[tuple[str, N]]) -> list[tuple[str, N]]:
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
        kinds = {type_of(value) for value in reading.enum}
    else:
        kinds = {"object"} if reading.fields or reading.entries or reading.closed else set()
        kinds |= {"array"} if reading.items or reading.prefix or reading.spare else set()
    if "array" in kinds and reading.prefix:
        kinds = kinds - {"array"} | {"tuple"}
    return frozenset(kinds)


def type_of(value: Any) -> str:
    """The JSON type of a decoded value."""
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def name_of(part: Part) -> str:
    """What an alternative is called by its reference or title."""
    schema = part[0]
    if not isinstance(schema, dict):
        return ""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return plain(reference.rstrip("/").rpartition("/")[2].lstrip("#"))
    return plain(schema.get("title"))


def plain(name: Any) -> str:
    """A name as it can stand between angle brackets."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_")[:MAX_LABEL_CHARS] if isinstance(name, str) else ""


def _order(kind: str) -> tuple[int, str]:
    return (PRIMITIVES.index(kind) if kind in PRIMITIVES else len(PRIMITIVES), kind)
