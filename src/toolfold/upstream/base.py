"""The contract of every source of tools: open it, list its tools, call one, close it.

An upstream holds one connection at most and repairs nothing by itself: restarts and back-off belong to the pool. One
task owns the connection from opening to closing, whoever calls these methods.
"""

import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct

from toolfold.config import MetadataRule
from toolfold.storage.base import ServerRecord
from toolfold.types import (
    CallContext,
    Change,
    Era,
    Listing,
    OnInput,
    OnProgress,
    Outcome,
    ServerInfo,
    ServerSpec,
    ToolCall,
)
from toolfold.wire.types import WireOptions

if TYPE_CHECKING:
    from toolfold.auth.vault import Vault

# Why a connection ended that its server would still answer, had anybody signed in: it is not opened again by itself.
SIGN_IN_ENDED = "its sign-in has ended"

# Called with the server's name when it says that its list of tools changed.
OnChanged = Callable[[str], None]


class Hooks(Struct, frozen=True, kw_only=True):
    """What an upstream reports to whoever runs it, and what is known of its server from earlier."""

    on_changed: OnChanged | None = None
    on_closed: Callable[[str, str], None] | None = None
    """Called with `(server, reason)` when the connection ended and nobody had asked for it."""
    on_log: Callable[[str, str], None] | None = None
    """Called with `(server, line)` for each line that a server writes beside the protocol."""
    known_era: Era | None = None
    on_notification: Callable[[str, str, Raw], None] | None = None
    """Called with `(server, method, params)` for each notification of an MCP server that belongs to no request."""
    remember_era: Callable[[str, Era], None] | None = None
    """Called with `(server, era)` when a connection opened: the next start then needs no probe."""
    caller: str = ""
    """Whose credential goes with every request; empty: the one that all callers share."""
    wire: WireOptions = WireOptions()
    vault: "Vault | None" = None
    """Where sign-ins are kept; without it a server that wants one is refused like any other."""


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

    def call(self, call: ToolCall, context: CallContext) -> Coroutine[Any, Any, Outcome]:
        """Calls a tool. Cancelling the task cancels the call at the server.

        With `context.timeout_s` whoever calls enforces the time; without it, the server's own time-out holds.
        """

    async def aclose(self) -> None:
        """Ends the connection and every process behind it. Safe to call twice, and never raises."""


# Makes an upstream that is not open yet.
UpstreamFactory = Callable[[ServerSpec, Hooks], Upstream]


def call_timeout(spec: ServerSpec, context: CallContext, default_s: float) -> float | None:
    """The seconds that an upstream bounds a call to; `None` where the caller enforces the time."""
    if context.timeout_s is not None:
        return None
    return default_s if spec.call_timeout_s is None else spec.call_timeout_s


def file_stamp(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """What differs once a file was written anew; nothing where there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - every call asks, and a Path costs more than the question
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


class PassthroughRequest(Struct, frozen=True, kw_only=True):
    """Any request to an MCP server that is passed on for a client. The fields mean what they do in `CallContext`."""

    method: str
    params: Raw | None = None
    capabilities: Raw | None = None
    inputs: Raw | None = None


class PassthroughUpstream(Protocol):
    """An open upstream that speaks MCP itself, so that more than calls of tools can be passed on to it."""

    @property
    def capabilities(self) -> Raw:
        """What the server declared."""

    @property
    def info(self) -> ServerInfo: ...

    async def request(
        self, request: PassthroughRequest, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Raw:
        """The server's `result`, undecoded."""

    async def notify(self, method: str, params: Raw) -> None: ...

    def subscribe(self, notifications: bytes, changed: tuple[str, ...]) -> Callable[[], None] | None:
        """Subscribes to these notifications of a modern server; the result ends that. `None`: they come unasked."""


def as_passthrough(upstream: Upstream | None) -> PassthroughUpstream | None:
    """The connection behind an upstream that requests can be passed on to; `None` where it speaks no MCP."""
    passthrough: PassthroughUpstream | None = getattr(upstream, "passthrough", None)
    return passthrough


class _Written(Protocol):
    """What a write tells."""

    @property
    def changes(self) -> Sequence[Change]:
        """The tools that came, went or changed."""


class _Catalogue(Protocol):
    """What a refresh needs of the catalogue."""

    async def servers(self) -> Sequence[ServerRecord]:
        """Each server as it was last read."""

    async def generations(self) -> Sequence[object]:
        """The builds that are kept; none before the first."""

    async def news(self) -> Mapping[str, int]:
        """Of each server how many of its tools others changed since this was last asked."""

    async def holds(self, listing: Listing) -> bool:
        """Whether this is what it has of a server already."""

    async def write_registry(self, path: FilePath) -> object:
        """Writes the file of all tools for others to read."""

    async def update_server(self, listing: Listing) -> _Written:
        """Takes in the tools of one server."""

    async def remove_servers(self, names: Collection[str]) -> object:
        """Takes servers out, with their tools."""

    def use_rules(self, rules: Sequence[MetadataRule]) -> None:
        """Takes over other rules."""

    async def mark_failed(self, server: str, reason: str) -> object:
        """Records that a server could not be read; its tools stay, marked as stale."""
