"""The stdio transport: one server process, one message a line.

Above: `connect.py` and `connection.py`. Below: `process.py`, `pipes.py`.
"""

import asyncio
import logging
from collections import deque

from toolfold.errors import ServerClosed, UpstreamError
from toolfold.wire import jsonrpc
from toolfold.wire.dispatcher import Dispatcher, PendingRequest
from toolfold.wire.pipes import LineFramer, PipeReader, PipeWriter, enlarge_pipe
from toolfold.wire.process import ServerProcess
from toolfold.wire.repair import shorten
from toolfold.wire.spill import Edges, Spill, SpillPolicy
from toolfold.wire.transport import RequestHead, Transport
from toolfold.wire.types import StdioTarget, WireOptions

log = logging.getLogger("toolfold.wire")

STDERR_LINES = 12
_STDERR_LINE_BYTES = 4096
# How long the exit code is waited for after the output ended, to tell a better reason.
_EXIT_WAIT_S = 0.2


class StdioTransport(Transport):
    """Owns the process and its three pipes from the start to the end."""

    def __init__(
        self, target: StdioTarget, options: WireOptions, dispatcher: Dispatcher, last_words: deque[str]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._dispatcher = dispatcher
        self._grace = options.close_grace_s
        self._limit = options.max_frame_bytes
        self._last_words = last_words
        self._closing: asyncio.Task[None] | None = None
        self._killed = False
        self._process = ServerProcess(target, self._exited)
        self._writer = PipeWriter(self._process.stdin, self._output_ended)
        self._lines = LineFramer(
            self._limit, self._line, self._oversized, policy=SpillPolicy.of(options), on_spilled=self._spilled
        )
        enlarge_pipe(self._process.stdout)
        self._stdout = PipeReader(self._process.stdout, self._lines.feed, self._output_ended)
        self._errors = LineFramer(_STDERR_LINE_BYTES, self._error_line, self._long_error_line)
        self._stderr = PipeReader(self._process.stderr, self._errors.feed, self._last_error_line)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def congested(self) -> bool:
        return self._writer.congested

    def start(self, pending: PendingRequest, message: bytes, head: RequestHead) -> None:
        self._writer.write(message + b"\n")

    def post(self, message: bytes, /) -> None:
        self._writer.write(message + b"\n")

    async def drain(self) -> None:
        await self._writer.drain()

    def _line(self, line: bytes) -> None:
        try:
            self._dispatcher.receive(line, self.post)
        except Exception:
            log.exception("a message of a server could not be handled")

    def _last_line(self) -> None:
        """A line that the end cut off is no answer; a whole one that only lacks its newline is."""
        # Some servers end without the last newline.
        rest, spill = self._lines.rest(), self._lines.rest_spilled()
        if spill is not None and spill.tail.rstrip().endswith(b"}"):
            self._spilled(spill)
        elif spill is not None:
            spill.close()
        try:
            jsonrpc.parse_envelope(rest)
        except jsonrpc.DECODE_ERRORS:
            return
        self._line(rest)

    def _last_error_line(self) -> None:
        self._error_line(self._errors.rest())

    def _oversized(self, edges: Edges) -> None:
        self._dispatcher.oversized(edges, self._limit)

    def _spilled(self, spill: Spill) -> None:
        try:
            self._dispatcher.spilled(spill, self.post)
        except Exception:
            log.exception("a large message of a server could not be handled")

    def _error_line(self, line: bytes) -> None:
        text = shorten(line)
        if text:
            # A line of a traceback that says where, and not what, is told apart by the space before it.
            is_frame = line[:1].isspace() or text.startswith("Traceback (")
            self._last_words.append(f" {text}" if is_frame else text)
            self._dispatcher.notify(self._dispatcher.handlers.on_stderr, line.decode("utf-8", "replace").rstrip("\r"))

    def _long_error_line(self, edges: Edges) -> None:
        self._error_line(edges.head)

    def _output_ended(self) -> None:
        self._last_line()
        # The exit code comes a moment later and is the better reason.
        self._loop.call_later(_EXIT_WAIT_S, self._lost, "it closed its output")

    def _exited(self) -> None:
        self._stdout.drain()
        self._stderr.drain()
        self._last_line()
        self._last_error_line()
        self._lost(_exit_reason(self._process.returncode))

    def _lost(self, reason: str) -> None:
        if self._dispatcher.closed is None:
            self._dispatcher.lose(reason, self.closed_error)
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())

    def closed_error(self, doing: str) -> UpstreamError:
        """What to raise for a request that the end of the server cut off."""
        return ServerClosed(
            f"the server went away during {doing}: {self._dispatcher.closed}{stderr_suffix(self._last_words)}",
            hints=_said(self._last_words),
            next_action="look at its last words, then call again: it is started anew",
        )

    def kill(self) -> None:
        self._killed = True
        self._process.kill()

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        try:
            await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            self.kill()
            raise

    async def _close(self) -> None:
        self._writer.close()
        try:
            await self._process.end(self._grace)
        finally:
            self._stdout.close()
            self._stderr.close()


def stderr_suffix(last_words: deque[str]) -> str:
    return "; its last words: " + " | ".join(_said(last_words)) if last_words else ""


def _said(last_words: deque[str]) -> tuple[str, ...]:
    """What a server said last: of a traceback the reason alone, since the whole of it is in its log."""
    return tuple(text for text in last_words if text[0] != " ") or tuple(text.strip() for text in last_words)


def _exit_reason(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        return f"it was ended by signal {-returncode}"
    return f"it ended with exit code {returncode}"
