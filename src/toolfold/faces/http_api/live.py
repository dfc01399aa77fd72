"""`POST /v1/live/NAME`: the three tools of a live Python session. A client's requests share the session it names.

The header `Toolfold-Session` names it; without one, a caller has one session. The answer is the envelope.
"""

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, structs

from toolfold.errors import InvalidArguments
from toolfold.gateway import Gateway
from toolfold.types import Caller
from toolfold.wire.jsonrpc import UNREADABLE

if TYPE_CHECKING:
    from starlette.requests import Request

HEADER = "toolfold-session"
LONGEST = 100


async def answered(gateway: Gateway, caller: Caller, request: "Request", body: Raw) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(body, type=dict[str, Any])
    except UNREADABLE as error:
        raise InvalidArguments(
            f"the body must be one JSON object: {error}", next_action='send {"expr": "…"}'
        ) from error
    session = request.headers.get(HEADER, "")[:LONGEST]
    asking = structs.replace(caller, session=f"http-{session}")
    return await gateway.living.sessions.dispatch(asking, request.path_params["name"], given)
