"""A tool's inputs in a few lines, and its signature in one.

Inputs are folded with the same rules as outputs. What matters first is what a call cannot do without, so required
parameters come before optional ones, and what is hidden is opened with `expand_tool`.
"""

from typing import Any

from msgspec.json import encode

from toolfold.disclosure.entries import Entry
from toolfold.disclosure.fold import Style, fold
from toolfold.schema_walk import Document, Node
from toolfold.schema_walk.paths import ITEMS, Step, written_key

MAX_PARAMETERS = 30
MAX_PARAMETER_DEPTH = 3
MAX_SIGNATURE_PARAMETERS = 8
MAX_VALUES = 8
MAX_VALUE_CHARS = 40
MAX_ARRAY_NESTING = 4


def input_params(schema: Any, tool_id: str) -> list[str]:
    """The parameters, one per line: `order_id: string (required)`, `limit: integer = 10`, `sort: "asc"|"desc"`."""
    root = Entry(_root(schema))
    if not root.children:
        return []
    style = Style(lambda _: f'expand_tool(tool_id="{tool_id}")', _text, lambda entry: 0 if _is_required(entry) else 2)
    return fold(root, style, max_depth=MAX_PARAMETER_DEPTH, max_fields=MAX_PARAMETERS).lines


def signature(name: str, inputs: Any, output: Node | None) -> str:
    """`get_order(order_id: string, expand?: string[]) -> object`; what is not declared is `any`."""
    root = _root(inputs)
    required = root.required
    names = sorted(root.names, key=lambda name: name not in required)
    shown = []
    for key in names[:MAX_SIGNATURE_PARAMETERS]:
        child = root.child(Step("key", key))
        shown.append(f"{written_key(key)}{'' if key in required else '?'}: {short_type(child) if child else 'any'}")
    if len(names) > len(shown):
        shown.append(f"+{len(names) - len(shown)} more")
    return f"{name}({', '.join(shown)}) -> {short_type(output) if output else 'any'}"


def short_type(node: Node) -> str:
    """A type as it stands in a signature: `string`, `object[]`, `number[][]`."""
    brackets = ""
    mark = "?" if node.nullable else ""
    while node.kind == "array" and len(brackets) < 2 * MAX_ARRAY_NESTING:
        items = node.child(ITEMS)
        if items is None:
            break
        node, brackets = items, brackets + "[]"
    return f"{node.label}{brackets}{mark}" if brackets else node.label


def _root(schema: Any) -> Node:
    return Document(schema if isinstance(schema, dict) else True).root


def _is_required(entry: Entry) -> bool:
    return entry.parent is not None and entry.key in entry.parent.node.required


def _text(entry: Entry) -> str:
    node = entry.node
    text = f"{entry.line}: {_values(node) or node.label}"
    if _is_required(entry):
        return f"{text} (required)"
    default = node.says("default")
    if isinstance(default, str | int | float) and default != "":
        return f"{text} = {_value(default)}"
    return text


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
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"
