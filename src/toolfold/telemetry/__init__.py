"""Telemetry: what happens, in the field's own forms: Prometheus metrics, OpenTelemetry spans, logs as JSON lines.

Each costs next to nothing until somebody asks for it, and its library is imported only then. Below are the calls;
the gateway composes it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolfold.config.sections import Telemetry
    from toolfold.telemetry.spans import Tracing


def tracing_of(settings: "Telemetry") -> "Tracing | None":
    """What makes spans, where the configuration wants any."""
    if not settings.traces:
        return None
    from toolfold.telemetry.spans import Tracing

    return Tracing(endpoint=settings.endpoint)
