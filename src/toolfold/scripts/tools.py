"""From tools of the catalogue to what a script sees of them. Descriptions are kept by the tool's fingerprint."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from toolfold.disclosure.descriptor import decoded
from toolfold.disclosure.observed_schema import observed_calls, says_nothing
from toolfold.scripts.modelling import Modeller
from toolfold.scripts.naming import identifier, pascal, unused
from toolfold.scripts.stubs import signature
from toolfold.scripts.values import ToolSpec
from toolfold.types import Tool

KEPT = 512
MAX_DOC = 2_000


class Describer:
    """Makes descriptions, and keeps the latest."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], ToolSpec] = {}

    def describe(self, tool: Tool, output: Any) -> ToolSpec:
        """`output` is the schema of its results, declared or observed; `None` where nothing is known."""
        key = (tool.tool_id, tool.fingerprint, hash(msgspec.json.encode(output)))
        found = self._known.get(key)
        if found is None:
            while len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)))
            found = self._known[key] = describe(tool, output)
        return found


def describe(tool: Tool, output: Any, function: str = "") -> ToolSpec:
    name = function or identifier(tool.name)
    modeller = Modeller(pascal(name))
    params = modeller.parameters(decoded(tool.definition.input_schema))
    useful = isinstance(output, dict) and not says_nothing(output)
    result = modeller.result(output) if useful else None
    spec = ToolSpec(
        tool_id=tool.tool_id,
        module=identifier(tool.server, "server"),
        function=name,
        params=params,
        models=tuple(modeller.models),
        result=result,
        result_from="nothing" if not useful else "observed" if observed_calls(output) is not None else "declared",
        fingerprint=tool.fingerprint,
        doc=(tool.definition.description or tool.summary).strip()[:MAX_DOC],
    )
    return replace(spec, signature=signature(spec))


def distinct(tools: Iterable[tuple[Tool, ToolSpec, Any]]) -> tuple[ToolSpec, ...]:
    """The descriptions, with names of their own where two tools of a module would share one."""
    taken: dict[str, set[str]] = {}
    found: dict[str, ToolSpec] = {}
    for tool, spec, output in sorted(tools, key=lambda one: one[0].tool_id):
        if tool.tool_id in found:
            continue
        names = taken.setdefault(spec.module, set())
        free = unused(spec.function, names)
        found[tool.tool_id] = spec if free == spec.function else describe(tool, output, free)
    return tuple(found.values())
