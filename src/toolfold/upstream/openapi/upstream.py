"""An OpenAPI document as an upstream: its operations as tools, real calls over HTTP.

Where requests go: to `url` of the configuration, else to the first server that the document names. A document that was
fetched from an address may name only that address's own origin; another has to be configured, so that a document
cannot lead calls and their credentials elsewhere. A redirect is followed within the origin only, and only for calls
that change nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit, urlunsplit

from msgspec.structs import replace

from toolfold.errors import InvalidArguments, ServerClosed, ServerTimeout, ServerUnavailable, UpstreamError
from toolfold.redaction import redact
from toolfold.types import EMPTY_OBJECT, Call, Listing, Outcome, ServerInfo, ServerSpec
from toolfold.upstream.base import OnInput, OnProgress
from toolfold.upstream.function_tool import error_result, invalid_arguments_result
from toolfold.upstream.openapi.document import Json, is_url, load_document
from toolfold.upstream.openapi.operations import Operation, OperationReader
from toolfold.upstream.openapi.requests import Request, build_request
from toolfold.upstream.openapi.responses import Response, message_rewriter, to_outcome
from toolfold.upstream.redaction import redact_error, secrets_of
from toolfold.upstream.threads import run_in_thread
from toolfold.wire.dispatcher import answer_too_large
from toolfold.wire.http_client import BodyTooLarge, is_loopback, read_message, read_prefix
from toolfold.wire.jsonrpc import parse_envelope, parse_number
from toolfold.wire.spill import Spill, SpillPolicy
from toolfold.wire.types import WireOptions

if TYPE_CHECKING:
    import httpx2

_MAX_REDIRECTS = 5
_ERROR_BYTES = 65536
"""How much of the body of a failure is read."""


class OpenApiUpstream:
    """Operations of the document that `spec.document` names."""

    def __init__(self, spec: ServerSpec, wire: WireOptions | None = None) -> None:
        self._spec = spec
        self._held = (wire or WireOptions()).max_frame_bytes
        self._spiller = SpillPolicy.of(wire or WireOptions())
        self._operations: dict[str, Operation] = {}
        self._warnings: tuple[str, ...] = ()
        self._info = ServerInfo(name=spec.name)
        self._base = ""
        self._base_query = ""
        self._fresh = False
        self._client: httpx2.AsyncClient | None = None
        self._secrets = secrets_of(spec)

    @property
    def spec(self) -> ServerSpec:
        return self._spec

    @property
    def pid(self) -> int | None:
        return None

    async def open(self) -> ServerInfo:
        await self._load()
        return self._info

    async def _load(self) -> None:
        spec = self._spec
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
        self._info = _info(document, spec.name)
        self._fresh = True

    def _base_address(self, document: Json) -> tuple[str, str]:
        """The address that paths are put behind, and the query that every request carries."""
        try:
            return self._checked_address(document)
        except ValueError as error:
            raise ServerUnavailable(
                f"the server's address cannot be read: {error}", next_action="Set `url` to the address of the API."
            ) from None

    def _checked_address(self, document: Json) -> tuple[str, str]:
        spec = self._spec
        address = spec.url or _server_of(document)
        source = spec.document if is_url(spec.document) else ""
        address = urljoin(source, address) if source else address
        if not is_url(address):
            raise ServerUnavailable(
                f"the document names no server address ({address or 'nothing'!r})",
                next_action="Set `url` to the address of the API.",
            )
        if source and not spec.url and _origin(address) != _origin(source):
            raise ServerUnavailable(
                f"the document at {source} names the server {address}, which is another origin",
                next_action=f'If that is right, set url = "{address}" for this server.',
            )
        parts = urlsplit(address)
        return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", "")), parts.query

    async def listing(self) -> Listing:
        """Reads the document again, except for the first time after `open`."""
        if not self._fresh:
            await self._load()
        self._fresh = False
        return Listing(
            server=self._spec.name,
            tools=tuple(operation.definition for operation in self._operations.values()),
            info=self._info,
            warnings=self._warnings,
        )

    async def call(
        self, call: Call, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Outcome:
        del on_progress, on_input  # Plain HTTP has neither.
        operation = self._operations.get(call.tool)
        if operation is None:
            return Outcome(result=error_result(f"There is no operation {call.tool!r} in this document."), is_error=True)
        try:
            request = build_request(operation, call.arguments)
        except InvalidArguments as error:
            return Outcome(result=invalid_arguments_result(error), is_error=True)
        seconds = call.timeout_s if call.timeout_s is not None else self._spec.call_timeout_s
        try:
            async with asyncio.timeout(seconds):
                response = await self._send(operation, request, call)
        except TimeoutError:
            raise ServerTimeout(
                f"{call.tool} did not answer within {seconds:g} s",
                server=self._spec.name,
                next_action="Try again later, ask for less, or raise `call_timeout_s` for this server.",
            ) from None
        if isinstance(response, Spill):
            return self._spilled(call, response)
        return to_outcome(operation, response, self._secrets)

    def _spilled(self, call: Call, spill: Spill) -> Outcome:
        """An answer that went to a file as the message of a result."""
        if spill.is_file:
            return Outcome(result=EMPTY_OBJECT, spilled=spill.take())
        return Outcome(result=parse_envelope(self._read_back(call, spill)).result)

    def _read_back(self, call: Call, spill: Spill) -> bytes:
        if spill.is_readable:
            return spill.read()
        spill.close()
        problem = spill.problem(call.tool)
        raise redact_error(problem, self._spec) if isinstance(problem, UpstreamError) else problem

    async def _send(self, operation: Operation, request: Request, call: Call) -> Response | Spill:
        import httpx2

        if self._client is None:
            outside = not is_loopback(urlsplit(self._base).hostname)
            # Deadlines are the call's.
            self._client = httpx2.AsyncClient(trust_env=outside, timeout=None, follow_redirects=False)
        target = request.target
        if self._base_query:
            target += ("&" if "?" in target else "?") + self._base_query
        address = self._base + target
        try:
            for _ in range(_MAX_REDIRECTS):
                async with self._opened(self._client, request, address) as found:
                    response = await self._read(operation, found, call)
                if isinstance(response, Spill):
                    return response
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

    @asynccontextmanager
    async def _opened(
        self, client: "httpx2.AsyncClient", request: Request, address: str
    ) -> "AsyncIterator[httpx2.Response]":
        # What the person configured wins over what a model puts into a header of that name.
        configured = {name.lower() for name in self._spec.headers}
        own = {name: value for name, value in request.headers.items() if name.lower() not in configured}
        accept = {} if "accept" in configured else {"Accept": "application/json, */*;q=0.5"}
        sent = client.build_request(
            request.method,
            address,
            headers={**accept, **own, **self._spec.headers},
            content=request.content,
            files=request.parts or None,
        )
        response = await client.send(sent, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def _read(self, operation: Operation, found: "httpx2.Response", call: Call) -> Response | Spill:
        """What came back; where it is too large to be held and the call may end so, as a message in a file."""
        media, _, rest = found.headers.get("content-type", "").partition(";")
        response = Response(
            status=found.status_code,
            reason=found.reason_phrase,
            media=media.strip().lower(),
            charset=found.charset_encoding or "" if rest else "",
            headers={key.lower(): value for key, value in found.headers.items()},
            url=redact(str(found.url), self._secrets),
        )
        if not found.is_success:
            return replace(response, body=await read_prefix(found, _ERROR_BYTES))
        spiller = self._spiller
        most = spiller.most if spiller is not None and call.may_spill else self._held
        told = parse_number(response.headers.get("content-length")) or 0
        rewrite = message_rewriter(response) if call.may_spill else None
        try:
            told_too_large = told > most and operation.method != "HEAD"
            body = None if told_too_large else await read_message(found, most, spiller, rewrite)
        except BodyTooLarge:
            body = None
        if body is None:
            raise redact_error(answer_too_large(call.tool, told, most), self._spec)
        if isinstance(body, Spill) and not call.may_spill:
            body = self._read_back(call, body)
        return body if isinstance(body, Spill) else replace(response, body=body)

    def _unreachable(self, kind: type[UpstreamError], what: str, error: Exception) -> UpstreamError:
        text = redact(f"{_origin(self._base)} {what}: {type(error).__name__}: {error}", self._secrets)
        return kind(text, server=self._spec.name, next_action="Check that the service runs, and `url`.")

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _origin(address: str) -> str:
    parts = urlsplit(address)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme.lower(), 0)
    return f"{parts.scheme.lower()}://{(parts.hostname or '').lower()}:{port}"


def _server_of(document: Json) -> str:
    """The first server of the document, its variables at their defaults."""
    servers = document.get("servers")
    first = servers[0] if isinstance(servers, list) and servers and isinstance(servers[0], dict) else {}
    url = str(first.get("url", "/"))
    variables = first.get("variables")
    for name, variable in (variables if isinstance(variables, dict) else {}).items():
        if isinstance(variable, dict):
            url = url.replace("{" + name + "}", str(variable.get("default", "")))
    return url


def _redirect_target(request: Request, response: Response, address: str, base: str) -> str:
    """Where a redirect leads, if it may be followed."""
    where = response.headers.get("location")
    if not where or response.status not in {301, 302, 303, 307, 308}:
        return ""
    if request.method not in {"GET", "HEAD"} and response.status != 303:
        return ""
    onward = urljoin(address, where)
    return onward if _origin(onward) == _origin(base) else ""


def _info(document: Json, name: str) -> ServerInfo:
    info = document.get("info")
    info = info if isinstance(info, dict) else {}
    text = info.get("description")
    return ServerInfo(
        name=str(info.get("title") or name),
        version=str(info.get("version") or ""),
        title=str(info.get("title") or ""),
        instructions=text.strip() if isinstance(text, str) else "",
        protocol_version=f"OpenAPI {document.get('openapi', '')}",
    )
