"""Resources, prompts and skills of all servers over HTTP: listed in pages, read, and filled in.

The lists and results are those of MCP, with the same addresses. Above: `app.py`. Below: `gateway.leaves`.
"""

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import InvalidArguments, ToolNotFound
from toolfold.faces.http_api.request import _RequestError
from toolfold.faces.surface.resource_links import listed_entry, own_addresses, own_contents
from toolfold.gateway import Gateway
from toolfold.types import CallContext, Caller, Kind
from toolfold.wire.jsonrpc import DECODE_ERRORS

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["LISTS", "get_prompt", "list_leaves", "read_resource"]

# By the last step of the address.
LISTS: dict[str, tuple[Kind, str]] = {
    "resources": ("resource", "resources"),
    "resource-templates": ("template", "resourceTemplates"),
    "prompts": ("prompt", "prompts"),
    "skills": ("skill", "skills"),
}


class _Read(Struct, frozen=True, forbid_unknown_fields=True):
    uri: str


class _Get(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | None = None


async def list_leaves(gateway: Gateway, caller: Caller, request: "Request") -> dict[str, Any]:
    """One page of a list; `cursor` goes on where the last one ended."""
    kind, member = LISTS[request.url.path.rpartition("/")[2]]
    page = await gateway.leaves.page(kind, cursor=request.query_params.get("cursor"), caller=caller)
    more = {"nextCursor": page.next_cursor} if page.next_cursor else {}
    return {member: [listed_entry(leaf) for leaf in page.leaves], **more}


async def read_resource(gateway: Gateway, caller: Caller, body: Raw) -> Raw:
    """What a resource holds: MCP's ReadResourceResult."""
    uri: str = _parse(_Read, body, '{"uri": "toolfold://resources/…"}').uri
    try:
        tool, sent = await gateway.leaves.find(uri, caller)
    except ToolNotFound as error:
        raise _missing(error) from error
    outcome = await gateway.leaves.request(tool, "resources/read", {"uri": sent}, CallContext(caller=caller))
    return own_contents(tool.server, outcome.raw, {sent: uri})


async def get_prompt(gateway: Gateway, caller: Caller, body: Raw) -> Raw:
    """A prompt with its arguments: MCP's GetPromptResult."""
    asked = _parse(_Get, body, '{"name": "SERVER.NAME", "arguments": {…}}')
    try:
        tool = await gateway.leaves.find_prompt(asked.name, caller)
    except ToolNotFound as error:
        raise _missing(error) from error
    params = {"name": tool.definition.address, "arguments": asked.arguments or {}}
    outcome = await gateway.leaves.request(tool, "prompts/get", params, CallContext(caller=caller))
    return own_addresses(tool.server, outcome.raw)


def _missing(error: ToolNotFound) -> _RequestError:
    return _RequestError(404, "NOT_FOUND", error.message, next_action=error.next_action)


def _parse(kind: Any, body: Raw, example: str) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except DECODE_ERRORS as error:
        raise InvalidArguments(f"the request cannot be read: {error}", next_action=f"send {example}") from error
