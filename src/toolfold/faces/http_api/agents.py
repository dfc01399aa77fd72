"""`POST /v1/agents/runs`: runs an agent and tells each of its events as it happens, as server-sent events.

The last event is `report`. A client that goes away ends the run, as it ends any call.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import InvalidArguments, ToolfoldError
from toolfold.gateway import Gateway
from toolfold.types import Caller
from toolfold.wire.jsonrpc import DECODE_ERRORS

if TYPE_CHECKING:
    from starlette.responses import Response

REPORT = "report"


class _RunRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of the request."""

    task: str
    agent: str = ""


async def stream_run(gateway: Gateway, caller: Caller, body: Raw) -> "Response":
    """The stream of a run. What is wrong with the request is told before it begins."""
    from starlette.responses import StreamingResponse

    try:
        wanted = msgspec.json.decode(body, type=_RunRequest)
    except DECODE_ERRORS as error:
        raise InvalidArguments(
            f"the request cannot be read: {error}", next_action='send {"task": "…"} and, if you like, "agent"'
        ) from error
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    agent = gateway.agent(wanted.agent, caller=caller, listener=events.put_nowait)
    agent.check()
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(
        _events(asyncio.ensure_future(agent.run(wanted.task)), events), media_type="text/event-stream", headers=headers
    )


async def _events(run: "asyncio.Task[Any]", events: "asyncio.Queue[dict[str, Any]]") -> AsyncIterator[bytes]:
    waiting: asyncio.Task[dict[str, Any]] | None = None
    try:
        while not (run.done() and events.empty()):
            waiting = waiting or asyncio.ensure_future(events.get())
            await asyncio.wait((run, waiting), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                event, waiting = waiting.result(), None
                yield _line(event["event"], event)
        yield _line(REPORT, await _report(run))
    finally:
        for task in (run, waiting):
            if task is not None:
                task.cancel()
        await asyncio.gather(run, *(() if waiting is None else (waiting,)), return_exceptions=True)


async def _report(run: "asyncio.Task[Any]") -> dict[str, Any]:
    try:
        report: dict[str, Any] = (await run).as_dict()
    except ToolfoldError as error:
        return {"error": error.as_dict()}
    return report


def _line(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data, enc_hook=str))
