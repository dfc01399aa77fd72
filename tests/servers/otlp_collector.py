"""An OTLP collector on loopback: what it was sent as spans, metrics and logs. It can be away."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class OtlpCollector:
    """Takes what is posted to /v1/traces, /v1/metrics and /v1/logs."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: list[Any] = []
        self.logs: list[Any] = []
        self.away = False
        self.refused = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if not collector.away:
                    collector.take(self.path, body)
                self.send_response(400 if collector.away else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                if collector.away:
                    collector.refused.set()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            spans = ExportTraceServiceRequest.FromString(body).resource_spans
            self.spans += [span for resource in spans for scope in resource.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest.FromString(body).resource_metrics
            self.metrics += [one for resource in metrics for scope in resource.scope_metrics for one in scope.metrics]
        elif path == "/v1/logs":
            logs = ExportLogsServiceRequest.FromString(body).resource_logs
            self.logs += [one for resource in logs for scope in resource.scope_logs for one in scope.log_records]

    def __enter__(self) -> "OtlpCollector":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def attributes(made: Any) -> dict[str, Any]:
    """The attributes of a span, a point or a record, as OTLP carries them."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in made.attributes}
