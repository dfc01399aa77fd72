"""How toolfold is known to an authorization server: a configured client id, a client ID metadata document, or dynamic
registration (RFC 7591), in this order. What one issuer gave is never shown to another. Above: grants.
"""

import base64
import secrets
import time
from typing import Any
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from toolfold.auth.discovery import AuthorizationServer
from toolfold.auth.fetch import FORM, Fetched, Fetcher, _address_of, _unusable, origin_of
from toolfold.auth.vault import Credential, Vault
from toolfold.config.sections import PartialRepr
from toolfold.errors import ServerUnavailable, SignInRequired
from toolfold.redaction import learn, redact
from toolfold.text import printable
from toolfold.types import OAuthSpec, ServerSpec

_METHODS = ("none", "client_secret_basic", "client_secret_post")
# Temporary faults of a token endpoint, besides those by status: what is stored stays.
_PASSING = frozenset({"temporarily_unavailable", "server_error"})
# What is wrong is not the grant, but who asks.
_CLIENT_REFUSED = frozenset({"invalid_client", "unauthorized_client"})
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
# How much of foreign words is shown.
MAX_SAID = 300
# Of a client id: it stands in the address that a browser opens.
_MAX_ID = 2048
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_ALGORITHMS = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA", "Ed448": "EdDSA"}


class Client(PartialRepr, frozen=True, kw_only=True):
    """toolfold as one authorization server knows it."""

    printed = ("client_id", "auth_method")
    client_id: str
    client_secret: str = ""
    auth_method: str = "none"
    redirect_uri: str = ""
    registered: bool = False


class _Registered(Struct):
    client_id: str
    client_secret: str = ""
    token_endpoint_auth_method: str = ""


async def find_client(
    fetcher: Fetcher,
    server: AuthorizationServer,
    spec: ServerSpec,
    redirect_uri: str,
    earlier: Credential | None,
    *,
    vault: Vault | None = None,
) -> Client:
    """The client to sign in with; registered now if need be. `earlier` is the last sign-in to this server."""
    oauth = spec.oauth or OAuthSpec()
    if oauth.client_id:
        return await _configured(server, spec, oauth, redirect_uri, vault)
    if oauth.client_metadata_url and server.client_id_metadata_document_supported:
        return Client(client_id=oauth.client_metadata_url, redirect_uri=redirect_uri)
    if (known := await _registered(server, spec, redirect_uri, earlier, vault)) is not None:
        client = Client(
            client_id=known.client_id,
            client_secret=known.client_secret,
            auth_method=known.auth_method,
            redirect_uri=redirect_uri,
            registered=True,
        )
        if not server.registration_endpoint or await _is_known(fetcher, server, client):
            return client
    if server.registration_endpoint:
        return await _register(fetcher, server, spec, redirect_uri)
    raise ServerUnavailable(
        f"{spec.name} needs a client id: {origin_of(server.issuer)} does not register clients by itself",
        server=spec.name,
        next_action=f"Register an application there with the redirect address {redirect_uri} "
        f'and write its id: client_id = "…" in [servers.{spec.name}.oauth]',
    )


async def _registered(
    server: AuthorizationServer, spec: ServerSpec, redirect_uri: str, earlier: Credential | None, vault: Vault | None
) -> Credential | None:
    """The last sign-in of whichever caller whose client will do. Not one with which the caller's own ended: the issuer
    may have forgotten that client."""
    ended = earlier.client_id if earlier is not None and not earlier.registered else ""
    place = (spec.name, server.issuer, redirect_uri)
    fitting = [
        one
        for one in (await vault.list() if vault is not None else ())
        if one.registered and one.client_id != ended and (one.server, one.issuer, one.redirect_uri) == place
    ]
    return max(fitting, key=lambda one: one.obtained_at, default=None)


async def _is_known(fetcher: Fetcher, server: AuthorizationServer, client: Client) -> bool:
    """Whether the issuer still knows a client: it says so before it looks at the token, which there is none of. Else a
    person would find out in the browser, and we never."""
    form = {"grant_type": "refresh_token", "refresh_token": secrets.token_urlsafe(16)}
    answer = await _post_as(client, fetcher, server.token_endpoint, server.issuer, form)
    return _error_code(answer) != "invalid_client"


async def _configured(
    server: AuthorizationServer, spec: ServerSpec, oauth: OAuthSpec, redirect_uri: str, vault: Vault | None
) -> Client:
    secret, known = oauth.private_key or oauth.client_secret, server.issuer
    if secret and vault is not None:
        known = await vault.issuer_of(spec.name, oauth.client_id, server.issuer, chosen=bool(oauth.issuer))
    if known != server.issuer:
        raise ServerUnavailable(
            f"{spec.name} now signs in at {_address_of(server.issuer)}, which does not get the secret of another, "
            f"{_address_of(known)}",
            server=spec.name,
            next_action=f'If that is right, write issuer = "{server.issuer}" under `oauth` of this server.',
        )
    method = "private_key_jwt" if oauth.private_key else _method(server, bool(secret))
    return Client(client_id=oauth.client_id, client_secret=secret, auth_method=method, redirect_uri=redirect_uri)


def _method(server: AuthorizationServer, has_secret: bool) -> str:
    offered = server.token_endpoint_auth_methods_supported
    wanted = _METHODS[1:] if has_secret else _METHODS[:1]
    # Few servers list `none`, and most of those that do not take public clients all the same.
    return next((method for method in wanted if method in offered), wanted[0])


async def _register(fetcher: Fetcher, server: AuthorizationServer, spec: ServerSpec, redirect_uri: str) -> Client:
    offered = server.token_endpoint_auth_methods_supported
    method = next((one for one in _METHODS if one in offered), "none")
    grants = ["authorization_code"]
    if not server.grant_types_supported or "refresh_token" in server.grant_types_supported:
        grants.append("refresh_token")
    if server.device_authorization_endpoint:
        grants.append(DEVICE_GRANT)
    wanted = {
        "client_name": "toolfold",
        "redirect_uris": [redirect_uri],
        "grant_types": grants,
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
    }
    answer = await fetcher.post(server.registration_endpoint, msgspec.json.encode(wanted), "application/json")
    if not answer.ok:
        raise ServerUnavailable(
            f"{origin_of(server.issuer)} did not register toolfold: {error_of(answer)}",
            server=spec.name,
            next_action=f'Register an application there and write its id: client_id = "…" in '
            f"[servers.{spec.name}.oauth]"
            if _error_code(answer)
            else f"Try again in a while: {SignInRequired.command(spec.name)}",
        )
    made = answer.decode(_Registered)
    learn(made.client_secret)
    return Client(
        client_id=made.client_id,
        client_secret=made.client_secret,
        auth_method=_checked_method(server, made, method),
        redirect_uri=redirect_uri,
        registered=True,
    )


def _checked_method(server: AuthorizationServer, made: _Registered, asked: str) -> str:
    """How a client that was registered proves who it is; raises where none was that toolfold could sign in as."""
    method = made.token_endpoint_auth_method or asked
    if not 0 < len(made.client_id) <= _MAX_ID or method not in _METHODS:
        raise _unusable(server.registration_endpoint, "it names no client that toolfold could sign in as")
    return method


def authenticate(client: Client, issuer: str, form: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a request to the token endpoint, with the proof of who asks."""
    headers: dict[str, str] = {}
    learn(client.client_secret)
    if client.auth_method == "client_secret_basic":
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif client.auth_method == "private_key_jwt":
        form = {**form, "client_id": client.client_id, "client_assertion_type": _ASSERTION}
        form["client_assertion"] = _assertion(client, issuer)
    else:
        form = {**form, "client_id": client.client_id}
        if client.auth_method == "client_secret_post":
            form["client_secret"] = client.client_secret
    return urlencode(form).encode(), headers


async def _post_as(client: Client, fetcher: Fetcher, url: str, issuer: str, form: dict[str, str]) -> Fetched:
    body, headers = authenticate(client, issuer, form)
    return await fetcher.post(url, body, FORM, headers)


def _assertion(client: Client, issuer: str) -> str:
    """RFC 7523: a statement of who asks, for one issuer, once, for a minute."""
    from joserfc import jwk, jwt
    from joserfc.errors import JoseError

    now = int(time.time())
    claims = {"iss": client.client_id, "sub": client.client_id, "aud": issuer, "iat": now, "exp": now + 60}
    claims["jti"] = secrets.token_urlsafe(16)
    for kind in (jwk.ECKey, jwk.RSAKey, jwk.OKPKey):
        try:
            key: Any = kind.import_key(client.client_secret)
        except (JoseError, ValueError, TypeError):
            continue
        algorithm = _ALGORITHMS.get(getattr(key, "curve_name", ""), "RS256")
        return jwt.encode({"alg": algorithm}, claims, key, algorithms=[algorithm])
    raise ServerUnavailable(
        "the private key of this server's `oauth` table cannot be read",
        next_action='Write it as PEM, or as a reference to one: private_key = "${NAME}".',
    )


class _Error(Struct):
    error: str = ""
    error_description: str = ""


def _read_error(answer: Fetched) -> _Error:
    try:
        return msgspec.json.decode(answer.body, type=_Error)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _Error()


def _error_code(answer: Fetched) -> str:
    """The code of an error (RFC 6749, 5.2). Nothing where the trouble will pass: the issuer is busy or fails, or what
    answered is no token endpoint, but some proxy before it."""
    code = _read_error(answer).error
    return "" if answer.is_busy or code in _PASSING else code


def error_of(answer: Fetched) -> str:
    """What an error answer says, its code first, cut and in one line. Some repeat what they were sent."""
    error = _read_error(answer)
    said = redact(": ".join(filter(None, (error.error, error.error_description))), ())
    return printable(said, MAX_SAID) or f"HTTP status {answer.status}"


def _advice_for(code: str, spec: ServerSpec, else_do: str) -> str:
    """What to do about an error, by its code: the same again helps against few of them."""
    place = f"[servers.{spec.name}.oauth]"
    oauth = spec.oauth or OAuthSpec()
    if code in _CLIENT_REFUSED and oauth.client_id:
        proof = "private_key" if oauth.private_key else "client_secret"
        return f"Check client_id and {proof} in {place}: the issuer does not take them as they are."
    if code == "invalid_scope":
        return f"Check `scopes` in {place}, and what the server's metadata asks for."
    return else_do if code else f"Try again in a while: {else_do.rpartition(': ')[2]}"
