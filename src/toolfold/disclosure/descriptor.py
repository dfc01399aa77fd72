"""The compact descriptor: the least a planner needs to choose a tool, call it, and use what it returns.

Made from one entry of the catalogue, and from what the tool was seen to return where it declares nothing useful.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

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


class Descriptor(Struct, frozen=True, kw_only=True):
    """What search results and `available_tools` hold for each tool."""

    tool_id: str
    server: str
    signature: str
    description: str
    input_params: list[str]
    output_fields: list[str]
    has_hidden_fields: bool
    observed_calls: int | None = None
    """Set where the fields come from results and not from a declaration: how many results were looked at."""

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        if self.observed_calls is None:
            del fields["observed_calls"]
        return fields


def describe(tool: Tool, observed: Observed | None = None) -> Descriptor:
    """The descriptor of a tool. Where its output schema says nothing, what was observed is shown, and counted."""
    definition = tool.definition
    arguments = Arguments(decode_schema(definition.input_schema), tool.tool_id)
    output = result_schema(decode_schema(definition.output_schema), observed, as_seen=True)
    lines, hidden = summarize_schema_for_llm(output, tool_id=tool.tool_id)
    return Descriptor(
        tool_id=tool.tool_id,
        server=tool.server,
        signature=_signature(tool.name, arguments, root_of(output).node if output is not None else None),
        description=_opening(definition.description or definition.title),
        input_params=arguments.params(),
        output_fields=lines,
        has_hidden_fields=hidden,
        observed_calls=observed_calls(output),
    )


def _opening(description: str) -> str:
    """The first paragraph on one line, cut at a word where it is long."""
    text = " ".join(description.strip().split("\n\n", 1)[0].split())
    if len(text) <= MAX_DESCRIPTION_CHARS:
        return text
    return text[: MAX_DESCRIPTION_CHARS - 2].rpartition(" ")[0] + " …"
