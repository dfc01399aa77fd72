"""What an application looks like to the wire that serves it. Above: `server.py`, which drives it."""

from typing import Protocol

from msgspec import Raw

from toolfold.types import Caller
from toolfold.wire.serving.exchange import Client, Exchange
from toolfold.wire.serving.hub import Hub
from toolfold.wire.serving.values import About


class App(Protocol):
    """What is served. It is asked for results and never sees a transport."""

    @property
    def hub(self) -> Hub: ...

    async def about(self, caller: Caller) -> About: ...

    async def handle(self, exchange: Exchange) -> Raw:
        """The `result` of a request. Raises a `ToolfoldError` or a `Fault`. Cancelling it cancels the request."""

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        """A notification of a client that is not about the protocol itself."""

    async def left(self, caller: Caller) -> None:
        """A client of the legacy era is gone, and its session with it: nothing of that session is needed any more."""

    async def watch_resource(self, uri: str) -> None:
        """Somebody wants to be told of changes of a resource; as often as it is asked, `unwatch_resource` follows."""

    async def unwatch_resource(self, uri: str) -> None: ...
