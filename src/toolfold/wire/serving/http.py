"""Streamable HTTP as an ASGI application: both eras on one endpoint.

Modern: one request a POST, headers repeat what the body says, closing the connection cancels. Legacy: see
`http_legacy.py`. Above: the face that runs it. Below: `server.py`, `http_guard.py`, `http_stream.py`.
"""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import UNSET

from toolfold.types import Caller
from toolfold.wire import jsonrpc
from toolfold.wire.headers import NAME_PARAMETERS, decode_header
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Envelope, parse_string
from toolfold.wire.serving.exchange import RequestMeta, RequestParams, parse_params
from toolfold.wire.serving.http_guard import HttpError, HttpGuard, parse_headers
from toolfold.wire.serving.http_sessions import LegacyHttpHandler
from toolfold.wire.serving.http_stream import ClientGone, Receive, Responder, ResponseStream, Scope, Send
from toolfold.wire.serving.server import MODERN_METHODS, Server, check_meta, error_response
from toolfold.wire.serving.session import parse_batch
from toolfold.wire.serving.types import RpcError
from toolfold.wire.types import LEGACY_VERSIONS

_VERSION_HEADER = "mcp-protocol-version"
_METHODS = b"GET, POST, DELETE"


class McpHttpApp:
    """The application. Whoever runs it routes requests of one path here."""

    def __init__(self, server: Server, guard: HttpGuard | None = None) -> None:
        self._server = server
        self._guard = guard if guard is not None else HttpGuard()
        self.legacy = LegacyHttpHandler(server)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        responder = Responder(receive, send, self._server.options.keep_alive_s)
        headers = parse_headers(scope)
        try:
            caller = self._guard.check(headers)
            await self._serve(scope["method"], headers, caller, receive, responder)
        except HttpError as refusal:
            await responder.plain(refusal.status, _error_body(refusal), refusal.headers)

    async def guarded(
        self, scope: Scope, receive: Receive, send: Send, page: Callable[[], Awaitable[tuple[str, bytes]]]
    ) -> None:
        """Answers with a page for those who may talk to this server at all."""
        responder = Responder(receive, send, self._server.options.keep_alive_s)
        try:
            self._guard.check(parse_headers(scope))
        except HttpError as refusal:
            await responder.plain(refusal.status, _error_body(refusal), refusal.headers)
            return
        kind, text = await page()
        await responder.plain(200, text, kind=kind.encode())

    async def aclose(self) -> None:
        await self.legacy.sessions.aclose()
        await self._server.aclose()

    async def _serve(
        self, method: str, headers: Mapping[str, str], caller: Caller, receive: Receive, responder: Responder
    ) -> None:
        if method == "POST":
            _check_content_types(headers)
            await self._post(await self._body(headers, receive), headers, caller, responder)
        elif method in {"GET", "DELETE"} and headers.get("mcp-session-id"):
            session = self.legacy.sessions.get(headers["mcp-session-id"], caller)
            if method == "DELETE":
                await self.legacy.sessions.end(session)
                await responder.plain(200)
            elif "text/event-stream" not in headers.get("accept", "") and "*/*" not in headers.get("accept", ""):
                raise HttpError(406, "this answers with an event stream: accept text/event-stream")
            else:
                await self.legacy.listen(session, headers.get("last-event-id"), responder)
        else:
            raise HttpError(405, "send messages with POST", ((b"allow", _METHODS),))

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        limit = self._server.options.max_body_bytes
        if (jsonrpc.parse_number(headers.get("content-length")) or 0) > limit:
            raise HttpError(413, f"a message may have at most {limit} bytes")
        parts, size = [], 0
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise HttpError(400, "the message was cut off")
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise HttpError(413, f"a message may have at most {limit} bytes")
            if not event.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _post(self, body: bytes, headers: Mapping[str, str], caller: Caller, responder: Responder) -> None:
        batch = parse_batch(body)
        if batch is not None:
            await self._batch(batch, headers, caller, responder)
            return
        try:
            if not body.isascii():
                body.decode()
            message = jsonrpc.parse_envelope(body)
            read = parse_params(message.params)
        except DECODE_ERRORS as error:
            fault = RpcError(jsonrpc.PARSE_ERROR, f"this is no JSON-RPC message: {error}")
            await responder.plain(400, error_response(None, fault))
            return
        except RpcError as fault:
            identifier = message.id if message.id is not UNSET else None
            await responder.plain(400, error_response(identifier, fault))
            return
        if _is_modern(message, read[1], headers):
            await self._modern(message, read, headers, caller, responder)
        elif message.method == "initialize" and message.id is not UNSET:
            await self.legacy.initialize(message, caller, responder)
        else:
            await self._in_session([message], headers, caller, responder)

    async def _in_session(
        self, messages: list[Envelope], headers: Mapping[str, str], caller: Caller, responder: Responder
    ) -> None:
        session = self.legacy.sessions.get(headers.get("mcp-session-id", ""), caller)
        events = "text/event-stream" in headers.get("accept", "")
        await self.legacy.post(messages, session, responder, events=events)

    async def _batch(
        self, batch: list[Envelope], headers: Mapping[str, str], caller: Caller, responder: Responder
    ) -> None:
        session = self.legacy.sessions.get(headers.get("mcp-session-id", ""), caller)
        if session.session is None or not session.session.batches or not batch:
            fault = RpcError(jsonrpc.INVALID_REQUEST, "several messages in one are not served here")
            await responder.plain(400, error_response(None, fault))
            return
        await self._in_session(batch, headers, caller, responder)

    async def _modern(
        self,
        message: Envelope,
        read: tuple[RequestParams, RequestMeta],
        headers: Mapping[str, str],
        caller: Caller,
        responder: Responder,
    ) -> None:
        if message.id is UNSET:
            await responder.plain(202)
            return
        stream = ResponseStream()
        try:
            _check_headers(message, read, headers)
            exchange = self._server.modern(message, read, caller, stream, headers)
        except RpcError as fault:
            stream.finish(error_response(message.id, fault), fault)
            await responder.stream(stream, modern=True)
            return
        try:
            await responder.stream(stream, modern=True, events="text/event-stream" in headers.get("accept", ""))
        except ClientGone:
            if exchange.outlet is stream and exchange.task is not None:
                exchange.task.cancel()


def _is_modern(message: Envelope, meta: RequestMeta, headers: Mapping[str, str]) -> bool:
    version = headers.get(_VERSION_HEADER)
    if meta.version is not ABSENT or message.method in MODERN_METHODS:
        return True
    return version is not None and version not in LEGACY_VERSIONS


def _check_content_types(headers: Mapping[str, str]) -> None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HttpError(415, "a message is sent as application/json")
    accept = headers.get("accept", "*/*")
    if not any(kind in accept for kind in ("application/json", "text/event-stream", "*/*", "application/*")):
        raise HttpError(406, "the answer is application/json or text/event-stream: accept both")


def _check_headers(message: Envelope, read: tuple[RequestParams, RequestMeta], headers: Mapping[str, str]) -> None:
    """Raises a `Fault` where the headers do not say what the body says."""
    params, meta = read
    if meta.version is ABSENT:
        check_meta(meta)
    _check_same("MCP-Protocol-Version", headers.get(_VERSION_HEADER), parse_string(meta.version))
    _check_same("Mcp-Method", headers.get("mcp-method"), str(message.method))
    key = NAME_PARAMETERS.get(str(message.method))
    if key is not None:
        _check_same("Mcp-Name", headers.get("mcp-name"), parse_string(params.uri if key == "uri" else params.name))


def _check_same(name: str, header: str | None, said: str | None) -> None:
    if header is None or said is None or decode_header(header) != said:
        told = "is missing" if header is None else "does not say what the body says"
        raise RpcError(jsonrpc.HEADER_MISMATCH, f"the header {name} {told}", refused=True)


def _error_body(refusal: HttpError) -> bytes:
    return error_response(None, RpcError(jsonrpc.INVALID_REQUEST, refusal.message))
