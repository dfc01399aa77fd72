"""Tells how each call ended, with who asked, to those who keep it: the trail and the metrics.

Values are theirs to judge; nothing is looked into here.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from toolfold.calls.stack import Handler, Request, Wrap
from toolfold.errors import ToolfoldError
from toolfold.types import Outcome

CANCELLED = "CANCELLED"


class Ended(Struct, frozen=True):
    """A call that is over: with an outcome, or with the code and text of what went wrong."""

    request: Request
    at: float
    seconds: float
    outcome: Outcome | None = None
    code: str = ""
    message: str = ""


Teller = Callable[[Ended], None]


def audited(tellers: Sequence[Teller]) -> Wrap:
    def wrap(handler: Handler) -> Handler:
        if not tellers:
            return handler

        async def told(request: Request) -> Outcome:
            started = time.perf_counter()
            outcome: Outcome | None = None
            code = message = ""
            try:
                outcome = await handler(request)
            except ToolfoldError as error:
                code, message = error.code, error.message
                raise
            except asyncio.CancelledError:
                code = CANCELLED
                raise
            finally:
                seconds = time.perf_counter() - started
                ended = Ended(request, time.time() - seconds, seconds, outcome, code, message)
                for tell in tellers:
                    tell(ended)
            return outcome

        return told

    return wrap
