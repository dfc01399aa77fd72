"""The session of a browser: sealed in its cookie, so that any gateway on the same store opens it, and none keeps it.

The cookie holds the key or token that the person gave on the log-in page. Each request is let in by that key anew, as
one with the header would be: a key that is withdrawn ends every session that was made from it. The cookie cannot be
read by scripts, and no other site can have it sent. Every form carries a token that only pages for this very session
hold: a page of another program on this machine is of the same site, so the cookie alone proves nothing.
"""

import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from toolfold.wire.serving.seal import Seals

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_PURPOSE = "console-session"
_FORM_PURPOSE = "console-form"
LIFETIME_S = 12 * 3600
# Browsers keep no longer cookie.
MAX_COOKIE = 4_000


class _Undo(Struct, frozen=True):
    """What takes the last change back: where to send which fields."""

    action: str
    fields: dict[str, str]


class _BrowserSession(Struct):
    """What the cookie holds. `notice` is what the next page says once."""

    id: str
    until: float
    key: str = ""
    notice: str = ""
    undo: _Undo | None = None


def _new_session(key: str = "") -> _BrowserSession:
    return _BrowserSession(secrets.token_urlsafe(16), time.time() + LIFETIME_S, key)


class _Cookies:
    """Reads and writes the cookie of a browser. `secure`: people come by HTTPS, whatever stands before this."""

    def __init__(self, seals: Seals, *, secure: bool = False) -> None:
        self._seals = seals
        self._secure = secure

    def _name(self, request: "Request") -> str:
        # Cookies know no ports: several gateways on one machine must not take each other's.
        port = (request.scope.get("server") or ("", 0))[1]
        return f"toolfold-{port}"

    async def read(self, request: "Request") -> _BrowserSession | None:
        text = _cookie(request, self._name(request))
        if not text:
            return None
        await self._seals.find_key(text)
        sealed = self._seals.unseal_text(_PURPOSE, text)
        if sealed is None:
            return None
        try:
            session = msgspec.msgpack.decode(sealed, type=_BrowserSession)
        except msgspec.DecodeError:  # it is of another version of toolfold
            return None
        return session if session.until > time.time() else None

    def write(self, response: "Response", request: "Request", session: _BrowserSession | None) -> None:
        name, path = self._name(request), request.scope.get("root_path") or "/"
        if session is None:
            response.delete_cookie(name, path=path)
            return
        text = self._seals.seal_text(_PURPOSE, msgspec.msgpack.encode(session))
        secure = self._secure or request.url.scheme == "https"
        response.set_cookie(name, text, max_age=LIFETIME_S, path=path, httponly=True, samesite="strict", secure=secure)

    def fits(self, session: _BrowserSession) -> bool:
        return len(self._seals.seal_text(_PURPOSE, msgspec.msgpack.encode(session))) <= MAX_COOKIE

    def form_token(self, session: _BrowserSession) -> str:
        return self._seals.seal_text(_FORM_PURPOSE, session.id.encode())

    async def check_form(self, session: _BrowserSession, token: str) -> bool:
        await self._seals.find_key(token)
        return secrets.compare_digest(self._seals.unseal_text(_FORM_PURPOSE, token) or b"", session.id.encode())


def _cookie(request: "Request", name: str) -> str:
    try:
        morsel = SimpleCookie(request.headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
