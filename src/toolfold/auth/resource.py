"""The gateway as a protected resource: what it tells of its issuer, who a token's caller is, and how it refuses.

A valid token becomes a `Caller` whose name begins with the issuer, so that no key can have it; its claims choose the
policy. For a short while it is known by a keyed hash, so that not every request costs a check of the signature or a
question to the issuer. Above: `faces/identity.py`. Below: `token_check.py`.
"""

import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from toolfold.auth.token_check import TokenCheck, is_secure, is_signed
from toolfold.config import Policy, Settings, fill
from toolfold.containers import BoundedDict
from toolfold.errors import ConfigError, NotAuthorized, ServerUnavailable
from toolfold.types import Caller
from toolfold.wire.http_client import is_loopback
from toolfold.wire.jsonrpc import encode
from toolfold.wire.serving.http_guard import HttpError

__all__ = ["METADATA_PATH", "ProtectedResource", "choose_policy", "groups_of"]

METADATA_PATH = "/.well-known/oauth-protected-resource"
# How long a token counts as checked: one that is withdrawn, or whose key is, works no longer than this.
_KNOWN_S = 30.0
_MAX_KNOWN = 4096
_MAX_NAME = 256


class ProtectedResource:
    """`[auth]` of some settings. `address` is where MCP is served. Raises `ConfigError` and `SecretNotFound`."""

    def __init__(
        self,
        settings: Settings,
        address: str,
        *,
        environ: Mapping[str, str] | None = None,
        earlier: "ProtectedResource | None" = None,
    ) -> None:
        auth = self._auth = settings.auth
        self._policies = [policy for policy in settings.policies if policy.claims]
        resource = _check_addresses(settings, address)
        audiences = frozenset(one.rstrip("/") for one in auth.audience or (resource,))
        secret = fill(auth.introspection_secret, "[auth]", environ=environ)
        # Keys that are known stay known while all that they hang on is as it was.
        self.check = TokenCheck(auth, audiences, secret)
        if earlier is not None and earlier.check.auth == auth:
            self.check = earlier.check
        self._scopes = _words(auth.required_scopes)
        scopes = [scope for policy in self._policies for scope in policy.scopes]
        self._salt = secrets.token_bytes(32)
        self._known: BoundedDict[bytes, tuple[float, Caller]] = BoundedDict(_MAX_KNOWN)
        # Opaque ones that the issuer does not know; apart, so that garbage does not make good tokens forgotten.
        self._unknown: BoundedDict[bytes, tuple[float, str]] = BoundedDict(_MAX_KNOWN)
        parts = urlsplit(resource)
        self._metadata_uri = f"{parts.scheme}://{parts.netloc}{METADATA_PATH}{parts.path.rstrip('/')}"
        self.metadata = encode(
            {
                "resource": resource,
                "authorization_servers": [auth.issuer],
                "scopes_supported": _words([*self._scopes, *scopes]),
                "bearer_methods_supported": ["header"],
                "resource_name": "toolfold",
            }
        )

    async def admit(self, token: str | None) -> Caller:
        """The caller that a token names. Raises `HttpError`."""
        if token is None:
            nothing = NotAuthorized("this gateway asks for a token of its issuer, or a key")
            raise self._unauthenticated(nothing, silent=True)
        mark = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=32).digest()
        now = time.time()
        until, caller = self._known.get(mark, (0.0, None))
        if caller is not None and now < until:
            return caller
        try:
            caller, end = await self._checked(token, mark)
        except NotAuthorized as error:
            raise self._unauthenticated(error) from error
        except ServerUnavailable as error:
            raise HttpError(
                503,
                error.message,
                ((b"retry-after", b"30"),),
                code="ISSUER_UNAVAILABLE",
                next_action=error.next_action,
            ) from error
        self._known.renew(mark, (min(end, time.time() + _KNOWN_S), caller))
        return caller

    async def _checked(self, token: str, mark: bytes) -> tuple[Caller, float]:
        """The caller, and until when the token is valid."""
        until, refusal = self._unknown.get(mark, (0.0, ""))
        if time.time() < until:
            raise NotAuthorized(refusal)
        try:
            claims = await self.check.claims(token)
            caller = self._caller(claims)
        except NotAuthorized as error:
            if not is_signed(token):
                self._unknown.renew(mark, (time.time() + _KNOWN_S, error.message))
            raise
        return caller, claims.get("exp", float("inf")) + self._auth.clock_skew_s

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        auth = self._auth
        name = _claim(claims, auth.name_claim)
        if not isinstance(name, str) or not name or len(name) > _MAX_NAME or not name.isprintable():
            raise NotAuthorized(f"the claim `{auth.name_claim}` of the token names nobody")
        policy = choose_policy(self._policies, claims)
        granted = set(_values(claims.get("scope"), split=True)) | set(_values(claims.get("scp"), split=True))
        needed = _words([*self._scopes, *(policy.scopes if policy else ())])
        if not granted.issuperset(needed):
            raise self._forbidden("INSUFFICIENT_SCOPE", "the token is not granted all scopes that are needed", needed)
        groups = groups_of(claims, auth.groups_claim)
        if not groups and _leaves_groups_out(claims, auth.groups_claim):
            raise self._forbidden(
                "NOT_AUTHORIZED",
                "the token leaves its groups out, since there are too many of them for it",
                action="let the issuer send only the groups that are assigned to this application, or roles",
            )
        if policy is None and not auth.policy:
            raise self._forbidden(
                "NOT_AUTHORIZED",
                "no policy here is for what the token claims",
                action="ask whoever runs the gateway for a [policy.NAME] whose `claims` fit",
            )
        return Caller(
            name=f"{auth.issuer}#{name}",  # an issuer has no #, and no name of a key has a colon
            policy=policy.name if policy else auth.policy,
            groups=groups,
        )

    def _unauthenticated(self, error: NotAuthorized, *, silent: bool = False) -> HttpError:
        # RFC 6750, 3.1: to a request without a token nothing is said of an error.
        problem = () if silent else (("error", "invalid_token"), ("error_description", error.message))
        return HttpError(
            401,
            error.message,
            self._challenge(self._scopes, *problem),
            code="NOT_AUTHENTICATED",
            next_action=error.next_action or f"sign in at {self._auth.issuer}; {self._metadata_uri} says how",
        )

    def _forbidden(self, code: str, message: str, scopes: Sequence[str] = (), action: str = "") -> HttpError:
        problem = (("error", "insufficient_scope"), ("error_description", message)) if scopes else ()
        action = action or f"ask the issuer for a token with the scopes: {' '.join(scopes)}"
        return HttpError(403, message, self._challenge(scopes, *problem), code=code, next_action=action)

    def _challenge(self, scopes: Sequence[str], *problem: tuple[str, str]) -> tuple[tuple[bytes, bytes], ...]:
        said = [("resource_metadata", self._metadata_uri), *([("scope", " ".join(scopes))] if scopes else []), *problem]
        text = ", ".join(f'{name}="{value}"' for name, value in said)
        return ((b"www-authenticate", b"Bearer " + text.encode("ascii", "replace")),)


def groups_of(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The groups that a claim names, one or several."""
    return tuple(group for group in _values(_claim(claims, name)) if isinstance(group, str))


def choose_policy(policies: Iterable[Policy], claims: Mapping[str, Any]) -> Policy | None:
    """The first policy all of whose claims are there."""
    return next((policy for policy in policies if policy.claims and _holds(policy.claims, claims)), None)


def _holds(wanted: Mapping[str, Any], claims: Mapping[str, Any]) -> bool:
    for name, value in wanted.items():
        # Scopes are one string of several words.
        there = _values(_claim(claims, name), split=name in ("scope", "scp"))
        for one in value if isinstance(value, list) else [value]:
            # True is no 1, and "1" neither.
            if not any(type(one) is type(other) and one == other for other in there):
                return False
    return True


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of that name, which may be an address with dots in it; else the one at that path."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for step in name.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _values(value: Any, *, split: bool = False) -> list[Any]:
    if split and isinstance(value, str):
        return value.split()
    return value if isinstance(value, list) else [value]


def _words(texts: Iterable[str]) -> list[str]:
    """Scopes, which a person may write as a list or with spaces, each once."""
    return list(dict.fromkeys(" ".join(texts).split()))


def _leaves_groups_out(claims: Mapping[str, Any], groups_claim: str) -> bool:
    """Whether a large directory put a pointer where the groups should be (the overage form of Entra)."""
    names = claims.get("_claim_names")
    return bool(claims.get("hasgroups")) or (isinstance(names, dict) and groups_claim in names)


def _check_addresses(settings: Settings, address: str) -> str:
    """The resource. Raises `ConfigError` for what a token could not be checked by."""
    auth = settings.auth
    for key in ("issuer", "jwks_uri", "introspection_uri"):
        value = getattr(auth, key)
        if value and not is_secure(value):
            raise ConfigError(
                f"[auth] {key} must be an https address: whoever can change what comes from there can forge tokens",
                next_action="write it with https://; http is for this machine alone",
            )
    if urlsplit(auth.issuer).query or "#" in auth.issuer:
        raise ConfigError(
            "[auth] issuer has a query or a fragment", next_action="copy `issuer` of the provider's metadata"
        )
    resource = auth.resource or address
    parts = urlsplit(resource)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(
            "[auth] resource is no address", next_action='write it as "https://tools.example.com/mcp", without a query'
        )
    if not auth.resource and not is_loopback(parts.hostname):
        raise ConfigError(
            "[auth] names no resource, and the address that is served on need not be the public one",
            next_action='write resource = "https://…/mcp", as clients reach it',
        )
    return resource
