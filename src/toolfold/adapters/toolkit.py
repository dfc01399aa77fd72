"""What every adapter shares: definitions out of a surface, calls into it, and results in parts."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.adapters.deferred import _DeferredTools
from toolfold.errors import ToolNotFound
from toolfold.faces.surface.auto import AutoSurface
from toolfold.faces.surface.base import Surface
from toolfold.faces.surface.results import error_dict, error_result
from toolfold.gateway import BlockingGateway, Gateway
from toolfold.text import text_of
from toolfold.types import EMPTY_OBJECT, LOCAL, CallContext, Caller

# Where tools come from. A gateway offers what the profile `auto` does.
ToolSource = Gateway | BlockingGateway | Surface


class ToolResult(Struct, frozen=True):
    """A `CallToolResult`, decoded."""

    content: list[dict[str, Any]]
    is_error: bool
    structured: Any = None

    @property
    def text(self) -> str:
        """For a library that knows only text. Content that is no text is named by its kind and type."""
        if not self.content and self.structured is not None:
            return msgspec.json.encode(self.structured).decode()
        return text_of(self.content, labelled=True)


class Toolkit:
    """The tools of a surface for one caller."""

    def __init__(self, source: ToolSource, *, caller: Caller = LOCAL, defer: bool = False) -> None:
        """`defer`: tools are loaded when the model finds them, by the provider's tool search with ours behind it."""
        gateway = source.gateway if isinstance(source, BlockingGateway) else source
        self.caller = caller
        self.deferred = _DeferredTools(source, caller) if defer else None
        if self.deferred is not None:
            self.surface: Surface = self.deferred.surface
        else:
            self.surface = AutoSurface(gateway) if isinstance(gateway, Gateway) else gateway

    async def instructions(self) -> str:
        """For the system prompt."""
        if self.deferred is not None:
            return await self.deferred.instructions()
        return await self.surface.instructions(self.caller)

    async def definitions(self) -> list[dict[str, Any]]:
        """The tools as MCP describes them."""
        return [msgspec.json.decode(raw) for raw in await self.surface.tools(self.caller)]

    async def call(self, name: str, arguments: Any) -> ToolResult:
        """Calls a tool with what a model wrote: an object, or its JSON text. A failure is a result, too."""
        try:
            raw = await self.surface.call(name, _raw_arguments(arguments), CallContext(caller=self.caller))
        except ToolNotFound as error:
            raw = error_result(error_dict(error))
        result = msgspec.json.decode(raw)
        return ToolResult(result.get("content") or [], bool(result.get("isError")), result.get("structuredContent"))

    async def call_all(self, requests: Iterable[Any], arguments: str) -> list[ToolResult]:
        """Runs requests of a model concurrently. `arguments` is the field that holds their arguments."""
        calls = [self.call(get_field(request, "name"), get_field(request, arguments)) for request in requests]
        return await asyncio.gather(*calls)


def get_field(value: Any, name: str) -> Any:
    """A field of what a library returns: a dictionary, or an object of its own."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _raw_arguments(arguments: Any) -> Raw:
    if isinstance(arguments, str):
        return Raw(arguments.encode("utf-8", "replace")) if arguments.strip() else EMPTY_OBJECT
    if arguments is None:
        return EMPTY_OBJECT
    try:
        return Raw(msgspec.json.encode(arguments))
    except (TypeError, ValueError, RecursionError) as error:
        # A string is no object of arguments: the surface refuses it, and the model reads why.
        return Raw(msgspec.json.encode(f"not JSON: {type(error).__name__}"))
