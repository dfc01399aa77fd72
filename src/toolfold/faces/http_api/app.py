"""The routes of the HTTP face, and the one path that every request takes: who asks, what, the answer or error as JSON.

Every POST under `/v1` runs one operation of `faces.surface.operations`. Above: whatever serves ASGI. Starlette is
imported when an app is made: only `toolfold serve --http` pays for it. An agent's run is a stream of events, the last
of which is `report`; a client that goes away ends the run, as it ends any call.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolfold import __version__
from toolfold.errors import InvalidArguments, SignInRequired, ToolfoldError
from toolfold.faces.http_api.admin import _admin_routes
from toolfold.faces.http_api.drain import _Drain
from toolfold.faces.http_api.leaves import LISTS, get_prompt, list_leaves, read_resource
from toolfold.faces.http_api.openapi import MAX_SESSION_NAME, SESSION_HEADER, document
from toolfold.faces.http_api.request import _check_json, _read_body, _RequestError
from toolfold.faces.surface.definitions import DISCOVERY
from toolfold.faces.surface.instructions import _visible_states, discovery_instructions
from toolfold.faces.surface.operations import Operations
from toolfold.faces.surface.results import INTERNAL_ERROR, Answer, TextAndData, error_dict
from toolfold.gateway import Gateway
from toolfold.types import CallContext, Caller
from toolfold.wire.jsonrpc import DECODE_ERRORS
from toolfold.wire.serving.http_guard import HttpError, HttpGuard
from toolfold.wire.serving.http_stream import ClientGone, DisconnectWatch

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

log = logging.getLogger("toolfold.http")

# Operations that may take long: they are cancelled when their client goes away.
LONG = frozenset({"call_tool", "run_script", "tool_output"})

# A code that is not here is a fault of the server: 500.
_CODES = {
    400: "BAD_CURSOR",
    403: "NOT_AUTHORIZED",
    404: "UNKNOWN_PATH UNKNOWN_FIELD TOOL_NOT_FOUND NO_MATCH_IN_CATEGORY UNKNOWN_HANDLE",
    409: "TOOL_CHANGED NOT_EXPANDED CONFIRMATION_NEEDED CONFIRMATION_DECLINED INPUT_UNAVAILABLE INPUT_REFUSED "
    "LIVE_ERROR LOCK_MISMATCH",
    422: "INVALID_ARGUMENTS SCRIPT_INVALID NOT_DECLARED",
    429: "QUOTA_EXCEEDED",
    502: "UPSTREAM_ERROR SERVER_UNAVAILABLE SIGN_IN_REQUIRED SERVER_CLOSED PROTOCOL_VIOLATION FRAME_TOO_LARGE "
    "REMOTE_ERROR MODEL_ERROR",
    503: "CONFIG_INVALID NOT_BUILT SANDBOX_ERROR STORE_BUSY STORE_CHANGED STORE_ERROR",
    504: "SERVER_TIMEOUT",
    507: "OUTPUT_FULL STORE_FULL",
}
STATUSES = {code: status for status, codes in _CODES.items() for code in codes.split()}

# Answers are a caller's own, and text from servers: no proxy may keep them, no browser guess that they are a page.
_SAFE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")

_Endpoint = Callable[["Request"], Awaitable["Response"]]
# Answers a caller's request, with data or with a response of its own.
_Work = Callable[[Caller, "Request"], Awaitable["Answer | Response"]]


def make_app(
    gateway: Gateway, guard: HttpGuard, drain: _Drain | None = None, more: "Sequence[BaseRoute]" = ()
) -> "Starlette":
    """The whole face as an ASGI app. `gateway` must be open; `guard` says who may ask, `drain` whether it is ready,
    `more` what else is at this address."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    api = _Api(gateway, guard, drain or _Drain(gateway, asyncio.Event()))
    operations = [
        Route(f"/v1/{definition.name}", api.operation(definition.name), methods=["POST"]) for definition in DISCOVERY
    ]
    routes = [
        *operations,
        Route("/v1/agents/runs", api.guarded(api.agent_run), methods=["POST"]),
        Route("/v1/live/{name}", api.guarded(api.live), methods=["POST"]),
        Route("/v1/outputs/{handle}", api.guarded(api.output), methods=["GET"]),
        *(Route(f"/v1/{name}", api.guarded(api.leaves), methods=["GET"]) for name in LISTS),
        Route("/v1/read_resource", api.guarded(api.read_resource), methods=["POST"]),
        Route("/v1/get_prompt", api.guarded(api.get_prompt), methods=["POST"]),
        Route("/v1/servers", api.guarded(api.servers), methods=["GET"]),
        Route("/v1/sign-ins", api.guarded(api.sign_ins), methods=["GET"]),
        # One route for both, so that a refusal of other methods names the two.
        Route("/v1/sign-ins/{server}", api.guarded(api.sign_in_or_out), methods=["POST", "DELETE"]),
        # For browsers, which have no key either: each page is bound to the browser that began.
        Route("/oauth/{rest:path}", api.sign_in_page, methods=["GET", "POST"]),
        Route("/v1/instructions", api.guarded(api.instructions), methods=["GET"]),
        # Whatever watches the service has no key.
        Route("/healthz", api.guarded(api.health, anonymous=True), methods=["GET"]),
        Route("/readyz", api.guarded(api.ready, anonymous=True), methods=["GET"]),
        Route("/openapi.json", api.guarded(api.openapi, anonymous=True), methods=["GET"]),
        Route("/docs", api.guarded(api.docs, anonymous=True), methods=["GET"]),
    ]
    routes += _admin_routes(gateway, api.guarded)
    return Starlette(routes=[*routes, *more], exception_handlers={HTTPException: _http_exception})


def _status_of(error: ToolfoldError) -> int:
    """A `_RequestError` brings its own status; all others have that of their code."""
    if error.done:  # with 429 or 503 many clients would repeat the call
        return 507
    return error.status if isinstance(error, _RequestError) else STATUSES.get(error.code, 500)


class _Api:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway, guard: HttpGuard, drain: _Drain) -> None:
        self._gateway = gateway
        self._drain = drain
        self._guard = guard
        self._operations = Operations(gateway)

    def guarded(self, work: "_Work", *, anonymous: bool = False) -> _Endpoint:
        """An endpoint that answers, whatever happens. `anonymous`: it asks for no key."""

        from starlette.responses import Response

        async def endpoint(request: "Request") -> "Response":
            try:
                if anonymous:
                    self._guard.admit(request.scope)
                    caller = Caller(name="anonymous")
                else:
                    _, caller = await self._guard.check(request.scope)
                answer = await work(caller, request)
                return answer if isinstance(answer, Response) else _json(answer)
            except HttpError as error:
                return _refused(error)
            except ToolfoldError as error:
                wait = None if error.done else getattr(error, "retry_after_s", None)
                headers = {"retry-after": str(wait)} if wait else None
                return _json({"error": error_dict(error)}, _status_of(error), headers)
            except Exception:
                # The reason may hold secrets of a server: it goes to the log, never to the caller.
                log.exception("%s failed", request.url.path)
                return _json({"error": INTERNAL_ERROR}, 500)

        return endpoint

    def operation(self, name: str) -> _Endpoint:
        async def run(caller: Caller, request: "Request") -> Answer:
            body = await _read_body(request)
            _check_json(body)
            work = self._operations.run(name, body, CallContext(caller=caller))
            try:
                return await (_until_disconnect(request, work) if name in LONG else work)
            except SignInRequired as error:
                raise await self._with_address(caller, error) from error

        return self.guarded(run)

    async def _with_address(self, caller: Caller, error: SignInRequired) -> ToolfoldError:
        """The same error with the address to open, for a caller who may have no shell where this runs."""
        from toolfold.calls.sign_in import with_address

        server = error.server
        if server not in self._gateway.upstreams.per_caller:
            action = f"ask whoever runs this gateway to sign in to {server}"
            return SignInRequired(error.message, server=server, next_action=action)
        try:
            begun = await self._gateway.upstreams.credentials.sign_ins.begin(server, caller.name)
        except ToolfoldError as problem:
            return problem
        return with_address(error, begun, f"; POST /v1/sign-ins/{server} gives an address, too")

    async def agent_run(self, caller: Caller, request: "Request") -> "Response":
        return await _stream_run(self._gateway, caller, await _read_body(request))

    async def live(self, caller: Caller, request: "Request") -> Answer:
        """One of the three tools of a live session. Requests that name the same session share it."""
        body = await _read_body(request)
        _check_json(body)
        try:
            arguments = msgspec.json.decode(body, type=dict[str, Any])
        except DECODE_ERRORS as error:
            raise InvalidArguments(
                f"the body must be one JSON object: {error}", next_action='send {"expr": "…"}'
            ) from error
        session = request.headers.get(SESSION_HEADER, "")[:MAX_SESSION_NAME]
        # The prefix keeps a session that a header names apart from those of stdio and MCP clients.
        caller = replace(caller, session=f"http-{session}")
        return await self._gateway.live_sessions.sessions.dispatch(caller, request.path_params["name"], arguments)

    async def output(self, caller: Caller, request: "Request") -> "Response":
        """A stored output of this caller, whole: its bytes under its own type."""
        from toolfold.faces.http_api.open_file import OpenFileResponse

        stored, path = await self._gateway.outputs.find(request.path_params["handle"], caller)
        media_type = stored.media_type if _MEDIA_TYPE.fullmatch(stored.media_type) else "application/octet-stream"
        # A tool's server chose bytes and type: no browser may take them for a page of this service.
        headers = {**_SAFE, "content-disposition": "attachment", "content-security-policy": "sandbox"}
        try:
            return OpenFileResponse(path, media_type=media_type, headers=headers)
        except FileNotFoundError:  # it expired just now: the same question says so
            await self._gateway.outputs.find(request.path_params["handle"], caller)
            raise

    async def leaves(self, caller: Caller, request: "Request") -> Answer:
        return await list_leaves(self._gateway, caller, request)

    async def read_resource(self, caller: Caller, request: "Request") -> Answer:
        return await self._of_body(read_resource, caller, request)

    async def get_prompt(self, caller: Caller, request: "Request") -> Answer:
        return await self._of_body(get_prompt, caller, request)

    async def _of_body(
        self, work: Callable[[Gateway, Caller, Raw], Coroutine[Any, Any, Answer]], caller: Caller, request: "Request"
    ) -> Answer:
        body = await _read_body(request)
        _check_json(body)
        try:
            return await _until_disconnect(request, work(self._gateway, caller, body))
        except SignInRequired as error:
            raise await self._with_address(caller, error) from error

    async def servers(self, caller: Caller, request: "Request") -> Answer:
        """Names, kinds and counts. How a server is started is its owner's business."""
        states = await _visible_states(self._gateway, caller)
        keys = ("name", "transport", "status", "tools", "note")
        return {"servers": [{key: getattr(state, key) for key in keys} for state in states]}

    async def sign_ins(self, caller: Caller, request: "Request") -> Answer:
        """Where this caller is signed in with an account of its own."""
        found = await self._gateway.upstreams.credentials.summaries([caller.name])
        # Why one cannot be read is the business of whoever runs this.
        keys = ("server", "caller", "subject", "issuer", "expires_at", "renews", "exchanged", "ended")
        return {"sign_ins": [{key: getattr(one, key) for key in keys} for one in found if one.caller == caller.name]}

    def _own_server(self, caller: Caller, request: "Request") -> str:
        """The server that a request names, where this caller has an account of its own."""
        servers, name = self._gateway.upstreams, request.path_params["server"]
        if name not in servers.per_caller or self._gateway.view(caller).hides(name):
            raise _RequestError(
                404,
                "NOT_FOUND",
                f"there is no server {name[:100]!r} at which each caller has an account of its own",
                next_action="see GET /v1/servers; at all others whoever runs the gateway signs in",
            )
        return str(name)

    async def sign_in_or_out(self, caller: Caller, request: "Request") -> Answer:
        server = self._own_server(caller, request)
        return await (self._sign_in if request.method == "POST" else self._sign_out)(caller, server)

    async def _sign_in(self, caller: Caller, server: str) -> Answer:
        """The address to open in a browser."""
        sign_in = await self._gateway.upstreams.credentials.sign_ins.begin(server, caller.name)
        return {"server": server, "url": sign_in.url}

    async def _sign_out(self, caller: Caller, server: str) -> Answer:
        if not self._gateway.upstreams.credentials.has(server, caller.name):
            raise _RequestError(
                404, "NOT_FOUND", f"you are not signed in to {server}", next_action="see GET /v1/sign-ins"
            )
        revoked, left = await self._gateway.upstreams.credentials.sign_out(server, caller.name)
        self._gateway.upstreams.sign_in_changed(server, caller.name)
        return {"server": server, "revoked": revoked, "left": left}

    async def sign_in_page(self, request: "Request") -> "Response":
        from starlette.responses import Response

        target = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        page = await self._gateway.upstreams.credentials.sign_ins.answer(request.method, target, request.headers)
        return Response(page.body, page.status, headers=dict(page.headers))

    async def instructions(self, caller: Caller, request: "Request") -> Answer:
        return {"instructions": await discovery_instructions(self._gateway, caller)}

    async def health(self, caller: Caller, request: "Request") -> Answer:
        """The process answers. It asks nobody else: whoever is restarted for a store that is away helps no one."""
        return {"status": "ok", "version": __version__}

    async def ready(self, caller: Caller, request: "Request") -> "Response":
        status, answer = await self._drain.ready()
        return _json(answer, status)

    async def openapi(self, caller: Caller, request: "Request") -> Answer:
        return document()

    async def docs(self, caller: Caller, request: "Request") -> "Response":
        from starlette.responses import HTMLResponse

        from toolfold.faces.http_api.page import _security_policy, page

        return HTMLResponse(page(), headers={"content-security-policy": _security_policy()})


async def _until_disconnect(request: "Request", work: Coroutine[Any, Any, Answer]) -> Answer:
    """Awaits `work`, and cancels it when the client goes away."""
    answer: list[Answer] = []

    async def run() -> None:
        answer.append(await work)

    watch = DisconnectWatch(request.receive)
    try:
        await watch.run(run())
    except ClientGone:  # 499 is nginx's status for it, seen only in logs
        raise _RequestError(
            499, "CLIENT_GONE", "nobody waits for the answer", next_action="ask again and wait"
        ) from None
    finally:
        watch.stop()
    return answer[0]


def _json(answer: Answer, status: int = 200, headers: Mapping[str, str] | None = None) -> "Response":
    from starlette.responses import Response

    if isinstance(answer, str):
        answer = {"text": answer}
    elif isinstance(answer, TextAndData):
        answer = answer.data
    body = bytes(answer) if isinstance(answer, Raw) else msgspec.json.encode(answer, enc_hook=str)
    return Response(body, status, media_type="application/json", headers={**_SAFE, **(headers or {})})


def _refused(refusal: HttpError) -> "Response":
    """What the guard refuses, in the form of all errors."""
    error = _RequestError(refusal.status, refusal.code, refusal.message, next_action=refusal.next_action)
    headers = {name.decode(): value.decode() for name, value in refusal.headers}
    return _json({"error": error.as_dict()}, refusal.status, headers)


async def _http_exception(request: "Request", error: Any) -> "Response":
    """What the router refuses, in the form of all errors."""
    status = error.status_code
    if status == 405:
        message, action = (
            f"{request.method[:20]} is not possible here",
            "use POST for operations under /v1, GET for all else",
        )
        refused = _RequestError(status, "METHOD_NOT_ALLOWED", message, next_action=action)
    else:
        operations = tuple(f"/v1/{definition.name}" for definition in DISCOVERY)
        message = "there is nothing at this address"
        refused = _RequestError(status, "NOT_FOUND", message, hints=operations, next_action="see /docs")
    return _json({"error": refused.as_dict()}, error.status_code, error.headers)


class _RunRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of the request."""

    task: str
    agent: str = ""


async def _stream_run(gateway: Gateway, caller: Caller, body: Raw) -> "Response":
    """Starts a run and returns its stream. Raises before the stream begins for what is wrong with the request."""
    from starlette.responses import StreamingResponse

    try:
        request = msgspec.json.decode(body, type=_RunRequest)
    except DECODE_ERRORS as error:
        raise InvalidArguments(
            f"the request cannot be read: {error}", next_action='send {"task": "…"} and, if you like, "agent"'
        ) from error
    events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    agent = gateway.agent(request.agent, caller=caller, listener=events.put_nowait)
    agent.check()
    run = asyncio.ensure_future(agent.run(request.task))
    # `x-accel-buffering`: nginx would otherwise hold events back until its buffer is full.
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_run_events(run, events), media_type="text/event-stream", headers=headers)


async def _run_events(
    run: "asyncio.Future[Any]", events: "asyncio.Queue[dict[str, Any] | None]"
) -> AsyncIterator[bytes]:
    run.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield _sse(event["event"], event)
        try:
            report = (await run).as_dict()
        except ToolfoldError as error:
            report = {"error": error.as_dict()}
        yield _sse("report", report)
    finally:
        # The generator is closed when the client goes away, in the middle of the run.
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


def _sse(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data, enc_hook=str))
