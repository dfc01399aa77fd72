"""Counters of one gateway, rendered as Prometheus text. Counting is a few dictionary steps; the library only renders.

Labels are few and bounded: servers and error codes, never tools, callers or values.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING

from toolfold.errors import ToolfoldError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from toolfold.calls import CallEnd
    from toolfold.storage.base import Generation

# In seconds. The gateway's own part is below the first; a server's answer may take a minute.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BOUNDS = (*map(str, BUCKETS), "+Inf")
# The code of a call that its server answered with an error of the tool's own.
TOOL_ERROR = "TOOL_ERROR"


class _Latency:
    __slots__ = ("buckets", "count", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.count = 0
        self.total = 0.0


class Metrics:
    """What was counted since the gateway opened."""

    def __init__(self) -> None:
        self._latency: defaultdict[str, _Latency] = defaultdict(_Latency)
        self._errors: Counter[tuple[str, str]] = Counter()
        self._steps: Counter[tuple[str, str]] = Counter()
        self._stored = 0
        self._stored_bytes = 0

    def record_call(self, end: "CallEnd") -> None:
        """Counts a call that is over."""
        server = end.call.tool.server
        latency = self._latency[server]
        latency.buckets[bisect_left(BUCKETS, end.seconds)] += 1
        latency.count += 1
        latency.total += end.seconds
        outcome = end.outcome
        code = end.code
        if outcome is not None:
            if outcome.is_error:
                code = TOOL_ERROR
            if outcome.stored is not None:
                self._stored += 1
                self._stored_bytes += outcome.stored.bytes
        if code:
            self._errors[server, code] += 1

    def record_step(self, step: str, code: str = "") -> None:
        """Counts a step of finding a tool."""
        self._steps[step, code] += 1

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Counts what is done inside as a step, with the code of its error."""
        code = ""
        try:
            yield
        except ToolfoldError as error:
            code = error.code
            raise
        finally:
            self.record_step(name, code)

    def _collect(self, gauges: Mapping[str, float], servers: Collection[str] | None) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        calls = CounterMetricFamily("toolfold_calls", "Calls of tools that are over.", labels=["server"])
        errors = CounterMetricFamily("toolfold_call_errors", "Calls that failed, by code.", labels=["server", "code"])
        steps = CounterMetricFamily("toolfold_discovery", "Steps of finding a tool.", labels=["step", "code"])
        seconds = HistogramMetricFamily(
            "toolfold_call_duration_seconds", "How long calls took, the gateway's own part included.", labels=["server"]
        )
        shown = sorted(self._latency.keys() if servers is None else self._latency.keys() & set(servers))
        for server in shown:
            latency = self._latency[server]
            calls.add_metric([server], latency.count)
            # Prometheus wants each bucket with all that were faster, too.
            cumulated = list(zip(_BOUNDS, accumulate(latency.buckets), strict=True))
            seconds.add_metric([server], cumulated, latency.total)
        for (server, code), count in sorted(entry for entry in self._errors.items() if entry[0][0] in shown):
            errors.add_metric([server, code], count)
        for (step, code), count in sorted(self._steps.items()):
            steps.add_metric([step, code], count)
        yield from (calls, errors, seconds)
        if servers is None:
            yield steps
            yield CounterMetricFamily("toolfold_outputs_stored", "Results too large to show.", value=self._stored)
            yield CounterMetricFamily("toolfold_outputs_stored_bytes", "Bytes of those.", value=self._stored_bytes)
        for name, value in sorted(gauges.items()):
            yield GaugeMetricFamily(f"toolfold_{name}", _GAUGES.get(name, name), value=value)

    def render(
        self, last: "Sequence[Generation]", gauges: Mapping[str, float], servers: Collection[str] | None = None
    ) -> tuple[str, bytes]:
        """The content type, and the text that a Prometheus server reads. `last` is the catalogue's generation, if there
        is one. With `servers`: for somebody who may know of these alone, without what was counted over all callers."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        counts = {
            "tools": sum(generation.tools for generation in last),
            "servers": sum(generation.servers for generation in last),
        }
        # No registry: the library's global one would mix the gateways of one process.
        source = SimpleNamespace(
            collect=partial(self._collect, counts if servers is not None else {**gauges, **counts}, servers)
        )
        return CONTENT_TYPE_LATEST, generate_latest(source)


_GAUGES = {
    "tools": "Tools in the catalogue.",
    "servers": "Servers in the catalogue.",
    "sessions": "Callers and sessions that did something in the last five minutes.",
    "tools_held": "Tools held back until somebody accepts them.",
    "audit_dropped": "Steps that could not be written to the audit log.",
    "audit_waiting": "Steps that wait for the store to be back.",
    "audit_export_dropped": "Records of the audit log that were deleted before the collector took them.",
    "audit_export_waiting": "Records that the collector has not taken yet, up to one batch.",
}
