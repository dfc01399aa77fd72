"""Telemetry: what happens, in the field's own forms: Prometheus metrics, OpenTelemetry spans, logs as JSON lines.

Each costs next to nothing until somebody asks for it, and its library is imported only then. Below are the calls;
the gateway composes it.
"""
