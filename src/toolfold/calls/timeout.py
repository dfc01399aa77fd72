"""A hard limit on the time of a call, whatever progress its server reports."""

import asyncio

from toolfold.calls.pipeline import CallRequest, Handler, Middleware
from toolfold.errors import ServerTimeout
from toolfold.types import Outcome
from toolfold.wire.deadlines import Deadlines


def _timeout_error(request: CallRequest, limit: float) -> ServerTimeout:
    return ServerTimeout(
        f"{request.tool.tool_id} did not answer within {limit:g} s",
        server=request.tool.server,
        next_action="ask it for less, or raise call_timeout_s; it may have done its work all the same",
    )


def time_limit(seconds: float) -> Middleware:
    """Ends a call after its own time-out, or after `seconds` where it names none; never later than that."""
    deadlines = Deadlines()

    def wrap(handler: Handler) -> Handler:
        async def timed(request: CallRequest) -> Outcome:
            limit = min(seconds, request.timeout_s or seconds)
            task = asyncio.current_task()
            if task is None:
                return await handler(request)
            expired = False

            def expire() -> None:
                nonlocal expired
                expired = True
                task.cancel()

            # What `asyncio.timeout` does, at a tenth of its cost: every call goes through here.
            deadline = deadlines.start(limit, expire)
            try:
                return await handler(request)
            except asyncio.CancelledError:
                if not expired or task.uncancel() > 0:
                    raise
                raise _timeout_error(request, limit) from None
            finally:
                deadline.stop()

        return timed

    return wrap
