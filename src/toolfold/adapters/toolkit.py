"""What every adapter does the same way: definitions out of a surface, a call into it, and a result in parts."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.blocking_gateway import BlockingGateway
from toolfold.errors import ToolNotFound
from toolfold.faces.surface.base import Surface, SurfaceCall
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.faces.surface.results import error_dict, error_result
from toolfold.gateway import Gateway
from toolfold.types import EMPTY_OBJECT, LOCAL, Caller

ToolSource = Gateway | BlockingGateway | Surface
"""Where tools come from. A gateway is shown through the discovery operations."""


class ToolResult(Struct, frozen=True):
    """A `CallToolResult`, decoded."""

    content: list[dict[str, Any]]
    is_error: bool
    structured: Any = None

    @property
    def text(self) -> str:
        """What a library that knows only text can show. What is no text is named by its kind and type."""
        parts = [_block_text(block) for block in self.content]
        if not parts and self.structured is not None:
            return msgspec.json.encode(self.structured).decode()
        return "\n".join(parts)


class Toolkit:
    """The tools of a surface for one caller."""

    def __init__(self, source: ToolSource, *, caller: Caller = LOCAL) -> None:
        self.surface = _surface_of(source)
        self.caller = caller

    async def instructions(self) -> str:
        """What to put into the system prompt."""
        return await self.surface.instructions(self.caller)

    async def definitions(self) -> list[dict[str, Any]]:
        """The tools as MCP describes them."""
        return [msgspec.json.decode(raw) for raw in await self.surface.tools(self.caller)]

    async def call(self, name: str, arguments: Any) -> ToolResult:
        """Calls a tool with what a model wrote: an object, or its JSON text. What goes wrong is a result, too."""
        ask = SurfaceCall(name=name, arguments=_raw_arguments(arguments), caller=self.caller)
        try:
            raw = await self.surface.call(ask)
        except ToolNotFound as error:
            raw = error_result(error_dict(error))
        result = msgspec.json.decode(raw)
        return ToolResult(result.get("content") or [], bool(result.get("isError")), result.get("structuredContent"))


def _surface_of(source: ToolSource) -> Surface:
    if isinstance(source, BlockingGateway):
        return DiscoverySurface(source.gateway)
    return DiscoverySurface(source) if isinstance(source, Gateway) else source


def get_field(value: Any, name: str) -> Any:
    """A field of what a library hands out: a dictionary, or an object of its own."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _raw_arguments(arguments: Any) -> Raw:
    if isinstance(arguments, str):
        return Raw(arguments.encode("utf-8", "replace")) if arguments.strip() else EMPTY_OBJECT
    if arguments is None:
        return EMPTY_OBJECT
    try:
        return Raw(msgspec.json.encode(arguments))
    except (TypeError, ValueError, RecursionError) as error:
        return Raw(msgspec.json.encode(f"not JSON: {type(error).__name__}"))  # which the surface refuses


def _block_text(block: dict[str, Any]) -> str:
    if isinstance(block.get("text"), str):
        return str(block["text"])
    resource = block.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    named = block.get("uri") or (resource.get("uri") if isinstance(resource, dict) else None)
    details = [str(one) for one in (block.get("mimeType"), named) if one]
    return f"[{' '.join([str(block.get('type', 'content')), *details])}]"
