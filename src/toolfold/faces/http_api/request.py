"""How a request of the HTTP face is read: its body, bounded, and the errors of one that reaches no operation."""

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from toolfold.errors import ToolfoldError
from toolfold.types import EMPTY_OBJECT
from toolfold.wire.jsonrpc import DECODE_ERRORS, parse_number

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_BODY_BYTES = 16 * 1024 * 1024


class _RequestError(ToolfoldError):
    """A request that never reached an operation."""

    def __init__(self, status: int, code: str, message: str, *, next_action: str, hints: tuple[Any, ...] = ()) -> None:
        super().__init__(message, hints=hints, next_action=next_action)
        self.status = status
        self._code = code

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "code": self._code}


async def _read_body(request: "Request", most: int = MAX_BODY_BYTES) -> Raw:
    """The body as it came, of at most so many bytes. No body stands for an empty object."""
    body = await _read_bounded(request, most)
    if not body.strip():
        return EMPTY_OBJECT
    # A page of another origin can send `text/plain` without asking first, but not JSON.
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().casefold()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise _RequestError(
            415,
            "UNSUPPORTED_MEDIA_TYPE",
            "the body must be JSON, and its content type must say so",
            next_action="send it with: Content-Type: application/json",
        )
    return Raw(body)


async def _read_bounded(request: "Request", most: int) -> bytes:
    # The header is only a claim: a chunked body has none, so what arrives is counted, too.
    if (parse_number(request.headers.get("content-length")) or 0) > most:
        raise _too_large(most)
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise _too_large(most)
        pieces.append(piece)
    return b"".join(pieces)


def _too_large(most: int) -> _RequestError:
    return _RequestError(
        413,
        "BODY_TOO_LARGE",
        f"the body is larger than {most:,} bytes",
        next_action="send less; a stored output can be named by its handle instead of sent",
    )


def _check_json(body: Raw) -> None:
    try:
        msgspec.json.decode(body, type=Raw)
    except DECODE_ERRORS as error:
        raise _RequestError(
            400, "BAD_JSON", f"the body is not JSON: {error}"[:300], next_action="send one JSON object"
        ) from None
