"""The innermost handler: hands a call to its server. A call that may have changed something is never repeated."""

from collections.abc import Awaitable, Callable

from toolfold.calls.stack import Handler, Request
from toolfold.types import Call, Outcome
from toolfold.upstream.pool import Pool


def invoked(pool: Callable[[], Awaitable[Pool]]) -> Handler:
    """`pool` is asked for when the first call needs it."""

    async def invoke(request: Request) -> Outcome:
        call = Call(
            tool=request.tool.name,
            arguments=request.arguments,
            meta=request.meta,
            timeout_s=request.timeout_s,
            capabilities=request.capabilities,
            may_spill=request.may_spill,
            inputs=request.inputs,
        )
        servers = await pool()
        return await servers.call(request.tool.server, call, on_progress=request.on_progress, on_input=request.on_input)

    return invoke
