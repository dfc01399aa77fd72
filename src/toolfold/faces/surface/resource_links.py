"""The addresses of resources in what a server sent, turned into ours: a client can then read them here.

A result without a link or an embedded resource goes on untouched, which a search of its bytes tells. Above: the MCP
server, and whatever answers calls of tools.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import asdict

from toolfold.catalogue.kinds import bare_id
from toolfold.faces.surface.listed_form import sound_entry
from toolfold.leaf_address import MAX_URI_CHARS, resource_address, skill_address, template_address
from toolfold.outputs.shape import OUTPUT_URI
from toolfold.skill_entry import SkillEntry
from toolfold.types import Tool
from toolfold.uri_template import UriTemplate
from toolfold.wire.jsonrpc import DECODE_ERRORS, encode

__all__ = ["listed_entry", "own_addresses", "own_contents"]

_members = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])
_value = msgspec.json.Decoder()
# Larger results were stored, or go to a program that asked for them.
_MAX_BYTES = 16 << 20


def listed_entry(leaf: Tool) -> dict[str, Any]:
    """The object that its server sent, under our address."""
    if leaf.kind == "skill":
        return _skill_entry(leaf)
    definition = leaf.definition
    sent = {**sound_entry(_value.decode(definition.raw)), "name": definition.name}
    if leaf.kind == "resource":
        return {**sent, "uri": resource_address(leaf.server, definition.address)}
    if leaf.kind == "template":
        return {**sent, "uriTemplate": template_address(leaf.server, UriTemplate(definition.address))}
    return {**sent, "name": bare_id(leaf.tool_id)}


def _skill_entry(leaf: Tool) -> dict[str, Any]:
    entry = SkillEntry.of(leaf.definition.raw)
    own = [{**asdict(file), "uri": skill_address(leaf.server, file.uri)} for file in entry.resources]
    sent = _members.decode(leaf.definition.raw)
    return {**sent, "uri": skill_address(leaf.server, entry.uri), "resources": own}


def own_addresses(server: str, result: Raw) -> Raw:
    """The result of a tool or a prompt, with our addresses in its blocks."""
    text = bytes(result)
    if (b'"resource' not in text and b"\\u0072esource" not in text) or len(text) > _MAX_BYTES:
        return result
    try:
        members = _members.decode(result)
        for name, own in (("content", _of_block), ("messages", _of_message)):
            if name in members:
                members[name] = Raw(encode([own(server, block) for block in _list.decode(members[name])]))
    except DECODE_ERRORS:
        return result
    return Raw(encode(members))


def own_contents(server: str, result: Raw, known: Mapping[str, str]) -> Raw:
    """The result of `resources/read` under our addresses; `known` are those that the client asked with."""
    try:
        members = _members.decode(result)
        contents = _list.decode(members["contents"])
    except (*DECODE_ERRORS, KeyError):
        return result  # it asks for input
    members["contents"] = Raw(encode([_with_own_uri(server, _members.decode(one), known) for one in contents]))
    # What one caller reads is not for others, whatever its server says of it.
    return Raw(encode({**members, "cacheScope": "private"}))


def _of_message(server: str, message: Raw) -> Raw:
    members = _members.decode(message)
    if "content" not in members:
        return message
    return Raw(encode({**members, "content": _of_block(server, members["content"])}))


def _of_block(server: str, block: Raw) -> Raw:
    members = _members.decode(block)
    kind = _value.decode(members.get("type", Raw(b"null")))
    if kind == "resource_link":
        return Raw(encode(_with_own_uri(server, members)))
    if kind == "resource" and bytes(members.get("resource", Raw(b"")))[:1] == b"{":
        return Raw(encode({**members, "resource": _with_own_uri(server, _members.decode(members["resource"]))}))
    return block


def _with_own_uri(server: str, members: dict[str, Raw], known: Mapping[str, str] = {}) -> dict[str, Any]:
    uri = _value.decode(members.get("uri", Raw(b"null")))
    # Outputs are stored here, and no server's.
    if not isinstance(uri, str) or len(uri) > MAX_URI_CHARS or uri.startswith(OUTPUT_URI):
        return members
    return {**members, "uri": known.get(uri) or resource_address(server, uri)}
