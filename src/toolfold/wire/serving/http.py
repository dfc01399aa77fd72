"""Streamable HTTP as an ASGI application: both eras on one endpoint.

Modern: one request a POST, headers repeat what the body says, closing the connection cancels. Legacy: see
`http_legacy.py`. Above: the face that runs it. Below: `server.py`, `http_guard.py`, `http_stream.py`.
"""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import UNSET

from toolfold.types import Caller
from toolfold.wire import jsonrpc
from toolfold.wire.headers import NAMED, read_value
from toolfold.wire.jsonrpc import ABSENT, UNREADABLE, Envelope, text_of
from toolfold.wire.serving.exchange import Meta, Params, read_params
from toolfold.wire.serving.faults import check_meta, fault_message
from toolfold.wire.serving.http_guard import Guard, Refusal, headers_of
from toolfold.wire.serving.http_legacy import LegacyHttp
from toolfold.wire.serving.http_stream import Gone, Receive, Responder, Scope, Send, Stream
from toolfold.wire.serving.server import ONLY_MODERN, Server
from toolfold.wire.serving.session import read_batch
from toolfold.wire.serving.values import Fault
from toolfold.wire.values import LEGACY_VERSIONS

VERSION_HEADER = "mcp-protocol-version"
METHODS = b"GET, POST, DELETE"


class McpHttp:
    """The application. Whoever runs it routes requests of one path here."""

    def __init__(self, server: Server, guard: Guard | None = None) -> None:
        self._server = server
        self._guard = guard if guard is not None else Guard()
        self.legacy = LegacyHttp(server)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        responder = Responder(receive, send, self._server.options.keep_alive_s)
        headers = headers_of(scope)
        try:
            caller = self._guard.check(headers)
            await self._serve(scope["method"], headers, caller, receive, responder)
        except Refusal as refusal:
            await responder.plain(refusal.status, _refused(refusal), refusal.headers)

    async def guarded(
        self, scope: Scope, receive: Receive, send: Send, page: Callable[[], Awaitable[tuple[str, bytes]]]
    ) -> None:
        """Answers with a page for those who may talk to this server at all."""
        responder = Responder(receive, send, self._server.options.keep_alive_s)
        try:
            self._guard.check(headers_of(scope))
        except Refusal as refusal:
            await responder.plain(refusal.status, _refused(refusal), refusal.headers)
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
            _check_kinds(headers)
            await self._post(await self._body(headers, receive), headers, caller, responder)
        elif method in {"GET", "DELETE"} and headers.get("mcp-session-id"):
            session = self.legacy.sessions.get(headers["mcp-session-id"], caller)
            if method == "DELETE":
                await self.legacy.sessions.end(session)
                await responder.plain(200)
            elif "text/event-stream" not in headers.get("accept", "") and "*/*" not in headers.get("accept", ""):
                raise Refusal(406, "this answers with an event stream: accept text/event-stream")
            else:
                await self.legacy.listen(session, headers.get("last-event-id"), responder)
        else:
            raise Refusal(405, "send messages with POST", ((b"allow", METHODS),))

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        limit = self._server.options.max_body_bytes
        if (jsonrpc.number_of(headers.get("content-length")) or 0) > limit:
            raise Refusal(413, f"a message may have at most {limit} bytes")
        parts, size = [], 0
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise Refusal(400, "the message was cut off")
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise Refusal(413, f"a message may have at most {limit} bytes")
            if not event.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _post(self, body: bytes, headers: Mapping[str, str], caller: Caller, responder: Responder) -> None:
        batch = read_batch(body)
        if batch is not None:
            await self._batch(batch, headers, caller, responder)
            return
        try:
            if not body.isascii():
                body.decode()
            message = jsonrpc.read_envelope(body)
            read = read_params(message.params)
        except UNREADABLE as error:
            fault = Fault(jsonrpc.PARSE_ERROR, f"this is no JSON-RPC message: {error}")
            await responder.plain(400, fault_message(None, fault))
            return
        except Fault as fault:
            identifier = message.id if message.id is not UNSET else None
            await responder.plain(400, fault_message(identifier, fault))
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
            fault = Fault(jsonrpc.INVALID_REQUEST, "several messages in one are not served here")
            await responder.plain(400, fault_message(None, fault))
            return
        await self._in_session(batch, headers, caller, responder)

    async def _modern(
        self,
        message: Envelope,
        read: tuple[Params, Meta],
        headers: Mapping[str, str],
        caller: Caller,
        responder: Responder,
    ) -> None:
        if message.id is UNSET:
            await responder.plain(202)
            return
        stream = Stream()
        try:
            check_headers(message, read, headers)
            exchange = self._server.modern(message, read, caller, stream, headers)
        except Fault as fault:
            stream.finish(fault_message(message.id, fault), fault)
            await responder.stream(stream, modern=True)
            return
        try:
            await responder.stream(stream, modern=True, events="text/event-stream" in headers.get("accept", ""))
        except Gone:
            if exchange.outlet is stream and exchange.task is not None:
                exchange.task.cancel()


def _is_modern(message: Envelope, meta: Meta, headers: Mapping[str, str]) -> bool:
    version = headers.get(VERSION_HEADER)
    if meta.version is not ABSENT or message.method in ONLY_MODERN:
        return True
    return version is not None and version not in LEGACY_VERSIONS


def _check_kinds(headers: Mapping[str, str]) -> None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "a message is sent as application/json")
    accept = headers.get("accept", "*/*")
    if not any(kind in accept for kind in ("application/json", "text/event-stream", "*/*", "application/*")):
        raise Refusal(406, "the answer is application/json or text/event-stream: accept both")


def check_headers(message: Envelope, read: tuple[Params, Meta], headers: Mapping[str, str]) -> None:
    """Raises a `Fault` where the headers do not say what the body says."""
    params, meta = read
    if meta.version is ABSENT:
        check_meta(meta)
    _same("MCP-Protocol-Version", headers.get(VERSION_HEADER), text_of(meta.version))
    _same("Mcp-Method", headers.get("mcp-method"), str(message.method))
    key = NAMED.get(str(message.method))
    if key is not None:
        _same("Mcp-Name", headers.get("mcp-name"), text_of(params.uri if key == "uri" else params.name))


def _same(name: str, header: str | None, said: str | None) -> None:
    if header is None or said is None or read_value(header) != said:
        told = "is missing" if header is None else "does not say what the body says"
        raise Fault(jsonrpc.HEADER_MISMATCH, f"the header {name} {told}", refused=True)


def _refused(refusal: Refusal) -> bytes:
    return fault_message(None, Fault(jsonrpc.INVALID_REQUEST, refusal.message))
