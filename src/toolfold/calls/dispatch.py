"""The end of the pipeline: hands a call to its server. A call that may have changed something is never repeated."""

from collections.abc import Awaitable, Callable

from toolfold.calls.pipeline import Handler
from toolfold.types import CallContext, Outcome, ToolCall
from toolfold.upstream.pool import Pool


def dispatcher(open_pool: Callable[[], Awaitable[Pool]], as_sent: Callable[[ToolCall], ToolCall]) -> Handler:
    """Sends calls to a pool of servers, which is opened by the first call that needs it."""
    pool: Pool | None = None

    def dispatch(call: ToolCall, context: CallContext) -> Awaitable[Outcome]:
        # The server's own coroutine is returned, not awaited: one coroutine less for every call.
        return pool.call(as_sent(call), context) if pool is not None else first(call, context)

    async def first(call: ToolCall, context: CallContext) -> Outcome:
        nonlocal pool
        pool = await open_pool()
        return await pool.call(as_sent(call), context)

    return dispatch
