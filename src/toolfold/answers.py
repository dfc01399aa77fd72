"""What the operations that find a tool answer with, as types: the exact keys that a program and a model read.

`list`, the two searches, `expand_tool`, `inspect_tool_output` and the descriptors of a planner. Nothing is made here:
`disclosure` fills them in. Above: every stage that shows tools.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from msgspec import Raw

__all__ = [
    "ExpandedTool",
    "InspectedOutput",
    "NodePage",
    "ToolDescriptor",
    "ToolHit",
    "ToolList",
    "ToolPage",
    "ToolPointer",
]


class _Pointed(TypedDict):
    tool_id: str
    path: list[str]
    summary: str
    tags: list[str]
    same_as: NotRequired[list[str]]
    """The ids of the same tool at other servers."""


class ToolPointer(_Pointed):
    """The least that is needed to decide whether to expand a tool."""

    confidence: float | None
    """The probability that it fits what was asked; `None` where nothing was asked."""


class ToolHit(_Pointed):
    """The same as the answer to a request."""

    confidence: float


class ListedNode(TypedDict):
    """A category of a listing."""

    name: str
    path: list[str]
    summary: str
    tags: list[str]


class ToolList(TypedDict):
    """`Gateway.list`: the categories and tools at a path."""

    path: list[str]
    nodes: list[ListedNode]
    tools: Sequence[ToolPointer | ToolHit]
    next_cursor: str | None
    note: NotRequired[str]
    may_be_old: NotRequired[str]


class ToolPage(TypedDict):
    """`Gateway.search_tool_by_category`: tools for a request, the best first."""

    category_path: list[str]
    results: list[ToolHit]
    next_cursor: str | None
    expanded: NotRequired[Mapping[str, Sequence[str]]]
    """What the first hits take, where lines tell it whole, by id: such a tool counts as expanded."""
    note: NotRequired[str]
    may_be_old: NotRequired[str]


class _FoundNode(TypedDict):
    path: list[str]
    summary: str
    confidence: float


class NodePage(TypedDict):
    """`Gateway.search_nodes`: categories for a request, the best first."""

    results: list[_FoundNode]
    note: NotRequired[str]
    may_be_old: NotRequired[str]


class Doubts(TypedDict):
    """What speaks against what is shown of a tool."""

    contradicted: NotRequired[list[str]]
    """Where results did not fit what the tool declares."""
    may_be_old: NotRequired[str]
    """Why this may not be what the server lists now."""


class _NamedTool(TypedDict):
    name: str
    tool_id: NotRequired[str]
    """Where it is a tool that the caller may see, and no other has that name."""


class LeafNotes(TypedDict, total=False):
    """What is told of a resource, a template, a prompt or a skill, and of no tool."""

    kind: str
    address: str
    """Where a client of MCP reads it: `resources/read` of this, or `prompts/get` of it."""
    how_to_read: str
    media_type: str
    size: int
    tools_named: list[_NamedTool]
    """The tools that a skill names, which grants nobody anything."""


class ExpandedTool(Doubts, LeafNotes):
    """`Gateway.expand_tool`: the whole of one tool. Schemas are JSON as the server sent it."""

    tool_id: str
    path: list[str]
    summary: str
    description: str
    args_schema: Raw
    result_schema: Any
    """The same, or `None` where nothing is declared or was seen."""
    version: int
    tags: list[str]
    output_fields: list[str]
    """What it returns, folded: one field to a line."""
    has_hidden_fields: bool


class _Child(TypedDict):
    name: str
    type: str


class _Alternative(TypedDict):
    path: str
    type: str
    fields: int


class InspectedOutput(Doubts):
    """`Gateway.inspect_tool_output`: what is at one place of a tool's output."""

    tool_id: str
    field_path: str
    node_type: str
    children: list[_Child]
    flattened_fields: list[str]
    total_child_fields: int
    truncated: bool
    alternatives: NotRequired[list[_Alternative]]
    observed_calls: NotRequired[int]
    note: NotRequired[str]


class ToolDescriptor(TypedDict):
    """`Gateway.descriptor`, `Gateway.available_tools`: what a planner needs to choose a tool and call it."""

    tool_id: str
    server: str
    signature: str
    description: str
    input_params: list[str]
    output_fields: list[str]
    has_hidden_fields: bool
    observed_calls: NotRequired[int]
    same_as: NotRequired[list[str]]
