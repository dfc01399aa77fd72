"""The values that go into a connection and come out of it: targets, options, handlers, lists.

Nothing here does anything. Above stand the transports and `Connection`; below only `toolfold.types`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import BinaryIO, Protocol

from msgspec import Raw, Struct, field

from toolfold import __version__

__all__ = [
    "ELICITATION_COMPLETE",
    "LEGACY_TASKS_VERSION",
    "LOG_MESSAGE",
    "PROMPTS_CHANGED",
    "RELATED_TASK",
    "RESOURCES_CHANGED",
    "TASKS",
    "TASK_STATUS",
    "TOOLS_CHANGED",
]

# The first version without a handshake, and the only one of that era so far.
MODERN_VERSION = "2026-07-28"

# The handshake versions, newest first.
LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

TOOLS_CHANGED = "notifications/tools/list_changed"
ELICITATION_COMPLETE = "notifications/elicitation/complete"
LOG_MESSAGE = "notifications/message"
PROMPTS_CHANGED = "notifications/prompts/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
LISTS_CHANGED = frozenset({TOOLS_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED})

# The extension by which a call may become a task, and what tells of its state in each era.
TASKS = "io.modelcontextprotocol/tasks"
RELATED_TASK = "io.modelcontextprotocol/related-task"
TASK_STATUS = {"legacy": "notifications/tasks/status", "modern": "notifications/tasks"}
# The handshake version that has tasks in its core.
LEGACY_TASKS_VERSION = "2025-11-25"

# A time that never is up.
NO_TIMEOUT = float("inf")

# Given the file that holds a whole message, the caller's to close, where the answer was too large to be held.
OnSpilled = Callable[[BinaryIO], None]


class StdioTarget(Struct, frozen=True):
    """A server that we start: its command, and what is added to the small environment that it inherits."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    inherit: tuple[str, ...] = ()
    """Patterns of further variables of our environment that it gets."""


class Authorization(Protocol):
    """Headers that prove who asks, and what to do where a server does not accept them. One server's go to it alone."""

    async def headers(self) -> Mapping[str, str]:
        """What goes with the next request, renewed if need be; empty where nothing is known yet."""

    async def challenged(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        """A server answered 401 or 403 with this `WWW-Authenticate` to a request with the headers `sent`.

        True: ask again, with new headers. False: the refusal stands. Raises `SignInRequired`.
        """


class HttpTarget(Struct, frozen=True):
    """A server that runs elsewhere. `headers` may hold secrets: they are sent to this origin only, and never shown."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    authorization: Authorization | None = None


Target = StdioTarget | HttpTarget


class WireOptions(Struct, frozen=True, kw_only=True):
    """Limits, and how this client names itself."""

    # A larger message is refused, and the connection lives on where that is possible.
    max_frame_bytes: int = 256 * 1024 * 1024
    # Where a message that is too large to be held is put while it arrives; `None`: nowhere.
    spill_directory: str | None = None
    # A message over this size goes there.
    spill_bytes: int = 4 * 1024 * 1024
    # How large the answer to a tool call may get that goes there and is not read back.
    max_output_bytes: int = 2 * 1024 * 1024 * 1024
    # For starting or reaching the server and the handshake together.
    start_timeout_s: float = 30.0
    request_timeout_s: float = 60.0
    # How long the era probe is waited for once the server is known to be awake (stdio) or was asked (HTTP).
    probe_timeout_s: float = 0.5
    # How long a server may take to end by itself; the same again passes between SIGTERM and SIGKILL.
    close_grace_s: float = 2.0
    client_name: str = "toolfold"
    client_version: str = __version__
    # What this client declares that it can do. Nothing else is ever claimed.
    capabilities: Raw = Raw(b"{}")
    # What a legacy handshake declares instead, for a client that stands for several: a server asks there once, before
    # it is known who will call. Each request then says for itself what its caller can answer.
    handshake: Raw | None = None
    # The same where the tools of a modern server are listed: some list to a client only what it can show.
    lists_to: Raw | None = None
    max_pages: int = 1000
    # How often a modern server may answer one request with a wish for more input.
    max_input_rounds: int = 16


class Handlers(Struct, frozen=True, kw_only=True):
    """Whom to tell what. They run in the event loop and must not block."""

    # Every notification that belongs to no request: `(method, params)`.
    on_notification: Callable[[str, Raw], None] | None = None
    # What a server asks of the client outside a request that has its own `on_input`.
    on_request: Callable[[str, Raw], Awaitable[Raw]] | None = None
    # One line of a stdio server's stderr.
    on_stderr: Callable[[str], None] | None = None
    # Something a server sent that is no usable message, shortened.
    on_noise: Callable[[str], None] | None = None
    # The connection ended without `aclose()`: the reason.
    on_closed: Callable[[str], None] | None = None


class ToolList(Struct, frozen=True):
    """All tools of a server, each as the exact JSON object it sent."""

    tools: tuple[Raw, ...]
    ttl_ms: int | None = None
    cache_scope: str = "private"
    warnings: tuple[str, ...] = ()
