"""What the loop needs of the world around it, and the value that each command results in.

The gateway is the real world; a record is another (`replay.py`). Everything that comes out is already folded: text that
a model may read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, structs

from toolfold.calls.result_text import result_text
from toolfold.config.sections import Extraction
from toolfold.types import Caller

if TYPE_CHECKING:
    from toolfold import Gateway


Descriptor = dict[str, Any]
"""The compact descriptor of a tool, as JSON."""


class CommandResult(Struct, frozen=True, kw_only=True):
    """What a command came to. `text` is what the model reads."""

    ok: bool
    text: str
    found: tuple[Descriptor, ...] = ()
    """Descriptors of tools that a search found."""
    holds_outputs: bool = False
    """Whether stored outputs are there afterwards."""
    data: Any = None
    counted: str = ""
    """The budget that it took from, whether it went well or not; empty: none."""


class Environment(Protocol):
    """The gateway, as the loop sees it. What goes wrong is a `ToolfoldError`."""

    async def inventory(self) -> Mapping[str, Sequence[str]]:
        """The names of all tools by server."""

    async def preloaded(self) -> tuple[Descriptor, ...]:
        """What is available before any search: the inspector."""

    async def search(self, query: str, category_path: Sequence[str], limit: int) -> tuple[Descriptor, ...]:
        """Descriptors of the tools that fit. Raises `NoMatchInCategory`."""

    async def call(self, tool_id: str, args: dict[str, Any]) -> tuple[bool, str]:
        """Whether the tool succeeded, and its text or the message that stands in for it."""

    async def run_script(self, code: str, allowed: Callable[[str], bool]) -> tuple[bool, str]:
        """Runs a script whose calls of tools that are not allowed fail with `NotAuthorized`."""

    async def extract(self, handle: str, extract: str, mode: str) -> str: ...

    async def store(self, name: str, arguments: str, text: str) -> str:
        """Stores a text that finds no more room, and gives the message with its handle."""

    def holds_outputs(self) -> bool: ...

    def under(self, thresholds: Mapping[str, int]) -> "Environment":
        """The same world for an agent with thresholds of its own: when results are stored, how they are asked."""


# --- The planner's world made of the gateway's operations, for one caller. Everything that comes out is folded alre


class GatewayEnvironment:
    """See `toolfold.agent.environment.Environment`."""

    def __init__(self, gateway: "Gateway", caller: Caller, thresholds: Mapping[str, int] | None = None) -> None:
        self._gateway = gateway
        self._caller = caller
        self._thresholds = dict(thresholds or {})
        self._holds = False

    def under(self, thresholds: Mapping[str, int]) -> "GatewayEnvironment":
        return GatewayEnvironment(self._gateway, self._caller, thresholds) if thresholds else self

    async def inventory(self) -> Mapping[str, Sequence[str]]:
        return await self._gateway.inventory(caller=self._caller)

    async def preloaded(self) -> tuple[Descriptor, ...]:
        return tuple(await self._gateway.describer.available(()))

    async def search(self, query: str, category_path: Sequence[str], limit: int) -> tuple[Descriptor, ...]:
        gateway, caller = self._gateway, self._caller
        found = await gateway.search_tool_by_category(query, category_path, limit=limit, caller=caller)
        ids = [pointer["tool_id"] for pointer in found["results"]]
        return tuple([await gateway.descriptor(tool_id, caller=caller) for tool_id in ids])

    async def call(self, tool_id: str, args: dict[str, Any]) -> tuple[bool, str]:
        own = (self._thresholds.get("tool_response_max_bytes"), self._thresholds.get("tool_response_max_tokens"))
        outcome = await self._gateway.call_tool(tool_id, args, caller=self._caller, max_response=own)
        self._holds = self._holds or outcome.stored is not None
        return not outcome.is_error, result_text(outcome.result)

    async def run_script(self, code: str, allowed: Callable[[str], bool]) -> tuple[bool, str]:
        from toolfold.scripts.runner import reports

        result = await self._gateway.run_script(code, caller=self._caller, allowed=allowed)
        text = reports.as_text(result)
        most = self._thresholds.get("tool_response_max_bytes", self._gateway.settings.limits.tool_response_max_bytes)
        if len(text.encode()) > most:
            text = await self.store("run_script", "{}", text)
        return result.ok, text

    async def extract(self, handle: str, extract: str, mode: str) -> str:
        own = {key: value for key, value in self._thresholds.items() if key in Extraction.__struct_fields__}
        options = structs.replace(self._gateway.settings.outputs, **own)
        return await self._gateway.outputs.extract(handle, extract, mode, self._caller, options=options)

    async def store(self, name: str, arguments: str, text: str) -> str:
        from toolfold.outputs.tool_output import too_large_message

        stored = await self._gateway.outputs.keep_text(text, tool_id=name, arguments=arguments, caller=self._caller)
        self._holds = True
        return too_large_message(stored)

    def holds_outputs(self) -> bool:
        return self._holds
