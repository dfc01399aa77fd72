"""Fetches what a server's metadata points at: addresses that a stranger chose, and none that it could not reach itself.

Only https, and plain http between addresses of this machine. A name is resolved once, every address it has is looked
at, and the connection goes to one of these, so that a second answer of the name server changes nothing. Private,
link-local and loopback addresses are open where the configuration names the host, or an issuer or a bare address of
that kind; those that hand out a machine's own credentials never are. Redirects of a GET are looked at in the same way;
a POST is never repeated elsewhere. Size, time and depth are bounded. Behind a proxy of the environment the proxy
resolves names. Above: discovery and grants.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from toolfold.addresses import address_kind
from toolfold.config.sections import PartialRepr
from toolfold.errors import ServerTimeout, ServerUnavailable
from toolfold.redaction import redact
from toolfold.text import printable
from toolfold.wire.http_client import is_loopback, quiet_log

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = ["Fetcher"]

_T = TypeVar("_T")
_Resolve = Callable[[str, int], Awaitable[list[str]]]

FORM = "application/x-www-form-urlencoded"
_MAX_BYTES = 1024 * 1024
_MAX_REDIRECTS = 3
_MAX_ADDRESSES = 4
_MAX_URL = 8192
_SECONDS = 15.0
# Printable, with a host, and without a user's name in front of it.
_ADDRESS = re.compile(r"https?://[^\s/?#@\\]+([/?#][!-~]*)?", re.IGNORECASE)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_INSIDE = frozenset({"private", "loopback", "link-local"})
_KINDS = {"metadata": "that of a machine's metadata service"}
_MAX_PATH = 200


class Fetched(PartialRepr, frozen=True):
    """An answer, read whole."""

    printed = ("url", "status")
    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_busy(self) -> bool:
        """Whether whoever answered fails or is overloaded: of what is there it says nothing."""
        return self.status >= 500 or self.status in {408, 425, 429}

    @property
    def is_page(self) -> bool:
        """Whether it is for people: many sites have one for whatever address they do not know."""
        return self.headers.get("content-type", "").lower().startswith("text/html")

    def decode(self, kind: type[_T]) -> _T:
        """The body as JSON of that form; raises `ServerUnavailable`."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
            raise ServerUnavailable(
                f"the answer of {origin_of(self.url)} cannot be read: {reason}",
                next_action="Tell whoever runs that server.",
            ) from None


class Fetcher:
    """Fetches on behalf of one server, whose address comes first. `issuers` are those that the configuration names."""

    def __init__(self, url: str, *issuers: str, resolve: _Resolve | None = None, seconds: float = _SECONDS) -> None:
        self._named = [urlsplit(one).hostname or "" for one in (url, *issuers)]
        self._resolve = resolve or _resolve
        self._seconds = seconds
        self._local = is_loopback(self._named[0])
        self._open_kinds: frozenset[str] | None = None

    async def get(self, url: str) -> Fetched:
        return await self._bounded("GET", url, {"Accept": "application/json"}, None)

    async def post(self, url: str, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> Fetched:
        sent = {"Accept": "application/json", "Content-Type": kind, **(headers or {})}
        return await self._bounded("POST", url, sent, body)

    async def check(self, url: str) -> None:
        """Raises what stands against a request there, before a person does anything in vain. Nothing is sent."""
        await self._within(url, self._addresses(self._checked(url)))

    async def _bounded(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Fetched:
        return await self._within(url, self._follow(method, url, headers, body))

    async def _within(self, url: str, work: Awaitable[_T]) -> _T:
        try:
            async with asyncio.timeout(self._seconds):
                return await work
        except TimeoutError:
            raise ServerTimeout(
                f"{origin_of(url)} did not answer within {self._seconds:g} s",
                next_action="Try again later.",
            ) from None

    async def _follow(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Fetched:
        for _ in range(_MAX_REDIRECTS + 1):
            answer = await self._fetch(method, url, headers, body)
            if answer.status not in _REDIRECTS or "location" not in answer.headers:
                return answer
            if method != "GET":
                raise _unusable(url, "it redirects a request that holds secrets, which was not sent on")
            url = urljoin(url, answer.headers["location"])
        raise _unusable(url, "it redirects in a circle")

    async def _fetch(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Fetched:
        import httpx2

        parts = self._checked(url)
        addresses = await self._addresses(parts)
        problem: Exception | None = None
        for address in addresses[:_MAX_ADDRESSES]:
            # The address in the place of the name, and the name where a server and its certificate want it.
            host = f"[{address}]" if ":" in address else address
            target = parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host, fragment="").geturl()
            sent = {**headers, "Host": parts.netloc, "Accept-Encoding": "identity"}
            try:
                async with self._client(parts) as client:
                    request = client.build_request(
                        method,
                        target,
                        headers=sent,
                        content=body,
                        extensions={"sni_hostname": parts.hostname} if parts.scheme == "https" else {},
                    )
                    with quiet_log():
                        response = await client.send(request, stream=True)
                    try:
                        content = await _read(response, url)
                    finally:
                        await response.aclose()
                    lowered = {name.lower(): value for name, value in response.headers.items()}
                    return Fetched(url, response.status_code, lowered, content)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                problem = error
            except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
                raise _unreachable(url, error) from None
        raise _unreachable(url, problem)

    def _client(self, parts: SplitResult) -> "httpx2.AsyncClient":
        import httpx2

        secure = parts.scheme == "https"
        return httpx2.AsyncClient(
            verify=_certificates() if secure else False,
            timeout=httpx2.Timeout(self._seconds),
            follow_redirects=False,
            trust_env=False,
            proxy=_proxy_for(parts),
        )

    def _checked(self, url: str) -> SplitResult:
        try:
            parts = urlsplit(url)
            parts.port  # noqa: B018 - raises where it is no number
        except ValueError:
            raise _refused(url, "the address cannot be read") from None
        if len(url) > _MAX_URL or not _ADDRESS.fullmatch(url):
            raise _refused(url, "the address cannot be used")
        if parts.scheme == "http" and not (self._local and is_loopback(parts.hostname)):
            raise _refused(url, "only https is allowed")
        return parts

    async def _addresses(self, parts: SplitResult) -> list[str]:
        host = (parts.hostname or "").lower()
        proxied = _proxy_for(parts) is not None
        addresses = await self._lookup(host, parts.port or (443 if parts.scheme == "https" else 80), quiet=proxied)
        allowed = _INSIDE if host in self._named else await self._allowed_kinds()
        for address in addresses:
            kind = address_kind(address)
            if kind and kind not in allowed:
                raise _refused(
                    parts.geturl(),
                    f"its address is {_KINDS.get(kind, kind)}, which a server may not lead toolfold to",
                    "If it is right, name the authorization server as `issuer` under `oauth` of this server."
                    if kind in _INSIDE
                    else _NAMED_WRONGLY,
                )
        return [host] if proxied else addresses

    async def _allowed_kinds(self) -> frozenset[str]:
        """Whoever named an issuer in a private network trusts what it points at there. A server's own name opens
        nothing but itself: whoever has that name says where it leads. A bare address leads nowhere else."""
        if self._open_kinds is None:
            server, *issuers = self._named
            found = {"loopback"} if is_loopback(server) else {address_kind(server)} if _is_address(server) else set()
            for host in issuers:
                found.update(map(address_kind, await self._lookup(host, 443, quiet=True)))
            self._open_kinds = frozenset(found) & _INSIDE
        return self._open_kinds

    async def _lookup(self, host: str, port: int, *, quiet: bool = False) -> list[str]:
        if _is_address(host):
            return [host]
        try:
            addresses = await self._resolve(host, port)
        except OSError:
            addresses = []
        if not addresses and not quiet:
            raise ServerUnavailable(
                f"the name {host[:100]} is not known here",
                next_action="Check the network and the server's address.",
            )
        return list(dict.fromkeys(addresses))


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def _read(response: "httpx2.Response", url: str) -> bytes:
    parts, size = [], 0
    # Undecoded: a few bytes may unpack to gigabytes, and we asked for none of that.
    async for part in response.aiter_raw():
        parts.append(part)
        size += len(part)
        if size > _MAX_BYTES:
            raise _unusable(url, f"it is larger than {_MAX_BYTES:,} bytes")
    return b"".join(parts)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _proxy_for(parts: SplitResult) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    host = parts.hostname or ""
    proxies = getproxies()
    return None if is_loopback(host) or proxy_bypass(host) else proxies.get(parts.scheme) or proxies.get("all")


@lru_cache(maxsize=1)  # reading them takes longer than most requests
def _certificates() -> "ssl.SSLContext":
    import httpx2

    return httpx2.create_ssl_context()


def origin_of(url: str) -> str:
    """What an error may show of an address: the rest may hold secrets, or be anything."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme[:10]}://{(parts.netloc.rpartition('@')[2])[:100]}"
    except ValueError:
        return "an address that cannot be read"


def _address_of(url: str) -> str:
    """The same with the path, where that tells two apart: tenants and realms of one host."""
    try:
        path = urlsplit(url).path
    except ValueError:
        path = ""
    return origin_of(url) + printable(redact(path, ()), _MAX_PATH)


_NAMED_WRONGLY = "Correct this address, in the configuration or in what the server's metadata says."


def _refused(url: str, reason: str, advice: str = _NAMED_WRONGLY) -> ServerUnavailable:
    """Before any request was sent there."""
    return ServerUnavailable(f"{origin_of(url)} was not asked: {reason}", next_action=advice)


def _unusable(url: str, reason: str) -> ServerUnavailable:
    """Of an answer: the request, and what it held, has been there."""
    return ServerUnavailable(
        f"the answer of {origin_of(url)} is not used: {reason}",
        next_action="Check that this is the right address, and tell whoever runs it.",
    )


def _unreachable(url: str, error: Exception | None) -> ServerUnavailable:
    return ServerUnavailable(
        f"{origin_of(url)} cannot be reached: {str(error)[:200] or type(error).__name__}",
        next_action="Try again later.",
    )
