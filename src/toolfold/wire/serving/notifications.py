"""Notifications of changed lists and resources, and of log messages: who subscribes to what.

A subscriber is a legacy session or a modern subscription. Above: `server.py` and the transports; the application
publishes. Publishing never waits: what a slow client does not read, its transport drops.
"""

from collections.abc import Callable

from msgspec import Struct

from toolfold.wire.types import LOG_MESSAGE, TASK_STATUS

__all__ = ["LOG_LEVELS", "RESOURCE_UPDATED", "level_enabled"]

RESOURCE_UPDATED = "notifications/resources/updated"

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

SendNotification = Callable[[str, bytes], None]


def level_enabled(level: str, minimum: str | None) -> bool:
    """Whether a message of that level is to be sent. An unknown level is."""
    if minimum is None:
        return False
    return level not in LOG_LEVELS or minimum not in LOG_LEVELS or LOG_LEVELS.index(level) >= LOG_LEVELS.index(minimum)


class Subscriber(Struct, eq=False):
    """A subscriber. `lists` are the notifications it gets, `resources` the URIs; both may change."""

    caller: str
    send: SendNotification
    lists: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    # From which level on it wants log messages that belong to no request; `None`: none.
    log_level: str | None = None
    # The tasks that it follows, by id, with the notification that its era has for them.
    tasks: frozenset[str] = frozenset()
    task_status: str = TASK_STATUS["legacy"]
    # Of a legacy session: the client that it is of.
    client: object = None

    def wants(self, method: str, uri: str | None) -> bool:
        if uri is not None and method != RESOURCE_UPDATED:
            return method == self.task_status and uri in self.tasks
        return uri in self.resources if method == RESOURCE_UPDATED else method in self.lists


class NotificationHub:
    """All subscribers."""

    def __init__(self) -> None:
        self._listeners: set[Subscriber] = set()

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: Subscriber) -> None:
        self._listeners.add(listener)

    def discard(self, listener: Subscriber) -> None:
        self._listeners.discard(listener)

    def publish(self, method: str, params: bytes = b"{}", *, uri: str | None = None, caller: str | None = None) -> None:
        """Sends a notification to its subscribers, or to those of one caller."""
        # A copy: sending may end a subscription.
        for listener in tuple(self._listeners):
            if caller in {None, listener.caller} and listener.wants(method, uri):
                listener.send(method, params)

    def log(self, level: str, params: bytes) -> None:
        """A log message that belongs to no known request. It may hold what one caller sent, so it reaches nobody where
        several callers listen."""
        if len(self.callers()) > 1:
            return
        for listener in tuple(self._listeners):
            if level_enabled(level, listener.log_level):
                listener.send(LOG_MESSAGE, params)

    def follows(self, task: str) -> bool:
        """Whether anybody wants to hear of a task."""
        return any(task in listener.tasks for listener in self._listeners)

    def follow(self, task: str, client: object, *, on: bool = True) -> None:
        """From now on the session of a legacy client hears of one of its tasks; or with `on` false, nobody does."""
        for listener in self._listeners:
            if on and client is not None and listener.client is client:
                listener.tasks |= {task}
            elif not on and task in listener.tasks:
                listener.tasks -= {task}

    def callers(self) -> set[str]:
        return {listener.caller for listener in self._listeners}

    def listens(self, caller: str, method: str) -> bool:
        """Whether a caller subscribed to this list."""
        return any(listener.caller == caller and method in listener.lists for listener in self._listeners)
