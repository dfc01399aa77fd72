"""A field as a line: where it stands, what it is, and what is below it, opened when asked for.

An entry looks through arrays: `orders` with objects inside is the entry `orders[]`. It knows the entries above it, and
so it can say that it is one of them again. Which entries are shown is decided in `fold.py`.
"""

from collections.abc import Callable
from typing import cast

from toolfold.schema_walk.node import Node
from toolfold.schema_walk.paths import ITEMS, Step, append, join, shortened

MAX_ARRAY_NESTING = 8
"""How many arrays directly inside each other one entry looks through."""

Hint = Callable[[str], str]
"""Gives the call that opens a path."""


def inspect_hint(tool_id: str | None = None) -> Hint:
    """The call of the inspector, with the tool's id where it is known."""
    first = f'tool_id="{tool_id}"' if tool_id else "..."
    return lambda path: f'inspect_tool_output({first}, field_path="{path}")'


class Entry:
    """One field. It is looked at when something is asked of it, so that making one costs next to nothing."""

    __slots__ = ("_children", "_line", "_node", "_path", "_returns_to", "depth", "parent", "seen", "step")

    def __init__(
        self, node: Node | None, path: str = "", *, step: Step | None = None, parent: "Entry | None" = None
    ) -> None:
        """A root has a node and the path that leads there; any other entry has a parent and a step."""
        self.step = step
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.seen: dict[frozenset[int], str] = {}
        self._children: list[Entry] | None = None
        self._returns_to: str | None = None
        self._node, self._path, self._line = node, path, ""
        if node is not None:
            self._through_arrays(node)

    @property
    def node(self) -> Node:
        if self._node is None:
            self._look()
        return cast("Node", self._node)

    @property
    def path(self) -> str:
        """The way there from the root."""
        if self._node is None:
            self._look()
        return self._path

    @property
    def line(self) -> str:
        """The way there from where the listing starts."""
        if self._node is None:
            self._look()
        return self._line

    @property
    def returns_to(self) -> str | None:
        """The path of the entry above that this one is again."""
        if self._node is None:
            self._look()
        return self._returns_to

    @property
    def children(self) -> "list[Entry]":
        """What is directly below, in the order of the schema. Nothing where the entry is one from above again."""
        if self._children is None:
            self._children = [Entry(None, step=step, parent=self) for step in self.node.steps] if self.opens else []
        return self._children

    @property
    def key(self) -> str:
        """Its key as it is; nothing for a place in a tuple or a map."""
        return self.step.name if self.step is not None and self.step.kind == "key" else ""

    @property
    def name(self) -> str:
        """Its key as it is, or the step that leads to it: `*`, `[0]`."""
        return shortened(self.key) or (self.step.written() if self.step is not None else "")

    @property
    def type(self) -> str:
        """What its parent holds under its name: `array` where the entry itself stands at the items."""
        held = self.parent.node.child(self.step) if self.parent is not None and self.step is not None else None
        return (held or self.node).label

    @property
    def count(self) -> int:
        """How many fields are directly below, as the inspector counts them."""
        node = self.node if self.node.kind != "array" else Entry(self.node).node
        return len(node.steps) if node.kind != "array" else 0

    @property
    def is_leaf(self) -> bool:
        node = self.node
        return not (node.has_steps or node.is_open or node.unresolved)

    @property
    def opens(self) -> bool:
        """Whether its children can be listed below it."""
        return self.returns_to is None and self.node.kind != "array" and self.node.has_steps

    def folded(self, hint: Hint) -> str:
        """What to say of an entry whose children are not all listed."""
        if self.node.unresolved:
            reason = "unresolved reference"
        elif self.node.is_open or (self.node.is_map and self.returns_to is None):
            reason = "unknown keys"
        elif self.count:
            reason = f"contains {self.count} sub-fields"
        else:
            reason = "nested arrays"
        if self.returns_to is not None:
            reason += f", recursive: same as {self.returns_to or 'the root'}"
        return f"({reason}; {hint(self.path)})"

    def overflow(self, more: int, hint: Hint) -> str:
        """The line for children that found no room."""
        start = f"{self.line}." if self.line else ""
        return f"{start}* (+{more} more fields; {hint(self.path)})"

    def _look(self) -> None:
        """Finds the node, the path and the line from the parent and the step."""
        parent, step = self.parent, self.step
        if parent is None or step is None:
            return
        text = step.written()
        self._path = append(parent.path, text)
        self._line = self._path if parent.line == parent.path else append(parent.line, text)
        self._through_arrays(parent.node.child(step) or parent.node.document.anything())

    def _through_arrays(self, node: Node) -> None:
        self._node = node
        for _ in range(MAX_ARRAY_NESTING):
            if self._meets(node) or node.kind != "array":
                return
            items = node.child(ITEMS)
            if items is None:
                return
            self._node = node = items
            self._path, self._line = join(self._path, ITEMS), join(self._line, ITEMS)
        self._meets(node)

    def _meets(self, node: Node) -> bool:
        """Notes a node on the way; true where it was met above, or earlier in this entry."""
        core = node.core
        if not core:
            return False
        entry: Entry | None = self
        while entry is not None:
            if core in entry.seen:
                self._returns_to = entry.seen[core]
                return True
            entry = entry.parent
        self.seen[core] = self._path
        return False
