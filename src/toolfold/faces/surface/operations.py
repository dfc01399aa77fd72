"""What each operation of the discovery protocol does: arguments in, the gateway asked, the answer out.

One function for each name in `definitions.py`. The MCP surface and the HTTP face run the same ones, so that they can
not differ. It also keeps the rule "never call a tool without expanding it": a model whose arguments fail on a tool
that it never expanded is told so with the schema, and a strict configuration refuses the call at once.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from toolfold.errors import InvalidArguments, NotExpanded, ToolNotFound
from toolfold.faces.surface import arguments
from toolfold.faces.surface.base import SurfaceCall
from toolfold.faces.surface.definitions import BY_NAME
from toolfold.faces.surface.results import Answer, TextAndData, to_json
from toolfold.gateway import Gateway

MAX_SCHEMA_BYTES = 6_000
"""The largest schema that an error carries; of a larger one it names the keys."""

FOLDED = "result_schema is large and folded into result_fields; inspect_tool_output opens any part of it"


class Operations:
    """The operations of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._known: dict[str, Callable[[SurfaceCall], Coroutine[Any, Any, Answer]]] = {
            "list": self._list,
            "search_nodes": self._search_nodes,
            "search_tool_by_category": self._search_tools,
            "expand_tool": self._expand_tool,
            "call_tool": self._call_tool,
            "inspect_tool_output": self._inspect,
            "tool_output": self._tool_output,
            "run_script": self._run_script,
        }

    def run(self, ask: SurfaceCall) -> Coroutine[Any, Any, Answer]:
        """Runs one operation. Raises `ToolNotFound` for a name that is none, and what the gateway raises."""
        return self._known.get(ask.name, _unknown_operation)(ask)

    async def _list(self, ask: SurfaceCall) -> Answer:
        given = arguments.parse(arguments.List, ask.arguments)
        return await self._gateway.list(
            given.path, tags=given.tags, query=given.query, limit=given.limit, cursor=given.cursor, caller=ask.caller
        )

    async def _search_nodes(self, ask: SurfaceCall) -> Answer:
        given = arguments.parse(arguments.SearchNodes, ask.arguments)
        return await self._gateway.search_nodes(given.query, limit=given.limit, caller=ask.caller)

    async def _search_tools(self, ask: SurfaceCall) -> Answer:
        given = arguments.parse(arguments.SearchTools, ask.arguments)
        return await self._gateway.search_tool_by_category(
            given.query, given.category_path, limit=given.limit, cursor=given.cursor, caller=ask.caller
        )

    async def _expand_tool(self, ask: SurfaceCall) -> Answer:
        given = arguments.parse(arguments.ExpandTool, ask.arguments)
        answer = await self._gateway.expand_tool(given.tool_id, caller=ask.caller)
        if len(to_json(answer)) <= self._gateway.settings.limits.tool_response_max_bytes:
            return answer
        return TextAndData(answer, await self._fitting(to_json(await self._folded(answer, ask)), ask))

    async def _folded(self, answer: dict[str, Any], ask: SurfaceCall) -> dict[str, Any]:
        """A large tool for a model: what it returns is folded, since calling it needs only what it takes."""
        described = await self._gateway.descriptor(answer["tool_id"], caller=ask.caller)
        return {**answer, "result_schema": None, "result_fields": described["output_fields"], "note": FOLDED}

    async def _fitting(self, text: str, ask: SurfaceCall) -> str:
        given = bytes(ask.arguments).decode(errors="replace")
        return await self._gateway.outputs.fitting(text, tool_id=ask.name, arguments=given, caller=ask.caller)

    async def _inspect(self, ask: SurfaceCall) -> Answer:
        given = arguments.parse(arguments.InspectToolOutput, ask.arguments)
        return await self._gateway.inspect_tool_output(
            given.tool_id,
            given.field_path,
            max_depth=given.max_depth,
            max_fields=given.max_fields,
            caller=ask.caller,
        )

    async def _call_tool(self, ask: SurfaceCall) -> Answer:
        given = arguments.parse_call(ask.arguments)
        if self._gateway.settings.discovery.strict:
            await self._refuse_unexpanded(given.tool_id, ask)
        try:
            outcome = await self._gateway.call_tool(
                given.tool_id,
                given.args,
                expect_version=given.expect_version,
                caller=ask.caller,
                meta=ask.meta,
                on_progress=ask.on_progress,
                on_input=ask.on_input,
                capabilities=ask.capabilities,
            )
        except InvalidArguments as error:
            raise await self._taught(error, given.tool_id, ask) from None
        return outcome.result

    async def _refuse_unexpanded(self, tool_id: str, ask: SurfaceCall) -> None:
        tool = await self._gateway.governor.tool(tool_id, ask.caller)
        if not self._gateway.expansions.knows(ask.caller, tool.tool_id, tool.version):
            error = NotExpanded(
                f"{tool.tool_id} (version {tool.version}) was not expanded before this call",
                hints=[tool.tool_id],
                next_action=f"call expand_tool for {tool.tool_id}, read its args_schema, then call it",
            )
            self._gateway.governor.refused(ask.caller, tool.tool_id, error)
            raise error

    async def _taught(self, error: InvalidArguments, tool_id: str, ask: SurfaceCall) -> InvalidArguments:
        """The same error; to whoever never expanded the tool, with its schema and the advice to do so."""
        tool = await self._gateway.governor.tool(tool_id, ask.caller)
        if self._gateway.expansions.knows(ask.caller, tool.tool_id, tool.version):
            return error
        schema = msgspec.json.decode(tool.definition.input_schema)
        if len(memoryview(tool.definition.input_schema)) > MAX_SCHEMA_BYTES:
            schema = {key: schema[key] for key in ("type", "required") if key in schema} | {
                "properties": sorted(schema.get("properties", {}))[:100]
            }
        return InvalidArguments(
            error.message,
            hints=[*error.hints, {"args_schema": schema}],
            next_action=f"you did not expand this tool: call expand_tool for {tool.tool_id}, then {error.next_action}",
        )

    async def _tool_output(self, ask: SurfaceCall) -> Answer:
        given = arguments.parse(arguments.ToolOutput, ask.arguments)
        return await self._gateway.tool_output(given.handle, given.extract, mode=given.mode, caller=ask.caller)

    async def _run_script(self, ask: SurfaceCall) -> Answer:
        given = arguments.parse(arguments.RunScript, ask.arguments)
        result = await self._gateway.run_script(
            given.code, caller=ask.caller, on_input=ask.on_input, capabilities=ask.capabilities
        )
        from toolfold.scripts.runner import reports

        return TextAndData(reports.as_dict(result), await self._fitting(reports.as_text(result), ask), not result.ok)


async def _unknown_operation(ask: SurfaceCall) -> Answer:
    raise ToolNotFound(
        f"there is no operation {ask.name[:100]!r}",
        hints=list(BY_NAME),
        next_action="use one of the operations in hints; call a tool of the catalogue through call_tool",
    )
