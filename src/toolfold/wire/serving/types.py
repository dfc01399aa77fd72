"""What a server says of itself, what it refuses with, and its limits. Nothing here does anything."""

from typing import Any

from msgspec import Struct, field


class RpcError(Exception):
    """A JSON-RPC error to be sent. `refused`: the message itself was at fault, which HTTP says with its status."""

    def __init__(self, code: int, message: str, data: Any = None, *, refused: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.refused = refused


class About(Struct, frozen=True, kw_only=True):
    """What a server says of itself."""

    info: dict[str, Any]
    """Name, version and perhaps a title."""
    capabilities: dict[str, Any] = field(default_factory=dict)
    instructions: str = ""
    ttl_ms: int = 60_000
    cache_scope: str = "private"


class ServeOptions(Struct, frozen=True, kw_only=True):
    """Limits."""

    max_body_bytes: int = 64 * 1024 * 1024
    held_s: float = 300.0
    """How long a handler waits for answers that the client fetches between two modern requests."""
    max_held: int = 1000
    max_sessions: int = 1000
    session_idle_s: float = 1800.0
    max_listeners: int = 4096
    kept_events: int = 256
    """How many messages of a broken legacy stream are kept for whoever takes it up again."""
    keep_alive_s: float = 15.0
    """How often a quiet stream says that it is alive."""
