"""What a model reads of a leaf that is no tool, beside what it reads of every tool: what it is, and how to read it."""

import re
from typing import Any

import msgspec

from toolfold.answers import LeafNotes
from toolfold.catalogue.kinds import bare_id, is_tool_id
from toolfold.leaf_address import resource_address, skill_address, template_address
from toolfold.policy.view import CatalogueView
from toolfold.skill_entry import SkillEntry, tools_named
from toolfold.types import Tool
from toolfold.uri_template import UriTemplate
from toolfold.wire.jsonrpc import DECODE_ERRORS

_HOW = {
    "resource": "call_tool with this tool_id and no args reads it",
    "template": "call_tool with this tool_id and its variables as args reads the resource that they make",
    "prompt": "call_tool with this tool_id and its args gives the text of the prompt",
    "skill": "call_tool with this tool_id and no args gives its SKILL.md, with a file in args that one",
}
_ODD = re.compile(r"[^a-z0-9]+")


async def about_leaf(view: CatalogueView, tool: Tool) -> LeafNotes:
    """Nothing of a tool."""
    if tool.kind == "tool":
        return {}
    address = tool.definition.address
    if tool.kind == "prompt":
        shown = bare_id(tool.tool_id)
    elif tool.kind == "template":
        shown = template_address(tool.server, UriTemplate(address))
    elif tool.kind == "skill":
        shown = skill_address(tool.server, address)
    else:
        shown = resource_address(tool.server, address)
    notes: LeafNotes = {"kind": tool.kind, "address": shown, "how_to_read": _HOW[tool.kind]}
    return {**notes, **(await _of_skill(view, tool) if tool.kind == "skill" else _told(tool))}


async def _of_skill(view: CatalogueView, tool: Tool) -> LeafNotes:
    entry = SkillEntry.of(tool.definition.raw)
    told: LeafNotes = {"size": sum(file.size for file in entry.resources)}
    if not (names := tools_named(entry.frontmatter)):
        return told
    async with view.catalogue.snapshot() as snapshot:
        found = _ToolNames(list(filter(is_tool_id, await snapshot.tool_ids())))
    told["tools_named"] = [
        {"name": name, "tool_id": tool_id} if (tool_id := found.find(name, tool.server)) else {"name": name}
        for name in names
    ]
    return told


class _ToolNames:
    """The ids of tools by what skills call them: `git.log`, `mcp__git__log`, `git:log`, or `log` alone."""

    def __init__(self, tool_ids: list[str]) -> None:
        self._ids: dict[str, set[str]] = {}
        for tool_id in tool_ids:
            for name in (tool_id, tool_id.partition(".")[2]):
                self._ids.setdefault(_plain(name), set()).add(tool_id)

    def find(self, name: str, server: str) -> str:
        """The one tool that a skill of a server means; empty where that is none, or not clear."""
        plain = _plain(name.partition("(")[0].removeprefix("mcp__"))
        found = self._ids.get(_plain(f"{server}.{plain}")) or self._ids.get(plain, set())
        return next(iter(found)) if len(found) == 1 else ""


def _plain(name: str) -> str:
    return _ODD.sub("_", name.casefold())


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
