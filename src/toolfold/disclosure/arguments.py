"""What a tool takes, folded: the lines of a descriptor, and a large input schema that opens part by part.

Only what is shown is folded: calls are checked against the whole schema. Above: descriptors and `expand_tool`.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.json import encode

from toolfold.disclosure.fold import Entry, Root, Style, fold
from toolfold.disclosure.inspector import locate
from toolfold.schema_walk import Document, Node
from toolfold.text import truncate

__all__ = ["Arguments"]

MAX_PARAMETERS = 30
MAX_PARAMETER_DEPTH = 3
MAX_VALUES = 8
MAX_VALUE_CHARS = 40
MAX_ABOUT_CHARS = 100
# A part up to this size is shown as it is written, with what it refers to: about 1,500 tokens.
MAX_PART_BYTES = 6_000


class Arguments:
    """The input schema of one tool."""

    def __init__(self, schema: Any, tool_id: str) -> None:
        self.root = Document(schema if isinstance(schema, dict) else True).root
        self._schema = schema if isinstance(schema, dict) else {}
        self._tool_id = tool_id

    def params(self) -> list[str]:
        """One per line: `order_id: string (required)`, `limit: integer = 10`, `sort: "asc"|"desc"`."""
        entry = Entry(self.root)
        style = Style(lambda _: f'expand_tool(tool_id="{self._tool_id}")', _text, _rank)
        return (
            fold(entry, style, max_depth=MAX_PARAMETER_DEPTH, max_fields=MAX_PARAMETERS).lines if entry.children else []
        )

    def folded(self) -> dict[str, Any]:
        """The same with a few words on each, required ones first, and the calls that open what is hidden."""
        return self._folded(Entry(self.root))

    def part(self, path: str) -> dict[str, Any]:
        """What is at a path: its schema as it is written, or folded where that is large. Raises `UnknownField`."""
        place = locate(Root(self.root), path, "input", "expand_tool with args_path")
        schema = self._written(place.node)
        if schema is not None and len(encode(schema)) <= MAX_PART_BYTES:
            return {"args_path": place.path, "args_schema": schema}
        entry = Entry(place.node, place.path)
        about = truncate(str(place.node.keyword("description") or ""), MAX_PART_BYTES // 2)
        shown = {"args_path": place.path, "type": place.node.label, **({"description": about} if about else {})}
        kinds = {"alternatives": entry.alternatives[:MAX_PARAMETERS]} if _differs(entry) else {}
        return {**shown, "args_schema": None, **kinds, **self._folded(entry)}

    def _folded(self, entry: Entry) -> dict[str, Any]:
        differing: list[Entry] = [entry] if _differs(entry) else []

        def text(shown: Entry) -> str:
            differing.extend([shown] if _differs(shown) else [])
            return _text_about(shown)

        style = Style(lambda path: f'expand_tool(..., args_path="{path}")', text, _rank_always)
        entry.children.sort(key=lambda child: not _is_required(child))
        folded = fold(entry, style, max_depth=MAX_PARAMETER_DEPTH, max_fields=MAX_PARAMETERS)
        # The fields of all alternatives stand side by side: which belong to which is hidden.
        return {"args_fields": folded.lines, "has_hidden_args": folded.hidden or bool(differing)}

    def _written(self, node: Node) -> dict[str, Any] | None:
        """The schema of a place with the definitions it refers to; `None` where it is no single schema."""
        schema = node.parts[0][0] if len(node.parts) == 1 else None
        if not isinstance(schema, dict):
            return None
        used: dict[str, dict[str, Any]] = {}
        waiting = [schema]
        while waiting:
            for keyword, name in _references(waiting.pop()):
                definitions = self._schema.get(keyword)
                target = definitions.get(name) if isinstance(definitions, dict) else None
                if isinstance(target, dict) and name not in used.setdefault(keyword, {}):
                    used[keyword][name] = target
                    waiting.append(target)
        return {**schema, **used}


def _references(schema: Any) -> Iterator[tuple[str, str]]:
    """The definitions of the document that a schema names: `#/$defs/User` as `("$defs", "User")`."""
    values = [schema]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            parts = str(value.get("$ref", "")).split("/")
            if len(parts) == 3 and parts[0] == "#" and parts[1] in {"$defs", "definitions"}:
                yield parts[1], parts[2].replace("~1", "/").replace("~0", "~")
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)


def _is_required(entry: Entry) -> bool:
    return entry.parent is not None and entry.key in entry.parent.node.required


def _rank(entry: Entry) -> int:
    return 0 if _is_required(entry) else 2


def _rank_always(entry: Entry) -> int:
    """What is required inside something optional need not be given, and waits like the rest."""
    above: Entry | None = entry
    while above is not None and above.parent is not None:
        if not _is_required(above):
            return 2
        above = above.parent
    return 0


def _text(entry: Entry) -> str:
    node = entry.node
    text = f"{entry.line}: {_values(node) or node.label}"
    if _is_required(entry):
        return f"{text} (required)"
    default = node.keyword("default")
    if isinstance(default, str | int | float) and default != "":
        return f"{text} = {_value(default)}"
    return text


def _text_about(entry: Entry) -> str:
    about = entry.node.keyword("description")
    words = " ".join(about[: 4 * MAX_ABOUT_CHARS].split()) if isinstance(about, str) else ""
    kinds = f" (one of {len(entry.alternatives)} alternatives)" if _differs(entry) else ""
    return f"{_text(entry)}{kinds}{f' - {truncate(words, MAX_ABOUT_CHARS)}' if words else ''}"


def _differs(entry: Entry) -> bool:
    """Whether it is one of several objects, each with fields of its own."""
    return any(kind["fields"] for kind in entry.alternatives)


def _values(node: Node) -> str:
    """The values a parameter is limited to, where they are few enough to be told."""
    if not node.enum or node.has_steps:
        return ""
    values = [_value(value) for value in node.enum if value is not None]
    if len(values) > MAX_VALUES:
        values = [*values[: MAX_VALUES - 1], f"+{len(values) - MAX_VALUES + 1} more"]
    return "|".join(values) + ("?" if node.nullable else "")


def _value(value: Any) -> str:
    text = encode(value).decode(errors="replace")
    return truncate(text, MAX_VALUE_CHARS)
