"""Who may talk to an HTTP server at all: the name it was called by, the page that calls, and the key that is shown.

A browser can be made to send requests to this machine by any page it shows, under any name that leads here. So `Host`
must be a name of this machine, unless keys are asked for, and so must `Origin`, where there is one: `Host` proves
nothing about a page, since a name that an attacker owns may lead here. A key is looked at by `identify` and goes no
further. Above: `http.py`, and the other faces on the same port.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from toolfold.errors import NotAuthorized
from toolfold.types import LOCAL, Caller
from toolfold.wire.http_client import is_loopback

_Identify = Callable[[Mapping[str, str]], Caller]
"""Who calls, by the headers of a request. Raises `NotAuthorized` for a key that is missing or unknown."""

_CHALLENGE = b'Bearer realm="toolfold"'


def _local(headers: Mapping[str, str]) -> Caller:
    """Everybody who gets here is the person at this machine."""
    return LOCAL


class HttpError(Exception):
    """An answer that is no message: its status says it. `code` and `next_action` are for faces that tell them."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        *,
        code: str = "",
        next_action: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers
        self.code = code
        self.next_action = next_action


class HttpGuard(Struct, frozen=True, kw_only=True):
    """What is let in. `any_host`: it may be called by any name, for servers that ask for keys."""

    any_host: bool = False
    identify: _Identify = _local

    def check(self, headers: Mapping[str, str]) -> Caller:
        """The caller of a request that may come in. Raises `Refusal`."""
        self.admit(headers)
        return self.caller(headers)

    def admit(self, headers: Mapping[str, str]) -> None:
        """Raises `Refusal` for a request that was led here, whoever sends it."""
        if not self.any_host and not is_loopback(_host_of(headers.get("host", ""))):
            raise HttpError(
                403,
                "without keys this server answers only to the names of its own machine",
                code="HOST_NOT_ALLOWED",
                next_action="ask for 127.0.0.1 or localhost, or configure keys under [callers.NAME]",
            )
        origin = headers.get("origin")
        if origin is not None and not _is_local_origin(origin):
            raise HttpError(
                403,
                "pages of that origin may not ask here",
                code="ORIGIN_NOT_ALLOWED",
                next_action="ask from a page of this machine, or from a program",
            )

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Who asks. Raises `Refusal` for nobody that is known."""
        try:
            return self.identify(headers)
        except NotAuthorized as error:
            raise HttpError(
                401,
                error.message,
                ((b"www-authenticate", _CHALLENGE),),
                code="NOT_AUTHENTICATED",
                next_action=error.next_action or "send a key that is known here: Authorization: Bearer KEY",
            ) from error


def _is_local_origin(origin: str) -> bool:
    scheme, _, host = origin.partition("://")
    return scheme in {"http", "https"} and is_loopback(_host_of(host))


def _host_of(header: str) -> str:
    """The name in a `Host` header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def parse_headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """The headers by their names in small letters; of several of one name, the first counts."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1").strip())
    return found
