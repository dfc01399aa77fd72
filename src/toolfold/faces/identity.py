"""Who asks: an API key in a request's headers, turned into a `Caller`. For every face that is reached over a wire.

Keys are filled in once, when the face starts, and then kept only as keyed hashes. All of them are compared, each in
constant time. No key is ever logged, and nothing in an error tells which part of one was wrong. What a caller may do
is not decided here: that is the policy its name leads to.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from msgspec.structs import replace

from toolfold.config import Settings, fill
from toolfold.config.callers import LOCAL_NAME, MIN_KEY_LENGTH
from toolfold.errors import ConfigError, NotAuthorized
from toolfold.types import LOCAL, Caller
from toolfold.wire.serving.http_guard import HttpGuard

LONGEST = 4096
"""A longer header is refused unread."""


class Identities:
    """Everybody who may come in. Without configured keys, whoever reaches the face is the local caller.

    Raises `SecretNotFound` where a key that the configuration names is not set: a face that cannot tell callers apart
    must not start.
    """

    def __init__(self, settings: Settings, *, environ: Mapping[str, str] | None = None) -> None:
        self._salt = secrets.token_bytes(32)
        self._known: list[tuple[bytes, Caller]] = []
        for entry in settings.callers:
            if entry.name == LOCAL_NAME:
                continue
            key = fill(entry.key, f"caller '{entry.name}'", environ=environ)
            if len(key) < MIN_KEY_LENGTH:
                raise ConfigError(
                    f"the key of caller '{entry.name}' is too short to be safe",
                    next_action=f"give it at least {MIN_KEY_LENGTH} random characters",
                )
            caller = Caller(name=entry.name, policy=entry.policy, groups=entry.groups)
            self._known.append((self._hashed(key), caller))

    @property
    def open(self) -> bool:
        """Whether no key is asked for."""
        return not self._known

    @property
    def guard(self) -> HttpGuard:
        """Who may come in over HTTP. Without keys only what this machine itself sends."""
        return HttpGuard(any_host=not self.open, identify=self.identify)

    def identify(self, headers: Mapping[str, str], *, session: str = "") -> Caller:
        """The caller that a request's headers name. Raises `NotAuthorized` without a key that is known."""
        caller = self._named(headers)
        return replace(caller, session=session) if session else caller

    def _named(self, headers: Mapping[str, str]) -> Caller:
        if not self._known:
            return LOCAL
        given = _bearer(headers)
        found: Caller | None = None
        if given is not None:
            digest = self._hashed(given)
            for known, caller in self._known:
                if hmac.compare_digest(known, digest):
                    found = caller
        if found is None:
            raise NotAuthorized(
                "this gateway asks for a key, and none that it knows was given",
                next_action="send the header `Authorization: Bearer KEY`; whoever runs the gateway gives out keys",
            )
        return found

    def _hashed(self, key: str) -> bytes:
        return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=32).digest()


def _bearer(headers: Mapping[str, str]) -> str | None:
    """The token of the one `Authorization` header, whatever its letter case."""
    found = [value for name, value in headers.items() if name.lower() == "authorization"]
    if len(found) != 1 or len(found[0]) > LONGEST:
        return None
    scheme, _, token = found[0].strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None
