"""Answers calls of the toolbox's own tool, the inspector of output schemas, without any server."""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw

from toolfold.calls.pipeline import Check
from toolfold.disclosure.describer import Describer
from toolfold.disclosure.inspector_tool import TOOLBOX
from toolfold.policy.view import CatalogueView
from toolfold.types import CallContext, Caller, Outcome, ToolCall


def answer_toolbox(view_of: Callable[[Caller], CatalogueView], describer: Describer) -> Check:
    """The check that answers such calls itself; it stands last, where the arguments are known to be valid."""

    async def inspect(view: CatalogueView, call: ToolCall) -> Outcome:
        arguments = {"field_path": "", "max_depth": 4, "max_fields": 120, **msgspec.json.decode(call.arguments)}
        answer = await describer.inspect(
            view, arguments["tool_id"], arguments["field_path"], arguments["max_depth"], arguments["max_fields"]
        )
        text = msgspec.json.encode(answer).decode()
        result = {"content": [{"type": "text", "text": text}], "structuredContent": answer}
        return Outcome(result=Raw(msgspec.json.encode(result)))

    def check(call: ToolCall, context: CallContext) -> Awaitable[Outcome] | None:
        return inspect(view_of(context.caller), call) if call.tool.server == TOOLBOX else None

    return check
