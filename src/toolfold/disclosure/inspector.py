"""The inspector: what is at one place of a tool's output, in a bounded answer.

It answers from the schema alone. Which tool is meant and who may ask is the describer's. Exact paths come from markers
and always work. What people and models write is read with patience: a key that needs quotes and has none, a step into
an array without `[]`, a real key of a map, a path that starts at the envelope. A wrong path raises with those it may
have meant.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.json import encode

from toolfold.disclosure.fold import (
    DEFAULT_INSPECT_MAX_DEPTH,
    DEFAULT_INSPECT_MAX_FIELDS,
    MAX_ARRAY_NESTING,
    Entry,
    Root,
    Style,
    choose_entries,
    fold,
    inspect_hint,
    root_of,
)
from toolfold.errors import UnknownField
from toolfold.schema_walk import Node
from toolfold.schema_walk.paths import ANY, ITEMS, MAX_KEY_CHARS, Step, join_path, parse_step, path_start, shorten_key

MAX_PATH_CHARS = 8_192
MAX_COMPARED = 2_000
MAX_SEARCHED = 600
MAX_HINTS = 5


class _Place(NamedTuple):
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


def locate(
    root: Root, field_path: str, noun: str = "output", asked: str = "inspect_tool_output with field_path"
) -> _Place:
    """The place a path means. Raises `UnknownField` with the nearest paths that exist, in the words given."""
    text = field_path.strip()
    place = _walk(root.node, text) if len(text) <= MAX_PATH_CHARS else _Lost(root.node, "", text)
    if isinstance(place, _Lost) and not place.path and root.envelope is not None:
        place = _from_envelope(root.node, root.envelope, text, place)
    if isinstance(place, _Lost):
        raise _unknown_field(root, place, noun, asked)
    return place


def _from_envelope(data: Node, envelope: Node, text: str, lost: _Lost) -> _Place | _Lost:
    """A path that was written from the top of the envelope instead of from its `data`."""
    first = parse_step(text, path_start(text))
    if first is not None and first[0] == Step("key", "data"):
        return _walk(data, text[first[1] :].removeprefix("."))
    beside = _walk(envelope, text) if len(text) <= MAX_PATH_CHARS else lost
    return beside._replace(outside=True) if isinstance(beside, _Place) else lost


def _walk(node: Node, text: str) -> _Place | _Lost:
    path, at = "", path_start(text)
    passed: dict[frozenset[int], str] = {node.core: ""}
    returns_to: str | None = None
    while at < len(text):
        below = _down(node, path, text, at)
        if below is None:
            return _Lost(node, path, text[at:])
        node, path, at = below
        returns_to = passed.get(node.core) if node.core else None
        passed.setdefault(node.core, path)
    return _Place(node, path, returns_to)


def _down(node: Node, path: str, text: str, at: int, nested: int = 0) -> tuple[Node, str, int] | None:
    """One step of a path. A key also looks into arrays, maps, and among keys that should have been quoted."""
    # An exact step always wins over a patient reading of it.
    read = parse_step(text, at)
    if read is None:
        return _unquoted(node, path, text, at)
    step, end = read
    child = node.child(step)
    if child is not None:
        return child, join_path(path, step), end
    if step.kind == "index" and (child := node.child(ITEMS)):
        return child, join_path(path, ITEMS), end
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
    key = next((Step("key", name) for name in node.names if shorten_key(name) == step.name), None)
    child = node.child(key) if key is not None else None
    return (child, join_path(path, key), end) if child is not None and key is not None else None


def _unquoted(node: Node, path: str, text: str, at: int) -> tuple[Node, str, int] | None:
    """The longest declared key that stands here as it is, dots and brackets included."""
    start = at + 1 if text[at] == "." else at
    best = ""
    for name in node.names:
        end = start + len(name)
        if len(name) > len(best) and text.startswith(name, start) and text[end : end + 1] in {"", ".", "[", "<"}:
            best = name
    child = node.child(Step("key", best)) if best else None
    return (child, join_path(path, Step("key", best)), start + len(best)) if child else None


def _inside(node: Node, path: str, text: str, at: int, nested: int) -> tuple[Node, str, int] | None:
    """The same step, taken from the items of an array, or of arrays inside each other."""
    items = node.child(ITEMS) if node.kind == "array" and nested < MAX_ARRAY_NESTING else None
    return _down(items, join_path(path, ITEMS), text, at, nested + 1) if items is not None else None


def _any_key(node: Node, path: str, step: Step, end: int) -> tuple[Node, str, int] | None:
    child = node.child(ANY) if step.kind == "key" else None
    return (child, join_path(path, ANY), end) if child else None


def _unknown_field(root: Root, lost: _Lost, noun: str, asked: str) -> UnknownField:
    hints = _nearest(root, lost)
    where = f'"{lost.path}"' if lost.path else "the root"
    wrong = lost.rest.lstrip(".")[:200]
    if hints:
        action = f'call {asked}="{hints[0]}", or with "{lost.path}" to see what is there'
    else:
        action = f'call {asked}="{lost.path}": nothing is declared below it'
    return UnknownField(f'the {noun} has no "{wrong}" at {where}', hints=hints, next_action=action)


def _nearest(root: Root, lost: _Lost) -> list[str]:
    """Close names at the same place, then the same name elsewhere, then whatever is at that place."""
    # Imported here: only a wrong path needs it.
    from difflib import get_close_matches

    # Bounded: a declared object may have any number of keys, and a wrong path is cheap to send.
    here = Entry(lost.node, lost.path).children[:MAX_COMPARED]
    read = parse_step(lost.rest, 0) if lost.rest else None
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
    paths: list[str] = []
    left = MAX_SEARCHED
    while queue and left > 0 and len(paths) < 2 and wanted:
        for child in queue.popleft().children:
            left -= 1
            if child.key.lower() == wanted.lower():
                paths.append(child.path)
            if child.opens:
                queue.append(child)
    return paths


# Whatever a caller asks for, no answer goes over these. Keys may be long, so the number of fields alone bounds nothing.
MAX_INSPECT_FIELDS = 1_000
MAX_INSPECT_DEPTH = 12
MAX_INSPECT_BYTES = 64_000

MAX_NOTE_ITEMS = 12
MAX_NOTE_CHARS = 60


def inspect_schema(
    schema: Any,
    field_path: str | None = "",
    *,
    max_depth: int = DEFAULT_INSPECT_MAX_DEPTH,
    max_fields: int = DEFAULT_INSPECT_MAX_FIELDS,
    tool_id: str | None = None,
) -> dict[str, Any]:
    """What is at a path: its type, its children, and a preview of what is below them.

    `flattened_fields` are written from that place on; the paths in their hints start at the root, ready to be used.
    `truncated` is true exactly when something below is not listed here. Raises `UnknownField` for a wrong path.
    """
    root = root_of(schema)
    place = locate(root, field_path or "")
    fields = max(1, min(max_fields, MAX_INSPECT_FIELDS))
    depth = max(1, min(max_depth, MAX_INSPECT_DEPTH))
    answer = _answer(root, place, depth, fields, tool_id)
    while fields > 1 and len(encode(answer)) > MAX_INSPECT_BYTES:
        fields //= 2
        answer = _answer(root, place, depth, fields, tool_id)
    return answer


def _answer(root: Root, place: _Place, depth: int, fields: int, tool_id: str | None) -> dict[str, Any]:
    entry = Entry(place.node, place.path)
    style = Style(inspect_hint(tool_id))
    # The items of an array that have no fields get a line of their own.
    folded = fold(entry, style, max_depth=depth, max_fields=fields) if entry.children or entry.line else None
    children = choose_entries(entry.children, fields, style)
    alternatives = entry.alternatives
    answer: dict[str, Any] = {
        "field_path": place.path,
        "node_type": place.node.kind,
        "children": [{"name": child.name, "type": child.type} for child in children],
        "flattened_fields": folded.lines if folded else [],
        "total_child_fields": len(entry.children),
        "truncated": any(
            (folded is not None and folded.hidden, len(children) < len(entry.children), len(alternatives) > fields)
        ),
    }
    if alternatives:
        answer["alternatives"] = alternatives[:fields]
    note = "; ".join(_notes(root, place, entry))
    if note:
        answer["note"] = note
    return answer


def _notes(root: Root, place: _Place, entry: Entry) -> Iterator[str]:
    """What the lists cannot say."""
    if place.outside:
        yield "this stands in the envelope, beside the data that paths start from"
    elif root.envelope is not None and not place.path:
        yield _envelope_note(root.envelope)
    if place.node.kind == "array" and entry.children:
        yield f'the children are those of each item, at "{entry.path}"'
    if place.returns_to is not None:
        yield f"recursive: the same as {place.returns_to or 'the root'}"
    yield from _node_notes(entry.node)


def _envelope_note(envelope: Node) -> str:
    beside = [name for name in envelope.names if name != "data"]
    return f"paths start at the envelope's data; beside it: {_listed(beside)}" if beside else "paths start at `data`"


def _node_notes(node: Node) -> Iterator[str]:
    if node.unresolved:
        yield f"the reference {node.unresolved[:200]} leads out of this schema and is not followed"
    elif node.is_open:
        yield "additionalProperties: the keys are not declared"
    elif node.is_map:
        patterns = f" that match {_listed(node.patterns)}" if node.patterns else ""
        yield f"additionalProperties: the keys are data{patterns}; `*` stands for each"
    elif node.kind == "union" and node.alternatives:
        yield "one of the alternatives; the children are those of all of them"
    elif node.enum and not node.has_steps:
        values = [encode(value).decode() for value in node.enum[:MAX_NOTE_ITEMS]]
        yield f"one of: {_listed(values, len(node.enum))}"


def _listed(items: Sequence[str], total: int | None = None) -> str:
    more = (len(items) if total is None else total) - MAX_NOTE_ITEMS
    text = ", ".join(item[:MAX_NOTE_CHARS] for item in items[:MAX_NOTE_ITEMS])
    return f"{text} and {more} more" if more > 0 else text
