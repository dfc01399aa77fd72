"""Sign-ins that a client asked for, and that wait for a person with a browser.

An address is given out for one caller and one server. It opens a page that says for whom the account will be used, and
goes on to the authorization server only from there, with a cookie in the browser that read it. The callback needs the
state and that cookie: whoever is handed the second address alone cannot end a sign-in that another began. A button
counts only where it was pressed on a page of ours. By plain http another program can have put the cookie there: a
caller's account is then connected by a second button, at the end. What waits is bounded in number and time. Above: the
gateway, and the faces that serve the pages. Below: `callback.py`, `grants.py`.
"""

import asyncio
import hmac
import html
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from toolfold.auth.callback import CALLBACK, LoopbackListener, Page
from toolfold.containers import Listeners
from toolfold.errors import ServerUnavailable, ToolfoldError
from toolfold.types import LOCAL
from toolfold.wire.serving.http_guard import _is_foreign

if TYPE_CHECKING:
    from toolfold.auth.grants import CodeLogin, Prospect
    from toolfold.auth.vault import Credential

__all__ = ["SignIn"]

START = "/oauth/start/"

_LIFETIME_S = 600.0
_MAX_WAITING = 1000
_MAX_TARGET = 8192

log = logging.getLogger("toolfold.auth")


class SignIn(Struct, eq=False):
    """One that waits, or is done."""

    identifier: str
    server: str
    caller: str
    """Whose account it will be; empty: everybody's."""
    url: str
    login: "CodeLogin"
    done: "asyncio.Future[Credential | None]"
    """`None`: it was given up."""
    browser: str = ""
    """The cookie of the browser that went on from the page."""
    timer: asyncio.TimerHandle | None = None


class SignIns:
    """All that wait. `prepare` finds out how to sign in to a server, `keep` stores what came of it."""

    def __init__(
        self,
        prepare: Callable[[str, str], Awaitable["Prospect"]],
        keep: Callable[["Credential"], Awaitable[None]],
    ) -> None:
        self._prepare = prepare
        self._keep = keep
        self._waiting: dict[str, SignIn] = {}
        self._by_owner: dict[tuple[str, str], asyncio.Task[SignIn]] = {}
        self._by_state: dict[str, SignIn] = {}
        self._key = secrets.token_bytes(32)
        self._resources = AsyncExitStack()
        self._opening = asyncio.Lock()
        # Where browsers reach these pages; a face that serves them says so. Else a port of this machine is opened.
        self.base = ""
        self.finished: Listeners[Callable[[SignIn], object]] = Listeners(log)

    async def aclose(self) -> None:
        for sign_in in tuple(self._waiting.values()):
            self._drop(sign_in)
        await self._resources.aclose()

    async def begin(self, server: str, caller: str) -> SignIn:
        """The address for this caller's sign-in. One that waits already is given again."""
        key = (caller, server)
        task = self._by_owner.get(key)
        if task is None or (task.done() and task.result().done.done()):
            if len(self._by_owner) >= _MAX_WAITING:
                raise ServerUnavailable(
                    "too many people are signing in at this moment", server=server, next_action="try again in a minute"
                )
            task = self._by_owner[key] = asyncio.ensure_future(self._begin(server, caller))
            task.add_done_callback(lambda done: self._forget_failed(key, done))
        return await asyncio.shield(task)

    def _forget_failed(self, key: tuple[str, str], task: "asyncio.Task[SignIn]") -> None:
        if (task.cancelled() or task.exception() is not None) and self._by_owner.get(key) is task:
            del self._by_owner[key]

    async def _begin(self, server: str, caller: str) -> SignIn:
        async with self._opening:
            if not self.base:
                listener = await self._resources.enter_async_context(LoopbackListener(self.answer))
                self.base = listener.address
        login = await (await self._prepare(server, caller)).code_login(self.base + CALLBACK)
        identifier = secrets.token_urlsafe(24)
        loop = asyncio.get_running_loop()
        sign_in = SignIn(identifier, server, caller, self.base + START + identifier, login, loop.create_future())
        self._waiting[identifier] = self._by_state[login.state] = sign_in
        sign_in.timer = loop.call_later(_LIFETIME_S, self._drop, sign_in)
        return sign_in

    def _drop(self, sign_in: SignIn) -> None:
        self._waiting.pop(sign_in.identifier, None)
        self._by_state.pop(sign_in.login.state, None)
        self._by_owner.pop((sign_in.caller, sign_in.server), None)
        if sign_in.timer is not None:
            sign_in.timer.cancel()
        if not sign_in.done.done():
            sign_in.done.set_result(None)

    # --- what a browser meets

    async def answer(self, method: str, target: str, headers: Mapping[str, str]) -> Page:
        """The page for one request below `/oauth/`."""
        parts = urlsplit(target[:_MAX_TARGET])
        if method not in ("GET", "POST"):
            return _nothing_waits()
        if method == "POST" and _is_foreign(method, headers, self.base):
            log.warning("the button of a sign-in was pressed by a page of another origin: refused")
            return Page.of("Not from there", "Another page sent this. Nothing was done.", status=403)
        if parts.path == CALLBACK:
            return await self._callback(method, target, headers)
        sign_in = self._waiting.get(parts.path.removeprefix(START)) if parts.path.startswith(START) else None
        return _nothing_waits() if sign_in is None else self._start(sign_in, method, parts.query, headers)

    def _start(self, sign_in: SignIn, method: str, query: str, headers: Mapping[str, str]) -> Page:
        cookie = self._cookie(headers, sign_in)
        if method == "GET":
            return self._start_page(sign_in, cookie or secrets.token_urlsafe(24))
        # What was not read here is not pressed: only the page has the proof for this browser's cookie.
        proof = parse_qs(query).get("proof", [""])[0]
        if not cookie or not hmac.compare_digest(proof.encode(), self._proof(sign_in, cookie).encode()):
            return Page.of("Begin again", "Your browser did not send the cookie of this page back.", status=403)
        sign_in.browser = cookie
        return Page.redirect(sign_in.login.url)

    def _start_page(self, sign_in: SignIn, cookie: str) -> Page:
        kept = "/; Secure" if self._secure else "/oauth"
        return Page.of(
            f"Connect an account at {sign_in.server}",
            f"The account that you sign in with will be used by {_whose(sign_in)}.",
            "If you did not ask for this yourself, close this page.",
            form=_button("Continue", f"proof={self._proof(sign_in, cookie)}"),
            cookie=f"{self._cookie_name(sign_in)}={cookie}; Path={kept}; Max-Age=900; HttpOnly; SameSite=Lax",
        )

    @property
    def _secure(self) -> bool:
        return self.base.startswith("https:")

    def _cookie_name(self, sign_in: SignIn) -> str:
        # With this prefix no other host of the same domain can have put it there, for its own sign-in.
        return f"{'__Host-' * self._secure}toolfold_{sign_in.identifier[:8].replace('-', '_')}"

    def _cookie(self, headers: Mapping[str, str], sign_in: SignIn) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie_name(sign_in))
        except CookieError:
            return ""
        return found.value if found is not None else ""

    def _proof(self, sign_in: SignIn, cookie: str) -> str:
        return hmac.new(self._key, f"{sign_in.identifier} {cookie}".encode(), "sha256").hexdigest()

    async def _callback(self, method: str, target: str, headers: Mapping[str, str]) -> Page:
        query = urlsplit(target).query
        sign_in = self._by_state.get(parse_qs(query).get("state", [""])[0])
        if sign_in is None:
            return _nothing_waits()
        cookie = self._cookie(headers, sign_in)
        if not sign_in.browser or not cookie or not hmac.compare_digest(cookie.encode(), sign_in.browser.encode()):
            whose = f"of the caller {sign_in.caller} " if sign_in.caller else ""
            log.warning(
                "a sign-in %sto %s was ended in another browser than it began in: refused", whose, sign_in.server
            )
            return Page.of(
                "Not in this browser",
                "This sign-in began in another browser, for somebody else. Nothing was stored.",
                "If somebody sent you the address, they may have wanted to use your account: tell whoever runs this.",
                status=403,
            )
        if method == "GET" and not self._secure and sign_in.caller not in ("", LOCAL.name):
            # A page of the same host, on whatever port, can set a cookie; it can neither read this one nor press here.
            return Page.of(
                "Is this yours?",
                f"The account at {sign_in.server} that you signed in with will be used by {_whose(sign_in)}.",
                "If you did not ask for this yourself, close this page: nothing was stored.",
                form=_button("Connect it", query),
            )
        return await self._finish(sign_in, target)

    async def _finish(self, sign_in: SignIn, target: str) -> Page:
        self._by_state.pop(sign_in.login.state, None)  # a code works once, whatever comes of it
        try:
            credential = await sign_in.login.finish(self.base + target)
            await self._keep(credential)
        except ToolfoldError as error:
            self._drop(sign_in)
            log.warning("%s; next: %s", error.message, error.next_action)  # which is for whoever runs the gateway
            return Page.of("That did not work", error.message, "Nothing was stored. Ask for it again.", status=400)
        if not sign_in.done.done():
            sign_in.done.set_result(credential)
        self._drop(sign_in)
        self.finished.notify(sign_in)
        who = f" as {credential.subject}" if credential.subject else ""
        return Page.of("Signed in", f"You are signed in to {sign_in.server}{who}. You can close this.")


def _whose(sign_in: SignIn) -> str:
    own = f"the caller “{sign_in.caller}” of this gateway, and nobody else"
    return own if sign_in.caller else "everybody who uses this gateway"


def _button(text: str, query: str) -> str:
    return f'<form method="post" action="{html.escape(f"?{query}")}"><button>{text}</button></form>'


def _nothing_waits() -> Page:
    return Page.of(
        "Nothing waits here",
        "This sign-in is over, or it never began. Ask for it again.",
        "Where several gateways answer at this address, reload this page first: another of them may be waiting.",
        status=404,
    )
