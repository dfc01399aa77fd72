"""From a written path to the place it means, and from a wrong one to the places it may have meant.

Exact paths come from markers and always work. What people and models write is read with patience: a key that needs
quotes and has none, a step into an array without `[]`, a real key of a map, a path that starts at the envelope.
"""

from collections import deque
from typing import NamedTuple

from toolfold.disclosure.entries import MAX_ARRAY_NESTING, Entry
from toolfold.disclosure.roots import Root
from toolfold.errors import UnknownField
from toolfold.schema_walk import Node
from toolfold.schema_walk.paths import ANY, ITEMS, MAX_KEY_CHARS, Step, join, next_step, shortened, start_of

MAX_PATH_CHARS = 8_192
MAX_COMPARED = 2_000
MAX_SEARCHED = 600
MAX_HINTS = 5


class Place(NamedTuple):
    """Where a path leads. `path` is its exact form; `returns_to` the place above that looks the same, if one does."""

    node: Node
    path: str
    returns_to: str | None
    outside: bool = False
    """Whether it lies in the envelope, beside the root."""


class _Lost(NamedTuple):
    """How far a path made sense."""

    node: Node
    path: str
    rest: str


def find(root: Root, field_path: str) -> Place:
    """The place a path means. Raises `UnknownField` with the nearest paths that exist."""
    text = field_path.strip()
    found = _walk(root.node, text) if len(text) <= MAX_PATH_CHARS else _Lost(root.node, "", text)
    if isinstance(found, _Lost) and not found.path and root.envelope is not None:
        found = _from_envelope(root.node, root.envelope, text, found)
    if isinstance(found, _Lost):
        raise _unknown(root, found)
    return found


def _from_envelope(data: Node, envelope: Node, text: str, lost: _Lost) -> Place | _Lost:
    """A path that was written from the top of the envelope instead of from its `data`."""
    first = next_step(text, start_of(text))
    if first is not None and first[0] == Step("key", "data"):
        return _walk(data, text[first[1] :].removeprefix("."))
    beside = _walk(envelope, text) if len(text) <= MAX_PATH_CHARS else lost
    return beside._replace(outside=True) if isinstance(beside, Place) else lost


def _walk(node: Node, text: str) -> Place | _Lost:
    path, at = "", start_of(text)
    met: dict[frozenset[int], str] = {node.core: ""}
    returns_to: str | None = None
    while at < len(text):
        found = _down(node, path, text, at)
        if found is None:
            return _Lost(node, path, text[at:])
        node, path, at = found
        returns_to = met.get(node.core) if node.core else None
        met.setdefault(node.core, path)
    return Place(node, path, returns_to)


def _down(node: Node, path: str, text: str, at: int, nested: int = 0) -> tuple[Node, str, int] | None:
    """One step of a path. A key also looks into arrays, maps, and among keys that should have been quoted."""
    read = next_step(text, at)
    if read is None:
        return _unquoted(node, path, text, at)
    step, end = read
    child = node.child(step)
    if child is not None:
        return child, join(path, step), end
    if step.kind == "index" and (child := node.child(ITEMS)):
        return child, join(path, ITEMS), end
    if step.kind in {"key", "any"}:
        return (
            _shortened(node, path, step, end)
            or _unquoted(node, path, text, at)
            or _inside(node, path, text, at, nested)
            or _any_key(node, path, step, end)
        )
    return None


def _shortened(node: Node, path: str, step: Step, end: int) -> tuple[Node, str, int] | None:
    """The declared key that is too long to be written out."""
    if len(step.name) <= MAX_KEY_CHARS:
        return None
    key = next((Step("key", name) for name in node.names if shortened(name) == step.name), None)
    child = node.child(key) if key is not None else None
    return (child, join(path, key), end) if child is not None and key is not None else None


def _unquoted(node: Node, path: str, text: str, at: int) -> tuple[Node, str, int] | None:
    """The longest declared key that stands here as it is, dots and brackets included."""
    start = at + 1 if text[at] == "." else at
    best = ""
    for name in node.names:
        end = start + len(name)
        if len(name) > len(best) and text.startswith(name, start) and text[end : end + 1] in {"", ".", "[", "<"}:
            best = name
    child = node.child(Step("key", best)) if best else None
    return (child, join(path, Step("key", best)), start + len(best)) if child else None


def _inside(node: Node, path: str, text: str, at: int, nested: int) -> tuple[Node, str, int] | None:
    """The same step, taken from the items of an array, or of arrays inside each other."""
    items = node.child(ITEMS) if node.kind == "array" and nested < MAX_ARRAY_NESTING else None
    return _down(items, join(path, ITEMS), text, at, nested + 1) if items is not None else None


def _any_key(node: Node, path: str, step: Step, end: int) -> tuple[Node, str, int] | None:
    child = node.child(ANY) if step.kind == "key" else None
    return (child, join(path, ANY), end) if child else None


def _unknown(root: Root, lost: _Lost) -> UnknownField:
    hints = _nearest(root, lost)
    where = f'"{lost.path}"' if lost.path else "the root"
    wrong = lost.rest.lstrip(".")[:200]
    if hints:
        action = f'call inspect_tool_output with field_path="{hints[0]}", or with "{lost.path}" to see what is there'
    else:
        action = f'call inspect_tool_output with field_path="{lost.path}": nothing is declared below it'
    return UnknownField(f'the output has no "{wrong}" at {where}', hints=hints, next_action=action)


def _nearest(root: Root, lost: _Lost) -> list[str]:
    """Close names at the same place, then the same name elsewhere, then whatever is at that place."""
    from difflib import get_close_matches

    here = Entry(lost.node, lost.path).children[:MAX_COMPARED]
    read = next_step(lost.rest, 0) if lost.rest else None
    wanted = (read[0].name if read else lost.rest)[:100]
    by_key: dict[str, str] = {}
    for entry in here:
        by_key.setdefault(entry.key.lower(), entry.path)
    close = [by_key[key] for key in get_close_matches(wanted.lower(), list(by_key), n=3, cutoff=0.5)]
    last = lost.rest.replace("[]", "").rpartition(".")[2][:100]
    elsewhere = [*_elsewhere(root, last), *_elsewhere(root, wanted if wanted != last else "")]
    hints = dict.fromkeys([*close, *elsewhere, *(entry.path for entry in here[:MAX_HINTS])])
    return list(hints)[:MAX_HINTS]


def _elsewhere(root: Root, wanted: str) -> list[str]:
    """Paths anywhere near the top that end in the key that was asked for."""
    queue = deque([Entry(root.node)])
    found: list[str] = []
    left = MAX_SEARCHED
    while queue and left > 0 and len(found) < 2 and wanted:
        for child in queue.popleft().children:
            left -= 1
            if child.key.lower() == wanted.lower():
                found.append(child.path)
            if child.opens:
                queue.append(child)
    return found
