"""Discovery: from a server's challenge to its resource metadata (RFC 9728), and on to its authorization server (RFC
8414 and OpenID Connect). What is found is checked before it is believed: the resource must be the server, the issuer
must call itself what it was asked as. Above: grants. Below: `fetch.py`.
"""

import logging
import re
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from toolfold.auth.fetch import Fetched, Fetcher, _address_of
from toolfold.errors import ServerUnavailable, SignInRequired, UpstreamError
from toolfold.redaction import redact
from toolfold.types import ServerSpec
from toolfold.wire.http_client import is_loopback

log = logging.getLogger("toolfold.auth")

_MAX_CHALLENGE = 16_384
_MAX_SCOPES = 200
# A parameter, or a scheme, or what is passed over. Possessive: each character is read once, whatever stands there.
_PART = re.compile(
    r'(?P<name>[^\s,="]++)\s*+=\s*+(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"?|(?P<plain>[^\s,"]*+))'
    r'|(?P<scheme>[^\s,="]++)|[\s,="]++',
    re.DOTALL,
)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")
_PROBE = b'{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{}}'


class Challenge(Struct, frozen=True, kw_only=True):
    """What a server's `WWW-Authenticate: Bearer …` says."""

    resource_metadata: str = ""
    scope: tuple[str, ...] = ()
    error: str = ""


class Resource(Struct, kw_only=True):
    """RFC 9728 metadata of a protected resource, as far as it is used."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] = ()


class AuthorizationServer(Struct, kw_only=True):
    """RFC 8414 or OpenID Connect metadata of an authorization server, as far as it is used."""

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    registration_endpoint: str = ""
    device_authorization_endpoint: str = ""
    revocation_endpoint: str = ""
    scopes_supported: tuple[str, ...] = ()
    grant_types_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] = ()
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    token_endpoint_auth_signing_alg_values_supported: tuple[str, ...] = ()
    authorization_response_iss_parameter_supported: bool = False
    client_id_metadata_document_supported: bool = False


def parse_challenge(header: str) -> Challenge | None:
    """The first Bearer challenge of a header, which may hold several; `None` where it has none."""
    challenges: list[tuple[str, dict[str, str]]] = []
    for part in _PART.finditer(header[:_MAX_CHALLENGE]):
        if part["scheme"]:
            challenges.append((part["scheme"].lower(), {}))
        elif part["name"] and challenges:
            value = part["plain"] or re.sub(r"\\(.)", r"\1", part["quoted"] or "")
            challenges[-1][1].setdefault(part["name"].lower(), value)
    found = next((parameters for scheme, parameters in challenges if scheme == "bearer"), None)
    if found is None:
        return None
    return Challenge(
        resource_metadata=found.get("resource_metadata", ""),
        scope=valid_scopes(found.get("scope", "").split()),
        error=found.get("error", "")[:100],
    )


def valid_scopes(scopes: "list[str] | tuple[str, ...]") -> tuple[str, ...]:
    """Each once, in order, those that can be sent. One that holds a secret, which a server quotes, would stand in the
    address that a browser opens, and remembers."""
    # Cut first: a server may name as many as fit into its metadata, and looking for secrets takes its time.
    sendable = list(dict.fromkeys(scope for scope in scopes if _SCOPE.fullmatch(scope)))[:_MAX_SCOPES]
    clean = tuple(scope for scope in sendable if redact(scope, ()) == scope)
    if len(clean) < len(sendable):
        log.warning("%d of the scopes hold a secret that toolfold knows: not asked for", len(sendable) - len(clean))
    return clean


def fits(resource: str, url: str) -> bool:
    """Whether a resource is this server: the same origin, and a path that the server's lies in."""
    try:
        ours, theirs = urlsplit(url), urlsplit(resource)
        same = _origin(ours) == _origin(theirs) and not theirs.fragment
    except ValueError:
        return False
    within = f"{ours.path.rstrip('/')}/".startswith(f"{theirs.path.rstrip('/')}/")
    return same and within and theirs.query in {"", ours.query}


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), port


async def discover(
    fetcher: Fetcher, spec: ServerSpec, challenge: Challenge | None
) -> tuple[Challenge | None, Resource, AuthorizationServer]:
    """What the server asks for, what it is, and who issues tokens for it. Without a challenge it is asked for one."""
    challenge = challenge or await _probe(fetcher, spec)
    resource = await _find_resource(fetcher, spec, challenge)
    return challenge, resource, await _find_issuer(fetcher, spec, resource)


async def _probe(fetcher: Fetcher, spec: ServerSpec) -> Challenge | None:
    """Asks a server without a token, to hear what it wants."""
    headers = {"Accept": "application/json, text/event-stream", "Mcp-Method": "server/discover"}
    answer = await fetcher.post(spec.url, _PROBE, "application/json", headers)
    return parse_challenge(answer.headers.get("www-authenticate", "")) if answer.status in {401, 403} else None


async def _find_resource(fetcher: Fetcher, spec: ServerSpec, challenge: Challenge | None) -> Resource:
    """The server's resource metadata; of one that has none, what it would say."""
    parts = urlsplit(spec.url)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = [f"{base}/.well-known/oauth-protected-resource{tail}" for tail in dict.fromkeys((path, ""))]
    if challenge is not None and challenge.resource_metadata:
        places.insert(0, challenge.resource_metadata)
    if (answer := await _first(fetcher, places)) is None:
        # Before 2025-06-18 a server was its own authorization server.
        return Resource(resource=spec.url.partition("#")[0], authorization_servers=(base,))
    resource = answer.decode(Resource)
    if not fits(resource.resource, spec.url):
        raise ServerUnavailable(
            f"{spec.name} names {resource.resource[:200]!r} as the resource to sign in to, which is another server",
            server=spec.name,
            next_action="Nothing was sent there. Check `url` of this server, or tell whoever runs it.",
        )
    return resource


async def _first(fetcher: Fetcher, places: list[str]) -> Fetched | None:
    """What is said at the first of these places where anything is. Raises where nobody can tell that there is none."""
    busy: Fetched | None = None
    for place in dict.fromkeys(places):
        answer = await fetcher.get(place)
        if answer.ok and not answer.is_page:
            return answer
        busy = busy or (answer if answer.is_busy else None)
    if busy is not None:
        raise ServerUnavailable(
            f"{_address_of(busy.url)} answered with status {busy.status}, and says nothing of how to sign in",
            next_action="Try again later.",
        )
    return None


async def _find_issuer(fetcher: Fetcher, spec: ServerSpec, resource: Resource) -> AuthorizationServer:
    """The metadata of the authorization server that the resource names, or that the configuration does."""
    wanted = _choose(spec, resource.authorization_servers)
    parts = urlsplit(wanted)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = [f"{base}/.well-known/{kind}{path}" for kind in ("oauth-authorization-server", "openid-configuration")]
    if path:
        places.append(f"{base}{path}/.well-known/openid-configuration")
    if (answer := await _first(fetcher, places)) is None:
        raise ServerUnavailable(
            f"{spec.name} offers no sign-in that toolfold knows: {_address_of(wanted)} has no OAuth metadata",
            server=spec.name,
            next_action=f"Where it wants a key: {SignInRequired.command(spec.name, header='HEADER')}, with the header "
            f"that it wants it in. Else {'correct' if _named(spec) else 'name its authorization server as'} `issuer` "
            "under `oauth`.",
        )
    found = answer.decode(AuthorizationServer)
    # A slash behind a bare host is one that address libraries put there by themselves.
    if found.issuer != wanted and (path or found.issuer.rstrip("/") != wanted.rstrip("/")):
        raise ServerUnavailable(
            f"the metadata at {_address_of(answer.url)} is that of another issuer, {found.issuer[:200]!r}",
            server=spec.name,
            next_action="It is not used. Tell whoever runs the server, or name the right `issuer` under `oauth`.",
        )
    await _check_token_endpoint(fetcher, spec, found)
    return found


async def _check_token_endpoint(fetcher: Fetcher, spec: ServerSpec, server: AuthorizationServer) -> None:
    """Where the proof of a sign-in goes to, at its very end."""
    if not server.token_endpoint:
        raise ServerUnavailable(
            f"{_address_of(server.issuer)} names no token endpoint: nobody can get a token there",
            server=spec.name,
            next_action="Tell whoever runs it.",
        )
    try:
        await fetcher.check(server.token_endpoint)
    except UpstreamError as error:
        raise type(error)(
            f"the token endpoint of {_address_of(server.issuer)} cannot be used: {error.message}",
            server=spec.name,
            next_action=error.next_action,
        ) from None


def _named(spec: ServerSpec) -> str:
    return spec.oauth.issuer if spec.oauth is not None else ""


def _choose(spec: ServerSpec, offered: tuple[str, ...]) -> str:
    named = _named(spec)
    if offered and spec.other_issuer(*offered):
        raise ServerUnavailable(
            f"{spec.name} signs in at {', '.join(map(_address_of, offered[:5]))}, and not at the configured issuer, "
            f"{_address_of(named)}",
            server=spec.name,
            next_action="Correct `issuer` under `oauth` of this server; nothing was sent to either.",
        )
    if not named and not offered:
        raise ServerUnavailable(
            f"{spec.name} names no authorization server",
            server=spec.name,
            next_action="Name it as `issuer` under `oauth` of this server.",
        )
    return named or offered[0]


def _reads_plainly(url: str, netloc: str) -> bool:
    """Somebody reads it before they go there: `https://known.example@other.example` leads astray."""
    return url.isascii() and url.isprintable() and " " not in url and "@" not in netloc


def _leads_a_browser(url: str, spec: ServerSpec) -> bool:
    try:
        parts = urlsplit(url)
        local = parts.scheme == "http" and is_loopback(parts.hostname) and is_loopback(urlsplit(spec.url).hostname)
        return bool(parts.hostname) and (parts.scheme == "https" or local) and _reads_plainly(url, parts.netloc)
    except ValueError:
        return False


def check_browser_address(url: str, spec: ServerSpec, *, extended: bool = False) -> str:
    """An address that a person's browser may be sent to: https, or this machine where the server is on it, too.
    `extended`: with what we ask for in its query."""
    usable = _leads_a_browser(url, spec)
    # What is asked for would stand behind the fragment, which no browser sends (RFC 6749, 3.1).
    if not usable or (extended and "#" in url):
        raise ServerUnavailable(
            f"the sign-in page of {spec.name} {'has a fragment (#) in its' if usable else 'is no https'} address",
            server=spec.name,
            next_action="It was not opened. Tell whoever runs the server.",
        )
    return url
