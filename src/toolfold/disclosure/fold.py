"""A schema folded into a few lines: the structure, the fields that matter, then as much as the budget allows.

Three rules hold for every schema. What is hidden is marked, with the call that opens it. No more lines than the budget.
The second answer is true exactly when some field is not listed. Above: descriptors and the inspector.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from toolfold.disclosure.entries import Entry, Hint, inspect_hint
from toolfold.disclosure.roots import root_of
from toolfold.disclosure.tiers import TIER_1_REGEX, rank

__all__ = [
    "DEFAULT_INSPECT_MAX_DEPTH",
    "DEFAULT_INSPECT_MAX_FIELDS",
    "DEFAULT_SUMMARY_MAX_DEPTH",
    "MAX_SUMMARY_FIELDS",
    "TIER_1_REGEX",
    "flatten_schema_fields",
    "fold",
    "summarize_schema_for_llm",
    "summary",
]

MAX_SUMMARY_FIELDS = 30
DEFAULT_SUMMARY_MAX_DEPTH = 3
DEFAULT_INSPECT_MAX_FIELDS = 120
DEFAULT_INSPECT_MAX_DEPTH = 4

MAX_SCANNED = 1_500
"""How many entries the search for tier 1 fields looks at before it ends with what it has."""


ROOT = "(root)"
"""What a line calls the root, which has no name."""


class Folded(NamedTuple):
    lines: list[str]
    hidden: bool


class Style(NamedTuple):
    """How entries are written and which come first where there is no room for all."""

    hint: Hint
    text: Callable[[Entry], str] = lambda entry: f"{entry.line}: {entry.node.label}"
    rank: Callable[[Entry], int] = lambda entry: rank(entry.key)
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
    folded = summary(Entry(root_of(schema).node), style, max_depth=max_depth, max_fields=max_fields)
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


def summary(root: Entry, style: Style, *, max_depth: int, max_fields: int) -> Folded:
    """The listing of a whole result. A root whose keys are data says so itself, since no line above it could."""
    if not root.node.is_map or max_fields < 1:
        return fold(root, style, max_depth=max_depth, max_fields=max_fields)
    first = f"{root.line or ROOT}: {root.node.label} {root.folded(style.hint)}"
    rest = fold(root, style, max_depth=max_depth, max_fields=max_fields - 1)
    return Folded([first, *rest.lines], hidden=True)


def fold(root: Entry, style: Style, *, max_depth: int, max_fields: int) -> Folded:
    """Lists what is below `root` in at most `max_fields` lines."""
    if max_fields < 1:
        return Folded([], not root.is_leaf)
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


def _single(root: Entry, style: Style) -> Folded:
    """A root without fields: a plain value, or an object of which nothing is declared."""
    name = root.line or ROOT
    if not root.is_leaf:
        return Folded([f"{name}: {root.node.label} {root.folded(style.hint)}"], hidden=True)
    if root.node.kind == "any" and not root.line:
        return Folded([], hidden=False)
    return Folded([f"{name}: {root.node.label}"], hidden=False)


def choose(entries: list[Entry], limit: int, style: Style) -> list[Entry]:
    """At most `limit` of them, in their order: tier 1 leaves first, then some containers, then the rest."""
    if len(entries) <= limit:
        return entries
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
    """Which entries get a line, and which containers are opened by listing all their children."""

    def __init__(self, root: Entry, style: Style, max_depth: int) -> None:
        self.root = root
        self.style = style
        self.max_depth = max_depth
        self.structure: list[Entry] = []
        self.important: list[Entry] = []
        self.filled: dict[Entry, None] = {}
        self.listed: set[Entry] = set()
        self.opened: set[Entry] = set()
        self.overflow: dict[Entry, int] = {}

    def crowd(self, budget: int) -> None:
        """More children than lines: tier 1 first, some room for tier 1 below, and a last line that counts the rest."""
        self.tier_1(min(budget // 4, budget - 1))
        self.structure = choose(self.root.children, budget - 1 - len(self.important), self.style)
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
        queue = deque(entry for entry in self.structure if entry.opens)
        waiting: list[Entry] = []
        while queue and room > 0:
            entry = queue.popleft()
            if entry.depth >= self.max_depth:
                continue
            new = [child for child in entry.children if child not in self.listed]
            if len(new) - self._freed(entry) > room:
                waiting.append(entry)
                continue
            room -= len(new) - self._freed(entry)
            self._open(entry, new)
            queue.extend(child for child in entry.children if child.opens)
        if room > 0 and waiting:
            entry = waiting[0]
            new = [child for child in entry.children if child not in self.listed]
            self._open_partly(entry, new, room + self._freed(entry) - 1)

    def _freed(self, entry: Entry) -> int:
        """The line of a container that goes once all its children have theirs."""
        return 1 if entry in self.filled and not entry.node.is_map else 0

    def _open(self, entry: Entry, new: list[Entry]) -> None:
        if self._freed(entry):
            del self.filled[entry]
        self.opened.add(entry)
        self.filled.update(dict.fromkeys(new))
        self.listed.update(new)

    def _open_partly(self, entry: Entry, new: list[Entry], room: int) -> None:
        if room < 1:
            return
        if self._freed(entry):
            del self.filled[entry]
        kept = choose(new, room, self.style)
        self.filled.update(dict.fromkeys(kept))
        self.listed.update(kept)
        self.overflow[entry] = len(new) - len(kept)

    def write(self) -> Folded:
        hidden = bool(self.overflow)
        lines = []
        for entry in (*self.structure, *self.important, *self.filled):
            text = self.style.text(entry)
            if not self._complete(entry):
                hidden = True
                if entry not in self.overflow:
                    text += f" {entry.folded(self.style.hint)}"
            lines.append(text)
        lines.extend(entry.overflow(more, self.style.hint) for entry, more in self.overflow.items())
        return Folded(lines, hidden)

    def _complete(self, entry: Entry) -> bool:
        """Whether everything below an entry has its line."""
        if entry.is_leaf:
            return True
        if entry not in self.opened or entry.node.is_map:
            return False
        return all(self._complete(child) for child in entry.children)
