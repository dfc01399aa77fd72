"""The routes, and the one way through all of them: who asks, what, the answer or the error as JSON.

It holds no state of its own. Every POST under `/v1` runs one operation of `faces.surface.operations`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolfold import __version__
from toolfold.errors import NotBuilt, ToolfoldError
from toolfold.faces.http_api import agents
from toolfold.faces.http_api import openapi as live
from toolfold.faces.http_api.errors import RequestError, status_of
from toolfold.faces.http_api.openapi import document
from toolfold.faces.surface.base import SurfaceCall
from toolfold.faces.surface.definitions import DISCOVERY
from toolfold.faces.surface.instructions import discovery_instructions, visible_servers
from toolfold.faces.surface.operations import Operations
from toolfold.faces.surface.results import INTERNAL_ERROR, Answer, TextAndData, error_dict
from toolfold.gateway import Gateway
from toolfold.types import EMPTY_OBJECT, Caller
from toolfold.wire.jsonrpc import parse_number
from toolfold.wire.serving.http_guard import HttpError, HttpGuard

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute


# --- What comes in, checked before anything is done with it: its type, its size.

T = TypeVar("T")

MAX_BODY_BYTES = 16 * 1024 * 1024
WATCHED_AFTER_S = 0.25


def _check_media_type(content_type: str) -> None:
    kind = content_type.partition(";")[0].strip().casefold()
    if kind != "application/json" and not kind.endswith("+json"):
        raise RequestError(
            415,
            "UNSUPPORTED_MEDIA_TYPE",
            "the body must be JSON, and its content type must say so",
            next_action="send it with: Content-Type: application/json",
        )


async def _read_body(request: "Request") -> Raw:
    """The body as it came. No body stands for an empty object."""
    if (parse_number(request.headers.get("content-length")) or 0) > MAX_BODY_BYTES:
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
    _check_media_type(request.headers.get("content-type", ""))
    return Raw(body)


async def _until_disconnect(request: "Request", work: Coroutine[Any, Any, T]) -> T:
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
        await _disconnected(request)
        left = True
        task.cancel()

    timer = task.get_loop().call_later(WATCHED_AFTER_S, lambda: watchers.append(asyncio.ensure_future(watch())))
    try:
        return await work
    except asyncio.CancelledError:
        if not left or task.uncancel() > 0:
            raise
        raise RequestError(
            499, "CLIENT_GONE", "nobody waits for the answer", next_action="ask again and wait"
        ) from None
    finally:
        timer.cancel()
        for watcher in watchers:
            watcher.cancel()


async def _disconnected(request: "Request") -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _too_large() -> RequestError:
    return RequestError(
        413,
        "BODY_TOO_LARGE",
        f"the body is larger than {MAX_BODY_BYTES:,} bytes",
        next_action="send less; a stored output can be named by its handle instead of sent",
    )


log = logging.getLogger("toolfold.http")

LONG = frozenset({"call_tool", "run_script", "tool_output"})
"""Operations that may take long: they end when nobody waits for them any more."""

Endpoint = Callable[["Request"], Awaitable["Response"]]
Work = Callable[[Caller, "Request"], Awaitable["Answer | Response"]]
"""Answers a request of a caller, or brings a response of its own."""


def make_app(gateway: Gateway, guard: HttpGuard) -> "Starlette":
    """The whole face as an ASGI app. `gateway` must be open; `guard` says who may ask."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException

    return Starlette(
        routes=_routes(_Api(gateway, guard)),
        exception_handlers={HTTPException: _http_exception},
    )


def _routes(api: "_Api") -> "list[BaseRoute]":
    from starlette.routing import Route

    return [
        *(Route(f"/v1/{one.name}", api.operation(one.name), methods=["POST"]) for one in DISCOVERY),
        Route("/v1/agents/runs", api.guarded(api.agent_run), methods=["POST"]),
        Route("/v1/live/{name}", api.guarded(api.live), methods=["POST"]),
        Route("/v1/servers", api.guarded(api.servers), methods=["GET"]),
        Route("/v1/instructions", api.guarded(api.instructions), methods=["GET"]),
        Route("/healthz", api.guarded(api.health, known_only=False), methods=["GET"]),
        Route("/openapi.json", api.guarded(api.openapi, known_only=False), methods=["GET"]),
        Route("/docs", api.docs, methods=["GET"]),
    ]


class _Api:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway, guard: HttpGuard) -> None:
        self._gateway = gateway
        self._guard = guard
        self._operations = Operations(gateway)

    def operation(self, name: str) -> Endpoint:
        async def run(caller: Caller, request: "Request") -> Answer:
            body = await _read_body(request)
            _refuse_bad_json(body)
            work = self._operations.run(SurfaceCall(name=name, arguments=body, caller=caller))
            return await (_until_disconnect(request, work) if name in LONG else work)

        return self.guarded(run)

    def guarded(self, work: "Work", *, known_only: bool = True) -> Endpoint:
        """An endpoint that answers, whatever happens. `known_only`: for callers that can be identified."""

        from starlette.responses import Response

        async def endpoint(request: "Request") -> "Response":
            try:
                self._guard.admit(request.headers)
                caller = self._guard.caller(request.headers) if known_only else Caller(name="anonymous")
                answer = await work(caller, request)
                return answer if isinstance(answer, Response) else _json(answer)
            except HttpError as refusal:
                return _refused(refusal)
            except ToolfoldError as error:
                return _json({"error": error_dict(error)}, status_of(error))
            except Exception:
                log.exception("%s failed", request.url.path)
                return _json({"error": INTERNAL_ERROR}, 500)

        return endpoint

    async def agent_run(self, caller: Caller, request: "Request") -> "Response":
        body = await _read_body(request)
        return await agents.stream_run(self._gateway, caller, body)

    async def live(self, caller: Caller, request: "Request") -> Answer:
        body = await _read_body(request)
        _refuse_bad_json(body)
        return await live.dispatch_live(self._gateway, caller, request, body)

    async def servers(self, caller: Caller, request: "Request") -> Answer:
        """Names, kinds and counts. How a server is started is its owner's business."""
        states = await self._gateway.servers()
        if self._gateway.settings.restricts:
            seen = await visible_servers(self._gateway, caller)
            states = [replace(state, tools=seen[state.name]) for state in states if seen.get(state.name)]
        keys = ("name", "transport", "status", "tools")
        return {"servers": [{key: getattr(state, key) for key in keys} for state in states]}

    async def instructions(self, caller: Caller, request: "Request") -> Answer:
        return {"instructions": await discovery_instructions(self._gateway, caller)}

    async def health(self, caller: Caller, request: "Request") -> Answer:
        try:
            async with self._gateway.catalogue.snapshot():
                state = "ready"
        except NotBuilt:
            state = "not built"
        return {"status": "ok", "version": __version__, "catalogue": state}

    async def openapi(self, caller: Caller, request: "Request") -> Answer:
        return document()

    async def docs(self, request: "Request") -> "Response":
        from starlette.responses import HTMLResponse

        from toolfold.faces.http_api.page import page, security_policy

        return HTMLResponse(page(), headers={"content-security-policy": security_policy()})


def _refuse_bad_json(body: Raw) -> None:
    try:
        msgspec.json.decode(body, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(
            400, "BAD_JSON", f"the body is not JSON: {error}"[:300], next_action="send one JSON object"
        ) from None


def _json(answer: Answer, status: int = 200, headers: Mapping[str, str] | None = None) -> "Response":
    from starlette.responses import Response

    if isinstance(answer, str):
        answer = {"text": answer}
    elif isinstance(answer, TextAndData):
        answer = answer.data
    body = bytes(answer) if isinstance(answer, Raw) else msgspec.json.encode(answer, enc_hook=str)
    safe = {"cache-control": "no-store", "x-content-type-options": "nosniff", **(headers or {})}
    return Response(body, status, media_type="application/json", headers=safe)


def _refused(refusal: HttpError) -> "Response":
    """What the guard refuses, in the same form as everything else."""
    error = RequestError(refusal.status, refusal.code, refusal.message, next_action=refusal.next_action)
    headers = {name.decode(): value.decode() for name, value in refusal.headers}
    return _json({"error": error.as_dict()}, refusal.status, headers)


async def _http_exception(request: "Request", error: Any) -> "Response":
    """What the router refuses, in the same form as everything else."""
    wrong_method = error.status_code == 405
    refused = RequestError(
        error.status_code,
        "METHOD_NOT_ALLOWED" if wrong_method else "NOT_FOUND",
        f"{request.method[:20]} is not possible here" if wrong_method else "there is nothing at this address",
        hints=tuple(f"/v1/{one.name}" for one in DISCOVERY) if not wrong_method else (),
        next_action="use POST for operations under /v1, GET for all else" if wrong_method else "see /docs",
    )
    return _json({"error": refused.as_dict()}, error.status_code, error.headers)
