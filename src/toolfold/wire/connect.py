"""Opening a connection: start or reach the server, find out its era, and leave nothing behind when that fails.

Above: `toolfold.upstream`. Below: `eras.py` and the transports.
"""

import asyncio
from collections import deque

from msgspec import Struct

from toolfold.errors import ServerClosed, ServerTimeout, ServerUnavailable, UpstreamError
from toolfold.types import Era
from toolfold.wire.connection import Connection
from toolfold.wire.dispatcher import Dispatcher
from toolfold.wire.negotiation import NegotiationPlan, negotiate
from toolfold.wire.stdio import STDERR_LINES, StdioTransport, stderr_suffix
from toolfold.wire.types import Handlers, HttpTarget, StdioTarget, Target, WireOptions

_DEFAULT_OPTIONS = WireOptions()
_DEFAULT_HANDLERS = Handlers()


async def connect(
    target: Target,
    *,
    options: WireOptions = _DEFAULT_OPTIONS,
    handlers: Handlers = _DEFAULT_HANDLERS,
    era: Era | None = None,
) -> Connection:
    """Opens a connection.

    `era` is what an earlier start found out; if it is not true any more, that is found out again. Raises
    `ServerUnavailable`, `ServerTimeout`, `ProtocolViolation` or `RemoteError`; then nothing is left behind.
    """
    last_words: deque[str] = deque(maxlen=STDERR_LINES)
    try:
        async with asyncio.timeout(options.start_timeout_s):
            if isinstance(target, HttpTarget):
                from toolfold.wire.http import open_http

                return await open_http(target, options, handlers, era)
            return await _open_stdio(_Start(target, options, handlers, last_words), era)
    except TimeoutError:
        raise ServerTimeout(
            f"the server was not ready within {options.start_timeout_s:g} seconds{stderr_suffix(last_words)}",
            hints=tuple(last_words),
            next_action="start it by hand to see what it waits for, or allow more time with `start_timeout_s`",
        ) from None


class _Start(Struct, frozen=True):
    """What starting a process needs, each time."""

    target: StdioTarget
    options: WireOptions
    handlers: Handlers
    last_words: deque[str]

    async def run(self, plan: NegotiationPlan) -> Connection:
        options = self.options
        self.last_words.clear()
        peer = Dispatcher(self.handlers, options.capabilities)
        connection = Connection(StdioTransport(self.target, options, peer, self.last_words), peer, options)
        try:
            await negotiate(connection, options, plan)
        except BaseException:
            await asyncio.shield(connection.abort())
            raise
        return connection


async def _open_stdio(start: _Start, era: Era | None) -> Connection:
    probe, patience = start.options.probe_timeout_s, start.options.start_timeout_s / 2
    try:
        return await start.run(NegotiationPlan(era != "legacy", era != "modern", probe, patience))
    except ServerClosed as error:
        if era == "legacy":
            raise _did_not_start(error) from error
    # It may be one of those that end when the first message is not the one they know: once more, without the probe.
    try:
        return await start.run(NegotiationPlan(False, True, probe, patience))
    except ServerClosed as error:
        raise _did_not_start(error) from error


def _did_not_start(error: UpstreamError) -> ServerUnavailable:
    return ServerUnavailable(
        error.message.replace("went away during", "ended before it was ready, during"),
        hints=error.hints,
        next_action="start it by hand with the same command, and see what it says",
    )
