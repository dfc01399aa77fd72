"""A schema folded into a few lines: the structure, the fields that matter, then as much as the budget allows.

Three rules hold for every schema. What is hidden is marked, with the call that opens it. No more lines than the budget.
The second answer is true exactly when some field is not listed. Above: descriptors and the inspector.

A result begins at the envelope's `data` where its schema is an envelope: an object with a `data` and, beside it, only
words about how the call went. An object with other fields beside its `data`, such as a cursor, is a result of its own.
"""

import re
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from toolfold.schema_walk import Document, Node
from toolfold.schema_walk.paths import ANY, ITEMS, Step, append_step, join_path, shorten_key

# Matched against a whole path; what counts is its last key.
TIER_1_REGEX = r"(?:^|\.|\[\]\.)(id|.*_id|name|title|status|type|url|email|price|amount|created|updated|timestamp)$"

# Ours: `orderId`, `createdAt`, `updated_at`, `created_time`.
TIER_1_ADDITIONS_REGEX = r"(?:^|\.|\[\]\.)(.*[a-z0-9](?:Id|ID|At)|.*_at|(?:created|updated)(?:_?[Tt]ime|On|_on))$"

_BASE = re.compile(TIER_1_REGEX, re.DOTALL)
_ADDED = re.compile(TIER_1_ADDITIONS_REGEX, re.DOTALL)


def _tier(key: str) -> int:
    """How important a key is: 0 where the pattern names it, 1 where only our additions do, 2 otherwise."""
    if _BASE.match(key):
        return 0
    return 1 if _ADDED.match(key) else 2


# Names that say how a call went; real services spell them in all these ways.
_ASIDE = re.compile(
    r"(?:\w+_)?(?:errors?|error_?(?:message|code|type)|extensions|warnings?)"
    r"|success|successful|succeeded|ok|status|status_?code|code|message|msg|version|request_?id|log_?id|trace_?id",
    re.IGNORECASE,
)

_CONTAINERS = frozenset({"object", "array", "tuple", "union"})


class Root(NamedTuple):
    """The node that paths start from. `envelope` is the node around it, where there is one."""

    node: Node
    envelope: Node | None = None


def root_of(schema: Any) -> Root:
    """The root of a schema. Anything that is no schema counts as one that says nothing."""
    document = Document(schema if isinstance(schema, (dict, bool)) else True)
    top = document.root
    aside = [name for name in top.names if name != "data"]
    # One that also holds keys of any name is no envelope: they would be lost.
    if top.kind != "object" or ANY in top.steps or not all(_ASIDE.fullmatch(name) for name in aside):
        return Root(top)
    data = top.child(Step("key", "data"))
    return Root(data, top) if data is not None and _holds_fields(data) else Root(top)


def _holds_fields(node: Node) -> bool:
    if node.kind == "union":
        return node.has_steps or node.is_open
    return node.kind in _CONTAINERS


# How many arrays directly inside each other one entry looks through.
MAX_ARRAY_NESTING = 8

# Gives the call that opens a path.
Hint = Callable[[str], str]


def inspect_hint(tool_id: str | None = None) -> Hint:
    """The call of the inspector, with the tool's id where there is one."""
    first = f'tool_id="{tool_id}"' if tool_id else "..."
    return lambda path: f'inspect_tool_output({first}, field_path="{path}")'


class Entry:
    """One field. It is looked at when something is asked of it, so that making one costs next to nothing."""

    __slots__ = ("_children", "_line", "_node", "_path", "_returns_to", "depth", "nodes", "parent", "step")

    def __init__(
        self, node: Node | None, path: str = "", *, step: Step | None = None, parent: "Entry | None" = None
    ) -> None:
        """A root has a node and the path that leads there; any other entry has a parent and a step."""
        self.step = step
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.nodes: dict[frozenset[int], str] = {}
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
        return shorten_key(self.key) or (self.step.written() if self.step is not None else "")

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
    def alternatives(self) -> list[dict[str, Any]]:
        """Of a union: the path, type and number of fields of each alternative."""
        return [
            {"path": join_path(self.path, Step("alternative", label)), "type": node.label, "fields": len(node.steps)}
            for label, node in (self.node.alternatives if self.node.kind == "union" else ())
        ]

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
        """The line for children without a line of their own."""
        start = f"{self.line}." if self.line else ""
        return f"{start}* (+{more} more fields; {hint(self.path)})"

    def _look(self) -> None:
        """Finds the node, the path and the line from the parent and the step."""
        parent, step = self.parent, self.step
        if parent is None or step is None:
            return
        text = step.written()
        self._path = append_step(parent.path, text)
        self._line = self._path if parent.line == parent.path else append_step(parent.line, text)
        self._through_arrays(parent.node.child(step) or parent.node.document.anything())

    def _through_arrays(self, node: Node) -> None:
        self._node = node
        # Bounded: a recursive schema may be arrays all the way down.
        for _ in range(MAX_ARRAY_NESTING):
            if self._repeats(node) or node.kind != "array":
                return
            items = node.child(ITEMS)
            if items is None:
                return
            self._node = node = items
            self._path, self._line = join_path(self._path, ITEMS), join_path(self._line, ITEMS)
        self._repeats(node)

    def _repeats(self, node: Node) -> bool:
        """Records a node on the way; true where it stands above already, or earlier in this entry."""
        core = node.core
        if not core:
            return False
        entry: Entry | None = self
        while entry is not None:
            if core in entry.nodes:
                self._returns_to = entry.nodes[core]
                return True
            entry = entry.parent
        self.nodes[core] = self._path
        return False


MAX_SUMMARY_FIELDS = 30
DEFAULT_SUMMARY_MAX_DEPTH = 3
DEFAULT_INSPECT_MAX_FIELDS = 120
DEFAULT_INSPECT_MAX_DEPTH = 4

# How many entries the search for tier 1 fields looks at before it ends with what it has.
MAX_SCANNED = 1_500


# What a line calls the root, which has no name.
ROOT = "(root)"
# An empty list would read as "returns nothing".
NOT_DECLARED = f"{ROOT}: any (not declared)"


class _Folded(NamedTuple):
    lines: list[str]
    hidden: bool


class Style(NamedTuple):
    """How entries are written and which come first where there is no room for all."""

    hint: Hint
    text: Callable[[Entry], str] = lambda entry: f"{entry.line}: {entry.node.label}"
    rank: Callable[[Entry], int] = lambda entry: _tier(entry.key)
    """Of a leaf: 0 and 1 come first, and below the first level they are looked for; 2 waits for room."""


def summarize_schema_for_llm(
    schema: Any,
    *,
    max_depth: int = DEFAULT_SUMMARY_MAX_DEPTH,
    max_fields: int = MAX_SUMMARY_FIELDS,
    tool_id: str | None = None,
) -> tuple[list[str], bool]:
    """The lines a model reads first, and whether some field is not among them.

    With a `tool_id`, the hints in the lines name it and can be called as they stand.
    """
    style = Style(inspect_hint(tool_id))
    folded = _fold_result(Entry(root_of(schema).node), style, max_depth=max_depth, max_fields=max_fields)
    return folded.lines, folded.hidden


def flatten_schema_fields(
    schema: Any, *, max_depth: int = DEFAULT_SUMMARY_MAX_DEPTH, max_fields: int = MAX_SUMMARY_FIELDS
) -> list[str]:
    """The first fields in the order of the schema, depth first, flat and capped. Says nothing of what it leaves out."""
    lines: list[str] = []
    root = Entry(root_of(schema).node)
    if not root.children and root.line and max_fields > 0:
        return [f"{root.line}: {root.node.label}"]
    stack = list(reversed(root.children))
    while stack and len(lines) < max_fields:
        entry = stack.pop()
        if entry.depth < max_depth and entry.children:
            stack.extend(reversed(entry.children))
        elif entry.depth <= max_depth:
            lines.append(f"{entry.line}: {entry.node.label}")
    return lines


def _fold_result(root: Entry, style: Style, *, max_depth: int, max_fields: int) -> _Folded:
    """The listing of a whole result. A root whose keys are data says so itself, since no line above it could."""
    if not root.node.is_map or max_fields < 1:
        return fold(root, style, max_depth=max_depth, max_fields=max_fields)
    first = f"{root.line or ROOT}: {root.node.label} {root.folded(style.hint)}"
    rest = fold(root, style, max_depth=max_depth, max_fields=max_fields - 1)
    return _Folded([first, *rest.lines], hidden=True)


def fold(root: Entry, style: Style, *, max_depth: int, max_fields: int) -> _Folded:
    """Lists what is below `root` in at most `max_fields` lines."""
    if max_fields < 1:
        return _Folded([], not root.is_leaf)
    top = root.children
    if not top:
        return _single(root, style)
    plan = _Plan(root, style, max_depth)
    if len(top) > max_fields:
        plan.crowd(max_fields)
    else:
        plan.structure = list(top)
        plan.listed.update(top)
        plan.tier_1(max_fields - len(top))
        plan.fill(max_fields - len(plan.listed))
    return plan.write()


def _single(root: Entry, style: Style) -> _Folded:
    """A root without fields: a plain value, or an object of which nothing is declared."""
    name = root.line or ROOT
    if not root.is_leaf:
        return _Folded([f"{name}: {root.node.label} {root.folded(style.hint)}"], hidden=True)
    if root.node.kind == "any" and not root.line:
        return _Folded([NOT_DECLARED], hidden=False)
    return _Folded([f"{name}: {root.node.label}"], hidden=False)


def choose_entries(entries: list[Entry], limit: int, style: Style) -> list[Entry]:
    """At most `limit` of them, in their order: tier 1 leaves first, then some containers, then the rest."""
    if len(entries) <= limit:
        return entries
    # A third of the room at most goes to containers: a wide object would else hide all of its plain fields.
    containers = limit // 3
    classes = []
    for place, entry in enumerate(entries):
        order = style.rank(entry)
        if (order < 2 or (containers > 0 and place < MAX_SCANNED)) and not entry.is_leaf:
            order = 1 if containers > 0 else 2
            containers -= 1
        classes.append((order, place))
    chosen = sorted(classes)[: max(0, limit)]
    return [entries[place] for place in sorted(place for _, place in chosen)]


class _Plan:
    """Which entries get a line."""

    def __init__(self, root: Entry, style: Style, max_depth: int) -> None:
        self.root = root
        self.style = style
        self.max_depth = max_depth
        self.structure: list[Entry] = []
        self.important: list[Entry] = []
        self.filled: dict[Entry, None] = {}
        self.listed: set[Entry] = set()
        self.overflow: dict[Entry, int] = {}

    def crowd(self, budget: int) -> None:
        """More children than lines: tier 1 first, some room for tier 1 below, and a last line that counts the rest."""
        # One line is kept for the count of the rest.
        self.tier_1(min(budget // 4, budget - 1))
        self.structure = choose_entries(self.root.children, budget - 1 - len(self.important), self.style)
        self.listed.update(self.structure)
        self.overflow[self.root] = len(self.root.children) - len(self.structure)

    def tier_1(self, room: int) -> None:
        """Tier 1 leaves below the first level, the nearest first."""
        queue = deque(self.root.children)
        left = MAX_SCANNED
        while queue and left > 0 and len(self.important) < room:
            children = queue.popleft().children
            left -= 1 + len(children)
            for child in children:
                if self.style.rank(child) < 2 and child.is_leaf:
                    self.important.append(child)
                else:
                    queue.append(child)
        del self.important[max(0, room) :]
        self.listed.update(self.important)

    def fill(self, room: int) -> None:
        """Opens each container that fits, the nearest first; then a part of the first one that did not."""
        queue = deque(self._openable(self.structure))
        too_large: Entry | None = None
        while queue and room > 0:
            entry = queue.popleft()
            new = self._unlisted(entry)
            needed = len(new) - self._freed(entry)
            if needed <= room:
                room -= needed
                self._open(entry, new)
                queue.extend(self._openable(entry.children))
            elif too_large is None:
                too_large = entry
        if room > 0 and too_large is not None:
            self._open_partly(too_large, self._unlisted(too_large), room + self._freed(too_large) - 1)

    def _openable(self, entries: list[Entry]) -> list[Entry]:
        return [entry for entry in entries if entry.depth < self.max_depth and entry.opens]

    def _unlisted(self, entry: Entry) -> list[Entry]:
        return [child for child in entry.children if child not in self.listed]

    def _freed(self, entry: Entry) -> int:
        """The line of a container that goes once all its children have theirs."""
        return 1 if entry in self.filled and not entry.node.is_map else 0

    def _open(self, entry: Entry, new: list[Entry]) -> None:
        if self._freed(entry):
            del self.filled[entry]
        self.filled.update(dict.fromkeys(new))
        self.listed.update(new)

    def _open_partly(self, entry: Entry, new: list[Entry], room: int) -> None:
        if room < 1:
            return
        chosen = choose_entries(new, room, self.style)
        self._open(entry, chosen)
        self.overflow[entry] = len(new) - len(chosen)

    def write(self) -> _Folded:
        hidden = bool(self.overflow)
        lines = []
        for entry in (*self.structure, *self.important, *self.filled):
            text = self.style.text(entry)
            if not self._lists_children(entry):
                hidden = True
                if entry not in self.overflow:
                    text += f" {entry.folded(self.style.hint)}"
            lines.append(text)
        lines.extend(entry.overflow(more, self.style.hint) for entry, more in self.overflow.items())
        return _Folded(lines, hidden)

    def _lists_children(self, entry: Entry) -> bool:
        """Whether everything directly below an entry has its line; what is hidden further down is marked there."""
        if entry.is_leaf:
            return True
        if not entry.opens or entry.node.is_map or len(entry.node.steps) > len(self.listed):
            return False
        return self.listed.issuperset(entry.children)
