"""Turns the API key or token in a request's headers into a `Caller`. For every face that is reached over a wire.

Keys are resolved once, when the face starts, and then held only as keyed hashes. No key is ever logged, and no error
says which part of one was wrong. Tokens of an issuer are checked by `auth.resource`. What a caller may do is not
decided here: that is the policy that its name or its token leads to.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolfold.config import LOCAL_NAME, MIN_KEY_LENGTH, CallerKey, Settings, fill
from toolfold.errors import ConfigError, NotAuthorized
from toolfold.types import LOCAL, Caller
from toolfold.wire.serving.http_guard import HttpGuard

if TYPE_CHECKING:
    from toolfold.auth.resource import ProtectedResource

# A longer header is no key, and refused unread.
MAX_HEADER = 4096


class Identities:
    """Everybody who may come in. Without configured keys or an issuer, whoever reaches the face is the local caller.

    `address` is where MCP is served, which tokens must be issued for; `on_token` is for `ProtectedResource`. Raises
    `SecretNotFound` where a key that the configuration names is not set: a face that cannot tell callers apart must
    not start.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        address: str = "http://127.0.0.1/mcp",
        environ: Mapping[str, str] | None = None,
        on_token: Callable[[str, str, float], object] | None = None,
    ) -> None:
        # A salt of this process: a dump of its memory holds no hash that can be looked up elsewhere.
        self._salt = secrets.token_bytes(32)
        self._address = address
        self._on_token = on_token
        self._resource: ProtectedResource | None = None
        self._callers = self._read(settings, environ)
        self._resource = self._read_auth(settings, environ)

    def _read_auth(self, settings: Settings, environ: Mapping[str, str] | None = None) -> "ProtectedResource | None":
        if not settings.auth.issuer:
            return None
        from toolfold.auth.resource import ProtectedResource

        earlier, on_token = self._resource, self._on_token
        return ProtectedResource(settings, self._address, environ=environ, earlier=earlier, on_token=on_token)

    def _read(self, settings: Settings, environ: Mapping[str, str] | None = None) -> list[tuple[bytes, Caller]]:
        callers: list[tuple[bytes, Caller]] = []
        for entry in settings.callers:
            if entry.name == LOCAL_NAME or not entry.key:
                continue
            key = fill(entry.key, f"caller '{entry.name}'", environ=environ)
            if len(key) < MIN_KEY_LENGTH:
                raise ConfigError(
                    f"the key of caller '{entry.name}' is too short to be safe",
                    next_action=f"give it at least {MIN_KEY_LENGTH} random characters",
                )
            caller = Caller(name=entry.name, policy=entry.policy, groups=entry.groups)
            callers.append((self._hash(key), caller))
        return callers

    def reconfigure(self, settings: Settings) -> None:
        """Takes over other callers, for the next request of each. Raises as when it was made, and then changes nothing.

        The last key or issuer cannot go: what let nobody in without one would let in everybody.
        """
        callers, resource = self._read(settings), self._read_auth(settings)
        if not self.open and not callers and resource is None:
            raise ConfigError(
                "no caller has a key any more, and this gateway asks for one",
                next_action="keep one key or an issuer, or start `toolfold serve` anew to serve without",
            )
        self._callers, self._resource = callers, resource

    @staticmethod
    def of_client(settings: Settings, client: str, session: str) -> Caller:
        """The caller that a client on stdio is, by what it calls itself, which nothing proves; else the local one."""
        callers = (entry for entry in settings.callers if client and entry.client == client)
        entry = next(callers, CallerKey(name=LOCAL_NAME))
        return Caller(name=entry.name, session=session, policy=entry.policy, groups=entry.groups)

    @property
    def open(self) -> bool:
        """Whether neither a key nor a token is asked for."""
        return not self._callers and self._resource is None

    @property
    def guard(self) -> HttpGuard:
        """Who may come in over HTTP. Without keys only what this machine itself sends."""
        return HttpGuard(any_host=not self.open, identify=self._admit)

    def metadata(self) -> bytes:
        """What a client that signs in reads first (RFC 9728); empty without an issuer."""
        return b"" if self._resource is None else self._resource.metadata

    def _admit(self, headers: Mapping[str, str]) -> Caller | Awaitable[Caller]:
        if self._resource is None:
            return self.identify(headers)
        token = _bearer_token(headers)
        return (self._find(token) if self._callers else None) or self._resource.admit(token)

    def identify(self, headers: Mapping[str, str], *, session: str = "") -> Caller:
        """The caller that a request's headers name. Raises `NotAuthorized` without a key that is known."""
        caller = self._find(_bearer_token(headers)) if self._callers else LOCAL
        if caller is None:
            raise NotAuthorized(
                "this gateway asks for a key, and none that it knows was given",
                next_action="send the header `Authorization: Bearer KEY`; whoever runs the gateway gives out keys",
            )
        return replace(caller, session=session) if session else caller

    def _find(self, key: str | None) -> Caller | None:
        if key is None or len(key) > MAX_HEADER:
            return None
        digest = self._hash(key)
        match: Caller | None = None
        # No early end: the time that it takes must not tell which key, or how much of it, was right.
        for expected, caller in self._callers:
            if hmac.compare_digest(expected, digest):
                match = caller
        return match

    def _hash(self, key: str) -> bytes:
        return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=32).digest()


def _bearer_token(headers: Mapping[str, str]) -> str | None:
    """The token of the one `Authorization` header, whatever its letter case."""
    values = [value for name, value in headers.items() if name.lower() == "authorization"]
    # Two headers may mean different things to a proxy and to us: only a single one counts.
    if len(values) != 1:
        return None
    scheme, _, token = values[0].strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None
