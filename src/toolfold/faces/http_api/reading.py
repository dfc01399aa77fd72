"""What comes in, checked before anything is done with it: its type, its size."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Raw

from toolfold.faces.http_api.statuses import Refused
from toolfold.types import EMPTY_OBJECT
from toolfold.wire.jsonrpc import number_of

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T")

MAX_BODY_BYTES = 16 * 1024 * 1024
WATCHED_AFTER_S = 0.25


def check_type(content_type: str) -> None:
    kind = content_type.partition(";")[0].strip().casefold()
    if kind != "application/json" and not kind.endswith("+json"):
        raise Refused(
            415,
            "UNSUPPORTED_MEDIA_TYPE",
            "the body must be JSON, and its content type must say so",
            next_action="send it with: Content-Type: application/json",
        )


async def body_of(request: "Request") -> Raw:
    """The body as it came. No body stands for an empty object."""
    if (number_of(request.headers.get("content-length")) or 0) > MAX_BODY_BYTES:
        raise _too_large()
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        pieces.append(piece)
    body = b"".join(pieces)
    if not body.strip():
        return EMPTY_OBJECT
    check_type(request.headers.get("content-type", ""))
    return Raw(body)


async def until_gone(request: "Request", work: Coroutine[Any, Any, T]) -> T:
    """Does the work while somebody waits for it. It is cancelled when the client goes away, as for any tool call.

    Work that is done at once is not watched: most of it is, and watching costs as much as the work.
    """
    task = asyncio.current_task()
    if task is None:
        return await work
    watchers: list[asyncio.Task[None]] = []
    left = False

    async def watch() -> None:
        nonlocal left
        await _gone(request)
        left = True
        task.cancel()

    timer = task.get_loop().call_later(WATCHED_AFTER_S, lambda: watchers.append(asyncio.ensure_future(watch())))
    try:
        return await work
    except asyncio.CancelledError:
        if not left or task.uncancel() > 0:
            raise
        raise Refused(499, "CLIENT_GONE", "nobody waits for the answer", next_action="ask again and wait") from None
    finally:
        timer.cancel()
        for watcher in watchers:
            watcher.cancel()


async def _gone(request: "Request") -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _too_large() -> Refused:
    return Refused(
        413,
        "BODY_TOO_LARGE",
        f"the body is larger than {MAX_BODY_BYTES:,} bytes",
        next_action="send less; a stored output can be named by its handle instead of sent",
    )
