"""Refuses calls of tools that their caller may not use, whoever built the call and however the tool was found."""

from collections.abc import Awaitable, Callable

from toolfold.calls.pipeline import Check
from toolfold.disclosure.describer import Describer
from toolfold.policy.view import CatalogueView
from toolfold.types import CallContext, Caller, ToolCall


def authorize(view_of: Callable[[Caller], CatalogueView], describer: Describer) -> Check:
    """The check that looks the tool up once more in its caller's own view of the catalogue."""

    async def look_up(view: CatalogueView, call: ToolCall) -> ToolCall:
        await describer.tool(view, call.tool.tool_id)
        return call

    def check(call: ToolCall, context: CallContext) -> Awaitable[ToolCall] | None:
        view = view_of(context.caller)
        return None if view.unrestricted else look_up(view, call)

    return check
