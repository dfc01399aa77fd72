"""How whoever runs `toolfold console` comes in: by an address that lets in once. Nobody else is let in at all."""

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from toolfold.errors import NotAuthorized
from toolfold.faces.console.app import _console_routes
from toolfold.faces.identity import _bearer_token
from toolfold.gateway import Gateway
from toolfold.types import LOCAL, Caller
from toolfold.wire.serving.http_guard import HttpGuard

if TYPE_CHECKING:
    from starlette.routing import Route


class _OwnerEntry:
    """The entry of one process. `announce` is given the address once something listens there."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._token = secrets.token_urlsafe(24)
        # What stands in the browser's session, and what the rest of the port asks for, too.
        self._key = secrets.token_urlsafe(32)
        self.guard = HttpGuard(identify=self._identify)

    def _identify(self, headers: Mapping[str, str]) -> Caller:
        given = _bearer_token(headers) or ""
        if not secrets.compare_digest(given.encode(), self._key.encode()):
            raise NotAuthorized(
                "this is for whoever started it", next_action="open the address that `toolfold console` printed"
            )
        return LOCAL

    def routes(self, gateway: Gateway) -> "list[Route]":
        return _console_routes(gateway, self.guard, entry=(self._token, self._key), owner=True)

    def announce(self, site: str) -> None:
        self._announce(f"{site.rstrip('/')}/enter/{self._token}")
