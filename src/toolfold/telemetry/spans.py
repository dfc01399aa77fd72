"""OpenTelemetry spans around calls and steps, with the names and attributes of the MCP and GenAI conventions.

A `traceparent` in a request's `_meta` becomes the parent, and the call's own goes on to the server in its place. Off,
nothing is imported and `_meta` passes through as it came. Spans hold ids, sizes and codes; no argument, no result.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from toolfold import __version__
from toolfold.calls.pipeline import CallRequest, Handler
from toolfold.errors import ConfigError, ToolfoldError
from toolfold.types import Caller, Outcome

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

CONTEXT = ("traceparent", "tracestate", "baggage")


class Tracing:
    """Makes spans with a provider: the one given, the program's own where it set one, or one that sends over OTLP."""

    def __init__(self, provider: "TracerProvider | None" = None, *, endpoint: str = "") -> None:
        self._own: Any = None
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise _missing() from error
        if provider is None:
            set_by_program = trace.get_tracer_provider()
            if endpoint or isinstance(set_by_program, trace.ProxyTracerProvider):
                provider = self._own = _exporting(endpoint)
            else:
                provider = set_by_program
        self._tracer: Tracer = provider.get_tracer("toolfold", __version__)

    def close(self) -> None:
        """Sends what is waiting. Blocks for a moment: call it in a thread."""
        if self._own is not None:
            self._own.shutdown()
            self._own = None

    def wrap(self, handler: Handler) -> Handler:
        """A client span around each call, whose context the server gets."""
        from opentelemetry.trace import SpanKind

        async def traced(request: CallRequest) -> Outcome:
            tool = request.tool
            attributes: dict[str, str | int] = {
                "mcp.method.name": "tools/call",
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool.name,
                "toolfold.tool.id": tool.tool_id,
                "toolfold.tool.version": tool.version,
                "toolfold.server": tool.server,
                **_of_caller(request.caller),
            }
            parent = _extracted(request.meta)
            with self._tracer.start_as_current_span(
                f"tools/call {tool.name}",
                context=parent,
                kind=SpanKind.CLIENT,
                attributes=attributes,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                inner = msgspec.structs.replace(request, meta=_injected(request.meta))
                with _failures(span):
                    outcome = await handler(inner)
                span.set_attribute("toolfold.result.bytes", len(memoryview(outcome.result)))
                if outcome.is_error:
                    _failed(span, "tool_error")
                return outcome

        return traced

    @contextlib.contextmanager
    def step(self, name: str, caller: Caller, *, tool_id: str = "", query: str = "", path: Any = ()) -> Iterator[None]:
        """A span around a step of finding a tool. What was asked in words stays out of it."""
        del query
        found = {"toolfold.tool_id": tool_id} if tool_id else {"toolfold.path": "/".join(path)} if path else {}
        with (
            self._tracer.start_as_current_span(
                f"toolfold {name}",
                attributes={**found, **_of_caller(caller)},
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
            _failures(span),
        ):
            yield


@contextlib.contextmanager
def _failures(span: "Span") -> Iterator[None]:
    try:
        yield
    except ToolfoldError as error:
        _failed(span, error.code)
        raise
    except BaseException as error:
        _failed(span, type(error).__name__)
        raise


def _failed(span: "Span", kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _of_caller(caller: Caller) -> dict[str, str]:
    found = {"toolfold.caller": caller.name}
    if caller.session:
        found["mcp.session.id"] = caller.session
    return found


def _extracted(meta: Raw | None) -> "Context | None":
    """The context that a client sent along; `None`: the one around us."""
    if meta is None or b"traceparent" not in bytes(meta):
        return None
    from opentelemetry.propagate import extract

    carrier = {name: value for name, value in _decoded(meta).items() if name in CONTEXT and isinstance(value, str)}
    return extract(carrier)


def _injected(meta: Raw | None) -> Raw | None:
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
        found = msgspec.json.decode(meta)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _exporting(endpoint: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise _missing() from error
    provider = TracerProvider(
        resource=Resource.create({"service.name": "toolfold", "service.version": __version__}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint or None)))
    return provider


def _missing() -> ConfigError:
    return ConfigError(
        "telemetry.traces is on, and OpenTelemetry is not installed",
        next_action="install it with: pip install 'toolfold[otel]', or set telemetry.traces = false",
    )
