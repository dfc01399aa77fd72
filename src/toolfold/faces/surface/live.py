"""The profile `live`: exactly the three tools of a live Python session, one session for each caller and client.

An answer is the envelope as JSON text; `isError` repeats its `ok` for clients that look there.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.errors import ToolfoldError
from toolfold.faces.surface.base import LOCAL_CONTEXT, OnToolsChanged
from toolfold.gateway import Gateway
from toolfold.live.manager import GUIDANCE, OFFERS
from toolfold.types import EMPTY_OBJECT, CallContext, Caller

TITLE = "A live Python session of your own, in a sandbox. Names you make with eval_expr stay until it ends."


@cache
def _tool_objects() -> tuple[Raw, ...]:
    """The MCP tool objects, encoded once."""
    return tuple(
        Raw(
            msgspec.json.encode(
                {
                    "name": offer.name,
                    "description": offer.description,
                    "inputSchema": offer.parameters,
                    "annotations": {"readOnlyHint": offer.name != "eval_expr", "openWorldHint": False},
                }
            )
        )
        for offer in OFFERS
    )


class _LiveSurface:
    """A `Surface` over the live sessions of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._sessions = gateway.live_sessions.sessions

    async def instructions(self, caller: Caller) -> str:
        return f"{TITLE}\n{GUIDANCE}"

    async def tools(self, caller: Caller, *, listens: bool = False, apps: bool = False) -> tuple[Raw, ...]:
        return _tool_objects() if self._gateway.programs.allows("live_python", caller) else ()

    async def call(self, name: str, arguments: Raw = EMPTY_OBJECT, context: CallContext = LOCAL_CONTEXT) -> Raw:
        """A name that is none of the three is answered with the envelope's own `unknown_function`."""
        try:
            answer = await self._sessions.dispatch(context.caller, name, _decode_object(arguments))
        except ToolfoldError as error:
            answer = {"ok": False, "error": error.as_dict()}
        text = msgspec.json.encode(answer).decode()
        return Raw(msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": not answer["ok"]}))

    def watch(self, listener: OnToolsChanged) -> Callable[[], None]:
        """The list never changes."""
        return lambda: None


def _decode_object(raw: Raw) -> dict[str, Any]:
    """The arguments; what is no object counts as none, and the envelope says what is missing."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
