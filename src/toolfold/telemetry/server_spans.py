"""The protocol's server with a span and a duration for each request of a client, and the duration of each session.

Only `toolfold serve` with `telemetry.traces` or `telemetry.metrics` makes one. Below: `spans.py`, `wire.serving`.
"""

import time
from contextlib import suppress
from typing import Any

from msgspec import UNSET, Raw
from opentelemetry.trace import Link as SpanLink
from opentelemetry.trace import SpanKind, get_current_span

from toolfold.containers import BoundedDict
from toolfold.telemetry.spans import Attributes, Tracing, _extract, _failed, _problem_of, _span_name, _target
from toolfold.types import Caller
from toolfold.wire.jsonrpc import Envelope, Parts, parse_string
from toolfold.wire.serving import Server
from toolfold.wire.serving.exchange import VERSIONS, Exchange, RpcError, parse_params
from toolfold.wire.serving.notifications import SendNotification
from toolfold.wire.serving.session import Session

__all__ = ["_ObservedServer"]

_MAX_SESSIONS = 10_000
# A result over this size is not searched for its being an error.
_SMALL_BYTES = 1 << 16


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
        # A modern request belongs to no session of the protocol, whatever holds its caller's things together here.
        own = {"jsonrpc.request.id": str(exchange.identifier), **({} if exchange.modern else _session(exchange.caller))}
        with self._observed(about, own, exchange.raw_meta) as seen:
            parts = await super()._answer(exchange, session)
            if exchange.method == "tools/call" and _is_tool_error(parts):
                seen.fail("tool_error")
            return parts

    def refused(self, message: Envelope, fault: RpcError) -> None:
        if message.method is UNSET:
            return
        version, meta = "", None
        with suppress(RpcError):  # where these are what is wrong with it
            params, known = parse_params(message.params)
            version, meta = parse_string(known.version) or "", params.meta if params.meta is not UNSET else None
        method = str(message.method)
        about = self._about(method, version if version in VERSIONS else "") | _target(method, message.params)
        own: Attributes = {"jsonrpc.request.id": str(message.id)[:200]} if isinstance(message.id, (str, int)) else {}
        with suppress(RpcError), self._observed(about, own, meta):
            raise fault

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
        # The client's own span is the parent, whatever carries the request; that is linked.
        links = [SpanLink(ambient)] if parent is not None and ambient.is_valid else []
        self._span = tracing.span(
            _span_name(about), {**about, **own}, context=parent, kind=SpanKind.SERVER, links=links
        )
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
        measured = {key: value for key, value in self.about.items() if key != "mcp.resource.uri"}
        self._tracing.measure("mcp.server.operation.duration", time.perf_counter() - self._started, measured)
        self._span.__exit__(kind, error, trace)


def _session(caller: Caller) -> Attributes:
    return {"mcp.session.id": caller.session} if caller.session else {}


def _is_tool_error(parts: Parts) -> bool:
    # Inside a text the quotation marks are escaped: there it cannot stand like this.
    return sum(map(len, parts)) <= _SMALL_BYTES and b'"isError":true' in b"".join(parts).replace(b" ", b"")
