"""OpenTelemetry: spans with the MCP and GenAI names, the client's trace carried on to the server, sent over OTLP."""

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Coroutine, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec import Raw
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from toolfold import Gateway, Settings
from toolfold.config import Telemetry
from toolfold.errors import ConfigError, InvalidArguments
from toolfold.telemetry.logs import _JsonLines
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller

T = TypeVar("T")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
META = Raw(json.dumps({"traceparent": PARENT, "tracestate": "a=1", "progressToken": 5}).encode())


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


class Collector:
    """What an OTLP collector receives on loopback."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                import gzip

                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        spans.extend(scope.spans)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def shop() -> MemoryUpstream:
    return MemoryUpstream(
        "shop", [{"name": "find", "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}}}]
    )


@pytest.mark.requirement("G-09")
def test_a_call_is_a_span_below_the_clients_and_its_context_reaches_the_server(
    tmp_path: Path, collector: Collector
) -> None:
    server = shop()

    async def main() -> None:
        settings = Settings(home=tmp_path, telemetry=Telemetry(traces=True, endpoint=collector.endpoint))
        async with Gateway(settings, upstreams=[server]) as gateway:
            await gateway.build()
            caller = Caller(name="alice", session="s1")
            await gateway.expand_tool("shop.find", caller=caller)
            await gateway.call_tool("shop.find", {"id": 1}, meta=META, caller=caller)
            with pytest.raises(InvalidArguments):
                await gateway.call_tool("shop.find", {"id": "secret-word"}, caller=caller)

    run(main())
    step, call, failed = collector.spans
    assert (step.name, call.name) == ("toolfold expand", "tools/call find")
    assert attributes(step)["toolfold.tool_id"] == "shop.find"
    found = attributes(call)
    assert found["mcp.method.name"] == "tools/call"
    assert (found["gen_ai.operation.name"], found["gen_ai.tool.name"]) == ("execute_tool", "find")
    assert (found["toolfold.tool.id"], found["toolfold.session"]) == ("shop.find", "s1")
    assert call.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert call.parent_span_id.hex() == "b7ad6b7169203331"
    sent = json.loads(bytes(server.contexts[0].meta or b"{}"))
    assert sent["traceparent"] == f"00-{call.trace_id.hex()}-{call.span_id.hex()}-01"
    assert (sent["tracestate"], sent["progressToken"]) == ("a=1", 5)
    assert attributes(failed)["error.type"] == "INVALID_ARGUMENTS"
    assert failed.status.code == 2
    assert "secret-word" not in str(collector.spans)


@pytest.mark.requirement("G-09")
def test_without_traces_nothing_is_imported_and_the_clients_context_passes_through(tmp_path: Path) -> None:
    server = shop()

    async def main() -> None:
        async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
            await gateway.build()
            await gateway.call_tool("shop.find", {"id": 1}, meta=META)
            assert gateway.tracing is None

    run(main())
    assert server.contexts[0].meta == META


def test_traces_without_opentelemetry_are_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match="OpenTelemetry is not installed"):
        run(Gateway(Settings(home=tmp_path, telemetry=Telemetry(traces=True))).__aenter__())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("G-09")
def test_logs_can_be_json_lines() -> None:
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(_JsonLines())
    log = logging.getLogger("toolfold.test.json")
    log.addHandler(handler)
    log.propagate = False
    try:
        log.warning("%d things\nhappened", 3, extra={"server": "shop"})
        try:
            int("odd")
        except ValueError:
            log.exception("failed")
    finally:
        log.removeHandler(handler)
        log.propagate = True
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert (first["level"], first["message"], first["server"]) == ("warning", "3 things\nhappened", "shop")
    assert "ValueError: invalid literal" in second["error"]
