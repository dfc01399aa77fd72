"""What every kind of tool source looks like from above: open it, list its tools, call one, close it.

An upstream holds one connection at most and repairs nothing by itself: restarts and back-off belong to the pool. One
task owns the connection from opening to closing, whoever calls these methods.
"""

from collections.abc import Callable
from typing import Protocol, cast

from msgspec import Raw, Struct

from toolfold.types import Call, Era, Listing, Outcome, ServerInfo, ServerSpec
from toolfold.wire.types import OnInput, OnProgress, WireOptions

__all__ = [
    "Hooks",
    "OnChanged",
    "OnClosed",
    "OnInput",
    "OnProgress",
    "PassthroughRequest",
    "PassthroughUpstream",
    "Upstream",
    "UpstreamFactory",
    "as_passthrough",
]

OnChanged = Callable[[str], None]
"""Told the server's name when it says that its list of tools changed."""

OnClosed = Callable[[str, str], None]
"""Told `(server, reason)` when the connection ended and nobody had asked for it."""


class Hooks(Struct, frozen=True, kw_only=True):
    """What whoever runs an upstream wants to be told by it, and what it knows from earlier."""

    on_changed: OnChanged | None = None
    on_closed: OnClosed | None = None
    on_log: Callable[[str, str], None] | None = None
    """Told `(server, line)` for each line that a server writes beside the protocol."""
    known_era: Era | None = None
    on_notification: Callable[[str, str, Raw], None] | None = None
    """Told `(server, method, params)` for each notification of an MCP server that belongs to no request."""
    remember_era: Callable[[str, Era], None] | None = None
    """Told `(server, era)` when a connection opened: the next start then needs no probe."""
    wire: WireOptions = WireOptions()


class Upstream(Protocol):
    """A server of tools, of whatever kind."""

    @property
    def spec(self) -> ServerSpec: ...

    @property
    def pid(self) -> int | None:
        """The process it runs in, where it is one of ours."""

    async def open(self) -> ServerInfo:
        """Connects. Raises an `UpstreamError`; then nothing is left behind. May be called again after `aclose`."""

    async def listing(self) -> Listing:
        """Reads all tools, every page."""

    async def call(
        self, call: Call, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Outcome:
        """Calls a tool. Cancelling the task cancels the call at the server."""

    async def aclose(self) -> None:
        """Ends the connection and every process behind it. Safe to call twice, and never raises."""


class PassthroughRequest(Struct, frozen=True, kw_only=True):
    """Any request to an MCP server that is passed on for a client. The fields are those of `Call`."""

    method: str
    params: Raw | None = None
    timeout_s: float | None = None
    capabilities: Raw | None = None
    inputs: Raw | None = None


class PassthroughUpstream(Protocol):
    """An upstream that speaks MCP itself, so that more than calls of tools can be passed on to it."""

    @property
    def passes_on(self) -> bool:
        """Whether it does so now."""

    @property
    def capabilities(self) -> Raw:
        """What the server declared."""

    @property
    def info(self) -> ServerInfo: ...

    async def request(
        self, question: PassthroughRequest, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Raw:
        """The server's `result`, undecoded."""

    async def notify(self, method: str, params: Raw) -> None: ...

    def subscribe(self, notifications: bytes, changed: tuple[str, ...]) -> Callable[[], None] | None:
        """Asks a modern server for these notifications; the result ends that. `None`: it tells them unasked."""


def as_passthrough(upstream: Upstream | None) -> PassthroughUpstream | None:
    """The upstream, where it speaks MCP itself."""
    return cast("PassthroughUpstream", upstream) if getattr(upstream, "passes_on", False) else None


UpstreamFactory = Callable[[ServerSpec, Hooks], Upstream]
"""Makes an upstream that is not open yet."""
