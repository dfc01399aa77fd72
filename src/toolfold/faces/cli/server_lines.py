"""What servers that take long to start write to standard error, shown to a person while they are waited for."""

import asyncio
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

from toolfold.events import Event
from toolfold.faces.cli.terminal import Output, fit, safe
from toolfold.gateway import Gateway

# A server that is ready by then has nothing to explain.
SLOW_S = 3.0
KEPT_LINES = 3
SHOWN_LINES = 20
# How servers of the older SDK refuse the question whether they speak the newer protocol: it is ours, and no trouble.
_PROBE = re.compile(
    r"Failed to validate request: \d+ validation error|^\w+Request\.[\w.]+$|input_value='server/discover'"
    r"|^\s+For further information visit https://errors\.pydantic|^\s+Input should be |^\s+Field required "
    r"|Message that failed validation: method='server/discover'"
)


class _Lines:
    """The lines of servers that are not done yet: kept until it took long, then shown as they come."""

    def __init__(self, width: int, slow_s: float) -> None:
        self.done: set[str] = set()
        self._width = width
        self._slow_at = time.monotonic() + slow_s
        self._kept: dict[str, deque[str]] = {}
        self._shown: Counter[str] = Counter()

    def take(self, name: str, line: str) -> None:
        if _PROBE.search(line):
            return
        if time.monotonic() < self._slow_at:
            self._kept.setdefault(name, deque(maxlen=KEPT_LINES)).append(line)
        else:
            self._show(name, line)

    def show_kept(self) -> None:
        for name, lines in self._kept.items():
            for line in lines:
                self._show(name, line)

    def _show(self, name: str, line: str) -> None:
        self._shown[name] += 1
        if name not in self.done and self._shown[name] <= SHOWN_LINES:
            # Not `output.err`: a progress bar puts itself before the stream of this name, and stays below the line.
            sys.stderr.write(fit(safe(f"  {name}: {line}"), self._width) + "\n")

    def finish(self, event: Event) -> None:
        self.done.add(event.data["server"])


@contextmanager
def server_lines(gateway: Gateway, output: Output, slow_s: float = SLOW_S) -> Iterator[None]:
    """Inside, the lines of servers that are not ready after `slow_s` are shown. Enter it before the first is opened."""
    if output.as_json:
        yield
        return
    lines = _Lines(output.width, slow_s)
    upstreams = gateway.upstreams
    kept = upstreams.on_log

    def take(name: str, line: str) -> None:
        if kept is not None:
            kept(name, line)  # it goes where it went before, too: into the files that `toolfold logs` reads
        lines.take(name, line)

    upstreams.on_log = take
    stops = [gateway.events.subscribe(lines.finish, only=f"upstream.{end}") for end in ("listed", "failed")]
    timer = asyncio.get_running_loop().call_later(slow_s, lines.show_kept)
    try:
        yield
    finally:
        timer.cancel()
        for stop in stops:
            stop()
        upstreams.on_log = kept
        lines.done.update(upstreams.names)  # a pool that is open keeps the listener it was given
