"""The answers of a client, for whoever asks from below.

On a pipe a legacy upstream does not say which of its calls a question belongs to. Two requests of one caller may then
answer for each other, those of two callers never: that is what it means that two of these are equal.
"""

from msgspec import Raw

from toolfold.wire.serving import Exchange


class ClientAnswers:
    """Brings a question to the client of an exchange."""

    __slots__ = ("_exchange", "_who")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._who = (exchange.caller.name, exchange.caller.session, exchange.client.era)

    async def __call__(self, method: str, params: Raw) -> Raw:
        return await self._exchange.ask(method, params)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientAnswers) and other._who == self._who

    def __hash__(self) -> int:
        return hash(self._who)
