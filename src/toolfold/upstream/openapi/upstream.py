"""An OpenAPI document as an upstream: its operations as tools, real calls over HTTP.

Where requests go: to `base_url` of the configuration, else to the first server that the document names. A document that
was fetched from an address may name only that address's own origin; another has to be configured, so that a document
cannot lead calls and their credentials elsewhere. A redirect is followed within the origin only, and only for calls
that change nothing.
"""

import asyncio
import base64
import codecs
import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolfold.auth.session import OAuthSession, session_for
from toolfold.auth.vault import Vault
from toolfold.errors import InvalidArguments, ServerClosed, ServerTimeout, ServerUnavailable, UpstreamError
from toolfold.redaction import redact
from toolfold.text import replace_large_numbers
from toolfold.types import EMPTY_OBJECT, CallContext, Listing, Outcome, ServerInfo, ServerSpec, ToolCall
from toolfold.upstream.base import call_timeout, file_stamp
from toolfold.upstream.function_tool import error_result, invalid_arguments_result
from toolfold.upstream.openapi.document import is_url, load_document
from toolfold.upstream.openapi.operations import Operation, OperationReader, is_json
from toolfold.upstream.openapi.requests import Request, build_request
from toolfold.upstream.openapi.schemas import Json, as_dict, as_list
from toolfold.upstream.redaction import mask, redact_error, secrets_of
from toolfold.upstream.threads import run_in_thread
from toolfold.wire.dispatcher import answer_too_large
from toolfold.wire.http_client import BodyTooLarge, is_loopback, read_message, read_prefix, refuse_metadata_host
from toolfold.wire.jsonrpc import parse_envelope, parse_number
from toolfold.wire.spill import Spill, SpillPolicy
from toolfold.wire.types import WireOptions

if TYPE_CHECKING:
    import httpx2


# An HTTP response as a `CallToolResult`.

_MAX_ERROR_CHARACTERS = 16_384
_BYTES = "application/octet-stream"
# Where the body stands in a message, while it is written. Nothing that the service wrote stands after it.
_PLACEHOLDER = "@BODY@"

_TEXT = ("text/", "application/xml", "application/yaml", "application/x-yaml", "application/javascript")


class _Response(Struct, frozen=True):
    """What came back, read whole."""

    status: int
    reason: str
    media: str
    charset: str
    headers: dict[str, str]
    url: str
    body: bytes = b""


def _to_outcome(operation: Operation, response: _Response, secrets: tuple[str, ...]) -> Outcome:
    """The result of a call. `secrets` never appear in the text of an error."""
    if not 200 <= response.status < 300:
        return Outcome(raw=error_result(_failure(response, secrets)), is_error=True)
    body: dict[str, Any]
    if operation.method == "HEAD" or not response.body:
        body = {"content": [_text_block(_headline(response))]}
    elif is_json(response.media) and "*" not in response.media and _is_valid(response.body):
        body = {"content": [_text_block(_decode(response))]} | _structured_content(operation, response.body)
    else:
        body = {"content": [_block(response)]}
    return Outcome(raw=Raw(msgspec.json.encode(body)))


def _structured_content(operation: Operation, body: bytes) -> dict[str, Any]:
    if operation.structured and operation.wrapped:
        return {"structuredContent": {"result": Raw(body)}}
    return {"structuredContent": Raw(body)} if operation.structured and body.lstrip()[:1] == b"{" else {}


def _is_valid(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=Raw)
        body.decode("utf-8")  # msgspec does not look into the strings of a Raw
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return replace_large_numbers(body) == body


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _decode(response: _Response) -> str:
    try:
        return response.body.decode(response.charset or "utf-8", "replace")
    except LookupError:
        return response.body.decode("utf-8", "replace")


def _headline(response: _Response) -> str:
    lines = [f"{response.status} {response.reason}".strip()]
    reported = ("content-type", "content-length", "last-modified", "etag", "location")
    lines += [f"{name}: {response.headers[name]}" for name in reported if response.headers.get(name)]
    return "\n".join(lines)


def _block(response: _Response) -> dict[str, Any]:
    if _is_text(response.media or _BYTES):
        return _text_block(_decode(response))
    return _binary_block(response, base64.b64encode(response.body).decode())


def _is_text(media: str) -> bool:
    return media.startswith(_TEXT) or is_json(media) or media.endswith("+xml")


def _binary_block(response: _Response, data: str) -> dict[str, Any]:
    media = response.media or _BYTES
    for kind in ("image", "audio"):
        if media.startswith(f"{kind}/"):
            return {"type": kind, "mimeType": media, "data": data}
    return {"type": "resource", "resource": {"uri": response.url, "mimeType": media, "blob": data}}


def _message_rewriter(response: _Response) -> Callable[[bytes], bytes]:
    """Makes the pieces of a body into those of a message whose result holds it. Nothing stands for the end.

    It is what `outcome` makes of a whole body, without `structuredContent`: that would say everything twice.
    """
    text = _is_text(response.media or _BYTES)
    block = _text_block(_PLACEHOLDER) if text else _binary_block(response, _PLACEHOLDER)
    message = msgspec.json.encode({"jsonrpc": "2.0", "id": 0, "result": {"content": [block]}})
    begin, _, end = message.rpartition(_PLACEHOLDER.encode())
    written = _text_writer(response) if text else _base64_writer()

    def rewrite(piece: bytes) -> bytes:
        nonlocal begin
        start, begin = begin, b""
        return start + written(piece) + (b"" if piece else end)

    return rewrite


def _text_writer(response: _Response) -> Callable[[bytes], bytes]:
    try:
        decoder = codecs.getincrementaldecoder(response.charset or "utf-8")("replace")
    except LookupError:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda piece: msgspec.json.encode(decoder.decode(piece, not piece))[1:-1]


def _base64_writer() -> Callable[[bytes], bytes]:
    rest = b""

    def write(piece: bytes) -> bytes:
        nonlocal rest
        piece, last = rest + piece, not piece
        # Base64 takes three bytes at a time: the rest waits for the next piece.
        end = len(piece) if last else len(piece) - len(piece) % 3
        rest = piece[end:]
        return base64.b64encode(piece[:end])

    return write


def _failure(response: _Response, secrets: tuple[str, ...]) -> str:
    first = f"HTTP {response.status} {response.reason}".strip()
    if 300 <= response.status < 400 and (where := response.headers.get("location")):
        first += f"\nIt points to {where}, which is not followed: another origin, or a call that is not repeated."
    media = response.media
    readable = not media or _is_text(media)
    # Before it is cut: half a secret would not be known again.
    text = redact(_decode(response), secrets) if readable else f"(not shown: it is {media})"
    if len(text) > _MAX_ERROR_CHARACTERS:
        text = f"{text[:_MAX_ERROR_CHARACTERS]}\n… and more"
    return redact(f"{first}\n{text}" if response.body else first, secrets)


_MAX_REDIRECTS = 5
# How much of the body of a failure is read.
_ERROR_BYTES = 65536


class OpenApiUpstream:
    """Operations of the document that `spec.document` names."""

    pid: int | None = None

    def __init__(
        self, spec: ServerSpec, wire: WireOptions | None = None, vault: Vault | None = None, caller: str = ""
    ) -> None:
        self.spec = spec
        self._vault = vault
        self._caller = caller
        self._session: OAuthSession | None = None
        self._wire = wire or WireOptions()
        self._spiller = SpillPolicy.of(self._wire)
        self._operations: dict[str, Operation] = {}
        self._warnings: tuple[str, ...] = ()
        self._info = ServerInfo(name=spec.name)
        self._base = ""
        self._base_query = ""
        self._fresh = False
        self._path = None if is_url(spec.document) else Path(spec.cwd or "").joinpath(spec.document).expanduser()
        self._stamp: tuple[int, ...] = ()
        self._client: httpx2.AsyncClient | None = None
        self._secrets = secrets_of(spec)

    @property
    def outdated(self) -> bool:
        """Whether the document was edited since it was read."""
        return self._path is not None and file_stamp(self._path) != self._stamp

    @property
    def address(self) -> str:
        """Where requests go, once it is open."""
        return self._base

    async def open(self) -> ServerInfo:
        await self._load()
        return self._info

    async def _load(self) -> None:
        spec = self.spec
        # Before it is read, also where that fails: what is written meanwhile is read, and what is wrong only once.
        self._stamp = () if self._path is None else file_stamp(self._path)
        try:
            # Credentials go with the document only where it lies on the server that they are for.
            own = is_url(spec.document) and (not spec.url or _origin(spec.url) == _origin(spec.document))
            document = await load_document(
                spec.document,
                cwd=spec.cwd,
                headers=spec.headers if own else {},
                timeout_s=spec.start_timeout_s,
            )
            base = self._base_address(document)
            reader = OperationReader(document)
            self._operations = await run_in_thread(reader.operations)
        except UpstreamError as error:
            raise redact_error(error, spec) from None
        self._warnings = tuple(reader.warnings)
        self._base, self._base_query = base
        if self._session is None or self._session.spec.url != self._base:
            self._session = session_for(replace(spec, url=self._base), self._vault, self._caller)
        self._info = _info(document, spec.name)
        self._fresh = True

    def _base_address(self, document: Json) -> tuple[str, str]:
        """The address that paths are put behind, and the query that every request carries."""
        try:
            return self._checked_address(document)
        except ValueError as error:
            raise ServerUnavailable(
                f"the server's address cannot be read: {error}", next_action="Set `base_url` to the address of the API."
            ) from None

    def _checked_address(self, document: Json) -> tuple[str, str]:
        spec = self.spec
        address = spec.url or _server_of(document)
        source = spec.document if is_url(spec.document) else ""
        address = urljoin(source, address) if source else address
        if not is_url(address):
            raise ServerUnavailable(
                f"the document names no server address ({address or 'nothing'!r})",
                next_action="Set `base_url` to the address of the API.",
            )
        if source and not spec.url and _origin(address) != _origin(source):
            raise ServerUnavailable(
                f"the document at {source} names the server {address}, which is another origin",
                next_action=f'If that is right, set url = "{address}" for this server.',
            )
        parts = urlsplit(address)
        refuse_metadata_host(parts.hostname or "")
        return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", "")), parts.query

    async def listing(self) -> Listing:
        """Reads the document again, except for the first time after `open`."""
        # `open` has just read it: reading it twice would double the start of every server.
        if not self._fresh or self.outdated:
            await self._load()
        self._fresh = False
        return Listing(
            server=self.spec.name,
            tools=tuple(operation.definition for operation in self._operations.values()),
            info=self._info,
            warnings=self._warnings,
        )

    async def call(self, call: ToolCall, context: CallContext) -> Outcome:
        """Makes the request of an operation. Plain HTTP reports no progress and asks nothing."""
        name = call.tool.name
        operation = self._operations.get(name)
        if operation is None:
            return Outcome(raw=error_result(f"There is no operation {name!r} in this document."), is_error=True)
        try:
            request = build_request(operation, call.arguments)
        except InvalidArguments as error:
            return Outcome(raw=invalid_arguments_result(error), is_error=True)
        seconds = call_timeout(self.spec, context, self._wire.request_timeout_s)
        try:
            async with asyncio.timeout(seconds):
                response = await self._send(operation, request, may_spill=not context.whole)
        except TimeoutError:
            raise ServerTimeout(
                f"{name} did not answer within {seconds:g} s",
                server=self.spec.name,
                next_action="Try again later, ask for less, or raise `call_timeout_s` for this server.",
            ) from None
        if not isinstance(response, Spill):
            return _to_outcome(operation, response, self._secrets)
        # The answer went to a file, as the message of a result.
        if response.is_file:
            return Outcome(raw=EMPTY_OBJECT, spilled=response.take())
        return Outcome(raw=parse_envelope(self._read_back(name, response)).result)

    def _read_back(self, name: str, spill: Spill) -> bytes:
        if spill.is_readable:
            return spill.read()
        spill.close()
        problem = spill.problem(name)
        raise redact_error(problem, self.spec) if isinstance(problem, UpstreamError) else problem

    async def _send(self, operation: Operation, request: Request, *, may_spill: bool) -> _Response | Spill:
        import httpx2

        if self._client is None:
            outside = not is_loopback(urlsplit(self._base).hostname)
            # No time-outs of its own: the call's holds for all of it.
            self._client = httpx2.AsyncClient(trust_env=outside, timeout=None, follow_redirects=False)
        address = self._address(request)
        try:
            for _ in range(_MAX_REDIRECTS):
                proof = await self._session.headers() if self._session is not None else {}
                async with self._stream(self._client, request, address, proof) as answer:
                    response = await self._read(operation, answer, may_spill)
                if isinstance(response, Spill):
                    return response
                if await self._is_challenge(response, proof):
                    continue
                onward = _redirect_target(request, response, address, self._base)
                if not onward:
                    return response
                address = onward
                if response.status == 303:
                    request = Request(method="GET", target="", headers=request.headers)
        except httpx2.ConnectError as error:
            raise self._unreachable(ServerUnavailable, "cannot be reached", error) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise self._unreachable(ServerClosed, "broke off", error) from None
        return response

    def _address(self, request: Request) -> str:
        if not self._base_query:
            return self._base + request.target
        return f"{self._base}{request.target}{'&' if '?' in request.target else '?'}{self._base_query}"

    async def _is_challenge(self, response: _Response, proof: Mapping[str, str]) -> bool:
        """Whether the request was refused for want of a token that there is now."""
        if self._session is None or response.status not in {401, 403}:
            return False
        challenge = response.headers.get("www-authenticate", "")
        return await self._session.challenged(response.status, challenge, proof)

    def _stream(
        self, client: "httpx2.AsyncClient", request: Request, address: str, proof: Mapping[str, str]
    ) -> "AbstractAsyncContextManager[httpx2.Response]":
        # What the person configured wins over what a model puts into a header of that name.
        fixed = {**self.spec.headers, **proof}
        configured = {name.lower() for name in fixed}
        own = {name: value for name, value in request.headers.items() if name.lower() not in configured}
        accept = {} if "accept" in configured else {"Accept": "application/json, */*;q=0.5"}
        return client.stream(
            request.method,
            address,
            headers={**accept, **own, **fixed},
            content=request.content,
            files=request.parts or None,
        )

    def _head(self, answer: "httpx2.Response") -> _Response:
        """What came back, without its body."""
        media, _, rest = answer.headers.get("content-type", "").partition(";")
        return _Response(
            status=answer.status_code,
            reason=answer.reason_phrase,
            media=media.strip().lower(),
            charset=answer.charset_encoding or "" if rest else "",
            headers={key.lower(): value for key, value in answer.headers.items()},
            url=redact(str(answer.url), self._secrets),
        )

    async def _read(self, operation: Operation, answer: "httpx2.Response", may_spill: bool) -> _Response | Spill:
        """What came back; where it is too large for memory and the call allows it, as a message in a file."""
        response = self._head(answer)
        if not answer.is_success:
            return replace(response, body=await read_prefix(answer, _ERROR_BYTES))
        body = await self._read_body(operation, response, answer, may_spill)
        if isinstance(body, Spill) and not may_spill:
            body = self._read_back(operation.definition.name, body)
        return body if isinstance(body, Spill) else replace(response, body=body)

    async def _read_body(
        self, operation: Operation, response: _Response, answer: "httpx2.Response", may_spill: bool
    ) -> bytes | Spill:
        most = self._spiller.most if self._spiller is not None and may_spill else self._wire.max_frame_bytes
        announced = parse_number(response.headers.get("content-length")) or 0
        rewrite = _message_rewriter(response) if may_spill else None
        # The answer to HEAD announces the length of a body that does not come.
        if announced <= most or operation.method == "HEAD":
            with contextlib.suppress(BodyTooLarge):
                return await read_message(answer, most, self._spiller, rewrite)
        raise redact_error(answer_too_large(operation.definition.name, announced, most), self.spec).after_work()

    def _unreachable(self, kind: type[UpstreamError], what: str, error: Exception) -> UpstreamError:
        text = mask(f"{_origin(self._base)} {what}: {type(error).__name__}: {error}", self._secrets)
        return kind(text, server=self.spec.name, next_action="Check that the service runs, and `base_url`.")

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
        if self._session is not None:
            await self._session.aclose()


def _origin(address: str) -> str:
    parts = urlsplit(address)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme.lower(), 0)
    return f"{parts.scheme.lower()}://{(parts.hostname or '').lower()}:{port}"


def _server_of(document: Json) -> str:
    """The first server of the document, its variables at their defaults."""
    first = as_dict(next(iter(as_list(document.get("servers"))), None))
    url = str(first.get("url", "/"))
    for name, variable in as_dict(first.get("variables")).items():
        url = url.replace("{" + name + "}", str(as_dict(variable).get("default", "")))
    return url


def _redirect_target(request: Request, response: _Response, address: str, base: str) -> str:
    """Where a redirect leads, if it may be followed."""
    where = response.headers.get("location")
    if not where or response.status not in {301, 302, 303, 307, 308}:
        return ""
    # A call that changes something must not be repeated elsewhere; 303 asks for a GET instead.
    if request.method not in {"GET", "HEAD"} and response.status != 303:
        return ""
    onward = urljoin(address, where)
    return onward if _origin(onward) == _origin(base) else ""


def _info(document: Json, name: str) -> ServerInfo:
    info = as_dict(document.get("info"))
    text = info.get("description")
    return ServerInfo(
        name=str(info.get("title") or name),
        version=str(info.get("version") or ""),
        title=str(info.get("title") or ""),
        instructions=text.strip() if isinstance(text, str) else "",
        protocol_version=f"OpenAPI {document.get('openapi', '')}",
    )
