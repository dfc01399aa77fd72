"""The addresses of the console, and the one path that every request takes: who asks, which page, errors as pages.

A request is let in by the guard of the HTTP face, with the key of the browser's session in place of the header. What
changes something is a POST with the token of a form, from a page of this very address. Above: `toolfold serve`.
"""

import asyncio
import logging
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from msgspec import Struct

from toolfold.errors import NotAuthorized, ToolfoldError
from toolfold.faces.console.browser import _BrowserSession, _Cookies, _new_session, _Undo
from toolfold.faces.console.html import HERE, _render
from toolfold.faces.console.pages import GETS, MENU, POSTS
from toolfold.faces.console.visit import Work, _Page, _Redirect, _Visit
from toolfold.faces.http_api.drain import CHANGES
from toolfold.faces.http_api.request import _read_bounded, _RequestError
from toolfold.gateway import Gateway
from toolfold.wire.serving.http_guard import HttpError, HttpGuard, _is_foreign
from toolfold.wire.serving.seal import Seals

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

log = logging.getLogger("toolfold.console")

__all__ = ["_console_routes"]

_MAX_FORM_BYTES = 64 * 1024
_MAX_HINTS = 20
_TICK_S = 1.0
# A stream of events ends after so many ticks, and the browser asks again: a key that was withdrawn ends it, too.
_TICKS = 120

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_SAFE = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_PRIVATE = {**_SAFE, "cache-control": "no-store"}

_Endpoint = Callable[["Request"], Awaitable["Response"]]


class _Entry(Struct):
    """How whoever started `toolfold console` comes in: by a token, once."""

    token: str = ""
    key: str = ""


def _console_routes(
    gateway: Gateway, guard: HttpGuard, *, entry: tuple[str, str] = ("", ""), owner: bool = False
) -> "list[Route]":
    """The pages. `entry` is a token that lets in once, and the key that it stands for; `owner`: whoever is let in is
    who runs the gateway, and may do all that a policy lets administrators do."""
    from starlette.routing import Route

    console = _Console(gateway, guard, _Entry(*entry), owner=owner)
    pages = [Route(address, console.page(work), methods=["GET"]) for address, work in GETS.items()]
    pages += [Route(address, console.page(work), methods=["POST"]) for address, work in POSTS.items()]
    return [
        *pages,
        Route("/log-in", console.log_in, methods=["GET", "POST"]),
        Route("/log-out", console.log_out, methods=["POST"]),
        Route("/enter/{token}", console.enter, methods=["GET"]),
        Route(CHANGES, console.changes, methods=["GET"]),
        Route("/console/static/{version}/{name:path}", console.asset, methods=["GET"]),
    ]


class _Console:
    """The console of one gateway."""

    def __init__(self, gateway: Gateway, guard: HttpGuard, entry: _Entry, *, owner: bool) -> None:
        self._gateway = gateway
        self._guard = guard
        self._entry = entry
        self._owner = owner
        self._memory: dict[Any, Any] = {}
        public = gateway.settings.sign_in.public_url or gateway.settings.auth.resource
        seals = gateway.peers.seals if gateway.peers is not None else Seals()
        self._cookies = _Cookies(seals, secure=public.startswith("https:"))

    # --- who asks

    async def _visit(self, request: "Request") -> _Visit:
        """Who asks, with the form that was sent. Raises `HttpError` for whoever is not let in."""
        session = await self._cookies.read(request)
        key = session.key if session is not None else ""
        _, caller = await self._guard.check(_own_scope(request, self._guard, key))
        fresh = session is None
        session = session or _new_session()
        form = await self._form(request, session) if request.method == "POST" else {}
        admin = self._owner or self._gateway.access.is_admin(caller)
        known = self._gateway.access.resolve(caller)
        visit = _Visit(self._gateway, known, request, session, form, admin=admin, memory=self._memory)
        visit.changed = fresh
        return visit

    async def _form(self, request: "Request", session: _BrowserSession) -> dict[str, str]:
        body = await _read_bounded(request, _MAX_FORM_BYTES)
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not await self._cookies.check_form(session, form.pop("token", "")):
            raise _RequestError(
                403,
                "FORM_TOO_OLD",
                "this form is not of a page that this browser was given, or it is too old: nothing was changed",
                next_action="load the page again, and send it once more",
            )
        return form

    # --- what is answered

    def page(self, work: Work) -> _Endpoint:
        """An endpoint that answers with a page, whatever happens."""

        async def endpoint(request: "Request") -> "Response":
            visit: _Visit | None = None
            try:
                visit = await self._visit(request)
                answer = await work(visit)
                return self._redirect(visit, answer) if isinstance(answer, _Redirect) else self._shown(visit, answer)
            except HttpError as error:
                if error.status == 401 and request.method == "GET":
                    return _to(request, "/log-in")
                return self._error(request, error, visit)
            except ToolfoldError as error:
                return self._error(request, error, visit)
            except Exception:
                # The reason may hold secrets of a server: it goes to the log, never to the page.
                log.exception("%s failed", request.url.path)
                broken = HttpError(500, "something went wrong here", code="INTERNAL_ERROR", next_action="see the log")
                return self._error(request, broken, visit)

        return endpoint

    def _shown(self, visit: _Visit, page: _Page) -> "Response":
        if page.file:
            return _kept(page)
        notice, undo = visit.session.notice, visit.session.undo
        if notice and "hx-request" not in visit.request.headers:
            visit.session.notice, visit.session.undo, visit.changed = "", None, True
        return self._respond(
            visit.request, page.template, page.values, visit=visit, status=page.status, notice=notice, undo=undo
        )

    def _redirect(self, visit: _Visit, answer: _Redirect) -> "Response":
        visit.session.notice, visit.session.undo = answer.notice, answer.undo
        response = _to(visit.request, answer.address)
        self._cookies.write(response, visit.request, visit.session)
        return response

    def _error(self, request: "Request", error: HttpError | ToolfoldError, visit: _Visit | None = None) -> "Response":
        code = error.as_dict()["code"] if isinstance(error, ToolfoldError) else error.code
        values: dict[str, Any] = {"title": "That did not work", "code": code, "message": error.message}
        hints = [_hint(hint) for hint in error.hints] if isinstance(error, ToolfoldError) else []
        values |= {"next_action": error.next_action, "hints": hints[:_MAX_HINTS]}
        return self._respond(request, "error.html", values, visit=visit, status=_status(error))

    def _respond(
        self,
        request: "Request",
        template: str,
        values: Mapping[str, Any],
        *,
        visit: _Visit | None = None,
        session: _BrowserSession | None = None,
        status: int = 200,
        notice: str = "",
        undo: _Undo | None = None,
    ) -> "Response":
        from starlette.responses import HTMLResponse

        session = visit.session if visit is not None else session
        shell = {
            "base": request.scope.get("root_path", ""),
            "here": request.url.path.removeprefix(request.scope.get("root_path", "")),
            "menu": MENU if visit is not None else (),
            "visit": visit,
            "signed_in": session is not None and bool(session.key),
            "token": "" if session is None else self._cookies.form_token(session),
            "notice": notice,
            "undo": undo,
        }
        response = HTMLResponse(_render(template, **shell, **values), status, headers=_PRIVATE)
        if session is not None and (visit is None or visit.changed):
            self._cookies.write(response, request, session)
        return response

    # --- coming and going

    async def log_in(self, request: "Request") -> "Response":
        try:
            self._guard.admit(_own_scope(request, self._guard, ""))
            session = await self._cookies.read(request) or _new_session()
            if request.method == "GET":
                return self._respond(request, "log_in.html", {"title": "Log in", "problem": ""}, session=session)
            key = (await self._form(request, session)).get("key", "").strip()
            return await self._let_in(request, session, key)
        except (HttpError, _RequestError) as error:
            return self._error(request, error)

    async def _let_in(self, request: "Request", session: _BrowserSession, key: str) -> "Response":
        problem = ""
        # Another id than before: one that somebody else might know is worth nothing afterwards.
        fresh = _new_session(key)
        if not key.isascii() or not self._cookies.fits(fresh):
            problem = "That is too long to be kept by a browser, or has letters that no key has. Use an API key."
        else:
            try:
                await self._guard.check(_own_scope(request, self._guard, key))
            except HttpError as error:
                problem = f"{error.message}."
        if problem:
            values = {"title": "Log in", "problem": problem}
            return self._respond(request, "log_in.html", values, session=session, status=401)
        response = _to(request, "/")
        self._cookies.write(response, request, fresh)
        return response

    async def log_out(self, request: "Request") -> "Response":
        try:
            self._guard.admit(_own_scope(request, self._guard, ""))
            session = await self._cookies.read(request)
            if session is not None:
                await self._form(request, session)
        except (HttpError, ToolfoldError) as error:
            return self._error(request, error)
        response = _to(request, "/log-in")
        self._cookies.write(response, request, None)
        return response

    async def enter(self, request: "Request") -> "Response":
        """The address that `toolfold console` prints: it lets in once."""
        from secrets import compare_digest

        if request.method == "HEAD":  # whoever looks whether it is there does not come in
            return _to(request, "/log-in")
        given = request.path_params["token"].encode()
        try:
            self._guard.admit(_own_scope(request, self._guard, ""))
        except HttpError as error:
            return self._error(request, error)
        if not self._entry.token or not compare_digest(given, self._entry.token.encode()):
            if await self._is_in(request):
                return _to(request, "/")
            used = HttpError(
                403,
                "this address let somebody in already, or was never given out",
                code="USED",
                next_action="end `toolfold console` and start it again",
            )
            return self._error(request, used)
        self._entry.token = ""
        return await self._let_in(request, _new_session(), self._entry.key)

    async def _is_in(self, request: "Request") -> bool:
        """Whether the browser's own session is let in."""
        session = await self._cookies.read(request)
        if session is None:
            return False
        with suppress(HttpError):
            await self._guard.check(_own_scope(request, self._guard, session.key))
            return True
        return False

    # --- what pages load

    async def changes(self, request: "Request") -> "Response":
        """Events without content: that there is something new for this caller."""
        from starlette.responses import PlainTextResponse, StreamingResponse

        try:
            visit = await self._visit(request)
        except HttpError as error:
            return PlainTextResponse(error.message, error.status, headers=_PRIVATE)
        headers = {**_PRIVATE, "x-accel-buffering": "no"}
        return StreamingResponse(self._ticks(visit), media_type="text/event-stream", headers=headers)

    async def _ticks(self, visit: _Visit) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n\n"
        before = await self._stamp(visit)
        for _ in range(_TICKS):
            await asyncio.sleep(_TICK_S)
            after = await self._stamp(visit)
            yield b": still here\n\n" if after == before else b"event: changed\ndata: \n\n"
            before = after

    async def _stamp(self, visit: _Visit) -> object:
        try:
            activity = await self._gateway.audit_log.activity()
            generations = await self._gateway.catalogue.generations()
            states = await visit.servers() if visit.admin else ()
            asked = [one.key for one in visit.waiting]
            return activity.last(visit.whose), len(generations), [(one.name, one.status) for one in states], asked
        except ToolfoldError as error:
            return error.code

    async def asset(self, request: "Request") -> "Response":
        from starlette.responses import FileResponse, PlainTextResponse

        name = request.path_params["name"]
        try:
            self._guard.admit(_own_scope(request, self._guard, ""))
        except HttpError as error:
            return PlainTextResponse(error.message, error.status, headers=_PRIVATE)
        folder = HERE / "static"
        if name not in {str(file.relative_to(folder)) for file in folder.rglob("*.*")}:
            return PlainTextResponse("there is no such file", 404, headers=_PRIVATE)
        kind = mimetypes.guess_type(name)[0] or "text/plain"
        headers = {**_SAFE, "cache-control": "public, max-age=31536000, immutable"}
        return FileResponse(folder / name, media_type=kind, headers=headers)


def _kept(page: _Page) -> "Response":
    """A page as a file: it stands by itself, and asks for nothing."""
    from starlette.responses import HTMLResponse

    headers = {**_PRIVATE, "content-disposition": f'attachment; filename="{page.file}"'}
    return HTMLResponse(_render(page.template, base="", **page.values), headers=headers)


def _hint(hint: Any) -> str:
    """A hint in one line: a tool by its id."""
    return str(hint["tool_id"] if isinstance(hint, dict) and "tool_id" in hint else hint)


def _status(error: HttpError | ToolfoldError) -> int:
    if isinstance(error, (HttpError, _RequestError)):
        return error.status
    return 403 if isinstance(error, NotAuthorized) else 404 if error.code.endswith("NOT_FOUND") else 409


def _to(request: "Request", address: str) -> "Response":
    from starlette.responses import RedirectResponse

    return RedirectResponse(f"{request.scope.get('root_path', '')}{address}", 303, headers=_PRIVATE)


def _own_scope(request: "Request", guard: HttpGuard, key: str) -> dict[str, Any]:
    """The request as the guard looks at it: with the key of the session, and only from pages of this address.

    Raises `HttpError` for another origin, be it of this machine: what listens on another port is another program.
    """
    if _is_foreign(request.method, request.headers):
        raise HttpError(
            403,
            "pages of another origin may not ask here",
            code="ORIGIN_NOT_ALLOWED",
            next_action="open the console at its own address",
        )
    headers = list(request.scope["headers"])
    if guard.any_host:  # a public name is its own origin, and no name of this machine
        headers = [(name, value) for name, value in headers if name != b"origin"]
    if key and "authorization" not in request.headers:
        headers.append((b"authorization", b"Bearer " + key.encode()))
    return {**request.scope, "headers": headers}
