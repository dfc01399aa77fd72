"""The planner's world made of the gateway's operations, for one caller. Everything that comes out is folded already."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from toolfold.agent.world import Descriptor
from toolfold.calls.reading import text_of
from toolfold.config.values import Extraction
from toolfold.types import Caller

if TYPE_CHECKING:
    from toolfold import Gateway


class GatewayWorld:
    """See `toolfold.agent.world.World`."""

    def __init__(self, gateway: "Gateway", caller: Caller, thresholds: Mapping[str, int] | None = None) -> None:
        self._gateway = gateway
        self._caller = caller
        self._thresholds = dict(thresholds or {})
        self._holds = False

    def under(self, thresholds: Mapping[str, int]) -> "GatewayWorld":
        return GatewayWorld(self._gateway, self._caller, thresholds) if thresholds else self

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
        return not outcome.is_error, text_of(outcome.result)

    async def run_script(self, code: str, allowed: Callable[[str], bool]) -> tuple[bool, str]:
        from toolfold.gateway.scripting import reports

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
        from toolfold.outputs.message import too_large

        stored = await self._gateway.outputs.keep_text(text, tool_id=name, arguments=arguments, caller=self._caller)
        self._holds = True
        return too_large(stored)

    def holds_outputs(self) -> bool:
        return self._holds
