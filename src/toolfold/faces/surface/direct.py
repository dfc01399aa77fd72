"""The profile `direct`: every tool of the catalogue in the list, under its id made fit for any client.

For small catalogues and for clients that bring a tool search of their own. A definition is shown as its server wrote
it, except for its name and its output schema: a result that is too large comes as a handle, which no client could
check against that schema. `tool_output` stands after the tools.
"""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import ToolNotFound
from toolfold.events import Event
from toolfold.faces.surface.base import SurfaceCall, holds_outputs, watch_outputs
from toolfold.faces.surface.definitions import TOOL_OUTPUT, tool_objects
from toolfold.faces.surface.operations import Operations
from toolfold.faces.surface.results import to_result
from toolfold.gateway import Gateway
from toolfold.types import Caller, Tool

MAX_NAME = 64
KEPT = 64
RESTRICTED_S = 1.0
CATALOGUE_CHANGED = ("catalogue.built", "catalogue.updated")
INSTRUCTIONS = (
    "Call the tools that are listed. A result that is too large to show is stored, and its message tells how to get "
    "the part you need with tool_output."
)


class ToolListing(Struct, frozen=True):
    """The tools of one generation as they are listed: name to id, and the objects."""

    generation: int
    until: float
    """When it is looked up again all the same: what is trusted may change without the catalogue."""
    ids: dict[str, str]
    objects: tuple[Raw, ...]


class DirectSurface:
    """All tools of one gateway, as they are."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._operations = Operations(gateway)
        self._shown: dict[tuple[str, str, tuple[str, ...]], ToolListing] = {}

    async def instructions(self, caller: Caller) -> str:
        return INSTRUCTIONS

    async def tools(self, caller: Caller, *, listens: bool = False) -> tuple[Raw, ...]:
        shown = await self.shown(caller)
        if listens and not await holds_outputs(self._gateway, caller):
            return shown.objects
        return (*shown.objects, tool_objects()[TOOL_OUTPUT.name])

    async def call(self, ask: SurfaceCall) -> Raw:
        if ask.name == TOOL_OUTPUT.name:
            return await to_result(self._operations.run(ask))
        ids = (await self.shown(ask.caller)).ids
        if ask.name not in ids:
            raise ToolNotFound(
                f"there is no tool {ask.name[:100]!r} here",
                hints=list(ids)[:5],
                next_action="list the tools again: they may have changed",
            )
        return await to_result(self._called(ids[ask.name], ask))

    async def _called(self, tool_id: str, ask: SurfaceCall) -> Raw:
        outcome = await self._gateway.call_tool(
            tool_id,
            ask.arguments,
            caller=ask.caller,
            meta=ask.meta,
            on_progress=ask.on_progress,
            on_input=ask.on_input,
            capabilities=ask.capabilities,
        )
        return outcome.result

    def watch(self, hook: Callable[[Caller | None], None]) -> Callable[[], None]:
        def told(event: Event) -> None:
            if event.name in CATALOGUE_CHANGED:
                hook(None)

        ends = (self._gateway.events.subscribe(told), watch_outputs(self._gateway, hook))

        def end() -> None:
            for one in ends:
                one()

        return end

    async def shown(self, caller: Caller) -> ToolListing:
        """The tools that a caller may see, encoded once a generation. Waits for the first catalogue."""
        await self._gateway.governor.begun()
        async with self._gateway.catalogue.snapshot() as view:
            generation = view.generation
        key = (caller.name, caller.policy, caller.groups)
        known, now = self._shown.get(key), time.monotonic()
        if known is None or known.generation != generation or known.until < now:
            known = await self._read(caller, generation, now)
            while len(self._shown) >= KEPT:
                self._shown.pop(next(iter(self._shown)))
            self._shown[key] = known
        return known

    async def _read(self, caller: Caller, generation: int, now: float) -> ToolListing:
        tools = await self._gateway.tools_below((), caller=caller)
        names = _safe_names(tool.tool_id for tool in tools)
        return ToolListing(
            generation,
            now + RESTRICTED_S if self._gateway.settings.restricts else math.inf,
            {names[tool.tool_id]: tool.tool_id for tool in tools},
            tuple(_tool_object(tool, names) for tool in tools),
        )


def _tool_object(tool: Tool, names: Mapping[str, str]) -> Raw:
    """The MCP tool object as its server sent it, under the name it has here."""
    found = msgspec.json.decode(tool.definition.raw)
    kept = {key: value for key, value in found.items() if key not in {"name", "outputSchema"}}
    schema = {"inputSchema": {"type": "object"}} if "inputSchema" not in kept else {}
    return Raw(msgspec.json.encode({"name": names[tool.tool_id], **kept, **schema}))


def _safe_names(tool_ids: Iterable[str]) -> dict[str, str]:
    """A name for each id: at most 64 letters, digits, `_` and `-`, no two alike even when case does not count.

    Ids that would get the same name all get one that ends in a hash of the id, so that names never depend on order.
    """
    plain = {tool_id: re.sub(r"[^A-Za-z0-9_-]", "_", tool_id)[:MAX_NAME] for tool_id in tool_ids}
    wanted = Counter(name.casefold() for name in (*plain.values(), TOOL_OUTPUT.name))
    return {tool_id: _hashed(tool_id, name) if wanted[name.casefold()] > 1 else name for tool_id, name in plain.items()}


def _hashed(tool_id: str, name: str) -> str:
    return f"{name[: MAX_NAME - 9]}_{blake2b(tool_id.encode(), digest_size=4).hexdigest()}"
