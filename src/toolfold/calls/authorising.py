"""Refuses a call that the caller's policy does not allow, whoever built the request and however the tool was found."""

from collections.abc import Awaitable, Callable

from toolfold.calls.stack import Handler, Request, Wrap
from toolfold.types import Outcome

Authorise = Callable[[Request], Awaitable[None] | None]
"""Raises where the call may not be made. `None` at once where nothing had to be looked up."""


def authorised(authorise: Authorise) -> Wrap:
    def wrap(handler: Handler) -> Handler:
        async def checked(request: Request) -> Outcome:
            waiting = authorise(request)
            if waiting is not None:
                await waiting
            return await handler(request)

        return checked

    return wrap
