"""A gateway that is open and built, with what it tells: what scenes of several stages begin with."""

from typing import Self

from toolfold import Gateway
from toolfold.events import Event


class OpenGateway:
    """Use it as `async with`; `told` are the events after the build."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.told: list[Event] = []

    async def __aenter__(self) -> Self:
        await self.gateway.__aenter__()
        await self.gateway.build()
        self.gateway.events.subscribe(self.told.append)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.gateway.aclose()
