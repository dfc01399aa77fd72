"""What a model reads of a leaf that is no tool, beside what it reads of every tool: what it is, and how to read it."""

from typing import Any

import msgspec

from toolfold.answers import LeafNotes
from toolfold.catalogue.kinds import bare_id
from toolfold.leaf_address import resource_address, template_address
from toolfold.types import Tool
from toolfold.uri_template import UriTemplate
from toolfold.wire.jsonrpc import DECODE_ERRORS

_HOW = {
    "resource": "call_tool with this tool_id and no args reads it",
    "template": "call_tool with this tool_id and its variables as args reads the resource that they make",
    "prompt": "call_tool with this tool_id and its args gives the text of the prompt",
}


def about_leaf(tool: Tool) -> LeafNotes:
    """Nothing of a tool."""
    if tool.kind == "tool":
        return {}
    address = tool.definition.address
    if tool.kind == "prompt":
        shown = bare_id(tool.tool_id)
    elif tool.kind == "template":
        shown = template_address(tool.server, UriTemplate(address))
    else:
        shown = resource_address(tool.server, address)
    notes: LeafNotes = {"kind": tool.kind, "address": shown, "how_to_read": _HOW[tool.kind]}
    return {**notes, **_told(tool)}


def _told(tool: Tool) -> LeafNotes:
    """What its server says of its content. Claims: what is read may be of another size."""
    try:
        sent: dict[str, Any] = msgspec.json.decode(tool.definition.raw)
    except DECODE_ERRORS:
        return {}
    told: LeafNotes = {}
    if isinstance(media_type := sent.get("mimeType"), str):
        told["media_type"] = media_type[:100]
    if isinstance(size := sent.get("size"), int):
        told["size"] = size
    return told
