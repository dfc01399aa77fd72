"""The protocol's server with a span and a duration for each request of a client, and the duration of each session.

Only `toolfold serve` with `telemetry.traces` or `telemetry.metrics` makes one. Below: `spans.py`, `wire.serving`.
"""

import time
from typing import Any

import msgspec
from msgspec import Raw, Struct
from opentelemetry.trace import Link as SpanLink
from opentelemetry.trace import SpanKind, get_current_span

from toolfold.containers import BoundedDict
from toolfold.telemetry.spans import Attributes, Tracing, _extract, _failed, _problem_of
from toolfold.types import Caller
from toolfold.wire.jsonrpc import DECODE_ERRORS, Envelope, Parts
from toolfold.wire.serving import Server
from toolfold.wire.serving.exchange import Exchange
from toolfold.wire.serving.notifications import SendNotification
from toolfold.wire.serving.session import Session

__all__ = ["_ObservedServer"]

_MAX_SESSIONS = 10_000
# A result over this size is not searched for its being an error.
_SMALL_BYTES = 1 << 16


class _Named(Struct):
    name: str = ""
    uri: str = ""


class _ObservedServer(Server):
    """The same server, measured. `transport`: `tcp` for HTTP, `pipe` for stdio."""

    def __init__(self, tracing: Tracing, transport: str, *given: Any) -> None:
        super().__init__(*given)
        self._tracing = tracing
        self._place: Attributes = {"network.transport": transport}
        if transport == "tcp":
            self._place["network.protocol.name"] = "http"
        self._opened: BoundedDict[int, float] = BoundedDict(_MAX_SESSIONS)

    async def _answer(self, exchange: Exchange, session: Session | None) -> Parts:
        target = _target(exchange.method, exchange.params)
        about = {**self._about(exchange.method, exchange.client.version), **target}
        own = {"jsonrpc.request.id": str(exchange.identifier), **_session(exchange.caller)}
        with self._observed(about, own, exchange.raw_meta) as seen:
            parts = await super()._answer(exchange, session)
            if exchange.method == "tools/call" and _is_tool_error(parts):
                seen.fail("tool_error")
            return parts

    async def initialize(self, message: Envelope, caller: Caller, send: SendNotification) -> tuple[Session, bytes]:
        own = {"jsonrpc.request.id": str(message.id), **_session(caller)}
        with self._observed(self._about("initialize", ""), own, None) as seen:
            session, answer = await super().initialize(message, caller, send)
            seen.about["mcp.protocol.version"] = session.client.version
            self._opened[id(session)] = time.perf_counter()
            return session, answer

    async def notified(self, message: Envelope, session: Session) -> None:
        with self._observed(self._about(str(message.method), session.client.version), _session(session.client.caller)):
            await super().notified(message, session)

    async def close_session(self, session: Session, *, left: bool = True) -> None:
        opened = self._opened.pop(id(session), None)
        if opened is not None:
            about = {**self._place, "mcp.protocol.version": session.client.version}
            self._tracing.measure("mcp.server.session.duration", time.perf_counter() - opened, about)
        await super().close_session(session, left=left)

    def _about(self, method: str, version: str) -> Attributes:
        said: Attributes = {"mcp.protocol.version": version} if version else {}
        return {"mcp.method.name": method[:100], **said, **self._place}

    def _observed(self, about: Attributes, own: Attributes, meta: Raw | None = None) -> "_Observed":
        return _Observed(self._tracing, about, own, meta)


class _Observed:
    """A span around one request, and its duration at the end. What stands in `about` is measured by, too."""

    def __init__(self, tracing: Tracing, about: Attributes, own: Attributes, meta: Raw | None) -> None:
        self.about = about
        self._tracing = tracing
        ambient, parent = get_current_span().get_span_context(), _extract(meta)
        target = about.get("gen_ai.tool.name") or about.get("gen_ai.prompt.name")
        name = f"{about['mcp.method.name']} {target}" if target else str(about["mcp.method.name"])
        # The client's own span is the parent, whatever carries the request; that is linked.
        links = [SpanLink(ambient)] if parent is not None and ambient.is_valid else []
        self._span = tracing.span(name, {**about, **own}, context=parent, kind=SpanKind.SERVER, links=links)
        self._made: Any = None

    def fail(self, kind: str) -> None:
        _failed(self._made, kind)
        self.about["error.type"] = kind

    def __enter__(self) -> "_Observed":
        self._made = self._span.__enter__()
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.about |= _problem_of(error)
        self._made.set_attributes(self.about)
        measured = {key: value for key, value in self.about.items() if key != "mcp.resource.uri"}  # any text
        self._tracing.measure("mcp.server.operation.duration", time.perf_counter() - self._started, measured)
        self._span.__exit__(kind, error, trace)


def _session(caller: Caller) -> Attributes:
    return {"mcp.session.id": caller.session} if caller.session else {}


def _target(method: str, params: Raw) -> Attributes:
    """What a request is about, by the conventions."""
    if method not in ("tools/call", "prompts/get") and not method.startswith("resources/"):
        return {}
    try:
        named = msgspec.json.decode(params, type=_Named)
    except DECODE_ERRORS:
        return {}
    if method == "tools/call":
        return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": named.name[:200]}
    if method == "prompts/get":
        return {"gen_ai.prompt.name": named.name[:200]}
    return {"mcp.resource.uri": named.uri[:2000]} if named.uri else {}


def _is_tool_error(parts: Parts) -> bool:
    # Inside a text the quotation marks are escaped: there it cannot stand like this.
    return sum(map(len, parts)) <= _SMALL_BYTES and b'"isError":true' in b"".join(parts).replace(b" ", b"")
