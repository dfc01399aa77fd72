"""What a transport looks like to a connection: something that carries messages, and knows nothing of their meaning."""

from typing import Protocol

from msgspec import Struct, field

from toolfold.types import Era
from toolfold.wire.dispatcher import PendingRequest

NO_HEADERS: dict[str, str] = {}


class RequestHead(Struct, frozen=True):
    """What a transport may show outside of the message: modern HTTP repeats it in headers."""

    method: str
    name: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Transport(Protocol):
    """One way to one server."""

    mirrors_parameters: bool
    """Whether tools may ask for parameters to be repeated in headers."""

    @property
    def pid(self) -> int | None: ...

    @property
    def congested(self) -> bool:
        """Whether so much waits to be sent that a sender should wait for `drain`."""

    def start(self, pending: PendingRequest, message: bytes, head: RequestHead) -> None:
        """Sends a request. Its answer, or its failure, reaches `pending` through the peer."""

    def abandon(self, pending: PendingRequest, reason: str) -> None:
        """Nobody waits for this request any more: tells the server."""

    def finish(self, pending: PendingRequest) -> None:
        """The request is over, in whatever way: lets go of what was kept for it."""

    def post(self, message: bytes, /) -> None:
        """Sends a notification or an answer."""

    def settle(self, era: Era, version: str) -> None:
        """The handshake is done: from now on messages are sent the way of this era and version."""

    def opened(self) -> None:
        """Both sides know that the handshake is done: the server may be listened to."""

    async def drain(self) -> None: ...

    def kill(self) -> None:
        """Ends it at once. `aclose` must follow."""

    async def aclose(self) -> None: ...
