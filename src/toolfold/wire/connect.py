"""Opens a connection: starts or reaches the server, negotiates its era, and leaves nothing behind when that fails.

Above: `toolfold.upstream`. Below: `negotiation.py` and the transports.
"""

import asyncio
from collections import deque

from toolfold.errors import ServerClosed, ServerTimeout, ServerUnavailable
from toolfold.types import Era
from toolfold.wire.connection import Connection
from toolfold.wire.dispatcher import Dispatcher
from toolfold.wire.negotiation import NegotiationPlan, negotiate
from toolfold.wire.stdio import STDERR_LINES, StdioTransport, _said, stderr_suffix
from toolfold.wire.types import Handlers, HttpTarget, StdioTarget, Target, WireOptions

__all__ = ["connect"]

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

    `era` is what an earlier connection negotiated; where it is no longer true, it is negotiated again. Raises
    `ServerUnavailable`, `ServerTimeout`, `ProtocolViolation` or `RemoteError`; then nothing is left behind.
    """
    # Shared by both starts, so that an error can quote what the server wrote to stderr.
    last_words: deque[str] = deque(maxlen=STDERR_LINES)
    try:
        async with asyncio.timeout(options.start_timeout_s):
            if isinstance(target, HttpTarget):
                from toolfold.wire.http import open_http

                return await open_http(target, options, handlers, era)
            return await _open_stdio(target, options, handlers, era, last_words)
    except TimeoutError:
        raise ServerTimeout(
            f"the server was not ready within {options.start_timeout_s:g} seconds"
            f"{stderr_suffix(last_words) or ' and wrote nothing about it'}",
            hints=_said(last_words),
            next_action="start it by hand to see what it waits for, allow more time with `start_timeout_s`, or give it "
            "a variable that it lacks with `inherit_env`",
        ) from None


async def _open_stdio(
    target: StdioTarget, options: WireOptions, handlers: Handlers, era: Era | None, last_words: deque[str]
) -> Connection:
    patience = options.start_timeout_s / 2
    # Some servers end when the first message is not the one they know: once more, without the probe.
    for probes in (False,) if era == "legacy" else (True, False):
        last_words.clear()
        dispatcher = Dispatcher(handlers, options.capabilities)
        transport = StdioTransport(target, options, dispatcher, last_words)
        plan = NegotiationPlan(probes, not probes or era != "modern", options.probe_timeout_s, patience)
        try:
            return await negotiate(Connection(transport, dispatcher, options), options, plan)
        except ServerClosed as error:
            closed = error
    raise ServerUnavailable(
        closed.message.replace("went away during", "ended before it was ready, during"),
        hints=closed.hints,
        next_action="start it by hand with the same command, and see what it says",
    ) from closed
