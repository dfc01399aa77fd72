"""The compact descriptor: the least a planner needs to choose a tool, call it, and use what it returns.

Made from one entry of the catalogue, and from what the tool was seen to return where it declares nothing useful.
"""

from typing import Any

from msgspec.json import encode

from toolfold.answers import ToolDescriptor
from toolfold.disclosure.fold import Entry, Style, fold, root_of, summarize_schema_for_llm
from toolfold.disclosure.observed import Observed, decode_schema, observed_calls, result_schema
from toolfold.schema_walk import Document, Node
from toolfold.schema_walk.paths import ITEMS, Step, quote_key
from toolfold.text import truncate
from toolfold.types import Tool

# Descriptors stand in every search result: these keep one to a few hundred tokens.
MAX_PARAMETERS = 30
MAX_PARAMETER_DEPTH = 3
MAX_SIGNATURE_PARAMETERS = 8
MAX_VALUES = 8
MAX_VALUE_CHARS = 40
MAX_ARRAY_NESTING = 4


def _input_params(schema: Any, tool_id: str) -> list[str]:
    """The parameters, one per line: `order_id: string (required)`, `limit: integer = 10`, `sort: "asc"|"desc"`."""
    root = Entry(_root(schema))
    if not root.children:
        return []
    style = Style(lambda _: f'expand_tool(tool_id="{tool_id}")', _text, lambda entry: 0 if _is_required(entry) else 2)
    return fold(root, style, max_depth=MAX_PARAMETER_DEPTH, max_fields=MAX_PARAMETERS).lines


def _signature(name: str, inputs: Any, output: Node | None) -> str:
    """`get_order(order_id: string, expand?: string[]) -> object`; what is not declared is `any`."""
    root = _root(inputs)
    required = root.required
    names = sorted(root.names, key=lambda name: name not in required)
    parameters = []
    for key in names[:MAX_SIGNATURE_PARAMETERS]:
        child = root.child(Step("key", key))
        parameters.append(f"{quote_key(key)}{'' if key in required else '?'}: {_short_type(child) if child else 'any'}")
    if len(names) > len(parameters):
        parameters.append(f"+{len(names) - len(parameters)} more")
    return f"{name}({', '.join(parameters)}) -> {_short_type(output) if output else 'any'}"


def _short_type(node: Node) -> str:
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
    default = node.keyword("default")
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
    return truncate(text, MAX_VALUE_CHARS)


MAX_DESCRIPTION_CHARS = 400


def describe(tool: Tool, observed: Observed | None = None) -> ToolDescriptor:
    """The descriptor of a tool. Where its output schema says nothing, what was observed is shown, and counted."""
    definition = tool.definition
    inputs = decode_schema(definition.input_schema)
    output = result_schema(decode_schema(definition.output_schema), observed, as_seen=True)
    lines, hidden = summarize_schema_for_llm(output, tool_id=tool.tool_id)
    answer: ToolDescriptor = {
        "tool_id": tool.tool_id,
        "server": tool.server,
        "signature": _signature(tool.name, inputs, root_of(output).node if output is not None else None),
        "description": _opening(definition.description or definition.title),
        "input_params": _input_params(inputs, tool.tool_id),
        "output_fields": lines,
        "has_hidden_fields": hidden,
    }
    if (calls := observed_calls(output)) is not None:
        answer["observed_calls"] = calls
    return answer


def _opening(description: str) -> str:
    """The first paragraph on one line, cut at a word where it is long."""
    text = " ".join(description.strip().split("\n\n", 1)[0].split())
    if len(text) <= MAX_DESCRIPTION_CHARS:
        return text
    return text[: MAX_DESCRIPTION_CHARS - 2].rpartition(" ")[0] + " …"
