"""One origin over HTTP: requests that carry the target's headers there and nowhere else.

`httpx2` is imported with the first HTTP server. Redirects are followed within the origin only, and no error shows a
header or more of the address than its origin. Above: `http.py`.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

from toolfold.addresses import host_kind
from toolfold.errors import ProtocolViolation, ServerClosed, ServerUnavailable, UpstreamError
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, parse_envelope, remote_error
from toolfold.wire.spill import Spill, SpillPolicy
from toolfold.wire.sse import Event, SseParser
from toolfold.wire.types import HttpTarget, WireOptions

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = ["AccessRefused", "is_loopback", "quiet_log", "refuse_metadata_host"]

_MAX_REDIRECTS = 5
# How often one request is sent again: it may be refused for an old token, and then for too few rights.
_MAX_CHALLENGES = 2
_ERROR_BODY_BYTES = 65536
JSON_TYPE = "application/json"
STREAM_TYPE = "text/event-stream"


_own_request: ContextVar[bool] = ContextVar("_ours", default=False)


def _is_foreign(record: logging.LogRecord) -> bool:
    """`httpx2` logs whole addresses, and an address may hold a key: our own requests are kept out of its log."""
    return not _own_request.get()


def _keep_quiet() -> None:
    """In whatever program this runs: at DEBUG the layer below writes every header as it is, with its token."""
    logging.getLogger("httpx2").addFilter(_is_foreign)
    if logging.getLogger("httpcore2").level < logging.INFO:
        logging.getLogger("httpcore2").setLevel(logging.INFO)


@contextlib.contextmanager
def quiet_log() -> Iterator[None]:
    """Keeps the requests that are made inside out of the client's own log."""
    _keep_quiet()
    mark = _own_request.set(True)
    try:
        yield
    finally:
        _own_request.reset(mark)


_Rewrite = Callable[[bytes], bytes]


class AccessRefused(ServerUnavailable):
    """The server does not take who asks: HTTP status 401 or 403."""


class BodyTooLarge(Exception):
    """A body is over the cap."""


class HttpClient:
    """A client for one target."""

    def __init__(self, target: HttpTarget, options: WireOptions) -> None:
        import httpx2

        _keep_quiet()
        self._headers = _check_headers(target.headers)
        self._authorization = target.authorization
        try:
            self.url = httpx2.URL(target.url)
        except httpx2.InvalidURL as error:
            raise _bad_address() from error
        if self.url.scheme not in {"http", "https"} or not self.url.host:
            raise _bad_address()
        refuse_metadata_host(self.url.host)
        self.origin = f"{self.url.scheme}://{self.url.netloc.decode('ascii', 'replace')}"
        self._client = httpx2.AsyncClient(
            # Loading the certificates costs time and memory: plain http does without.
            verify=_no_certificates() if self.url.scheme == "http" else True,
            timeout=httpx2.Timeout(None, connect=options.start_timeout_s),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=30),
            # We follow them ourselves, within the origin: the headers may hold secrets.
            follow_redirects=False,
            # A proxy of the environment cannot reach a server on this machine.
            trust_env=not is_loopback(self.url.host),
        )

    @contextlib.asynccontextmanager
    async def open(
        self, method: str, headers: dict[str, str], content: bytes | None = None, url: "httpx2.URL | None" = None
    ) -> AsyncIterator["httpx2.Response"]:
        """Sends a request and gives the answer, its body unread. Raises `ServerUnavailable` or `ServerClosed`."""
        import httpx2

        try:
            response = await self._send(method, url or self.url, headers, content)
            try:
                yield response
            finally:
                await response.aclose()
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol) as error:
            raise self._unreachable(_reason(error)) from None
        except httpx2.LocalProtocolError:
            raise ServerUnavailable(
                "the request could not be written: a header of this server's configuration cannot be sent",
                next_action="check `headers` of this server",
            ) from None
        except httpx2.RequestError as error:
            raise self.cut_off(_reason(error)) from None

    async def _send(
        self, method: str, url: "httpx2.URL", headers: dict[str, str], content: bytes | None
    ) -> "httpx2.Response":
        authorization = self._authorization
        if authorization is None:
            return await self._request(method, url, headers, content)
        left = _MAX_CHALLENGES
        while True:
            proof = await authorization.headers()
            response = await self._request(method, url, {**headers, **proof}, content)
            if response.status_code not in {401, 403} or not left:
                return response
            left -= 1
            again = True
            try:
                challenge = ", ".join(response.headers.get_list("www-authenticate"))
                again = await authorization.challenged(response.status_code, challenge, proof)
            finally:
                if again:
                    await response.aclose()
            if not again:
                return response

    async def _request(
        self, method: str, url: "httpx2.URL", headers: dict[str, str], content: bytes | None
    ) -> "httpx2.Response":
        for _ in range(_MAX_REDIRECTS):
            everything = [*self._headers, *((name.encode(), value.encode()) for name, value in headers.items())]
            request = self._client.build_request(method, url, headers=everything, content=content)
            mark = _own_request.set(True)
            try:
                response = await self._client.send(request, stream=True)
            finally:
                _own_request.reset(mark)
            if not response.has_redirect_location:
                return response
            await response.aclose()
            target = url.join(response.headers["location"])
            # Any other status turns a POST into a GET without a body, which is not the same request.
            keeps = method == "GET" or response.status_code in {307, 308}
            if not keeps or not self.same_origin(target):
                raise self._redirected(target)
            url = target
        raise self._unreachable("it redirects in a circle")

    def same_origin(self, other: "httpx2.URL") -> bool:
        """The same scheme, host and port, or the secure form of the same host."""
        here = self.url
        if (here.scheme, here.host, here.port) == (other.scheme, other.host, other.port):
            return True
        # A server may redirect to TLS; the other way round would send the headers in the clear.
        upgraded = (here.scheme, here.port, other.scheme, other.port) == ("http", None, "https", None)
        return upgraded and here.host == other.host

    async def events(
        self, response: "httpx2.Response", limit: int, policy: SpillPolicy | None = None
    ) -> AsyncIterator[Event]:
        """The events of a stream; raises `ServerClosed` where it breaks off. Their spills are the caller's to close."""
        import httpx2

        parser = SseParser(limit, policy)
        try:
            async for chunk in response.aiter_bytes():
                for event in parser.feed(chunk):
                    yield event
        except httpx2.RequestError as error:
            raise self.cut_off(str(error)) from None
        finally:
            parser.close()

    async def aclose(self) -> None:
        await self._client.aclose()

    def _unreachable(self, reason: str) -> ServerUnavailable:
        return ServerUnavailable(
            f"{self.origin} cannot be reached: {reason}",
            next_action="check `url` of this server, and that the server runs",
        )

    def _redirected(self, target: "httpx2.URL") -> ServerUnavailable:
        place = f"{target.scheme}://{target.netloc.decode('ascii', 'replace')}"
        return ServerUnavailable(
            f"{self.origin} redirects to {place}, which was not followed: the request was meant for one server only",
            next_action="if that is the right server, write its address as `url`",
        )

    def cut_off(self, reason: str) -> ServerClosed:
        return ServerClosed(
            f"the connection to {self.origin} broke off before the answer was complete: {reason}",
            next_action="check whether the call had an effect before you repeat it",
        )

    async def refusal(self, response: "httpx2.Response") -> UpstreamError:
        """What an answer with an error status means."""
        said = ""
        try:
            body = await read_body(response, _ERROR_BODY_BYTES)
        except BodyTooLarge:
            body = b""
        try:
            message = parse_envelope(body)
        except DECODE_ERRORS:
            message = None
        if message is not None and message.error is not ABSENT and bytes(message.error) != b"null":
            error = remote_error(message.error)
            # Who was refused must know by whom, and what to set: a server's own words say neither.
            if response.status_code not in {401, 403}:
                return error
            said = f": {error.message}" if error.rpc_code else ""  # without a code it is some proxy's page
        return self._by_status(response.status_code, said)

    def _by_status(self, status: int, said: str) -> UpstreamError:
        if status in {401, 403}:
            key = "store its key or token: toolfold login SERVER --header HEADER, the one it wants; or write it in"
            action = f"{'check' if self._headers else key} `headers` of this server"
            if status == 403 and self._authorization is not None:
                action = "check what the account that signed in to this server may do there"
            return AccessRefused(f"{self.origin} refused access (HTTP {status}){said}", next_action=action)
        if status in {429, 502, 503, 504}:
            return ServerUnavailable(
                f"{self.origin} is not available now (HTTP {status})", next_action="try again in a while"
            )
        return ProtocolViolation(
            f"{self.origin} answered with HTTP status {status}",
            next_action="check that `url` of this server is its MCP endpoint",
        )


def refuse_metadata_host(host: str) -> None:
    """Raises `ServerUnavailable`. Whoever wrote the address, no server that is meant to be used is there."""
    if host_kind(host) == "metadata":
        raise ServerUnavailable(
            f"{host[:100]} is where a cloud hands out this machine's own credentials: no server is used there",
            next_action="remove this server from the configuration, and ask whoever wrote it what it is for",
        )


@lru_cache(maxsize=256)  # every request's Host header is looked at
def is_loopback(host: str | None) -> bool:
    """Whether a name or an address is this machine's own: no other machine is reached by it, and none needs a proxy."""
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False


async def read_body(response: "httpx2.Response", limit: int) -> bytes:
    """The whole body; raises `BodyTooLarge` as soon as it is over the limit."""
    body = await read_prefix(response, limit + 1)
    if len(body) > limit:
        raise BodyTooLarge
    return body


async def read_prefix(response: "httpx2.Response", most: int) -> bytes:
    """The beginning of a body; the rest is left unread."""
    parts, size = [], 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size >= most:
            break
    return b"".join(parts)[:most]


async def read_message(
    response: "httpx2.Response", limit: int, policy: SpillPolicy | None, rewrite: _Rewrite | None = None
) -> bytes | Spill:
    """The same for a message; one that is too large for memory goes to a file where there is a policy for it.

    With `rewrite` the file holds what it returns for each piece; it is called with nothing at the end.
    """
    if policy is None:
        return await read_body(response, limit)
    pieces = response.aiter_bytes()
    parts, size = [], 0
    async for part in pieces:
        parts.append(part)
        size += len(part)
        if size > policy.threshold:
            return await _spill_body(pieces, parts, policy, rewrite or bytes)
    return b"".join(parts)


async def _spill_body(
    pieces: AsyncIterator[bytes], parts: list[bytes], policy: SpillPolicy, rewrite: _Rewrite
) -> Spill:
    spill = policy.open(map(rewrite, filter(None, parts)))
    try:
        async for part in pieces:
            # An empty piece would tell `rewrite` that the body is over.
            if part:
                spill.write(rewrite(part))
            if spill.size > policy.most:
                return spill
        spill.write(rewrite(b""))
    except BaseException:
        spill.close()
        raise
    return spill


def content_type(response: "httpx2.Response") -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _bad_address() -> ServerUnavailable:
    return ServerUnavailable(
        "the address of this server is no http:// or https:// address",
        next_action="correct `url` of this server",
    )


def _check_headers(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """The target's headers as bytes; values that no header can carry are refused without showing them."""
    for name, value in headers.items():
        if not name.isascii() or not name.isprintable() or any(ord(character) < 32 for character in value):
            raise ServerUnavailable(
                f"the header {name[:60]!r} of this server cannot be sent: it holds a line break or control character",
                next_action="correct `headers` of this server",
            )
    return [(name.encode(), value.strip().encode()) for name, value in headers.items()]


def _no_certificates() -> "ssl.SSLContext":
    """A context that trusts nobody: plain http needs none, and loading the certificates costs time and memory."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
