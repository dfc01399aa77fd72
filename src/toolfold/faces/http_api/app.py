"""The routes, and the one way through all of them: who asks, what, the answer or the error as JSON.

It holds no state of its own. Every POST under `/v1` runs one operation of `faces.surface.operations`.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolfold import __version__
from toolfold.errors import NotBuilt, ToolfoldError
from toolfold.faces.http_api import agents, live, reading
from toolfold.faces.http_api.openapi import document
from toolfold.faces.http_api.statuses import Refused, status_of
from toolfold.faces.surface.base import Ask
from toolfold.faces.surface.definitions import DISCOVERY
from toolfold.faces.surface.instructions import discovery_instructions, seen_servers
from toolfold.faces.surface.operations import Operations
from toolfold.faces.surface.results import INTERNAL_ERROR, Answer, Told, error_dict
from toolfold.gateway import Gateway
from toolfold.types import Caller
from toolfold.wire.serving.http_guard import Guard, Refusal

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

log = logging.getLogger("toolfold.http")

LONG = frozenset({"call_tool", "run_script", "tool_output"})
"""Operations that may take long: they end when nobody waits for them any more."""

Endpoint = Callable[["Request"], Awaitable["Response"]]
Work = Callable[[Caller, "Request"], Awaitable["Answer | Response"]]
"""Answers a request of a caller, or brings a response of its own."""


def make_app(gateway: Gateway, guard: Guard) -> "Starlette":
    """The whole face as an ASGI app. `gateway` must be open; `guard` says who may ask."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException

    return Starlette(
        routes=_routes(Api(gateway, guard)),
        exception_handlers={HTTPException: _http_exception},
    )


def _routes(api: "Api") -> "list[BaseRoute]":
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


class Api:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway, guard: Guard) -> None:
        self._gateway = gateway
        self._guard = guard
        self._operations = Operations(gateway)

    def operation(self, name: str) -> Endpoint:
        async def run(caller: Caller, request: "Request") -> Answer:
            body = await reading.body_of(request)
            _refuse_bad_json(body)
            work = self._operations.run(Ask(name=name, arguments=body, caller=caller))
            return await (reading.until_gone(request, work) if name in LONG else work)

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
            except Refusal as refusal:
                return _refused(refusal)
            except ToolfoldError as error:
                return _json({"error": error_dict(error)}, status_of(error))
            except Exception:
                log.exception("%s failed", request.url.path)
                return _json({"error": INTERNAL_ERROR}, 500)

        return endpoint

    async def agent_run(self, caller: Caller, request: "Request") -> "Response":
        body = await reading.body_of(request)
        return await agents.started(self._gateway, caller, body)

    async def live(self, caller: Caller, request: "Request") -> Answer:
        body = await reading.body_of(request)
        _refuse_bad_json(body)
        return await live.answered(self._gateway, caller, request, body)

    async def servers(self, caller: Caller, request: "Request") -> Answer:
        """Names, kinds and counts. How a server is started is its owner's business."""
        states = await self._gateway.servers()
        if self._gateway.settings.restricts:
            seen = await seen_servers(self._gateway, caller)
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
        raise Refused(
            400, "BAD_JSON", f"the body is not JSON: {error}"[:300], next_action="send one JSON object"
        ) from None


def _json(answer: Answer, status: int = 200, headers: Mapping[str, str] | None = None) -> "Response":
    from starlette.responses import Response

    if isinstance(answer, str):
        answer = {"text": answer}
    elif isinstance(answer, Told):
        answer = answer.data
    body = bytes(answer) if isinstance(answer, Raw) else msgspec.json.encode(answer, enc_hook=str)
    safe = {"cache-control": "no-store", "x-content-type-options": "nosniff", **(headers or {})}
    return Response(body, status, media_type="application/json", headers=safe)


def _refused(refusal: Refusal) -> "Response":
    """What the guard refuses, in the same form as everything else."""
    error = Refused(refusal.status, refusal.code, refusal.message, next_action=refusal.next_action)
    headers = {name.decode(): value.decode() for name, value in refusal.headers}
    return _json({"error": error.as_dict()}, refusal.status, headers)


async def _http_exception(request: "Request", error: Any) -> "Response":
    """What the router refuses, in the same form as everything else."""
    wrong_method = error.status_code == 405
    refused = Refused(
        error.status_code,
        "METHOD_NOT_ALLOWED" if wrong_method else "NOT_FOUND",
        f"{request.method[:20]} is not possible here" if wrong_method else "there is nothing at this address",
        hints=tuple(f"/v1/{one.name}" for one in DISCOVERY) if not wrong_method else (),
        next_action="use POST for operations under /v1, GET for all else" if wrong_method else "see /docs",
    )
    return _json({"error": refused.as_dict()}, error.status_code, error.headers)
