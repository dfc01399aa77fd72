"""A hard limit on the time of a call, whatever progress its server reports."""

import asyncio

from toolfold.calls.stack import Handler, Request, Wrap
from toolfold.errors import ServerTimeout
from toolfold.types import Outcome


def bounded(seconds: float) -> Wrap:
    """Ends a call after its own time-out, or after `seconds` where it names none; never later than that."""

    def wrap(handler: Handler) -> Handler:
        async def timed(request: Request) -> Outcome:
            limit = min(seconds, request.timeout_s or seconds)
            try:
                async with asyncio.timeout(limit):
                    return await handler(request)
            except TimeoutError:
                raise ServerTimeout(
                    f"{request.tool.tool_id} did not answer within {limit:g} s",
                    server=request.tool.server,
                    next_action="ask it for less, or raise call_timeout_s; it may have done its work all the same",
                ) from None

        return timed

    return wrap
