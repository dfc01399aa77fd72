"""Who is told when lists and resources change, and how far a client's own words about that reach.

A listener is a legacy session or a modern subscription. Above: `server.py` and the transports; the application
publishes. Telling never waits: what a slow client does not read, its transport drops or ends.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from toolfold.wire.types import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED

RESOURCE_UPDATED = "notifications/resources/updated"
LOG_MESSAGE = "notifications/message"

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

SendNotification = Callable[[str, bytes], None]


def level_enabled(level: str, wanted: str | None) -> bool:
    """Whether a message of that level is wanted. An unknown level is."""
    if wanted is None:
        return False
    return level not in LOG_LEVELS or wanted not in LOG_LEVELS or LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted)


class Subscriber(Struct, eq=False):
    """One who listens. `lists` are the notifications it wants, `resources` the URIs; both may change while it does."""

    caller: str
    tell: SendNotification
    lists: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    log_level: str | None = None
    """From which level on it wants log messages that belong to no request; `None`: none."""

    def wants(self, method: str, uri: str | None) -> bool:
        return uri in self.resources if method == RESOURCE_UPDATED else method in self.lists


class NotificationHub:
    """All who listen."""

    def __init__(self) -> None:
        self._listeners: set[Subscriber] = set()

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: Subscriber) -> None:
        self._listeners.add(listener)

    def discard(self, listener: Subscriber) -> None:
        self._listeners.discard(listener)

    def publish(self, method: str, params: bytes = b"{}", *, uri: str | None = None, caller: str | None = None) -> None:
        """Tells everybody who wants it, or those of one caller."""
        for listener in tuple(self._listeners):
            if caller in {None, listener.caller} and listener.wants(method, uri):
                listener.tell(method, params)

    def log(self, level: str, params: bytes) -> None:
        """A log message that belongs to no known request. It may hold what one caller sent, so it reaches nobody where
        several callers listen."""
        if len(self.callers()) > 1:
            return
        for listener in tuple(self._listeners):
            if level_enabled(level, listener.log_level):
                listener.tell(LOG_MESSAGE, params)

    def callers(self) -> set[str]:
        return {listener.caller for listener in self._listeners}

    def listens(self, caller: str, method: str) -> bool:
        """Whether a caller asked to be told of this."""
        return any(listener.caller == caller and method in listener.lists for listener in self._listeners)


def supported_lists(capabilities: dict[str, object], wanted: Iterable[str]) -> frozenset[str]:
    """Those of the wanted notifications that the server says it sends."""
    kinds = {TOOLS_CHANGED: "tools", PROMPTS_CHANGED: "prompts", RESOURCES_CHANGED: "resources"}

    def sends(method: str) -> bool:
        found = capabilities.get(kinds[method])
        return isinstance(found, dict) and bool(found.get("listChanged"))

    return frozenset(method for method in wanted if sends(method))
