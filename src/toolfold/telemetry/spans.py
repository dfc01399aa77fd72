"""OpenTelemetry spans around calls and steps, with the names and attributes of the MCP and GenAI conventions.

A `traceparent` in a request's `_meta` becomes the parent, and the call's own goes on to the server in its place. Off,
nothing is imported and `_meta` passes through as it came. Spans hold ids, sizes and codes; no argument, no result.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from toolfold import __version__
from toolfold.calls import Handler
from toolfold.errors import ConfigError, ToolfoldError
from toolfold.types import CallContext, Caller, Outcome, ToolCall

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

    async def aclose(self) -> None:
        """Sends what is pending."""
        if self._own is not None:
            own, self._own = self._own, None
            await asyncio.to_thread(own.shutdown)  # it may wait for the network

    def wrap(self, handler: Handler) -> Handler:
        """A client span around each call, whose context the server gets."""
        from opentelemetry.trace import SpanKind

        async def traced(call: ToolCall, context: CallContext) -> Outcome:
            tool = call.tool
            attributes: dict[str, str | int] = {
                "mcp.method.name": "tools/call",
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool.name,
                "toolfold.tool.id": tool.tool_id,
                "toolfold.tool.version": tool.version,
                "toolfold.server": tool.server,
                **_caller_attributes(context.caller),
            }
            parent = _extract(context.meta)
            with self._span(f"tools/call {tool.name}", attributes, context=parent, kind=SpanKind.CLIENT) as span:
                outcome = await handler(call, msgspec.structs.replace(context, meta=_inject(context.meta)))
                span.set_attribute("toolfold.result.bytes", len(memoryview(outcome.raw)))
                if outcome.is_error:
                    _failed(span, "tool_error")
                return outcome

        return traced

    @contextlib.contextmanager
    def step(self, name: str, caller: Caller, *, tool_id: str = "", query: str = "", path: Any = ()) -> Iterator[None]:
        """A span around a step of finding a tool. What was asked in words stays out of it."""
        del query
        place = {"toolfold.tool_id": tool_id} if tool_id else {"toolfold.path": "/".join(path)} if path else {}
        with self._span(f"toolfold {name}", {**place, **_caller_attributes(caller)}):
            yield

    @contextlib.contextmanager
    def _span(self, name: str, attributes: Mapping[str, str | int], **options: Any) -> "Iterator[Span]":
        with self._tracer.start_as_current_span(
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
                _failed(span, error.code if isinstance(error, ToolfoldError) else type(error).__name__)
                raise


def _failed(span: "Span", kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _caller_attributes(caller: Caller) -> dict[str, str]:
    session = {"mcp.session.id": caller.session} if caller.session else {}
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
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise _missing() from error
    provider = TracerProvider(
        resource=Resource.create({"service.name": "toolfold", "service.version": __version__}),
        # `aclose` does it: a hook at exit would run when the event loop and its threads are gone.
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint or None)))
    return provider


def _missing() -> ConfigError:
    return ConfigError(
        "telemetry.traces is on, and OpenTelemetry is not installed",
        next_action="install it with: pip install 'toolfold[otel]', or set telemetry.traces = false",
    )
