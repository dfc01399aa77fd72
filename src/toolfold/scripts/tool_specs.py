"""Tools of the catalogue as a script sees them: typed functions of a module. Specs are cached by fingerprint.

Above: `runner.py`. Below: `models_from_schema.py`, `identifiers.py`, `stubs.py`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from toolfold.containers import BoundedDict
from toolfold.disclosure.observed import decode_schema, is_uninformative, observed_calls
from toolfold.scripts.identifiers import identifier, pascal_case, unused_name
from toolfold.scripts.models_from_schema import ModelBuilder
from toolfold.scripts.stubs import signature
from toolfold.scripts.values import ToolSpec
from toolfold.types import Tool

_MAX_SPECS = 512
_MAX_DOC = 2_000


class SpecCache:
    """Describes tools and caches the latest specs."""

    def __init__(self) -> None:
        self._specs: BoundedDict[tuple[str, str, int], ToolSpec] = BoundedDict(_MAX_SPECS)

    def describe_all(self, tools: Iterable[tuple[Tool, Any]]) -> tuple[ToolSpec, ...]:
        """Describes different tools, with names of their own where two of a module would share one.

        Each comes with the schema of its results, declared or observed; `None` where nothing is known.
        """
        taken: dict[str, set[str]] = {}
        specs: list[ToolSpec] = []
        # By their ids, so that the same tools get the same names whatever order a script asks for them in.
        for tool, output in sorted(tools, key=lambda pair: pair[0].tool_id):
            spec = self._describe(tool, output)
            free = unused_name(spec.function, taken.setdefault(spec.module, set()))
            specs.append(spec if free == spec.function else _describe_tool(tool, output, free))
        return tuple(specs)

    def _describe(self, tool: Tool, output: Any) -> ToolSpec:
        key = (tool.tool_id, tool.fingerprint, hash(msgspec.json.encode(output)))
        if key not in self._specs:
            self._specs[key] = _describe_tool(tool, output)
        return self._specs[key]


def _describe_tool(tool: Tool, output: Any, function: str = "") -> ToolSpec:
    name = function or identifier(tool.name)
    builder = ModelBuilder(pascal_case(name))
    params = builder.parameters(decode_schema(tool.definition.input_schema))
    useful = isinstance(output, dict) and not is_uninformative(output)
    result = builder.result(output) if useful else None
    spec = ToolSpec(
        tool_id=tool.tool_id,
        module=identifier(tool.server, "server"),
        function=name,
        params=params,
        models=tuple(builder.models),
        result=result,
        seen=observed_calls(output) or 0,
        fingerprint=tool.fingerprint,
        doc=(tool.definition.description or tool.summary).strip()[:_MAX_DOC],
    )
    return replace(spec, signature=signature(spec))
