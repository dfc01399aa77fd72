"""What a transport looks like to a connection: it carries messages and does not know their meaning.

Implemented by `stdio.py` and `http.py`.
"""

from typing import Protocol

from msgspec import Struct, field

from toolfold.types import Era
from toolfold.wire.dispatcher import PendingRequest
from toolfold.wire.jsonrpc import cancelled_message

NO_HEADERS: dict[str, str] = {}


class RequestHead(Struct, frozen=True):
    """What modern HTTP repeats of a message in headers."""

    method: str
    name: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Transport(Protocol):
    """One way to one server. What has a body here is the default."""

    # Whether tools may ask for parameters to be repeated in headers.
    mirrors_parameters: bool = False

    @property
    def pid(self) -> int | None:
        return None

    @property
    def peer(self) -> tuple[str, str]:
        """The address of the server, and what it calls the session; empty where there is none."""
        return "", ""

    @property
    def congested(self) -> bool:
        """Whether so much waits to be sent that a sender should wait for `drain`."""
        return False

    def start(self, pending: PendingRequest, message: bytes, head: RequestHead) -> None:
        """Sends a request. Its answer, or its failure, reaches `pending` through the dispatcher."""

    def abandon(self, pending: PendingRequest, reason: str) -> None:
        """Cancels a request at the server: nobody waits for it any more."""
        self.post(cancelled_message(pending.number, reason))

    def finish(self, pending: PendingRequest) -> None:
        """Releases what was held for a request, however it ended."""
        return

    def post(self, message: bytes, /) -> None:
        """Sends a notification or an answer."""

    def settle(self, era: Era, version: str) -> None:
        """The handshake is done: from now on messages are sent the way of this era and version."""
        return

    def opened(self) -> None:
        """Both sides know that the handshake is done: the server may be listened to."""
        return

    async def drain(self) -> None: ...

    def kill(self) -> None:
        """Ends it at once. `aclose` must follow."""

    async def aclose(self) -> None: ...
