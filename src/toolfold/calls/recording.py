"""Tells of each call: when it starts, and how it ended. Shapes and sizes, never values."""

import time

from toolfold.calls.stack import Handler, Request, Wrap
from toolfold.errors import ToolfoldError
from toolfold.events import Events
from toolfold.types import Outcome


def recorded(events: Events) -> Wrap:
    def wrap(handler: Handler) -> Handler:
        async def told(request: Request) -> Outcome:
            if not events.heard("call.started", "call.finished", "call.failed"):
                return await handler(request)
            tool = request.tool
            sent = len(memoryview(request.arguments))
            events.emit("call.started", tool_id=tool.tool_id, version=tool.version, argument_bytes=sent)
            started = time.perf_counter()
            try:
                outcome = await handler(request)
            except ToolfoldError as error:
                seconds = round(time.perf_counter() - started, 6)
                events.emit("call.failed", tool_id=tool.tool_id, seconds=seconds, code=error.code)
                raise
            events.emit(
                "call.finished",
                tool_id=tool.tool_id,
                seconds=round(time.perf_counter() - started, 6),
                is_error=outcome.is_error,
                result_bytes=len(memoryview(outcome.result)),
            )
            return outcome

        return told

    return wrap
