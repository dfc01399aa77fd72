"""The innermost handler: hands a call to its server. A call that may have changed something is never repeated."""

from collections.abc import Awaitable, Callable

from toolfold.calls.pipeline import CallRequest, Handler
from toolfold.types import Call, Outcome
from toolfold.upstream.pool import Pool


def dispatcher(pool: Callable[[], Awaitable[Pool]]) -> Handler:
    """`pool` is asked for when the first call needs it."""
    servers: Pool | None = None

    def invoke(request: CallRequest) -> Awaitable[Outcome]:
        return _send(servers, request) if servers is not None else first(request)

    async def first(request: CallRequest) -> Outcome:
        nonlocal servers
        servers = await pool()
        return await _send(servers, request)

    return invoke


def _send(servers: Pool, request: CallRequest) -> Awaitable[Outcome]:
    call = Call(
        tool=request.tool.name,
        arguments=request.arguments,
        meta=request.meta,
        timeout_s=request.timeout_s,
        capabilities=request.capabilities,
        may_spill=not request.whole,
        inputs=request.inputs,
    )
    return servers.call(request.tool.server, call, on_progress=request.on_progress, on_input=request.on_input)
