"""The discovery operations as a model and a program see them: names, descriptions, schemas, hints of behaviour.

Plain values, the same for every catalogue. The MCP surface, the HTTP face with its OpenAPI page and the adapters are
all written from these. What an operation does stands in `operations.py`.
"""

from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.outputs import tool_output_definition as tool_output


class _Definition(Struct, frozen=True, kw_only=True):
    """One operation."""

    name: str
    description: str
    properties: dict[str, Any]
    required: tuple[str, ...] = ()
    reads_only: bool = True

    @property
    def input_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": self.properties}
        return {**schema, "required": list(self.required)} if self.required else schema

    def as_tool(self) -> dict[str, Any]:
        """The MCP tool object."""
        # A client may ask a person before each call of a tool that does not say that it only reads.
        annotations = {"readOnlyHint": True} if self.reads_only else {"readOnlyHint": False, "openWorldHint": True}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": annotations,
        }


DISCOVERY_CAPABILITY = "dev.toolfold/discovery"
"""Under `capabilities.experimental`: these operations as an extension, docs/specification.md."""
DISCOVERY_VERSION = 1

TEXT: dict[str, Any] = {"type": "string"}
# How to ask. No example of a query, and no word of leaving something out: small models send the example, or leave out
# what matters (measured: docs/search.md).
QUERY: dict[str, Any] = {
    **TEXT,
    "description": "one whole sentence: what to do, with what kind of thing, in which product",
}
NAMES: dict[str, Any] = {"type": "array", "items": TEXT}
CURSOR: dict[str, Any] = {"type": ["string", "null"], "description": "next_cursor of the page before"}


def _limit(default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": 50, "default": default}


LIST = _Definition(
    name="list",
    description=(
        "Browse the tool catalogue: categories and tool pointers at a path. No path: the root. With query: what is "
        "below the path and fits it."
    ),
    properties={
        "path": {**NAMES, "description": 'e.g. ["Coding","Refactoring"]'},
        "tags": {**NAMES, "description": "keep what has all of them"},
        "query": {**TEXT, "description": "as in search_tool_by_category"},
        "limit": _limit(10),
        "cursor": CURSOR,
    },
)

SEARCH_NODES = _Definition(
    name="search_nodes",
    description="Find categories whose tools do something, when you do not know where to start.",
    properties={"query": QUERY, "limit": _limit(5)},
    required=("query",),
)

SEARCH_TOOLS = _Definition(
    name="search_tool_by_category",
    description=(
        "Find tools inside a category and all below it; an empty category_path searches everything. confidence is the "
        "probability that the tool fits; what is under expanded needs no expand_tool."
    ),
    properties={"query": QUERY, "category_path": NAMES, "limit": _limit(5), "cursor": CURSOR},
    required=("query",),
)

EXPAND_TOOL = _Definition(
    name="expand_tool",
    description="The whole of one tool: description, args_schema, what it returns, version. Do this before call_tool.",
    properties={
        "tool_id": TEXT,
        "args_path": {**TEXT, "description": "opens one part of a folded args_schema: a.b, a[]"},
    },
    required=("tool_id",),
)

CALL_TOOL = _Definition(
    name="call_tool",
    description="Call a tool that you expanded, with args that fit its args_schema.",
    properties={
        "tool_id": TEXT,
        "args": {"type": "object"},
        "expect_version": {"type": "integer", "description": "fail if the tool has another version by now"},
    },
    required=("tool_id",),
    reads_only=False,
)

INSPECT_TOOL_OUTPUT = _Definition(
    name="inspect_tool_output",
    description="The structure of one part of what a tool returns: type, children, a preview of what is below.",
    properties={
        "tool_id": TEXT,
        "field_path": {"type": ["string", "null"], "description": "a.b, a[], a[].b; empty: the root"},
        "max_depth": {"type": "integer", "minimum": 1, "default": 4},
        "max_fields": {"type": "integer", "minimum": 1, "default": 120},
    },
    required=("tool_id",),
)

TOOL_OUTPUT = _Definition(
    name=tool_output.NAME,
    description=tool_output.DESCRIPTION,
    properties=tool_output.SCHEMA["properties"],
    required=tuple(tool_output.SCHEMA["required"]),
)

RUN_SCRIPT = _Definition(
    name="run_script",
    description=(
        "Run a Python script in a sandbox that calls many tools in one go. It says what each tool must do, in literal "
        'general words without values, or by id where you know it, as in use_tools("git.log"): '
        'log, diff = use_tools("get the git log", "compare two commits"); then await log(max_count=5). '
        "Returns what it printed and its summary."
    ),
    properties={"code": TEXT},
    required=("code",),
    reads_only=False,
)

# Every operation, in the order in which they are listed.
DISCOVERY = (LIST, SEARCH_NODES, SEARCH_TOOLS, EXPAND_TOOL, CALL_TOOL, INSPECT_TOOL_OUTPUT, TOOL_OUTPUT, RUN_SCRIPT)

BY_NAME = {definition.name: definition for definition in DISCOVERY}


# Encoded once: a client's prompt cache survives only while these are the same bytes, for everybody and every catalogue.
@cache
def tool_objects() -> dict[str, Raw]:
    """The MCP tool objects by name."""
    return {name: Raw(msgspec.json.encode(definition.as_tool())) for name, definition in BY_NAME.items()}
