"""The first moments of a gateway that serves: it answers at once, and reads its servers while nobody waits for it.

Where there is no catalogue yet, whoever asks for tools waits until there is. Where there is one of other servers than
those configured, it serves until the new one is made.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from toolfold.errors import ToolfoldError
from toolfold.policy.access import Governor
from toolfold.upstream.refresh import UpstreamManager

if TYPE_CHECKING:
    from toolfold.storage.base import Store

log = logging.getLogger("toolfold.gateway")


class Builder(Protocol):
    """What of a gateway is needed here."""

    @property
    def upstreams(self) -> UpstreamManager: ...

    async def build(self) -> Any: ...


def start_initial_build(gateway: Builder, governor: Governor, store: "Store") -> "asyncio.Task[None]":
    there = governor.first_build = asyncio.get_running_loop().create_future()

    def ready() -> None:
        governor.first_build = None
        if not there.done():
            there.set_result(None)

    async def read() -> None:
        try:
            async with store.snapshot() as view:
                known = {record.name for record in await view.servers()} if view.generation else None
            if known is not None:
                ready()
            if known != {spec.name for spec in gateway.upstreams.specs() if spec.enabled}:
                await gateway.build()
        except ToolfoldError as error:
            log.warning("the catalogue could not be read: %s", error.message)
        finally:
            ready()

    return asyncio.ensure_future(read())
