"""Whether a token is one that the configured issuer made for this gateway, and what it says of whom.

A JSON Web Token is checked here, with the keys that the issuer publishes; an opaque one is shown to the issuer
(RFC 7662). Keys are fetched when they are needed, a few times a minute at most, and used until their age limit while
the issuer is away. Nothing here keeps a token, or puts a part of one into an error. Above: `resource.py`.
"""

import asyncio
import logging
import secrets
import time
import warnings
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from toolfold.auth.fetch import FORM, Fetched, Fetcher
from toolfold.auth.registration import Client, authenticate, error_of
from toolfold.config.sections import Auth
from toolfold.errors import NotAuthorized, ServerUnavailable, UpstreamError
from toolfold.wire.jsonrpc import DECODE_ERRORS

if TYPE_CHECKING:
    from joserfc.jwk import Key

log = logging.getLogger("toolfold.auth")

T = TypeVar("T")

# Asymmetric ones alone: with HS256 whoever knows a public key could sign.
_SIZES = (256, 384, 512)
_ALGORITHMS = frozenset({"EdDSA", "Ed25519", *(f"{kind}{size}" for kind in ("RS", "PS", "ES") for size in _SIZES)})
# `at+jwt` is an access token by its own word (RFC 9068); many issuers say JWT, or nothing.
_TYPES = frozenset({"at+jwt", "application/at+jwt", "jwt", "application/jwt", ""})
# What only ID tokens and logout tokens have; and what Keycloak calls its other tokens.
_FOREIGN_CLAIMS = frozenset({"at_hash", "c_hash", "s_hash", "events"})
_FOREIGN_KINDS = frozenset({"id", "refresh", "offline", "logout"})
_MAX_TOKEN = 16 * 1024
_MAX_KEYS = 100
_MAX_MOMENT = 1e15
_FETCH_S = 10.0
# Keys are fetched anew after this time in any case; and so often within a minute, however many unknown ones are named.
_FRESH_S = 3600.0
_FETCHES_A_MINUTE = 5
# Opaque tokens that are asked for in a second, and in a burst: whoever sends junk does not make us flood the issuer.
_ASKED_A_SECOND = 20
_ASKED_IN_A_BURST = 40
# Opaque tokens that are asked for at once, and that may wait for their turn.
_ASKED_AT_ONCE = 8
_MAX_WAITING = 64


class _Metadata(Struct, frozen=True):
    """What an issuer says of itself, as far as it is used."""

    issuer: str = ""
    jwks_uri: str = ""
    introspection_endpoint: str = ""


class _KeyList(Struct, frozen=True):
    keys: list[dict[str, Any]]


class _Header(Struct, frozen=True):
    alg: str
    kid: str = ""
    typ: str = ""
    crit: Any = None


class _Allowance:
    """So many at once, and then at an even pace."""

    def __init__(self, burst: int, a_second: float) -> None:
        self._burst, self._a_second = burst, a_second
        self._left, self._at = float(burst), time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._a_second)
        self._at = now
        allowed = self._left >= 1
        self._left -= allowed
        return allowed


class TokenCheck:
    """The tokens of one issuer. `secret` is that of the client that asks for opaque ones."""

    def __init__(self, auth: Auth, audiences: frozenset[str], secret: str = "") -> None:
        self.auth = auth
        self._audiences = audiences
        name, method = auth.introspection_client, "client_secret_basic"
        self.client = Client(client_id=name, client_secret=secret, auth_method=method)
        self._keys: list[Key] = []
        self._loaded = -float("inf")
        # How often the keys were read: what was checked with those of before is checked again.
        self.keys_read = 0
        self._fetches = _Allowance(_FETCHES_A_MINUTE, _FETCHES_A_MINUTE / 60)
        self._questions = _Allowance(_ASKED_IN_A_BURST, _ASKED_A_SECOND)
        self._loading: asyncio.Task[bool] | None = None
        # Texts, and no errors: those would hold what was asked for when they were raised.
        self._problem = "none of its keys has been read yet"
        self._trouble = ""
        self._metadata: _Metadata | None = None
        named = filter(None, (auth.issuer, auth.jwks_uri, auth.introspection_uri))
        # The first one says whether plain http is allowed, between addresses of this machine.
        plain_first = sorted(named, key=lambda uri: uri[:5] == "https")
        self._fetcher = Fetcher(plain_first[0], *plain_first, seconds=_FETCH_S)
        self._turns = asyncio.Semaphore(_ASKED_AT_ONCE)
        self._waiting = 0

    async def claims(self, token: str) -> dict[str, Any]:
        """What a token says that is valid now. Raises `NotAuthorized`, or `ServerUnavailable` where nobody can tell."""
        if len(token) > _MAX_TOKEN:
            raise NotAuthorized(f"the token is longer than {_MAX_TOKEN} characters")
        if self.is_signed(token):
            claims = await self._signed(token)
        elif self.auth.introspection_client:
            claims = await self._introspected(token)
        else:
            raise NotAuthorized("this is neither a key that is known here nor a signed token of the issuer")
        self._check_claims(claims)
        return claims

    # --- signed tokens

    @staticmethod
    def is_signed(token: str) -> bool:
        """Whether it has the form of a signed token, and is no opaque one."""
        return token.count(".") == 2

    async def _signed(self, token: str) -> dict[str, Any]:
        head, _, signature = token.rpartition(".")
        try:
            header = msgspec.json.decode(_decode(head.partition(".")[0]), type=_Header)
            claims = msgspec.json.decode(_decode(head.partition(".")[2]), type=dict[str, Any])
            sealed = _decode(signature)
        except (*DECODE_ERRORS, ValueError):
            raise NotAuthorized("the token cannot be read") from None
        if header.alg not in _ALGORITHMS:
            raise NotAuthorized("the token is signed with an algorithm that is not accepted here")
        if header.crit is not None or header.typ.lower() not in _TYPES:
            raise NotAuthorized("this is a token of another kind than an access token")
        # Before the keys are asked for: a token of another issuer must not make us fetch them.
        if claims.get("iss") != self.auth.issuer:
            raise NotAuthorized("the token is of another issuer")
        keys = await self._find(header)
        # The library's verifiers check once more that the key is of the algorithm's kind and for signatures.
        if not _verifies(header.alg, keys, head.encode(), sealed):
            raise NotAuthorized("the signature of the token is wrong")
        _refuse_other_kinds(claims, header)
        _check_time(claims, self.auth.clock_skew_s, required=True)
        return claims

    async def _find(self, header: _Header) -> "list[Key]":
        age = time.monotonic() - self._loaded
        keys = self._fitting(header) if age < self.auth.keys_max_age_s else []
        if keys and age >= min(_FRESH_S, self.auth.keys_max_age_s / 2):
            self._begin_loading()  # those there are serve meanwhile
        elif not keys:
            keys = await self._find_anew(header)
        if not keys:
            raise NotAuthorized("the token is signed with a key that its issuer does not publish")
        return keys

    async def _find_anew(self, header: _Header) -> "list[Key]":
        task = self._begin_loading()
        read = task is not None and await asyncio.shield(task)
        if time.monotonic() - self._loaded >= self.auth.keys_max_age_s:
            raise _unavailable(self._problem)
        keys = self._fitting(header)
        # Only who has just read its keys can say that this is none of them.
        if not keys and not read:
            raise _unavailable(self._problem if task else "unknown keys were named too often to ask for each")
        return keys

    def _fitting(self, header: _Header) -> "list[Key]":
        return [key for key in self._keys if header.kid in ("", key.kid) and _fits(key, header.alg)]

    def _begin_loading(self) -> "asyncio.Task[bool] | None":
        """The one fetch that is under way, or a new one; nothing where there were too many."""
        if self._loading is None or self._loading.done():
            if not self._fetches.take():
                return None
            self._loading = asyncio.get_running_loop().create_task(self._load())
        return self._loading

    async def _load(self) -> bool:
        try:
            self._keys = await self.load_keys()
        except ServerUnavailable as error:
            self._problem = error.message.removeprefix(_NO_HELP)
            log.warning("%s", error.message)
            return False
        self._loaded = time.monotonic()
        self.keys_read += 1
        return True

    async def load_keys(self) -> "list[Key]":
        """The issuer's keys that can be used. Raises `ServerUnavailable`."""
        uri = self.auth.jwks_uri or (await self._discover()).jwks_uri
        found = _read(await self._fetch(uri), _KeyList)
        keys = [key for data in found.keys[:_MAX_KEYS] if (key := _import_key(data)) is not None]
        if not keys:
            raise _unavailable("it publishes no key that can be used here")
        return keys

    async def _discover(self) -> _Metadata:
        issuer = self.auth.issuer.rstrip("/")
        parts = urlsplit(issuer)
        found = _Metadata()
        for address in (
            f"{issuer}/.well-known/openid-configuration",
            f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path}",
        ):
            answer = await self._fetch(address)
            if answer.is_busy or (answer.status != 404 and not answer.is_page):
                found = _read(answer, _Metadata)
                break
        if found.issuer != self.auth.issuer:
            raise _unavailable("its metadata is missing, or names another issuer than the configuration")
        self._metadata = found
        return found

    # --- opaque tokens

    async def _introspected(self, token: str) -> dict[str, Any]:
        if self._waiting >= _MAX_WAITING or not self._questions.take():
            raise _unavailable("too many tokens wait to be asked for")
        self._waiting += 1
        try:
            async with self._turns:
                claims = await self._ask(token)
            self._trouble = ""
        except ServerUnavailable as error:
            if error.message != self._trouble:  # told once, until it works again
                self._trouble = error.message
                log.warning("%s; next: %s", error.message, error.next_action)
            raise
        finally:
            self._waiting -= 1
        if claims.get("active") is not True:
            raise NotAuthorized("the issuer says that the token is not valid, or no longer")
        if claims.setdefault("iss", self.auth.issuer) != self.auth.issuer:
            raise NotAuthorized("the token is of another issuer")
        if str(claims.get("token_type", "bearer")).lower() not in ("bearer", "access_token"):
            raise NotAuthorized("this is a token of another kind than an access token")
        _check_time(claims, self.auth.clock_skew_s, required=False)
        return claims

    async def _ask(self, token: str) -> dict[str, Any]:
        uri = await self.introspection_uri()
        form = {"token": token, "token_type_hint": "access_token"}
        answer = await self._fetch(uri, *authenticate(self.client, self.auth.issuer, form))
        if answer.status in (401, 403) or error_of(answer).startswith(("invalid_client", "unauthorized_client")):
            raise ServerUnavailable(
                "opaque tokens cannot be checked: the issuer refuses the client that this gateway asks with, with "
                f"status {answer.status}",
                next_action="trying again does not help; whoever runs the gateway compares `introspection_client` and "
                "`introspection_secret` of [auth] with what the issuer has",
            )
        return _read(answer, dict[str, Any])

    async def try_client(self) -> str:
        """Where opaque tokens are asked for, by a client that was tried there. Raises `ServerUnavailable`."""
        await self._ask(secrets.token_urlsafe(24))
        return await self.introspection_uri()

    async def _fetch(self, uri: str, form: bytes = b"", headers: Mapping[str, str] | None = None) -> Fetched:
        try:
            return await (self._fetcher.post(uri, form, FORM, headers) if form else self._fetcher.get(uri))
        except UpstreamError as error:
            raise _unavailable(error.message) from None

    async def introspection_uri(self) -> str:
        """Where opaque tokens are asked for. Raises `ServerUnavailable`."""
        if self.auth.introspection_uri:
            return self.auth.introspection_uri
        metadata = self._metadata or await self._discover()
        if not metadata.introspection_endpoint:
            raise _unavailable("its metadata names no introspection endpoint")
        return metadata.introspection_endpoint

    # --- what both say

    def _check_claims(self, claims: Mapping[str, Any]) -> None:
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(one, str) and one.rstrip("/") in self._audiences for one in named):
            raise NotAuthorized(
                "the token was issued for another audience",
                next_action=f"ask the issuer for a token with the resource {min(self._audiences)}",
            )
        if claims.get("token_use", "access") != "access":  # how Cognito marks its ID tokens
            raise NotAuthorized("this is a token of another kind than an access token, such as an ID token")
        if "cnf" in claims:
            raise NotAuthorized("the token is bound to a key of its holder, which cannot be proved here")


def _decode(part: str) -> bytes:
    """One part of a token, which has one spelling: no padding, no other letters, no bits that nothing reads."""
    data = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    if urlsafe_b64encode(data).rstrip(b"=") != part.encode():
        raise ValueError("it is not written as base64url")
    return data


def _refuse_other_kinds(claims: Mapping[str, Any], header: _Header) -> None:
    """ID tokens tell a client who signed in; they open nothing, and pass through browsers."""
    kind = claims.get("typ")
    # Some issuers put the nonce into access tokens, too: those have scopes, or say what they are.
    is_id_token = "nonce" in claims and not header.typ.lower().endswith("at+jwt") and not _has_scopes(claims)
    if is_id_token or _FOREIGN_CLAIMS & set(claims) or (isinstance(kind, str) and kind.lower() in _FOREIGN_KINDS):
        raise NotAuthorized("this is a token of another kind than an access token, such as an ID token")


def _has_scopes(claims: Mapping[str, Any]) -> bool:
    named = (claims.get(name) for name in ("scope", "scp"))
    words = (one for value in named for one in (value if isinstance(value, list) else [value]))
    return any(str(one).split() for one in words if one is not None)


def _check_time(claims: Mapping[str, Any], skew: float, *, required: bool) -> None:
    now, end, begin = time.time(), _moment(claims, "exp"), _moment(claims, "nbf")
    if end is None and required:
        raise NotAuthorized("the token never expires, which is not accepted here")
    if end is not None and end + skew <= now:
        raise NotAuthorized("the token has expired", next_action="ask the issuer for a new one")
    if begin is not None and begin - skew > now:
        raise NotAuthorized("the token is not valid yet", next_action="compare the clocks of issuer and gateway")


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    moment = claims.get(name)
    readable = isinstance(moment, int | float) and not isinstance(moment, bool) and abs(moment) < _MAX_MOMENT
    if moment is not None and not readable:
        raise NotAuthorized("the token says in no readable way when it is valid")
    return moment


def _import_key(data: dict[str, Any]) -> "Key | None":
    """A key that can verify; none where it is of another kind, too weak, or cannot be read."""
    from joserfc.errors import JoseError, SecurityWarning
    from joserfc.jwk import JWKRegistry

    if data.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SecurityWarning)  # an RSA key under 2048 bits
            key = JWKRegistry.import_key(data)
            key.get_op_key("verify")
    except (JoseError, SecurityWarning, ValueError, TypeError, KeyError, AttributeError):
        return None  # one odd key must not take the others down
    return key


def _fits(key: "Key", algorithm: str) -> bool:
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry

    try:
        JWSRegistry.algorithms[algorithm].check_key(key)
    except JoseError:
        return False
    return True


def _verifies(algorithm: str, keys: "list[Key]", signed: bytes, signature: bytes) -> bool:
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry

    for key in keys:
        try:
            if JWSRegistry.algorithms[algorithm].verify(signed, signature, key):
                return True
        except (JoseError, ValueError):
            continue  # not one of this key
    return False


def _read(answer: Fetched, kind: type[T]) -> T:
    if answer.status != 200:
        raise _unavailable(f"it answered with status {answer.status}")
    try:
        return answer.decode(kind)
    except UpstreamError as error:
        raise _unavailable(error.message) from None


_NO_HELP = "tokens cannot be checked now, since the issuer is of no help: "


def _unavailable(why: str) -> ServerUnavailable:
    return ServerUnavailable(
        _NO_HELP + why,
        next_action="try again in a minute; whoever runs the gateway looks with `toolfold doctor --connect`",
    )
