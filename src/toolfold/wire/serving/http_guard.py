"""Who may talk to an HTTP server at all: the name it was called by, the page that calls, and the key that is shown.

A browser can be made to send requests to this machine by any page it shows, under any name that leads here. So `Host`
must be a name of this machine, unless keys are asked for, and `Origin`, where there is one, must be allowed. A key is
looked at by `identify` and goes no further. Above: `http.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from toolfold.errors import NotAuthorized
from toolfold.types import LOCAL, Caller

Identify = Callable[[Mapping[str, str]], Caller]
"""Who calls, by the headers of a request. Raises `NotAuthorized` for a key that is missing or unknown."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def local(headers: Mapping[str, str]) -> Caller:
    """Everybody who gets here is the person at this machine."""
    return LOCAL


class Refusal(Exception):
    """An answer that is no message: its status says it."""

    def __init__(self, status: int, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers


class Guard(Struct, frozen=True, kw_only=True):
    """What is let in. `hosts` are the names it may be called by; empty: any, for servers that ask for keys."""

    hosts: frozenset[str] = LOOPBACK
    origins: frozenset[str] = frozenset()
    """Origins allowed besides those of this machine, as `https://host:port`."""
    identify: Identify = local

    def check(self, headers: Mapping[str, str]) -> Caller:
        """The caller. Raises `Refusal`."""
        if self.hosts and host_of(headers.get("host", "")) not in self.hosts:
            raise Refusal(403, "this server is not known by that name; call it by its address on this machine")
        origin = headers.get("origin")
        if origin is not None and not self._allows(origin):
            raise Refusal(403, "pages of that origin may not call this server")
        try:
            return self.identify(headers)
        except NotAuthorized as error:
            raise Refusal(401, error.message, ((b"www-authenticate", b'Bearer realm="toolfold"'),)) from error

    def _allows(self, origin: str) -> bool:
        if origin in self.origins:
            return True
        return origin.startswith(("http://", "https://")) and host_of(origin.partition("//")[2]) in LOOPBACK


def host_of(header: str) -> str:
    """The name in a `Host` header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """The headers by their names in small letters; of several of one name, the first counts."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1").strip())
    return found
