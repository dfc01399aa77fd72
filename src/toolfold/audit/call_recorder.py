"""Tells of every call that begins and ends: events at once, and what is recorded a moment later. It keeps nothing."""

import asyncio
from collections.abc import Callable

from toolfold.calls import CallEnd, CallObserver
from toolfold.events import Events
from toolfold.types import CallContext, ToolCall


class CallRecorder(CallObserver):
    """Emits events at once, and notifies `listeners` a moment later, when whoever waits for the outcome has it.
    `on_end` hears at once."""

    def __init__(
        self, events: Events, on_end: Callable[[CallContext], None], *listeners: Callable[[CallEnd], None]
    ) -> None:
        self._listeners = listeners
        self._events = events
        self._on_end = on_end
        self._pending: list[CallEnd] = []

    def settle(self) -> None:
        """Delivers what is pending. For whoever is about to read what the listeners keep."""
        pending, self._pending = self._pending, []
        for end in pending:
            for notify in self._listeners:
                notify(end)

    def started(self, call: ToolCall) -> None:
        if self._events.has_listeners("call.started"):
            size = len(memoryview(call.arguments))
            self._events.emit("call.started", tool_id=call.tool.tool_id, version=call.tool.version, argument_bytes=size)

    def record(self, end: CallEnd) -> None:
        # The answer must not wait for the records: they are made in the loop's next turn, many at once under load.
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.settle)
        self._pending.append(end)

    def ended(self, end: CallEnd) -> None:
        self._on_end(end.context)
        self.record(end)
        if self._events.has_listeners("call.finished", "call.failed"):
            self._emit(end)

    def _emit(self, end: CallEnd) -> None:
        tool = end.call.tool
        about = {"server": tool.server, "tool_id": tool.tool_id, "seconds": round(end.seconds, 6)}
        if end.outcome is None:
            self._events.emit("call.failed", **about, code=end.code)
            return
        size = len(memoryview(end.outcome.raw))
        self._events.emit("call.finished", **about, is_error=end.outcome.is_error, result_bytes=size)
