"""The inspector: what is at one place of a tool's output, in a bounded answer.

It answers from the schema alone. Which tool is meant, who may ask, and the event that tells of it are the gateway's.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.json import encode

from toolfold.disclosure.entries import Entry, inspect_hint
from toolfold.disclosure.fold import DEFAULT_INSPECT_MAX_DEPTH, DEFAULT_INSPECT_MAX_FIELDS, Style, choose, fold
from toolfold.disclosure.navigate import Place, find
from toolfold.disclosure.roots import Root, root_of
from toolfold.schema_walk import Node
from toolfold.schema_walk.paths import Step, join

MAX_INSPECT_FIELDS = 1_000
MAX_INSPECT_DEPTH = 12
"""Whatever a caller asks for, no answer goes over these."""

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
    place = find(root, field_path or "")
    fields = max(1, min(max_fields, MAX_INSPECT_FIELDS))
    depth = max(1, min(max_depth, MAX_INSPECT_DEPTH))
    entry = Entry(place.node, place.path)
    style = Style(inspect_hint(tool_id))
    folded = fold(entry, style, max_depth=depth, max_fields=fields) if entry.children else None
    children = choose(entry.children, fields, style)
    answer: dict[str, Any] = {
        "field_path": place.path,
        "node_type": place.node.kind,
        "children": [{"name": child.name, "type": child.type} for child in children],
        "flattened_fields": folded.lines if folded else [],
        "total_child_fields": len(entry.children),
        "truncated": bool(folded and folded.hidden) or len(children) < len(entry.children),
    }
    if entry.node.kind == "union" and entry.node.alternatives:
        answer["alternatives"] = [
            {"path": join(entry.path, Step("alternative", label)), "type": node.label, "fields": len(node.steps)}
            for label, node in entry.node.alternatives[:fields]
        ]
    note = "; ".join(_notes(root, place, entry))
    if note:
        answer["note"] = note
    return answer


def _notes(root: Root, place: Place, entry: Entry) -> Iterator[str]:
    """What the lists cannot say."""
    if place.outside:
        yield "this stands in the envelope, beside the data that paths start from"
    elif root.envelope is not None and not place.path:
        beside = [name for name in root.envelope.names if name != "data"]
        yield f"paths start at the envelope's data; beside it: {_listed(beside)}" if beside else "paths start at `data`"
    if place.node.kind == "array" and entry.children:
        yield f'the children are those of each item, at "{entry.path}"'
    if place.returns_to is not None:
        yield f"recursive: the same as {place.returns_to or 'the root'}"
    yield from _node_notes(entry.node)


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
    shown = ", ".join(item[:MAX_NOTE_CHARS] for item in items[:MAX_NOTE_ITEMS])
    return f"{shown} and {more} more" if more > 0 else shown
