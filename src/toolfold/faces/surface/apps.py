"""Apps: tools whose results a host shows in a page of the server's, by the extension `io.modelcontextprotocol/ui`.

A host makes a page only for a tool that is listed, so these are listed to clients that say they render apps, and to no
others. What the page holds is a resource, `ui://…`, which is passed on as data: nothing here renders it. Above: the
surfaces that list tools.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from toolfold.leaf_address import MAX_URI_CHARS, resource_address
from toolfold.types import APPS, Tool
from toolfold.wire.jsonrpc import DECODE_ERRORS

__all__ = ["has_app", "own_app", "renders_apps"]

_SCHEME = "ui://"
# An older name of `ui.resourceUri`, which servers still send beside it.
_OLD_KEY = "ui/resourceUri"


class _Declared(Struct):
    extensions: dict[str, Any] = {}


class _Sent(Struct):
    meta: dict[str, Any] = field(name="_meta", default={})


def renders_apps(capabilities: Raw) -> bool:
    """Whether a client says that it renders apps."""
    if APPS.encode() not in bytes(capabilities):
        return False
    try:
        return isinstance(msgspec.json.decode(capabilities, type=_Declared).extensions.get(APPS), dict)
    except DECODE_ERRORS:
        return False


def has_app(tool: Tool) -> bool:
    """Whether a tool has a page, or is there for one alone."""
    if tool.kind != "tool" or b'"ui' not in bytes(tool.definition.raw):
        return False
    try:
        meta = msgspec.json.decode(tool.definition.raw, type=_Sent).meta
    except DECODE_ERRORS:
        return False
    about = meta.get("ui")
    about = about if isinstance(about, dict) else {}
    visibility = about.get("visibility")
    pages = (about.get("resourceUri"), meta.get(_OLD_KEY))
    return any(map(_is_page, pages)) or (isinstance(visibility, list) and "app" in visibility)


def own_app(server: str, definition: dict[str, Any]) -> None:
    """Turns the address of a tool's page into ours, which a host can read here."""
    meta = definition.get("_meta")
    places = [(meta, _OLD_KEY), (meta.get("ui"), "resourceUri")] if isinstance(meta, dict) else []
    for place, key in places:
        if isinstance(place, dict) and _is_page(place.get(key)):
            place[key] = resource_address(server, place[key])


def _is_page(uri: Any) -> bool:
    return isinstance(uri, str) and uri.startswith(_SCHEME) and len(_SCHEME) < len(uri) <= MAX_URI_CHARS
