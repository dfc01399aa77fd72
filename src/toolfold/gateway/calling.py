"""Calling tools: the stack that a call goes through.

From the outside in: tell and keep what happens, authorise, check the arguments against the schema that `expand_tool`
shows, ask a person where the policy wants it, look at the result, bound the time, hand the call to its server.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from toolfold.calls import Handler, Request, stack
from toolfold.calls.bounding import bounded
from toolfold.calls.checking import Checker
from toolfold.calls.invoking import invoked
from toolfold.calls.recording import recorded
from toolfold.errors import InvalidArguments, ToolChanged
from toolfold.events import Events
from toolfold.gateway.describing import Describer
from toolfold.gateway.governing import Governor
from toolfold.gateway.storing import StoredOutputs
from toolfold.types import Outcome, Tool

if TYPE_CHECKING:
    from toolfold.upstream.pool import Pool


class CallStack:
    """The stack of handlers around the servers of one gateway."""

    def __init__(
        self,
        pool: "Callable[[], Awaitable[Pool]]",
        describer: Describer,
        events: Events,
        longest_s: float,
        governor: Governor,
        *,
        outputs: StoredOutputs,
    ) -> None:
        outer, authorised, confirmed = governor.wraps()
        storing, referring = outputs.wraps
        wraps = [
            recorded(events),
            *outer,
            storing,
            authorised,
            referring,
            Checker().wrap,
            confirmed,
            describer.wrap,
            bounded(longest_s),
        ]
        self._handler: Handler = stack(invoked(pool), wraps)

    async def call(self, request: Request, *, expect_version: int | None = None) -> Outcome:
        tool = request.tool
        if expect_version is not None and expect_version != tool.version:
            raise ToolChanged(
                f"{tool.tool_id} changed since it was expanded: version {expect_version} is now {tool.version}",
                next_action=f"call expand_tool for {tool.tool_id} again, and use the schema it shows now",
            )
        return await self._handler(request)


def encoded(tool: Tool, arguments: Mapping[str, Any] | Raw) -> Raw:
    """The arguments as the JSON that is checked and sent."""
    if isinstance(arguments, Raw):
        return arguments
    try:
        return Raw(msgspec.json.encode(dict(arguments)))
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} cannot be written as JSON: {error}",
            next_action="give plain JSON values: strings, numbers, booleans, null, lists and objects",
        ) from error
