"""Tells of each call, when it starts and how it ended, however that was: to those who keep it, and as events.

Whoever is told judges what to keep of it; events hold shapes and sizes, never values.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from toolfold.calls.pipeline import CallRequest, Handler
from toolfold.errors import INTERNAL_ERROR, ToolfoldError
from toolfold.events import Events
from toolfold.types import Outcome

_CANCELLED = "CANCELLED"


class CallEnd(Struct, frozen=True):
    """A call that is over: with an outcome, or with the code and text of what went wrong."""

    request: CallRequest
    at: float
    seconds: float
    outcome: Outcome | None = None
    code: str = ""
    message: str = ""


CallObserver = Callable[[CallEnd], None]


class AuditMiddleware:
    """Tells events at once, and the tellers a moment later, when whoever waits for the outcome has it."""

    def __init__(self, tellers: Sequence[CallObserver], events: Events) -> None:
        self._tellers = tellers
        self._events = events
        self._ended: list[CallEnd] = []

    def settle(self) -> None:
        """Tells what is not told yet. For whoever is about to read what was told."""
        ended, self._ended = self._ended, []
        for one in ended:
            for tell in self._tellers:
                tell(one)

    def _over(self, ended: CallEnd) -> None:
        if not self._ended:
            asyncio.get_running_loop().call_soon(self.settle)
        self._ended.append(ended)
        if self._events.heard("call.finished", "call.failed"):
            _emit_end(self._events, ended)

    def wrap(self, handler: Handler) -> Handler:
        async def told(request: CallRequest) -> Outcome:
            if self._events.heard("call.started"):
                _emit_start(self._events, request)
            started = time.perf_counter()
            outcome: Outcome | None = None
            code, message = INTERNAL_ERROR, "something went wrong that has no name"
            try:
                outcome = await handler(request)
                code = message = ""
            except ToolfoldError as error:
                code, message = error.code, error.message
                raise
            except asyncio.CancelledError:
                code, message = _CANCELLED, ""
                raise
            finally:
                seconds = time.perf_counter() - started
                self._over(CallEnd(request, time.time() - seconds, seconds, outcome, code, message))
            return outcome

        return told


def _emit_start(events: Events, request: CallRequest) -> None:
    tool, sent = request.tool, len(memoryview(request.arguments))
    events.emit("call.started", tool_id=tool.tool_id, version=tool.version, argument_bytes=sent)


def _emit_end(events: Events, ended: CallEnd) -> None:
    tool_id, seconds = ended.request.tool.tool_id, round(ended.seconds, 6)
    if ended.outcome is None:
        events.emit("call.failed", tool_id=tool_id, seconds=seconds, code=ended.code)
        return
    size = len(memoryview(ended.outcome.result))
    events.emit("call.finished", tool_id=tool_id, seconds=seconds, is_error=ended.outcome.is_error, result_bytes=size)
