"""What is told of requests to servers and of connections that end, where somebody wants to measure them. No list of
those who listen is looked at twice: without any, a request costs one look. Above: `telemetry`."""

from collections.abc import Callable

from msgspec import Struct


class _RequestEnd(Struct, frozen=True):
    """A request that is over; without a `method`, a whole connection. `place`: host and port of a server over HTTP,
    empty for one on stdio; `session`: what the server calls the session, if there is one."""

    method: str
    number: int
    seconds: float
    version: str
    place: str
    session: str
    error: BaseException | None = None


OBSERVERS: list[Callable[[_RequestEnd], None]] = []
