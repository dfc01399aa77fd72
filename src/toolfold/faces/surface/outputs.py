"""Whether a caller has stored outputs, and who wants to know when that changes. For every profile that lists
`tool_output`."""

from collections.abc import Callable

from toolfold.gateway import Gateway
from toolfold.types import Caller


async def holds_outputs(gateway: Gateway, caller: Caller) -> bool:
    """Whether something of this caller is stored."""
    return await gateway.outputs.held(caller)


def watch_outputs(gateway: Gateway, hook: Callable[[Caller | None], None]) -> Callable[[], None]:
    """Tells `hook` each caller that got its first stored output, or lost its last."""
    return gateway.outputs.on_changed(lambda caller, _: hook(caller))
