"""Calling tools: the stack that a call goes through.

From the outside in: tell and keep what happens, authorise, check the arguments against the schema that `expand_tool`
shows, ask a person where the policy wants it, look at the result, bound the time, hand the call to its server.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from toolfold.calls import Handler, Request, checked, stack
from toolfold.calls.bounding import bounded
from toolfold.calls.checking import Checker
from toolfold.calls.invoking import invoked
from toolfold.errors import InvalidArguments
from toolfold.gateway.describing import Describer
from toolfold.gateway.governing import Governor
from toolfold.gateway.storing import StoredOutputs
from toolfold.types import Tool

if TYPE_CHECKING:
    from toolfold.upstream.pool import Pool

__all__ = ["Request", "call_stack", "encoded"]


def call_stack(
    pool: "Callable[[], Awaitable[Pool]]",
    describer: Describer,
    longest_s: float,
    governor: Governor,
    outputs: StoredOutputs,
) -> Handler:
    """The handler that every call of one gateway goes through."""
    outer, authorise, confirm = governor.wraps()
    storing, refer = outputs.wraps
    checks = checked([authorise, refer, Checker(), confirm])
    return stack(invoked(pool), [*outer, storing, checks, describer.wrap, bounded(longest_s)])


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
