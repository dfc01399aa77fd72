"""The compact descriptor: the least a planner needs to choose a tool, call it, and use what it returns.

Made from one entry of the catalogue, and from what the tool was seen to return where it declares nothing useful.
"""

from toolfold.answers import ToolDescriptor
from toolfold.disclosure.arguments import Arguments
from toolfold.disclosure.fold import root_of, summarize_schema_for_llm
from toolfold.disclosure.observed import Observed, decode_schema, observed_calls, result_schema
from toolfold.schema_walk import Node
from toolfold.schema_walk.paths import ITEMS, Step, quote_key
from toolfold.types import Tool

# Descriptors stand in every search result: these keep one to a few hundred tokens.
MAX_SIGNATURE_PARAMETERS = 8
MAX_ARRAY_NESTING = 4


def _signature(name: str, arguments: Arguments, output: Node | None) -> str:
    """`get_order(order_id: string, expand?: string[]) -> object`; what is not declared is `any`."""
    root = arguments.root
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


MAX_DESCRIPTION_CHARS = 400


def describe(tool: Tool, observed: Observed | None = None) -> ToolDescriptor:
    """The descriptor of a tool. Where its output schema says nothing, what was observed is shown, and counted."""
    definition = tool.definition
    arguments = Arguments(decode_schema(definition.input_schema), tool.tool_id)
    output = result_schema(decode_schema(definition.output_schema), observed, as_seen=True)
    lines, hidden = summarize_schema_for_llm(output, tool_id=tool.tool_id)
    answer: ToolDescriptor = {
        "tool_id": tool.tool_id,
        "server": tool.server,
        "signature": _signature(tool.name, arguments, root_of(output).node if output is not None else None),
        "description": _opening(definition.description or definition.title),
        "input_params": arguments.params(),
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
