"""Turns the API key in a request's headers into a `Caller`. For every face that is reached over a wire.

Keys are resolved once, when the face starts, and then held only as keyed hashes. No key is ever logged, and no error
says which part of one was wrong. What a caller may do is not decided here: that is the policy its name leads to.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from msgspec.structs import replace

from toolfold.config import LOCAL_NAME, MIN_KEY_LENGTH, CallerKey, Settings, fill
from toolfold.errors import ConfigError, NotAuthorized
from toolfold.types import LOCAL, Caller
from toolfold.wire.serving.http_guard import HttpGuard

# A longer header is refused unread.
MAX_HEADER = 4096


class Identities:
    """Everybody who may come in. Without configured keys, whoever reaches the face is the local caller.

    Raises `SecretNotFound` where a key that the configuration names is not set: a face that cannot tell callers apart
    must not start.
    """

    def __init__(self, settings: Settings, *, environ: Mapping[str, str] | None = None) -> None:
        # A salt of this process: a dump of its memory holds no hash that can be looked up elsewhere.
        self._salt = secrets.token_bytes(32)
        self._callers = self._read(settings, environ)

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

        The last key cannot go: what let nobody in without one would let in everybody.
        """
        callers = self._read(settings)
        if self._callers and not callers:
            raise ConfigError(
                "no caller has a key any more, and this gateway asks for one",
                next_action="keep one key, or start `toolfold serve` anew to serve without",
            )
        self._callers = callers

    @staticmethod
    def of_client(settings: Settings, client: str, session: str) -> Caller:
        """The caller that a client on stdio is, by what it calls itself, which nothing proves; else the local one."""
        callers = (entry for entry in settings.callers if client and entry.client == client)
        entry = next(callers, CallerKey(name=LOCAL_NAME))
        return Caller(name=entry.name, session=session, policy=entry.policy, groups=entry.groups)

    @property
    def open(self) -> bool:
        """Whether no key is asked for."""
        return not self._callers

    @property
    def guard(self) -> HttpGuard:
        """Who may come in over HTTP. Without keys only what this machine itself sends."""
        return HttpGuard(any_host=not self.open, identify=self.identify)

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
        if key is None:
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
    if len(values) != 1 or len(values[0]) > MAX_HEADER:
        return None
    scheme, _, token = values[0].strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None
