"""What a model reads first: nodes and tool pointers, with exactly the keys of the discovery protocol and no others.

Never a schema: that is what `expand_tool` is for. Nothing is looked up or ranked here.
"""

from collections.abc import Iterable
from typing import Any

from toolfold.types import Node, Path, Pointer, Tool


def pointer(tool: Tool, path: Path | None = None, confidence: float | None = None) -> Pointer:
    """Points at a tool as seen from `path`; from anywhere else, at its primary place."""
    asked = tuple(name.casefold() for name in path) if path else None
    place = next((one for one in tool.paths if tuple(name.casefold() for name in one) == asked), None)
    if place is None:
        place = tool.paths[0] if tool.paths else ()
    return Pointer(
        tool_id=tool.tool_id, path=place, summary=tool.summary, tags=tool.tags, confidence=_rounded(confidence)
    )


def pointer_entry(given: Pointer) -> dict[str, Any]:
    return {
        "tool_id": given.tool_id,
        "path": list(given.path),
        "summary": given.summary,
        "tags": list(given.tags),
        "confidence": given.confidence,
    }


def node_entry(node: Node) -> dict[str, Any]:
    """A node as `list` shows it."""
    return {"name": node.name, "path": list(node.path), "summary": node.summary, "tags": list(node.tags)}


def found_node_entry(node: Node, confidence: float) -> dict[str, Any]:
    """A node as `search_nodes` shows it."""
    return {"path": list(node.path), "summary": node.summary, "confidence": _rounded(confidence)}


def listing_entry(
    path: Path, nodes: Iterable[Node], tools: Iterable[Tool], next_cursor: str | None = None
) -> dict[str, Any]:
    """The whole answer of `list`."""
    return {
        "path": list(path),
        "nodes": [node_entry(node) for node in nodes],
        "tools": [pointer_entry(pointer(tool, path)) for tool in tools],
        "next_cursor": next_cursor,
    }


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 2)
