"""What a model reads first: nodes and tool pointers, with exactly the keys of the discovery protocol and no others.

Never a schema: that is what `expand_tool` is for. Nothing is looked up or ranked here.
"""

from collections.abc import Iterable
from typing import Any

from toolfold.types import Node, Path, Pointer, Tool


def pointer_to(tool: Tool, path: Path | None = None, confidence: float | None = None) -> Pointer:
    """Points at a tool as seen from `path`; from anywhere else, at its primary place."""
    asked = tuple(name.casefold() for name in path) if path else None
    place = next((one for one in tool.paths if tuple(name.casefold() for name in one) == asked), None)
    if place is None:
        place = tool.paths[0] if tool.paths else ()
    return Pointer(
        tool_id=tool.tool_id, path=place, summary=tool.summary, tags=tool.tags, confidence=_rounded(confidence)
    )


def render_pointer(given: Pointer) -> dict[str, Any]:
    return {
        "tool_id": given.tool_id,
        "path": list(given.path),
        "summary": given.summary,
        "tags": list(given.tags),
        "confidence": given.confidence,
    }


def render_node(node: Node) -> dict[str, Any]:
    """A node as `list` shows it."""
    return {"name": node.name, "path": list(node.path), "summary": node.summary, "tags": list(node.tags)}


def render_node_hit(node: Node, confidence: float) -> dict[str, Any]:
    """A node as `search_nodes` shows it."""
    return {"path": list(node.path), "summary": node.summary, "confidence": _rounded(confidence)}


def render_listing(
    path: Path, nodes: Iterable[Node], tools: Iterable[Tool], next_cursor: str | None = None
) -> dict[str, Any]:
    """The whole answer of `list`."""
    return {
        "path": list(path),
        "nodes": [render_node(node) for node in nodes],
        "tools": [render_pointer(pointer_to(tool, path)) for tool in tools],
        "next_cursor": next_cursor,
    }


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 2)


# --- The whole of one tool, for a model that is about to call it. The only place from which a schema is shown.


def render_tool(tool: Tool) -> dict[str, Any]:
    """The whole of one tool, schemas as its server sent them."""
    definition = tool.definition
    return {
        "tool_id": tool.tool_id,
        "path": list(tool.paths[0]) if tool.paths else [],
        "summary": tool.summary,
        "description": definition.description,
        "args_schema": definition.input_schema,
        "result_schema": definition.output_schema,
        "version": tool.version,
        "tags": list(tool.tags),
    }
