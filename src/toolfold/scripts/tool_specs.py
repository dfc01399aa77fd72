"""From tools of the catalogue to what a script sees of them. Descriptions are kept by the tool's fingerprint."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from toolfold.disclosure.descriptor import decode_schema
from toolfold.disclosure.observed import is_uninformative, observed_calls
from toolfold.scripts.identifiers import identifier, pascal_case, unused_name
from toolfold.scripts.models_from_schema import ModelBuilder
from toolfold.scripts.stubs import signature
from toolfold.scripts.values import ToolSpec
from toolfold.types import Tool

_MAX_SPECS = 512
_MAX_DOC = 2_000


class SpecCache:
    """Makes descriptions, and keeps the latest."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], ToolSpec] = {}

    def describe(self, tool: Tool, output: Any) -> ToolSpec:
        """`output` is the schema of its results, declared or observed; `None` where nothing is known."""
        key = (tool.tool_id, tool.fingerprint, hash(msgspec.json.encode(output)))
        found = self._known.get(key)
        if found is None:
            while len(self._known) >= _MAX_SPECS:
                self._known.pop(next(iter(self._known)))
            found = self._known[key] = describe_tool(tool, output)
        return found


def describe_tool(tool: Tool, output: Any, function: str = "") -> ToolSpec:
    name = function or identifier(tool.name)
    modeller = ModelBuilder(pascal_case(name))
    params = modeller.parameters(decode_schema(tool.definition.input_schema))
    useful = isinstance(output, dict) and not is_uninformative(output)
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
        doc=(tool.definition.description or tool.summary).strip()[:_MAX_DOC],
    )
    return replace(spec, signature=signature(spec))


def with_unique_names(tools: Iterable[tuple[Tool, ToolSpec, Any]]) -> tuple[ToolSpec, ...]:
    """The descriptions, with names of their own where two tools of a module would share one."""
    taken: dict[str, set[str]] = {}
    found: dict[str, ToolSpec] = {}
    for tool, spec, output in sorted(tools, key=lambda one: one[0].tool_id):
        if tool.tool_id in found:
            continue
        names = taken.setdefault(spec.module, set())
        free = unused_name(spec.function, names)
        found[tool.tool_id] = spec if free == spec.function else describe_tool(tool, output, free)
    return tuple(found.values())
