"""The shape of a call, and the short loop that builds the stack of handlers."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Raw, Struct

from toolfold.types import LOCAL, Caller, Outcome, Tool
from toolfold.wire.types import OnInput, OnProgress


class CallRequest(Struct, frozen=True, kw_only=True):
    """One call of one tool of the catalogue. `arguments` is the exact JSON that is checked and sent."""

    tool: Tool
    arguments: Raw
    meta: Raw | None = None
    timeout_s: float | None = None
    on_progress: OnProgress | None = None
    on_input: OnInput | None = None
    caller: Caller = LOCAL
    capabilities: Raw | None = None
    """What the client at the far end declared; see `Call.capabilities`."""
    inputs: Raw | None = None
    """See `Call.inputs`."""
    max_response: tuple[int | None, int | None] = (None, None)
    """Over how many bytes, and tokens, the result is stored, where the caller has limits of its own."""
    whole: bool = False
    """The outcome goes to a program, not to a model: it is given whole, however large, and never spilled."""
    expect_version: int | None = None
    """The version that the caller knows; a tool that changed since is not called."""
    confirmed: bool = False
    """A person at this machine has said yes to this very call already."""


Handler = Callable[[CallRequest], Awaitable[Outcome]]
Middleware = Callable[[Handler], Handler]
"""A handler around a handler: it may refuse, bound or record, and otherwise passes the request on."""


Check = Callable[[CallRequest], Awaitable[CallRequest] | None]
"""Looks at a request before it goes on: raises, or gives another one in its place. `None` at once: it goes on as it is.
Every call goes through all of them, and few have to wait for anything."""


def run_checks(checks: Sequence[Check]) -> Middleware:
    """One handler that does all of these, one after the other."""

    def wrap(handler: Handler) -> Handler:
        async def check_all(request: CallRequest) -> Outcome:
            for check in checks:
                waiting = check(request)
                if waiting is not None:
                    request = await waiting
            return await handler(request)

        return check_all

    return wrap


def compose(innermost: Handler, wraps: Sequence[Middleware]) -> Handler:
    """The first of `wraps` is the outermost: it sees a request first and its outcome last."""
    handler = innermost
    for wrap in reversed(wraps):
        handler = wrap(handler)
    return handler
