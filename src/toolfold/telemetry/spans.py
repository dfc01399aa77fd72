"""OpenTelemetry spans and duration histograms, with the names and attributes of the MCP and GenAI conventions.

They are those of open-telemetry/semantic-conventions-genai (docs/gen-ai/mcp.md, status "Development"), where they moved
from semantic-conventions 1.40. A `traceparent` in a request's `_meta` becomes the parent, and the call's own goes on to
the server in its place. Off, nothing is imported and `_meta` passes through as it came. Spans hold ids, sizes and
codes; no argument, no result, no text of an error, which may quote either. `server_spans.py` has the server's side.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from toolfold import __version__
from toolfold.calls import Handler
from toolfold.errors import ConfigError, RemoteError, ToolfoldError
from toolfold.types import CallContext, Caller, Outcome, ToolCall
from toolfold.wire.jsonrpc import DECODE_ERRORS
from toolfold.wire.observer import OBSERVERS, _RequestEnd
from toolfold.wire.serving.exchange import RpcError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

CONTEXT = ("traceparent", "tracestate", "baggage")
# What the conventions advise for all four histograms, in seconds.
BOUNDARIES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
_HISTOGRAMS = {
    "mcp.client.operation.duration": "From a request that was sent to a server until its answer was received.",
    "mcp.server.operation.duration": "From a request that a client sent until its answer was sent.",
    "mcp.client.session.duration": "How long a connection to a server lasted.",
    "mcp.server.session.duration": "How long a session of a client lasted.",
}
# By which a request is measured. A resource's URI may be any text, and stands in spans alone.
_MEASURED = frozenset({"mcp.method.name", "gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.prompt.name"})
# A client may name any tool, any method: of names beyond these the histograms say no more than that there were others.
_NAMED_BY_CLIENTS = ("mcp.method.name", "gen_ai.tool.name", "gen_ai.prompt.name")
_MAX_NAMES = 1_000
_OTHER = "_OTHER"

Attributes = dict[str, str | int]

# The request to a server that is made around us: what its span says of it, and the span itself.
_sent: "ContextVar[tuple[Attributes, Span] | None]" = ContextVar("sent", default=None)


class Tracing:
    """Makes spans and measures durations with the providers given, the program's own where it set some, or ones that
    send over OTLP. `spans` and `metrics` say which of both are wanted."""

    def __init__(
        self,
        provider: "TracerProvider | None" = None,
        meters: "MeterProvider | None" = None,
        *,
        spans: bool = True,
        metrics: bool = False,
        endpoint: str = "",
        metrics_endpoint: str = "",
    ) -> None:
        self._own: list[Any] = []
        try:
            import opentelemetry.metrics
            import opentelemetry.trace  # noqa: F401 - said at once where it is not installed
        except ImportError as error:
            raise _missing() from error
        if provider is None:
            provider = self._tracers(endpoint, wanted=spans)
        self.tracer: Tracer = provider.get_tracer("toolfold", __version__)
        if meters is None and metrics:
            meters = self._meters(metrics_endpoint)
        self._histograms = {} if meters is None else _histograms(meters)
        self._names: dict[str, set[str]] = {name: set() for name in _NAMED_BY_CLIENTS}
        OBSERVERS.append(self._request_ended)

    def _tracers(self, endpoint: str, *, wanted: bool) -> "TracerProvider":
        from opentelemetry import trace

        if not wanted:
            return trace.NoOpTracerProvider()
        set_by_program = trace.get_tracer_provider()
        if not endpoint and not isinstance(set_by_program, trace.ProxyTracerProvider):
            return set_by_program
        own: TracerProvider = self._keep(_exporting(endpoint))
        return own

    def _meters(self, endpoint: str) -> "MeterProvider":
        from opentelemetry.metrics import get_meter_provider

        set_by_program = get_meter_provider()
        if not endpoint and type(set_by_program).__name__ != "_ProxyMeterProvider":
            return set_by_program
        own: MeterProvider = self._keep(_measuring(endpoint))
        return own

    def _keep(self, provider: Any) -> Any:
        self._own.append(provider)
        return provider

    async def aclose(self) -> None:
        """Sends what is pending."""
        with contextlib.suppress(ValueError):
            OBSERVERS.remove(self._request_ended)
        own, self._own = self._own, []
        for provider in own:
            await asyncio.to_thread(provider.shutdown)  # it may wait for the network

    # --- the client's side: requests to servers

    def wrap(self, handler: Handler) -> Handler:
        """A client span around each call, whose context the server gets."""

        async def traced(call: ToolCall, context: CallContext) -> Outcome:
            tool = call.tool
            attributes: Attributes = {
                **_about_request(call),
                "toolfold.tool.id": tool.tool_id,
                "toolfold.tool.version": tool.version,
                "toolfold.server": tool.server,
                **_caller_attributes(context.caller),
            }
            with self._sending(attributes, context.meta) as (span, meta):
                outcome = await handler(call, msgspec.structs.replace(context, meta=meta))
                span.set_attribute("toolfold.result.bytes", len(memoryview(outcome.raw)))
                if outcome.is_error:
                    _failed(span, "tool_error")
                return outcome

        return traced

    @contextlib.contextmanager
    def passing_on(self, method: str, params: Raw, meta: Raw | None, caller: Caller) -> Iterator[Raw | None]:
        """A client span around a request that is passed on as it is; gives what the server gets as `_meta`."""
        attributes = {"mcp.method.name": method[:100], **_target(method, params), **_caller_attributes(caller)}
        with self._sending(attributes, meta) as (_, own):
            yield own

    @contextlib.contextmanager
    def _sending(self, attributes: Attributes, meta: Raw | None) -> "Iterator[tuple[Span, Raw | None]]":
        """A client span, and `_meta` with its context."""
        from opentelemetry.trace import SpanKind, get_current_span

        # Where a client's request is served here, that has its span, below the client's own.
        parent = None if get_current_span().get_span_context().is_valid else _extract(meta)
        with self.span(_span_name(attributes), attributes, context=parent, kind=SpanKind.CLIENT) as span:
            before = _sent.set((attributes, span))
            try:
                yield span, _inject(meta)
            finally:
                _sent.reset(before)

    def _request_ended(self, end: _RequestEnd) -> None:
        """A request to a server is over, whichever; a call's own span is the one around us."""
        place: Attributes = {"network.transport": "tcp" if end.place else "pipe"}
        if end.version:
            place["mcp.protocol.version"] = end.version
        if end.place:
            host, _, port = end.place.rpartition(":")
            place |= {"network.protocol.name": "http", "server.address": host, "server.port": int(port)}
        problem = _problem_of(end.error)
        if not end.method:
            self.measure("mcp.client.session.duration", end.seconds, place | problem)
            return
        self._note_request(end, place, problem)
        sent = _sent.get()
        about: Attributes = {"mcp.method.name": end.method}
        if sent is not None and sent[0]["mcp.method.name"] == end.method:
            about = {name: value for name, value in sent[0].items() if name in _MEASURED}
        self.measure("mcp.client.operation.duration", end.seconds, about | place | problem)

    def _note_request(self, end: _RequestEnd, place: Attributes, problem: Attributes) -> None:
        """Completes the span around us, or makes one for a request that has none."""
        from opentelemetry.trace import SpanKind, get_current_span

        own: Attributes = {"jsonrpc.request.id": str(end.number)}
        if end.session:
            own["mcp.session.id"] = end.session
        sent = _sent.get()
        if sent is not None and sent[0]["mcp.method.name"] == end.method and get_current_span() is sent[1]:
            sent[1].set_attributes({**place, **own, **problem})
            return
        began = time.time_ns() - int(end.seconds * 1e9)
        attributes = {"mcp.method.name": end.method, **place, **own}
        made = self.tracer.start_span(end.method, attributes=attributes, kind=SpanKind.CLIENT, start_time=began)
        if problem:
            _failed(made, str(problem["error.type"]))
            made.set_attributes(problem)
        made.end()

    def measure(self, name: str, seconds: float, attributes: Attributes) -> None:
        """Adds a duration to a histogram, where they are wanted."""
        histogram = self._histograms.get(name)
        if histogram is None:
            return
        for key, names in self._names.items():
            if key in attributes and attributes[key] not in names:
                if len(names) < _MAX_NAMES:
                    names.add(str(attributes[key]))
                else:
                    attributes = {**attributes, key: _OTHER}
        histogram.record(seconds, attributes)

    @contextlib.contextmanager
    def step(self, name: str, caller: Caller, *, tool_id: str = "", query: str = "", path: Any = ()) -> Iterator[None]:
        """A span around a step of finding a tool. What was asked in words stays out of it."""
        del query
        place = {"toolfold.tool_id": tool_id} if tool_id else {"toolfold.path": "/".join(path)} if path else {}
        with self.span(f"toolfold {name}", {**place, **_caller_attributes(caller)}):
            yield

    @contextlib.contextmanager
    def span(self, name: str, attributes: Mapping[str, str | int], **options: Any) -> "Iterator[Span]":
        """A span that is the current one inside, and failed where what is done inside raises."""
        with self.tracer.start_as_current_span(
            name,
            attributes=attributes,
            # The text of an exception may hold values of the call: a span gets its code alone.
            record_exception=False,
            set_status_on_exception=False,
            **options,
        ) as span:
            try:
                yield span
            except BaseException as error:
                problem = _problem_of(error)
                _failed(span, str(problem["error.type"]))
                span.set_attributes(problem)
                raise


def _about_request(call: ToolCall) -> Attributes:
    """What a call asks its server for: a tool, or what else stands in the tree."""
    tool, address = call.tool, call.tool.definition.address
    if tool.kind == "tool":
        return {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool.name}
    if tool.kind == "prompt":
        return {"mcp.method.name": call.method or "prompts/get", "gen_ai.prompt.name": address}
    uri: Attributes = {"mcp.resource.uri": address[:2000]} if tool.kind == "resource" else {}
    return {"mcp.method.name": call.method or "resources/read", **uri}


def _span_name(about: Attributes) -> str:
    target = about.get("gen_ai.tool.name") or about.get("gen_ai.prompt.name")
    return f"{about['mcp.method.name']} {target}" if target else str(about["mcp.method.name"])


class _Named(Struct):
    name: str = ""
    uri: str = ""


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


def _problem_of(error: BaseException | None) -> Attributes:
    """The class of an error: the code of a JSON-RPC error, else one of ours."""
    if error is None:
        return {}
    if isinstance(error, (RemoteError, RpcError)):
        code = str(error.rpc_code if isinstance(error, RemoteError) else error.code)
        return {"error.type": code, "rpc.response.status_code": code}
    return {"error.type": error.code if isinstance(error, ToolfoldError) else type(error).__name__}


def _histograms(meters: "MeterProvider") -> "dict[str, Histogram]":
    meter = meters.get_meter("toolfold", __version__)
    return {
        name: meter.create_histogram(name, "s", about, explicit_bucket_boundaries_advisory=BOUNDARIES)
        for name, about in _HISTOGRAMS.items()
    }


def _failed(span: "Span", kind: str) -> None:
    """Marks a span as failed."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _caller_attributes(caller: Caller) -> dict[str, str]:
    session = {"toolfold.session": caller.session} if caller.session else {}
    return {"toolfold.caller": caller.name, **session}


def _extract(meta: Raw | None) -> "Context | None":
    """The context that a client sent along; `None`: the one around us."""
    # Few requests carry one, and searching bytes is cheaper than decoding.
    if meta is None or b"traceparent" not in bytes(meta):
        return None
    from opentelemetry.propagate import extract

    carrier = {name: value for name, value in _decoded(meta).items() if name in CONTEXT and isinstance(value, str)}
    return extract(carrier)


def _inject(meta: Raw | None) -> Raw | None:
    """`_meta` with the current span's context in place of the client's; all else stays."""
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    if not carrier:
        return meta
    kept = {name: value for name, value in _decoded(meta).items() if name not in CONTEXT}
    return Raw(msgspec.json.encode({**kept, **carrier}))


def _decoded(meta: Raw | None) -> Mapping[str, Any]:
    if meta is None:
        return {}
    try:
        decoded = msgspec.json.decode(meta)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _exporting(endpoint: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise _missing() from error
    # `aclose` ends it: a hook at exit would run when the event loop and its threads are gone.
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint or None)))
    return provider


def _measuring(endpoint: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError as error:
        raise _missing() from error
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint or None))
    return MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)


def _resource() -> Any:
    from opentelemetry.sdk.resources import Resource

    return Resource.create({"service.name": "toolfold", "service.version": __version__})


def _missing() -> ConfigError:
    return ConfigError(
        "[telemetry] wants traces, metrics or the audit log sent, and OpenTelemetry is not installed",
        next_action="install it with: pip install 'toolfold[otel]', or switch them off",
    )
