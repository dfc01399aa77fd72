"""Calling tools: the stack that a call goes through.

From the outside in: tell and keep what happens, authorise, check the arguments against the schema that `expand_tool`
shows, ask a person where the policy wants it, look at the result, bound the time, hand the call to its server.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from toolfold.calls import CallRequest, Handler, compose, run_checks
from toolfold.calls.dispatch import dispatcher
from toolfold.calls.timeout import time_limit
from toolfold.calls.validate import ArgumentValidator
from toolfold.disclosure.describer import Describer
from toolfold.errors import InvalidArguments
from toolfold.outputs.service import OutputService
from toolfold.policy.access import Governor
from toolfold.types import Tool

if TYPE_CHECKING:
    from toolfold.upstream.pool import Pool

__all__ = ["CallRequest", "call_stack", "encoded"]


def call_stack(
    pool: "Callable[[], Awaitable[Pool]]",
    describer: Describer,
    longest_s: float,
    governor: Governor,
    outputs: OutputService,
) -> Handler:
    """The handler that every call of one gateway goes through."""
    outer, authorise, confirm = governor.wraps()
    storing, refer = outputs.wraps
    checks = run_checks([authorise, refer, ArgumentValidator(), confirm])
    return compose(dispatcher(pool), [*outer, storing, checks, describer.wrap, time_limit(longest_s)])


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
