"""The gateway as a protected resource: what it tells of its issuer, who a token's caller is, and how it refuses.

A valid token becomes a `Caller` whose name begins with the issuer, so that no key can have it; its claims choose the
policy. For a short while it is known by a keyed hash, so that not every request costs a check of the signature or a
question to the issuer. Above: `faces/identity.py`. Below: `token_check.py`.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

from toolfold.auth.token_check import TokenCheck
from toolfold.config import Auth, Policy, Settings, fill
from toolfold.containers import BoundedDict
from toolfold.errors import ConfigError, NotAuthorized, ServerUnavailable
from toolfold.types import Caller
from toolfold.wire.http_client import is_loopback
from toolfold.wire.jsonrpc import encode
from toolfold.wire.serving.http_guard import HttpError

__all__ = ["METADATA_PATH", "SCOPES_LACKING", "ProtectedResource", "lacking_scopes", "read_claims"]

METADATA_PATH = "/.well-known/oauth-protected-resource"
# How long a token counts as checked: one that is withdrawn, or whose key is, works no longer than this.
_KNOWN_S = 30.0
_MAX_KNOWN = 4096
_MAX_NAME = 256
SCOPES_LACKING = "the token is not granted all scopes that are needed"


class ProtectedResource:
    """`[auth]` of some settings. `address` is where MCP is served; `on_token` gets caller, token and its end of all who
    come in, where a server wants to exchange it. Raises `ConfigError` and `SecretNotFound`."""

    def __init__(
        self,
        settings: Settings,
        address: str,
        *,
        environ: Mapping[str, str] | None = None,
        earlier: "ProtectedResource | None" = None,
        on_token: Callable[[str, str, float], object] | None = None,
    ) -> None:
        auth = settings.auth
        _check_secure(auth)
        self._settings = settings
        resource = _resource_of(auth, address)
        audiences = frozenset(one.rstrip("/") for one in auth.audience or (resource,))
        secret = fill(auth.introspection_secret, "[auth]", environ=environ)
        # Keys that are known stay known while all that they hang on is as it was.
        self.check = TokenCheck(auth, audiences, secret)
        if earlier is not None and (earlier.check.auth, earlier.check.client) == (auth, self.check.client):
            self.check = earlier.check
        self._scopes = _words(auth.required_scopes)
        scopes = [scope for policy in settings.policies for scope in policy.scopes]
        exchange = any(spec.oauth is not None and spec.oauth.exchange for spec in settings.servers)
        self._on_token = on_token if exchange else None
        self._salt = secrets.token_bytes(32)
        # Until when it counts and when it ends; the key set it was checked with.
        self._known: BoundedDict[bytes, tuple[float, float, int, Caller]] = BoundedDict(_MAX_KNOWN)
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
        until, end, keys, caller = self._known.get(mark, (0.0, 0.0, 0, None))
        # For how long an answer holds is counted by a clock that nobody sets: else a step back would let a token that
        # was revoked in for an hour.
        # A key that is no longer in the set may have been stolen: nothing that it signed is known any more.
        known = time.monotonic() < until and time.time() < end and keys == self.check.keys_read
        if caller is None or not known:
            caller, end = await self._admitted(token, mark)
            self._known.renew(mark, (time.monotonic() + _KNOWN_S, end, self.check.keys_read, caller))
        if self._on_token is not None:
            self._on_token(caller.name, token, end)
        return caller

    async def _admitted(self, token: str, mark: bytes) -> tuple[Caller, float]:
        try:
            return await self._checked(token, mark)
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

    async def _checked(self, token: str, mark: bytes) -> tuple[Caller, float]:
        """The caller, and until when the token is valid."""
        until, refusal = self._unknown.get(mark, (0.0, ""))
        if time.monotonic() < until:
            raise NotAuthorized(refusal)
        try:
            claims = await self.check.claims(token)
            caller = self._caller(claims)
        except NotAuthorized as error:
            if not self.check.is_signed(token):
                self._unknown.renew(mark, (time.monotonic() + _KNOWN_S, error.message))
            raise
        end = claims.get("exp")
        return caller, (float("inf") if end is None else end) + self._settings.auth.clock_skew_s

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        auth = self._settings.auth
        # An issuer has no #, and no name of a key has a colon.
        name = f"{auth.issuer}#{_name(claims, auth.name_claim)}"
        policy, groups = read_claims(self._settings, claims)
        if _leaves_groups_out(claims, auth.groups_claim):
            raise self._forbidden(
                name,
                "the token leaves its groups out, since there are too many of them for it",
                "let the issuer send only the groups that are assigned to this application, or roles",
            )
        if needed := lacking_scopes(self._settings, policy, claims):
            raise self._forbidden(name, SCOPES_LACKING, scopes=needed)
        if policy is None:
            raise self._forbidden(
                name,
                "no policy here is for what the token claims",
                "ask whoever runs the gateway for a [policy.NAME] whose `claims` fit",
            )
        return Caller(name=name, policy=policy.name, groups=groups)

    def _unauthenticated(self, error: NotAuthorized, *, silent: bool = False) -> HttpError:
        # RFC 6750, 3.1: to a request without a token nothing is said of an error.
        problem = () if silent else (("error", "invalid_token"), ("error_description", error.message))
        return HttpError(
            401,
            error.message,
            self._challenge(self._scopes, *problem),
            code="NOT_AUTHENTICATED",
            next_action=error.next_action or f"sign in at {self._settings.auth.issuer}; {self._metadata_uri} says how",
        )

    def _forbidden(self, caller: str, message: str, action: str = "", scopes: Sequence[str] = ()) -> HttpError:
        problem = (("error", "insufficient_scope"), ("error_description", message)) if scopes else ()
        return HttpError(
            403,
            message,
            self._challenge(scopes, *problem),
            code="INSUFFICIENT_SCOPE" if scopes else "NOT_AUTHORIZED",
            next_action=action or f"ask the issuer for a token with the scopes: {' '.join(scopes)}",
            caller=caller,
        )

    def _challenge(self, scopes: Sequence[str], *problem: tuple[str, str]) -> tuple[tuple[bytes, bytes], ...]:
        said = [("resource_metadata", self._metadata_uri), *([("scope", " ".join(scopes))] if scopes else []), *problem]
        text = ", ".join(f'{name}="{value}"' for name, value in said)
        return ((b"www-authenticate", b"Bearer " + text.encode("ascii", "replace")),)


def read_claims(settings: Settings, claims: Mapping[str, Any]) -> tuple[Policy | None, tuple[str, ...]]:
    """The first policy all of whose claims are there, else the one for all other tokens, if any; and the groups."""
    auth = settings.auth
    fitting = (policy for policy in settings.policies if policy.claims and _holds(policy.claims, claims))
    others = (policy for policy in settings.policies if policy.name == auth.policy)
    otherwise = next(others, Policy(name=auth.policy)) if auth.policy else None
    groups = _values(_claim(claims, auth.groups_claim))
    return next(fitting, otherwise), tuple(group for group in groups if isinstance(group, str))


def lacking_scopes(settings: Settings, policy: Policy | None, claims: Mapping[str, Any]) -> Sequence[str]:
    """The scopes that are needed of a token, where it is not granted all of them; else nothing."""
    granted = {word for key in ("scope", "scp") for word in _granted(claims, key)}
    needed = _words([*settings.auth.required_scopes, *(policy.scopes if policy else ())])
    return () if granted.issuperset(needed) else needed


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


def _name(claims: Mapping[str, Any], name_claim: str) -> str:
    name = _claim(claims, name_claim)
    if not isinstance(name, str) or not name:
        problem = "it is no text, or not there"
    elif len(name) > _MAX_NAME:
        problem = f"it has more than {_MAX_NAME} characters"
    elif not name.isprintable():
        problem = "it holds characters that cannot be seen, or that turn text around"
    else:
        return name
    action = f"ask the issuer for another `{name_claim}`, or whoever runs the gateway for another name_claim in [auth]"
    raise NotAuthorized(f"the claim `{name_claim}` of the token names nobody: {problem}", next_action=action)


def _values(value: Any, *, split: bool = False) -> list[Any]:
    if split and isinstance(value, str):
        return value.split()
    return value if isinstance(value, list) else [value]


def _granted(claims: Mapping[str, Any], name: str) -> list[str]:
    words = [word for word in _values(claims.get(name), split=True) if word is not None]
    if not all(isinstance(word, str) for word in words):
        raise NotAuthorized(f"the claim `{name}` of the token is neither a text nor a list of texts")
    return words


def _words(texts: Iterable[str]) -> list[str]:
    """Scopes, which a person may write as a list or with spaces, each once."""
    return list(dict.fromkeys(" ".join(texts).split()))


def _leaves_groups_out(claims: Mapping[str, Any], groups_claim: str) -> bool:
    """Whether a large directory put a pointer where the groups should be (the overage form of Entra)."""
    names = claims.get("_claim_names")
    return bool(claims.get("hasgroups")) or (isinstance(names, dict) and groups_claim in names)


def _check_secure(auth: Auth) -> None:
    """Raises `ConfigError` for addresses whose answers somebody on the way could change."""
    for key in ("issuer", "jwks_uri", "introspection_uri"):
        parts = _split(getattr(auth, key))
        plain = parts.scheme == "http" and is_loopback(parts.hostname or "")
        if getattr(auth, key) and not (parts.hostname and (parts.scheme == "https" or plain)):
            raise ConfigError(
                f"[auth] {key} must be an https address: whoever can change what comes from there can forge tokens",
                next_action="write it with https://; http is for this machine alone",
            )
    if "?" in auth.issuer or "#" in auth.issuer:
        raise ConfigError(
            "[auth] issuer has a query or a fragment", next_action="copy `issuer` of the provider's metadata"
        )


def _resource_of(auth: Auth, address: str) -> str:
    """What tokens are issued for. Raises `ConfigError`."""
    parts = _split(auth.resource or address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(
            "[auth] resource is no address", next_action='write it as "https://tools.example.com/mcp", without a query'
        )
    if not auth.resource and not is_loopback(parts.hostname):
        raise ConfigError(
            "[auth] names no resource, and the address that is served on need not be the public one",
            next_action='write resource = "https://…/mcp", as clients reach it',
        )
    return auth.resource or address


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        return SplitResult("", "", "", "", "")
