"""Stored outputs as MCP resources: how a client gets a picture, or any other output, whole and as it is.

A caller sees its own session's outputs and no others. Above: the MCP server's apps.
"""

import base64
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import ToolfoldError
from toolfold.gateway import Gateway
from toolfold.outputs.shape import OUTPUT_URI
from toolfold.types import Caller, Stored
from toolfold.wire.jsonrpc import DECODE_ERRORS, INVALID_PARAMS
from toolfold.wire.serving import RpcError

_TEMPLATE = {"uriTemplate": f"{OUTPUT_URI}{{handle}}", "name": "output", "description": "a stored tool result, whole"}


class _Read(Struct):
    uri: str


class OutputResources:
    """The stored outputs of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def owns(self, params: Raw) -> bool:
        """Whether a request names a stored output."""
        return _parse_uri(params).startswith(OUTPUT_URI)

    @property
    def template(self) -> dict[str, Any]:
        return dict(_TEMPLATE)

    async def listed(self, caller: Caller) -> list[dict[str, Any]]:
        return [_listed(stored) for stored in await self._gateway.outputs(caller)]

    async def read(self, params: Raw, caller: Caller) -> Raw:
        """The result of `resources/read`. Raises `RpcError`."""
        uri = _parse_uri(params)
        try:
            stored, data = await self._gateway.outputs.read(uri.removeprefix(OUTPUT_URI), caller)
        except ToolfoldError as error:
            raise RpcError(INVALID_PARAMS, error.message, error.as_dict()) from error
        content: dict[str, Any] = {"uri": uri, "mimeType": stored.media_type}
        if stored.binary:
            return _encoded({"contents": [{**content, "blob": base64.b64encode(data).decode()}]})
        return _encoded({"contents": [{**content, "text": data.decode("utf-8", "replace")}]})


def _parse_uri(params: Raw) -> str:
    try:
        return msgspec.json.decode(params, type=_Read).uri
    except DECODE_ERRORS:
        return ""


def _listed(stored: Stored) -> dict[str, Any]:
    uri = OUTPUT_URI + stored.handle
    return {"uri": uri, "name": stored.tool_name, "mimeType": stored.media_type, "size": stored.bytes}


def _encoded(result: dict[str, Any]) -> Raw:
    # They are a caller's own and come and go: nothing may be kept.
    return Raw(msgspec.json.encode({**result, "ttlMs": 0}))
