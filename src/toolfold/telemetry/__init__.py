"""Telemetry: what happens, in the field's own forms: Prometheus metrics, OpenTelemetry spans, logs as JSON lines.

Each costs next to nothing until somebody asks for it, and its library is imported only then. Below are the calls;
the gateway composes it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolfold.config.sections import Telemetry
    from toolfold.telemetry.spans import Tracing


def _tracing_of(settings: "Telemetry") -> "Tracing | None":
    """What makes spans and measures durations, where the configuration wants either."""
    if not (settings.traces or settings.metrics):
        return None
    from toolfold.telemetry.spans import Tracing

    return Tracing(
        spans=settings.traces,
        metrics=settings.metrics,
        endpoint=settings.endpoint,
        metrics_endpoint=settings.metrics_endpoint,
    )
