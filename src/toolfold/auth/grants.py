"""Ways to a token: a person in a browser (code with PKCE), a person elsewhere (device), a service (client credentials),
a caller's own token that is exchanged, and renewing what one has.

Every request to the token endpoint names the resource that the token is for. A code is used once, after `state` and
`iss` were checked. Nothing is stored here: whoever signs in puts the credential into the vault. The configuration's
references must be filled in already (`config.resolve`). Above: logins and sessions.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolfold.auth.discovery import (
    AuthorizationServer,
    Challenge,
    check_browser_address,
    discover,
    valid_scopes,
)
from toolfold.auth.fetch import Fetched, Fetcher, _address_of, origin_of
from toolfold.auth.registration import (
    _CLIENT_REFUSED,
    DEVICE_GRANT,
    MAX_SAID,
    Client,
    _advice_for,
    _error_code,
    _post_as,
    _read_error,
    error_of,
    find_client,
)
from toolfold.auth.vault import Credential, Vault
from toolfold.errors import ServerTimeout, ServerUnavailable, SignInRequired, UpstreamError
from toolfold.redaction import learn
from toolfold.text import printable
from toolfold.types import OAuthSpec, ServerSpec
from toolfold.wire.http_client import is_loopback

__all__ = ["CodeLogin", "DeviceLogin", "Prospect", "client_credentials"]

_LOGIN_S = 900.0
_MAX_TOKEN = 65_536
_MAX_LIFE_S = 10 * 365 * 86_400.0
_MAX_POLLS = 1000
# Answers of a token endpoint that are none: no token, and no error that OAuth knows.
_MAX_ODD = 3
# Where a registration that no browser takes part in sends its answers: nowhere.
_NO_REDIRECT = "http://127.0.0.1/callback"
_EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a type


class _Tokens(Struct):
    access_token: str = ""
    token_type: str = ""
    refresh_token: str | None = None
    expires_in: float | str | None = None
    scope: str | None = None
    id_token: str | None = None


class _Device(Struct):
    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str = ""
    expires_in: float = 900.0
    interval: float = 5.0


def fetcher_for(spec: ServerSpec) -> Fetcher:
    return Fetcher(spec.url, *([spec.oauth.issuer] if spec.oauth is not None and spec.oauth.issuer else []))


async def prepare(
    spec: ServerSpec,
    vault: Vault | None = None,
    *,
    caller: str = "",
    challenge: Challenge | None = None,
    fetcher: Fetcher | None = None,
    unattended: bool = False,
) -> "Prospect":
    """Finds out how to sign in to a server; registers nothing and stores nothing yet. `unattended`: no person does
    anything for it that would be in vain."""
    parts = urlsplit(spec.url)
    if parts.scheme != "https" and not is_loopback(parts.hostname):
        raise ServerUnavailable(
            f"{spec.name} is reached by plain http: its tokens could be read on the way",
            server=spec.name,
            next_action="Use its https address as `url`.",
        )
    fetcher = fetcher or fetcher_for(spec)
    earlier = None
    if vault is not None:
        await vault.unlock(room=not unattended)  # before a person signs in for nothing
        earlier = await vault.find(spec.name, caller)
    try:
        challenge, resource, server = await discover(fetcher, spec, challenge)
    except UpstreamError as error:
        error.server = error.server or spec.name
        raise
    wanted = challenge.scope if challenge is not None and challenge.scope else resource.scopes_supported
    return Prospect(
        spec=spec,
        caller=caller,
        fetcher=fetcher,
        server=server,
        resource=resource.resource,
        scopes=_scopes(spec, server, wanted, earlier),
        earlier=earlier,
        vault=vault,
    )


def _scopes(
    spec: ServerSpec, server: AuthorizationServer, wanted: tuple[str, ...], earlier: Credential | None
) -> tuple[str, ...]:
    """What the server wants, with what the configuration names, and what a step-up asked for."""
    oauth = spec.oauth or OAuthSpec()
    scopes = [*wanted, *oauth.scopes]
    if earlier is not None and earlier.needs and earlier.issuer == server.issuer:
        scopes = [*earlier.asked, *scopes, *earlier.needs]
    # Without it many servers issue no refresh token.
    if scopes and oauth.grant == "person" and "offline_access" in server.scopes_supported:
        scopes.append("offline_access")
    return valid_scopes(scopes)


class Prospect(Struct, frozen=True, kw_only=True):
    """What one server's authorization server offers, and what will be asked of it."""

    spec: ServerSpec
    caller: str
    fetcher: Fetcher
    server: AuthorizationServer
    resource: str
    scopes: tuple[str, ...]
    earlier: Credential | None
    vault: Vault | None = None

    @property
    def issuer(self) -> str:
        return self.server.issuer

    @property
    def offers_device(self) -> bool:
        return bool(self.server.device_authorization_endpoint)

    async def client(self, redirect_uri: str = _NO_REDIRECT) -> Client:
        return await find_client(self.fetcher, self.server, self.spec, redirect_uri, self.earlier, vault=self.vault)

    async def code_login(self, redirect_uri: str) -> "CodeLogin":
        """Begins a sign-in in a browser, which ends at `redirect_uri`."""
        if "S256" not in self.server.code_challenge_methods_supported:
            raise ServerUnavailable(
                f"{origin_of(self.issuer)} does not say that it supports PKCE (S256): without it a code can be stolen",
                server=self.spec.name,
                next_action="Ask whoever runs it for PKCE, or use a token in `headers`.",
            )
        check_browser_address(self.server.authorization_endpoint, self.spec, extended=True)
        return CodeLogin(self, await self.client(redirect_uri), redirect_uri)

    async def device_login(self) -> "DeviceLogin":
        """Begins a sign-in that a person confirms with a short code, on whatever device (RFC 8628)."""
        client = await self.client()
        form = self._form({"scope": " ".join(self.scopes)} if self.scopes else {})
        url = self.server.device_authorization_endpoint
        answer = await _post_as(client, self.fetcher, url, self.issuer, form)
        if not answer.ok:
            raise self.refused(answer)
        device = answer.decode(_Device)
        learn(device.device_code)
        check_browser_address(device.verification_uri, self.spec)
        if device.verification_uri_complete:
            check_browser_address(device.verification_uri_complete, self.spec)
        return DeviceLogin(self, client, device)

    def _form(self, form: Mapping[str, str]) -> dict[str, str]:
        return {**form, "resource": self.resource}

    async def token(self, client: Client, form: Mapping[str, str]) -> Fetched:
        return await _post_as(client, self.fetcher, self.server.token_endpoint, self.issuer, self._form(form))

    def credential(self, client: Client, answer: Fetched) -> Credential:
        """What a token answer and the client that asked make together."""
        oauth = self.spec.oauth or OAuthSpec()
        blank = Credential(
            server=self.spec.name,
            caller=self.caller,
            resource=self.resource,
            issuer=self.issuer,
            token_endpoint=self.server.token_endpoint,
            revocation_endpoint=self.server.revocation_endpoint,
            client_id=client.client_id,
            client_secret="" if oauth.client_id else client.client_secret,
            auth_method=client.auth_method,
            redirect_uri=client.redirect_uri,
            registered=client.registered,
            grant=oauth.grant,
            asked=self.scopes,
            needs=() if self.earlier is None or self.earlier.issuer != self.issuer else self.earlier.needs,
        )
        return _with_tokens(blank, answer)

    def refused(self, answer: Fetched) -> ServerUnavailable:
        name, again = self.spec.name, f"Begin again: {SignInRequired.command(self.spec.name, self.caller)}"
        return ServerUnavailable(
            f"the sign-in to {name} did not succeed: {origin_of(self.issuer)} says {error_of(answer)}",
            server=name,
            next_action=f"{_advice_for(_error_code(answer), self.spec, again).rstrip('.')}; nothing was stored.",
        )

    def unanswered(self, limit_s: float, trouble: str = "") -> ServerTimeout:
        """`trouble`: why nobody knows whether somebody signed in."""
        name = self.spec.name
        return ServerTimeout(
            f"nobody knows whether somebody signed in to {name} within {limit_s:g} s: {trouble}"
            if trouble
            else f"nobody signed in to {name} within {limit_s:g} s",
            server=name,
            next_action=f"Begin again: {SignInRequired.command(name, self.caller)}; nothing was stored.",
        )


class CodeLogin:
    """One sign-in in a browser: `url` is where it begins, `finish` takes the address that it ended at. Once."""

    def __init__(self, prospect: Prospect, client: Client, redirect_uri: str) -> None:
        self._prospect = prospect
        self._client = client
        self._redirect_uri = redirect_uri
        self._deadline = time.monotonic() + _LOGIN_S
        self._over = False
        self._verifier = secrets.token_urlsafe(64)
        self.state = secrets.token_urlsafe(32)
        learn(self._verifier, self.state)
        digest = hashlib.sha256(self._verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": prospect.resource,
        }
        if prospect.scopes:
            query["scope"] = " ".join(prospect.scopes)
        if "offline_access" in prospect.scopes:
            query["prompt"] = "consent"  # OpenID Connect grants it only so
        endpoint = prospect.server.authorization_endpoint
        self.url = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def finish(self, answer: str | Mapping[str, str]) -> Credential:
        """The credential, from the address that the browser was sent to, or its parameters."""
        given = _parameters(answer) if isinstance(answer, str) else dict(answer)
        if self._over or time.monotonic() > self._deadline:
            raise self._failed("it is over already: each sign-in works once, within 15 minutes")
        if not hmac.compare_digest(given.get("state", "").encode(), self.state.encode()):
            raise self._failed("the answer belongs to another sign-in (`state` differs)")
        # From here on the answer is ours, and counts, whatever it says.
        self._over = True
        self._check_issuer(given.get("iss"))
        if "error" in given:
            reason = ": ".join(filter(None, (given["error"], given.get("error_description", ""))))
            raise self._failed(printable(reason, MAX_SAID))
        if not given.get("code"):
            raise self._failed("the answer holds no code")
        learn(given["code"])
        form = {
            "grant_type": "authorization_code",
            "code": given["code"],
            "redirect_uri": self._redirect_uri,
            "code_verifier": self._verifier,
        }
        token = await self._prospect.token(self._client, form)
        if not token.ok:
            raise self._prospect.refused(token)
        return self._prospect.credential(self._client, token)

    def _check_issuer(self, issuer: str | None) -> None:
        """RFC 9207: an answer that another issuer caused must not bring its code, nor its error, here."""
        server = self._prospect.server
        if issuer is None and server.authorization_response_iss_parameter_supported:
            raise self._failed("the answer does not say which issuer it is from (`iss`), as this one always does")
        if issuer is not None and issuer != server.issuer:
            raise self._failed(f"the answer is from another issuer, {printable(issuer, 100)!r}")

    def _failed(self, reason: str) -> ServerUnavailable:
        name = self._prospect.spec.name
        return ServerUnavailable(
            f"the sign-in to {name} did not succeed: {reason}",
            server=name,
            next_action=f"Begin again: {SignInRequired.command(name, self._prospect.caller)}; nothing was stored.",
        )


def _parameters(answer: str) -> dict[str, str]:
    """The parameters of an address, or of the part behind its question mark."""
    text = answer.strip()[:_MAX_TOKEN]
    query = urlsplit(text).query if "://" in text else text.lstrip("?")
    try:
        pairs = parse_qsl(query, max_num_fields=50)
    except ValueError:
        return {}
    # A parameter that comes twice is somebody's trick: neither counts.
    names = [name for name, _ in pairs]
    return {name: value for name, value in pairs if names.count(name) == 1}


class DeviceLogin:
    """One sign-in that a person confirms elsewhere: shows `user_code` and `verification_uri`; `wait` waits for it."""

    def __init__(self, prospect: Prospect, client: Client, device: _Device) -> None:
        self._prospect = prospect
        self._client = client
        self._device = device
        self.user_code = printable(device.user_code, 40)
        self.verification_uri = device.verification_uri
        self.verification_uri_complete = device.verification_uri_complete
        self.expires_in = min(max(device.expires_in, 1.0), _LOGIN_S * 2)

    async def wait(
        self, limit_s: float = float("inf"), on_trouble: Callable[[str], object] = lambda trouble: None
    ) -> Credential:
        """Asks, no more often than allowed, until the person said yes or no, or the time is over: and then once more,
        since who said yes in the last moment has signed in. What will pass is waited out (RFC 8628, 3.5), and
        `on_trouble` hears of it; an endpoint that answers as none does is given up after some tries."""
        pause = min(max(self._device.interval, 1.0), 60.0)
        limit_s = min(limit_s, self.expires_in)
        deadline = time.monotonic() + limit_s
        form = {"grant_type": DEVICE_GRANT, "device_code": self._device.device_code}
        trouble, odd = "", 0
        for _ in range(_MAX_POLLS):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            await asyncio.sleep(min(pause, left))
            earlier = trouble
            try:
                answer = await self._prospect.token(self._client, form)
            except UpstreamError as error:
                trouble, pause = error.message, pause + 5.0
            else:
                if answer.ok:
                    return self._prospect.credential(self._client, answer)
                trouble, more, odd = self._not_yet(answer, odd)
                pause += more
            if trouble and trouble != earlier:
                on_trouble(trouble)
        raise self._prospect.unanswered(limit_s, trouble)

    def _not_yet(self, answer: Fetched, odd: int) -> tuple[str, float, int]:
        """What troubles the issuer, how much longer to wait, how many odd answers there were in a row. Raises where it
        makes no sense to go on."""
        code = _error_code(answer)
        odd = 0 if answer.is_busy or _read_error(answer).error else odd + 1
        if code not in ("", "slow_down", "authorization_pending") or odd >= _MAX_ODD:
            raise self._prospect.refused(answer)
        trouble = "" if code else f"{origin_of(self._prospect.issuer)} says {error_of(answer)}"
        return trouble, 0.0 if odd or code == "authorization_pending" else 5.0, odd


async def client_credentials(
    spec: ServerSpec, vault: Vault | None = None, *, challenge: Challenge | None = None, caller: str = ""
) -> Credential:
    """A token for a service that signs in as itself, with the id and the secret of the configuration."""
    if spec.oauth is None or not spec.oauth.client_id or not (spec.oauth.client_secret or spec.oauth.private_key):
        raise ServerUnavailable(
            f"{spec.name} signs in as a service, and has no client id with a secret",
            server=spec.name,
            next_action=f"Write client_id and client_secret (or private_key) in [servers.{spec.name}.oauth].",
        )
    prospect = await prepare(spec, vault, challenge=challenge, caller=caller, unattended=True)
    client = await prospect.client()
    form = {"grant_type": "client_credentials"}
    if prospect.scopes:
        form["scope"] = " ".join(prospect.scopes)
    answer = await prospect.token(client, form)
    if not answer.ok:
        raise prospect.refused(answer)
    return prospect.credential(client, answer)


async def exchange(
    spec: ServerSpec, subject: str, vault: Vault, *, caller: str, challenge: Challenge | None = None
) -> Credential:
    """A token of the server for the one that a caller came in with (RFC 8693), which only the issuer that the
    configuration names is shown. Raises `SignInRequired` where it refuses."""
    learn(subject)
    oauth = spec.oauth or OAuthSpec()
    if not (oauth.exchange and oauth.issuer and oauth.client_id):
        raise _not_exchanged(spec, caller, f"[servers.{spec.name}.oauth] names no issuer and client for it")
    prospect = await prepare(spec, vault, challenge=challenge, caller=caller, unattended=True)
    if _EXCHANGE_GRANT not in prospect.server.grant_types_supported:
        raise _not_exchanged(spec, caller, f"{origin_of(prospect.issuer)} does not offer token exchange")
    return await _exchanged(prospect, subject)


async def _exchanged(prospect: Prospect, subject: str) -> Credential:
    spec, caller = prospect.spec, prospect.caller
    # Access ends with that of the caller: nothing that outlives its own token is asked for, or kept.
    prospect = replace(prospect, scopes=tuple(scope for scope in prospect.scopes if scope != "offline_access"))
    form = {"grant_type": _EXCHANGE_GRANT, "subject_token": subject, "subject_token_type": _ACCESS_TOKEN}
    form |= {"requested_token_type": _ACCESS_TOKEN, "scope": " ".join(prospect.scopes)}
    client = await prospect.client()
    answer = await prospect.token(client, {name: value for name, value in form.items() if value})
    if not answer.ok:
        said = f"{origin_of(prospect.issuer)} says {error_of(answer)}"
        if not _error_code(answer):
            raise ServerUnavailable(said, server=spec.name, next_action="Try again in a while.")
        raise _not_exchanged(spec, caller, said)
    made = replace(prospect.credential(client, answer), grant="exchange", refresh_token="")
    if made.access_token == subject:  # it is not for this server
        raise _not_exchanged(spec, caller, f"{origin_of(prospect.issuer)} gave the same token back")
    return made


def _not_exchanged(spec: ServerSpec, caller: str, reason: str) -> SignInRequired:
    later = "the same token is tried again after a minute, another one at once"
    return SignInRequired(
        f"{spec.name} {SignInRequired.phrase}: the caller's own token was not exchanged: {reason}; {later}",
        server=spec.name,
        next_action=f"Run: {SignInRequired.command(spec.name, caller)}",
    )


async def refresh(spec: ServerSpec, credential: Credential) -> Credential:
    """A new token for an old one. Raises `SignInRequired` where the issuer takes none of what we have any more: the
    grant, or the client that it let us register. Whatever else it says is no verdict on the grant."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": credential.refresh_token,
        "resource": credential.resource,
    }
    answer = await _as_client(spec, credential, credential.token_endpoint, form)
    if answer.ok:
        return _with_tokens(credential, answer)
    said = f"{origin_of(credential.issuer)} says {error_of(answer)}"
    code, command = _error_code(answer), SignInRequired.command(spec.name, credential.caller)
    if code == "invalid_grant" or (credential.registered and code in _CLIENT_REFUSED):
        raise SignInRequired(
            f"the sign-in to {spec.name} has ended: {said}",
            server=spec.name,
            next_action=f"Sign in again: {command}",
        )
    advice = _advice_for(code, spec, f"Where it stays so, sign in again: {command}")
    raise ServerUnavailable(said, server=spec.name, next_action=advice)


async def _as_client(spec: ServerSpec, credential: Credential, url: str, form: dict[str, str]) -> Fetched:
    if other := spec.other_issuer(credential.issuer):
        raise ServerUnavailable(
            f"{_address_of(credential.issuer)} was not asked: the configuration names {_address_of(other)} as the "
            "issuer",
            server=spec.name,
            next_action=f"Sign in again: {SignInRequired.command(spec.name, credential.caller)}",
        )
    secret = credential.client_secret
    if spec.oauth is not None and spec.oauth.client_id == credential.client_id:
        secret = spec.oauth.private_key or spec.oauth.client_secret
    client = Client(client_id=credential.client_id, client_secret=secret, auth_method=credential.auth_method)
    return await _post_as(client, fetcher_for(spec), url, credential.issuer, form)


def _with_tokens(credential: Credential, answer: Fetched) -> Credential:
    tokens = answer.decode(_Tokens)
    token, renewal = tokens.access_token, tokens.refresh_token or ""
    learn(token, renewal, tokens.id_token)
    if tokens.token_type.lower() != "bearer":
        raise _unusable(credential, f"a token of the type {printable(tokens.token_type, 40)!r}")
    if not all(map(_is_sendable, (token, renewal or "none"))):
        raise _unusable(credential, "a token that no header can carry")
    now, life = time.time(), _life(tokens.expires_in)
    granted = credential.asked if tokens.scope is None else valid_scopes(tokens.scope.split())
    return replace(
        credential,
        access_token=token,
        # Without a new one the old one stays valid (RFC 6749, 6).
        refresh_token=renewal or credential.refresh_token,
        obtained_at=now,
        expires_at=now + life if life else 0.0,
        scope=granted,
        needs=_still_needed(credential, granted),
        subject=_subject(tokens.id_token or "") or credential.subject,
    )


def _still_needed(credential: Credential, granted: tuple[str, ...]) -> tuple[str, ...]:
    """What a step-up won stays with the sign-in, and what waits for a person waits on; not what was asked in vain."""
    return tuple(one for one in credential.needs if one in granted or one not in credential.asked)


def _life(seconds: float | str | None) -> float:
    try:
        life = float(seconds or 0)
    except ValueError:
        return 0.0
    return min(life, _MAX_LIFE_S) if life > 0 else 0.0  # "nan" is not


def _is_sendable(token: str) -> bool:
    return 0 < len(token) <= _MAX_TOKEN and token.isascii() and token.isprintable() and " " not in token


def _unusable(credential: Credential, what: str) -> ServerUnavailable:
    return ServerUnavailable(
        f"{origin_of(credential.issuer)} answered with {what}",
        server=credential.server,
        next_action="Tell whoever runs it." if credential.access_token else "Tell whoever runs it; nothing was stored.",
    )


class _Claims(Struct):
    email: str = ""
    preferred_username: str = ""
    name: str = ""
    sub: str = ""


def _subject(id_token: str) -> str:
    """Who signed in, to be shown and for nothing else: it came from the issuer itself, so no signature is checked."""
    payload = [*id_token.split("."), ""][1]
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (ValueError, RecursionError):
        return ""
    return printable(claims.email or claims.preferred_username or claims.name or claims.sub, 100)
