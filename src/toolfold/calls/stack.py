"""The shape of a call, and the short loop that builds the stack of handlers."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Raw, Struct

from toolfold.types import LOCAL, Caller, Outcome, Tool
from toolfold.wire.values import OnInput, OnProgress


class Request(Struct, frozen=True, kw_only=True):
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
    """The outcome goes to a program, not to a model: it is given whole, however large."""
    may_spill: bool = False
    """See `Call.may_spill`: set by the handler that stores large results, for those below it."""
    confirmed: bool = False
    """A person at this machine has said yes to this very call already."""


Handler = Callable[[Request], Awaitable[Outcome]]
Wrap = Callable[[Handler], Handler]
"""A handler around a handler: it may refuse, bound or record, and otherwise passes the request on."""


def stack(innermost: Handler, wraps: Sequence[Wrap]) -> Handler:
    """The first of `wraps` is the outermost: it sees a request first and its outcome last."""
    handler = innermost
    for wrap in reversed(wraps):
        handler = wrap(handler)
    return handler
