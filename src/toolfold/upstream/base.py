"""What every kind of tool source looks like from above: open it, list its tools, call one, close it.

An upstream holds one connection at most and repairs nothing by itself: restarts and back-off belong to the pool. One
task owns the connection from opening to closing, whoever calls these methods.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Raw

from toolfold.types import Call, Listing, Outcome, ServerInfo, ServerSpec

OnProgress = Callable[[Raw], None]
"""Told the `params` of each progress notification that belongs to the call."""

OnInput = Callable[[str, Raw], Awaitable[Raw]]
"""Asked to answer what the server asks of the client during a call: `(method, params) -> result`, all raw JSON."""

OnChanged = Callable[[str], None]
"""Told the server's name when it says that its list of tools changed."""

OnClosed = Callable[[str, str], None]
"""Told `(server, reason)` when the connection ended and nobody had asked for it."""


class Upstream(Protocol):
    """A server of tools, of whatever kind."""

    @property
    def spec(self) -> ServerSpec: ...

    @property
    def pid(self) -> int | None:
        """The process it runs in, where it is one of ours."""

    async def open(self) -> ServerInfo:
        """Connects. Raises an `UpstreamError`; then nothing is left behind."""

    async def listing(self) -> Listing:
        """Reads all tools, every page."""

    async def call(
        self, call: Call, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Outcome:
        """Calls a tool. Cancelling the task cancels the call at the server."""

    async def aclose(self) -> None:
        """Ends the connection and every process behind it. Safe to call twice, and never raises."""
