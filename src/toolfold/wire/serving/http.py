"""Streamable HTTP as an ASGI application: both eras on one endpoint.

Modern: one request a POST, headers repeat what the body says, closing the connection cancels. Legacy: a
session belongs to the caller that opened it, see `http_session.py`. Above: the face that runs it. Below: `server.py`,
`http_guard.py`, `http_stream.py`.
"""

import time
from collections.abc import Awaitable, Callable, Mapping

from msgspec import UNSET

from toolfold.types import Caller
from toolfold.wire import jsonrpc
from toolfold.wire.headers import NAME_PARAMETERS, decode_header
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Envelope, parse_string
from toolfold.wire.serving.exchange import ParsedParams, RpcError, parse_params
from toolfold.wire.serving.http_guard import HttpError, HttpGuard
from toolfold.wire.serving.http_session import _HttpSession, _SessionTable
from toolfold.wire.serving.http_stream import ClientGone, Receive, Responder, ResponseStream, Scope, Send
from toolfold.wire.serving.server import MODERN_METHODS, Server
from toolfold.wire.serving.session import _parse_batch
from toolfold.wire.types import LEGACY_VERSIONS

__all__ = ["McpHttpApp"]

_VERSION_HEADER = "mcp-protocol-version"
_METHODS = b"GET, POST, DELETE"

_SESSION_HEADER = b"mcp-session-id"
# From this version on a stream begins with an empty event, so that it can be resumed from its very start.
_RESUMING_VERSION = "2025-11-25"
_RETRY_MS = 1000


class McpHttpApp:
    """The application. Whoever runs it routes requests of one path here."""

    def __init__(self, server: Server, guard: HttpGuard | None = None) -> None:
        self._server = server
        self._guard = guard if guard is not None else HttpGuard()
        self.legacy = _LegacyHandler(server, self._guard.subset)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        responder = Responder(receive, send, self._server.options.keep_alive_s)
        try:
            headers, caller = await self._guard.check(scope)
            await self._serve(scope["method"], headers, caller, receive, responder)
        except HttpError as refusal:
            await _refuse(responder, refusal)

    async def guarded(
        self, scope: Scope, receive: Receive, send: Send, page: Callable[[Caller], Awaitable[tuple[str, bytes]]]
    ) -> None:
        """Answers with a page for those who may talk to this server at all."""
        responder = Responder(receive, send, self._server.options.keep_alive_s)
        try:
            _, caller = await self._guard.check(scope)
        except HttpError as refusal:  # who asks for a page speaks no JSON-RPC
            error = {"code": refusal.code, "message": refusal.message, "hints": [], "next_action": refusal.next_action}
            await responder.plain(refusal.status, jsonrpc.encode({"error": error}), refusal.headers)
        else:
            kind, text = await page(caller)
            await responder.plain(200, text, kind=kind.encode())

    async def admitted(
        self, scope: Scope, receive: Receive, send: Send, app: Callable[[Scope, Receive, Send], Awaitable[None]]
    ) -> None:
        """Has another app answer those who may talk to this server at all."""
        try:
            await self._guard.check(scope)
        except HttpError as refusal:
            await _refuse(Responder(receive, send, self._server.options.keep_alive_s), refusal)
        else:
            await app(scope, receive, send)

    async def public(self, scope: Scope, receive: Receive, send: Send, page: bytes) -> None:
        """Answers with a JSON document whoever asks, unless a foreign page or name led here."""
        responder = Responder(receive, send, self._server.options.keep_alive_s)
        try:
            self._guard.admit(scope)
        except HttpError as refusal:
            await _refuse(responder, refusal)
        else:
            await responder.plain(200, page)

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
            session = await self.legacy.sessions.get(headers["mcp-session-id"], caller)
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
        # Refused by its own word, before a byte of it is read.
        if (jsonrpc.parse_number(headers.get("content-length")) or 0) > limit:
            raise HttpError(413, f"a message may have at most {limit} bytes")
        parts, size = [], 0
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise HttpError(400, "the message was cut off")
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            # The header may be missing or lie.
            if size > limit:
                raise HttpError(413, f"a message may have at most {limit} bytes")
            if not event.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _post(self, body: bytes, headers: Mapping[str, str], caller: Caller, responder: Responder) -> None:
        batch = _parse_batch(body)
        if batch is not None:
            await self._batch(batch, headers, caller, responder)
            return
        try:
            # Undecoded parts are never checked by msgspec: invalid UTF-8 would be passed on.
            if not body.isascii():
                body.decode()
            message = jsonrpc.parse_envelope(body)
            parsed = parse_params(message.params)
        except DECODE_ERRORS as error:
            fault = RpcError(jsonrpc.PARSE_ERROR, f"this is no JSON-RPC message: {error}")
            await responder.plain(400, fault.response(None))
            return
        except RpcError as fault:
            self._server.refused(message, fault)
            identifier = message.id if message.id is not UNSET else None
            await responder.plain(400, fault.response(identifier))
            return
        if _is_modern(message, parsed, headers):
            await self._modern(message, parsed, headers, caller, responder)
        elif message.method == "initialize" and message.id is not UNSET:
            await self.legacy.initialize(message, caller, responder)
        else:
            await self._in_session([message], headers, caller, responder)

    async def _in_session(
        self, messages: list[Envelope], headers: Mapping[str, str], caller: Caller, responder: Responder
    ) -> None:
        session = await self.legacy.sessions.get(headers.get("mcp-session-id", ""), caller)
        await self.legacy.post(messages, session, responder, events="text/event-stream" in headers.get("accept", ""))

    async def _batch(
        self, batch: list[Envelope], headers: Mapping[str, str], caller: Caller, responder: Responder
    ) -> None:
        session = await self.legacy.sessions.get(headers.get("mcp-session-id", ""), caller)
        if not session.legacy.batches or not batch:
            fault = RpcError(jsonrpc.INVALID_REQUEST, "several messages in one are not served here")
            await responder.plain(400, fault.response(None))
            return
        await self._in_session(batch, headers, caller, responder)

    async def _modern(
        self,
        message: Envelope,
        parsed: ParsedParams,
        headers: Mapping[str, str],
        caller: Caller,
        responder: Responder,
    ) -> None:
        if message.id is UNSET:
            await responder.plain(202)
            return
        stream = ResponseStream()
        try:
            _check_headers(message, parsed, headers)
            passed_on = parsed[0].request_state is not ABSENT
            cancel = await self._server.pass_on(message, parsed, caller, stream) if passed_on else None
            cancel = cancel or self._server.modern(message, parsed, caller, stream, headers).canceller(stream)
        except RpcError as fault:
            self._server.refused(message, fault)
            stream.finish(fault.response(message.id), fault)
            await responder.stream(stream, modern=True)
            return
        try:
            await responder.stream(stream, modern=True, events="text/event-stream" in headers.get("accept", ""))
        except ClientGone:
            cancel()


def _is_modern(message: Envelope, parsed: ParsedParams, headers: Mapping[str, str]) -> bool:
    version = headers.get(_VERSION_HEADER)
    if parsed[1].version is not ABSENT or message.method in MODERN_METHODS:
        return True
    return version is not None and version not in LEGACY_VERSIONS


def _check_content_types(headers: Mapping[str, str]) -> None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HttpError(415, "a message is sent as application/json")
    accept = headers.get("accept", "*/*")
    if not any(kind in accept for kind in ("application/json", "text/event-stream", "*/*", "application/*")):
        raise HttpError(406, "the answer is application/json or text/event-stream: accept both")


def _check_headers(message: Envelope, parsed: ParsedParams, headers: Mapping[str, str]) -> None:
    """Raises `RpcError` where the headers do not say what the body says."""
    params, meta = parsed
    if meta.version is ABSENT:
        meta.check()
    _check_same("MCP-Protocol-Version", headers.get(_VERSION_HEADER), parse_string(meta.version))
    _check_same("Mcp-Method", headers.get("mcp-method"), str(message.method))
    key = NAME_PARAMETERS.get(str(message.method))
    # SEP-2663: requests about tasks MUST have it, too. FastMCP's client sends none; a wrong one is refused.
    if key is not None and (key != "taskId" or "mcp-name" in headers):
        _check_same("Mcp-Name", headers.get("mcp-name"), parse_string(params.named(key)))


def _check_same(name: str, header: str | None, value: str | None) -> None:
    if header is None or value is None or decode_header(header) != value:
        problem = "is missing" if header is None else "does not say what the body says"
        raise RpcError(jsonrpc.HEADER_MISMATCH, f"the header {name} {problem}", refused=True)


async def _refuse(responder: Responder, refusal: HttpError) -> None:
    body = RpcError(jsonrpc.INVALID_REQUEST, refusal.message).response(None)
    await responder.plain(refusal.status, body, refusal.headers)


class _LegacyHandler:
    """Answers the requests of the legacy era."""

    def __init__(self, server: Server, subset: str) -> None:
        self._server = server
        self.sessions = _SessionTable(server, subset)

    async def initialize(self, message: Envelope, caller: Caller, responder: Responder) -> None:
        try:
            session, answer = await self.sessions.open(message, caller)
        except RpcError as fault:
            await responder.plain(400 if fault.refused else 200, fault.response(message.id))
            return
        await responder.plain(200, answer, ((_SESSION_HEADER, session.name.encode()),))

    async def post(
        self, messages: list[Envelope], session: _HttpSession, responder: Responder, *, events: bool
    ) -> None:
        """Messages of a session: one, or in the one version that allows it several."""
        legacy = session.legacy
        requests = [message for message in messages if not await self._take_answer(message, session)]
        if not requests:
            await responder.plain(202)
            return
        stream = session.stream()
        stream.expect(len(requests))
        for message in requests:
            try:
                self._server.legacy(message, legacy, stream)
            except RpcError as fault:
                self._server.refused(message, fault)
                stream.finish(fault.response(message.id), fault)
        resumes = legacy.client.version >= _RESUMING_VERSION
        prime = b"id: %b_0\nretry: %d\ndata: \n\n" % (stream.name.encode(), _RETRY_MS) if resumes else b""
        try:
            await responder.stream(stream, modern=False, events=events or len(requests) > 1, prime=prime)
            session.release(stream)
        except ClientGone:
            return  # the work goes on, and whoever lost the stream may take it up again
        finally:
            session.used = time.monotonic()

    async def _take_answer(self, message: Envelope, session: _HttpSession) -> bool:
        """Whether a message asks for no answer: it is one itself, or a notification."""
        if message.method is not UNSET and message.id is not UNSET:
            return False
        if not self.sessions.pass_on(session, message):
            legacy = session.legacy
            if message.method is UNSET:
                legacy.on_answer(message)
            else:
                await self._server.notified(message, legacy)
        return True

    async def listen(self, session: _HttpSession, last: str | None, responder: Responder) -> None:
        """The stream for what belongs to no request, or one that was cut off, perhaps at another gateway."""
        stream = await self.sessions.resume(session, last) if last else session.general
        if stream is session.general:
            if session.listening:
                raise HttpError(409, "this session has a listening stream already")
            self.sessions.listen(session)
        try:
            await responder.follow(stream)
            session.release(stream)
        except ClientGone:
            return
        finally:
            session.used = time.monotonic()
            if stream is session.general:
                session.listening = False
