"""One event per step, for whoever subscribes: the log, metrics, the console, a program.

A listener that raises is removed after its error was logged: notifying never breaks the work.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

log = logging.getLogger("toolfold.events")


class Event(Struct, frozen=True):
    """Something happened. `name` is dotted and stable, `data` is plain JSON values without secrets."""

    name: str
    at: float
    data: dict[str, Any]


Listener = Callable[[Event], None]


class Events:
    """A list of listeners. Listeners run in the caller's task and must not block."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._only: dict[str, list[Listener]] = {}

    def subscribe(self, listener: Listener, *, only: str = "") -> Callable[[], None]:
        """Adds a listener, to all events or only to those of one name; the returned function removes it again."""
        listeners = self._only.setdefault(only, []) if only else self._listeners
        listeners.append(listener)

        def unsubscribe() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return unsubscribe

    def has_listeners(self, *names: str) -> bool:
        """Whether anybody listens to events of these names. Asked first, it saves gathering what nobody reads."""
        return bool(self._listeners) or any(map(self._only.get, names))

    def emit(self, name: str, **data: Any) -> None:
        only = self._only.get(name, ())
        if not self._listeners and not only:
            return
        event = Event(name, time.time(), data)
        for listener in (*self._listeners, *only):
            try:
                listener(event)
            except Exception:
                log.exception("an event listener failed on %s and was removed", name)
                self._drop(listener, name)

    def _drop(self, listener: Listener, name: str) -> None:
        for listeners in (self._listeners, self._only.get(name, [])):
            if listener in listeners:
                listeners.remove(listener)
