"""The compact descriptor: the least a planner needs to choose a tool, call it, and use what it returns.

Made from one entry of the catalogue, and from what the tool was seen to return where it declares nothing useful.
"""

from typing import Any

from msgspec import DecodeError, Raw, Struct
from msgspec.json import decode

from toolfold.disclosure.entries import Entry, inspect_hint
from toolfold.disclosure.fold import DEFAULT_SUMMARY_MAX_DEPTH, MAX_SUMMARY_FIELDS, Style, summary
from toolfold.disclosure.observed import Observed
from toolfold.disclosure.observed_schema import observed_calls, result_schema
from toolfold.disclosure.parameters import input_params, signature
from toolfold.disclosure.roots import root_of
from toolfold.types import Tool

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
        told: dict[str, Any] = {
            "tool_id": self.tool_id,
            "server": self.server,
            "signature": self.signature,
            "description": self.description,
            "input_params": self.input_params,
            "output_fields": self.output_fields,
            "has_hidden_fields": self.has_hidden_fields,
        }
        if self.observed_calls is not None:
            told["observed_calls"] = self.observed_calls
        return told


def describe(tool: Tool, observed: Observed | None = None) -> Descriptor:
    """The descriptor of a tool. Where its output schema says nothing, what was observed is shown, and counted."""
    definition = tool.definition
    inputs = decoded(definition.input_schema)
    output = result_schema(decoded(definition.output_schema), observed)
    root = root_of(output).node if output is not None else None
    lines: list[str] = []
    hidden = False
    if root is not None:
        style = Style(inspect_hint(tool.tool_id))
        folded = summary(Entry(root), style, max_depth=DEFAULT_SUMMARY_MAX_DEPTH, max_fields=MAX_SUMMARY_FIELDS)
        lines, hidden = folded.lines, folded.hidden
    return Descriptor(
        tool_id=tool.tool_id,
        server=tool.server,
        signature=signature(tool.name, inputs, root),
        description=_opening(definition.description or definition.title),
        input_params=input_params(inputs, tool.tool_id),
        output_fields=lines,
        has_hidden_fields=hidden,
        observed_calls=observed_calls(output),
    )


def decoded(raw: Raw | None) -> Any:
    """A schema as its server sent it, decoded; `None` for what cannot be read, which then counts as not declared."""
    if raw is None:
        return None
    try:
        return decode(raw)
    except (DecodeError, RecursionError):
        return None


def _opening(description: str) -> str:
    """The first paragraph on one line, cut at a word where it is long."""
    text = " ".join(description.strip().split("\n\n", 1)[0].split())
    if len(text) <= MAX_DESCRIPTION_CHARS:
        return text
    return text[: MAX_DESCRIPTION_CHARS - 2].rpartition(" ")[0] + " …"
