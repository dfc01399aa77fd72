"""Which HTTP requests are let in: the checks of `Host` and `Origin`, and of the key.

A browser can be made to send requests to this machine by any page it shows, under any name that leads here. So `Host`
must be a name of this machine, unless keys are asked for, and so must `Origin`, where there is one: `Host` proves
nothing about a page, since a name that an attacker owns may lead here. A key is looked at by `identify` and goes no
further. No header that is read as one value may stand twice: a proxy before this server might have checked the other.
Above: `http.py`, and the other faces on the same port.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from toolfold.errors import NotAuthorized
from toolfold.types import LOCAL, Caller
from toolfold.wire.http_client import is_loopback

__all__ = ["HttpError", "HttpGuard", "_is_foreign"]

# Under which the state of a request holds what is called, with the caller's name, once it is let in.
ENTER = "toolfold.enter"

# What is read as one value, beside all of MCP's own. Other headers may stand in several lines.
_SINGLE = frozenset({"authorization", "content-type", "host", "last-event-id", "origin", "toolfold-session"})

_Scope = MutableMapping[str, Any]

# Who calls, by the headers of a request. Raises `NotAuthorized` for a key that is missing or unknown, and `HttpError`
# for a token. Only tokens may have to be waited for: whoever has a key, or needs none, is known at once.
_Identify = Callable[[Mapping[str, str]], "Caller | Awaitable[Caller]"]

_CHALLENGE = b'Bearer realm="toolfold"'


def _local(headers: Mapping[str, str]) -> Caller:
    """Without keys, every caller is the user of this machine."""
    return LOCAL


class HttpError(Exception):
    """An HTTP error response. `code` and `next_action` are for faces that show them; `caller` is who asked, where that
    is known of a request that is not let in."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        *,
        code: str = "",
        next_action: str = "",
        caller: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers
        self.code = code
        self.next_action = next_action
        self.caller = caller


def _ignore(address: str, error: HttpError) -> None:
    """Nobody wants to hear of refused keys."""


class HttpGuard(Struct, frozen=True, kw_only=True):
    """Admits requests. `any_host`: any `Host` will do, for servers that require keys. `on_refused` hears of each
    request without a known key or token: the address it came from, and why. `subset` is what its callers come in by."""

    any_host: bool = False
    identify: _Identify = _local
    on_refused: Callable[[str, HttpError], None] = _ignore
    subset: str = ""

    async def check(self, scope: _Scope) -> tuple[Mapping[str, str], Caller]:
        """The headers and the caller of a request that is let in. Raises `HttpError`."""
        headers = self.admit(scope)
        if b"access_token=" in unquote_to_bytes(scope.get("query_string", b"")):
            raise HttpError(
                400,
                "a token stands in the address, where logs of others keep it: it is not looked at",
                code="TOKEN_IN_ADDRESS",
                next_action="withdraw that token, and send the next one as: Authorization: Bearer TOKEN",
            )
        try:
            found = self.identify(headers)
            caller = found if isinstance(found, Caller) else await found
        except HttpError as error:
            self._tell(scope, error)
            raise
        except NotAuthorized as error:
            refused = HttpError(
                401,
                error.message,
                ((b"www-authenticate", _CHALLENGE),),
                code="NOT_AUTHENTICATED",
                next_action=error.next_action or "send a key that is known here: Authorization: Bearer KEY",
            )
            self._tell(scope, refused)
            raise refused from error
        enter: Callable[[str], None] | None = scope.get("state", {}).get(ENTER)
        if enter is not None:
            enter(caller.name)
        return headers, replace(caller, subset=self.subset) if self.subset else caller

    def _tell(self, scope: _Scope, error: HttpError) -> None:
        self.on_refused((scope.get("client") or ("",))[0], error)

    def admit(self, scope: _Scope) -> Mapping[str, str]:
        """The headers of a request, whoever asks. Raises `HttpError` for one that a foreign page or name led here."""
        headers = _parse_headers(scope)
        self._check_origin(headers)
        return headers

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        # DNS rebinding: an attacker's name may resolve to 127.0.0.1, and only `Host` shows it.
        if not self.any_host and not is_loopback(_host_of(headers.get("host", ""))):
            raise HttpError(
                403,
                "without keys this server answers only to the names of its own machine",
                code="HOST_NOT_ALLOWED",
                next_action="ask for 127.0.0.1 or localhost, or configure keys under [callers.NAME]",
            )
        # Programs send no `Origin`, browsers always do.
        origin = headers.get("origin")
        if origin is not None and not _is_local_origin(origin):
            raise HttpError(
                403,
                "pages of that origin may not ask here",
                code="ORIGIN_NOT_ALLOWED",
                next_action="ask from a page of this machine, or from a program",
            )


def _parse_headers(scope: _Scope) -> dict[str, str]:
    """The headers by lower-case name; lines of the same name are joined, where that is allowed."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1").strip()
        if name not in headers:
            headers[name] = value
        elif name in _SINGLE or name.startswith("mcp-"):
            raise HttpError(
                400,
                f"the header {name[:60]} stands there more than once",
                code="REPEATED_HEADER",
                next_action="send it once",
            )
        else:
            headers[name] += f", {value}"
    return headers


def _is_foreign(method: str, headers: Mapping[str, str], own: str = "") -> bool:
    """Whether another page sent a request, be it of this machine: what listens on another port is another program. One
    that merely leads here, as a link does, did not. `own` is our address where a proxy may say another `Host`."""
    origin = headers.get("origin")
    if origin is not None and _netloc_of(origin) not in {headers.get("host", "").lower(), _netloc_of(own)} - {""}:
        return True
    navigates = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    return not navigates and headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}


def _netloc_of(url: str) -> str:
    try:
        parts = urlsplit(url.lower())
    except ValueError:
        return ""
    return parts.netloc.removesuffix(":443" if parts.scheme == "https" else ":80")  # as browsers write it


def _is_local_origin(origin: str) -> bool:
    scheme, _, host = origin.partition("://")
    return scheme in {"http", "https"} and is_loopback(_host_of(host))


def _host_of(header: str) -> str:
    """The name in a `Host` header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
