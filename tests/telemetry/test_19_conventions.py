"""MCP's OpenTelemetry conventions: client and server spans, the four duration histograms, in memory and over OTLP."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp_client_helpers import mcp_on_port
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from otlp_collector import OtlpCollector, attributes
from served_config import Served, parameters, wait_for_call

from toolfold import Gateway, Settings
from toolfold.faces.mcp_server.profiles import open_app
from toolfold.telemetry.server_spans import _ObservedServer
from toolfold.telemetry.spans import BOUNDARIES, Tracing
from toolfold.wire.serving import ServeOptions
from toolfold.wire.serving.http import McpHttpApp

pytestmark = pytest.mark.requirement("G-09")

MODERN = "2026-07-28"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Memory:
    """Spans and metrics as the SDK's own in-memory exporters hold them."""

    def __init__(self) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider, MeterProvider([self._reader]))

    def spans(self, name: str, kind: SpanKind) -> list[Any]:
        return [span for span in self._exporter.get_finished_spans() if (span.name, span.kind) == (name, kind)]

    def points(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        scopes = [] if data is None else [scope for one in data.resource_metrics for scope in one.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


@asynccontextmanager
async def observed(home: Path, memory: Memory, *tables: str) -> AsyncIterator[str]:
    """A gateway in this process, before real servers, with these providers."""
    (home / "toolfold.toml").write_text("".join(tables))
    settings = Settings.load(home / "toolfold.toml", home=home)
    async with asyncio.timeout(90), Gateway(settings) as gateway:
        vars(gateway)["tracing"] = memory.tracing
        await gateway.build()
        async with open_app(gateway, "direct") as app:
            mcp = McpHttpApp(_ObservedServer(memory.tracing, "tcp", app, ServeOptions()))
            async with mcp_on_port(mcp) as url:
                yield url


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_19_a_call_is_a_server_span_with_a_client_span_below_it(tmp_path: Path, mode: str) -> None:
    memory = Memory()
    meta: Any = {"traceparent": PARENT}
    async with (
        observed(tmp_path, memory, Served(tmp_path).table("shop", "buy")) as url,
        Client(url, mode=mode, cache=None, read_timeout_seconds=30) as client,
    ):
        assert not (await client.call_tool("shop_buy", {}, meta=meta)).is_error
        assert (await client.call_tool("shop_buy", {"seconds": "long"})).is_error
        with pytest.raises(MCPError, match="there is no tool"):
            await client.call_tool("shop_nothing", {})
    [server, wrong] = memory.spans("tools/call shop_buy", SpanKind.SERVER)
    [call, refused] = memory.spans("tools/call buy", SpanKind.CLIENT)
    assert f"{server.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{server.parent.span_id:016x}" == PARENT.split("-")[2]
    assert call.parent.span_id == server.context.span_id
    found = dict(server.attributes)
    assert (found["mcp.method.name"], found["gen_ai.tool.name"]) == ("tools/call", "shop_buy")
    assert (found["gen_ai.operation.name"], found["network.transport"]) == ("execute_tool", "tcp")
    assert found["network.protocol.name"] == "http"
    assert found["jsonrpc.request.id"]
    assert found["mcp.protocol.version"] == (MODERN if mode == MODERN else "2025-11-25")
    assert ("mcp.session.id" in found) is (mode == "legacy")
    sent = dict(call.attributes)
    assert (sent["mcp.method.name"], sent["gen_ai.tool.name"], sent["network.transport"]) == (
        "tools/call",
        "buy",
        "pipe",
    )
    assert sent["jsonrpc.request.id"].isdigit()
    assert sent["mcp.protocol.version"]
    assert (wrong.attributes["error.type"], wrong.status.is_ok) == ("tool_error", False)
    assert refused.attributes["error.type"] == "INVALID_ARGUMENTS"
    [failed] = memory.spans("tools/call shop_nothing", SpanKind.SERVER)
    assert (failed.attributes["error.type"], failed.status.is_ok) == ("-32602", False)
    assert failed.attributes["rpc.response.status_code"] == "-32602"
    assert memory.spans("tools/list", SpanKind.CLIENT), "the servers' lists were read"


async def test_19_all_four_histograms_have_the_names_bounds_and_attributes_of_the_conventions(tmp_path: Path) -> None:
    memory = Memory()
    async with (
        observed(tmp_path, memory, Served(tmp_path).table("shop", "buy")) as url,
        Client(url, mode="legacy", cache=None, read_timeout_seconds=30) as client,
    ):
        for _ in range(3):
            await client.call_tool("shop_buy", {})
    points = memory.points()
    assert set(points) == {
        "mcp.client.operation.duration",
        "mcp.server.operation.duration",
        "mcp.client.session.duration",
        "mcp.server.session.duration",
    }
    assert all(list(point.explicit_bounds) == BOUNDARIES for one in points.values() for point in one)
    by_tool = {
        (dict(point.attributes).get("mcp.method.name"), dict(point.attributes).get("gen_ai.tool.name")): point
        for name in ("mcp.server.operation.duration", "mcp.client.operation.duration")
        for point in points[name]
    }
    assert by_tool["tools/call", "shop_buy"].count == 3
    assert by_tool["tools/call", "buy"].count == 3
    assert by_tool["initialize", None].count >= 1
    [session] = points["mcp.server.session.duration"]
    assert (session.count, dict(session.attributes)["mcp.protocol.version"]) == (1, "2025-11-25")
    per_request = {"jsonrpc.request.id", "mcp.session.id", "toolfold.caller"}
    assert not any(per_request & set(point.attributes) for one in points.values() for point in one)


async def test_19_a_client_cannot_make_endless_series(tmp_path: Path) -> None:
    memory = Memory()
    for number in range(1_500):
        attributes_of: dict[str, str | int] = {"mcp.method.name": "tools/call", "gen_ai.tool.name": f"made-up-{number}"}
        memory.tracing.measure("mcp.server.operation.duration", 0.1, attributes_of)
    await memory.tracing.aclose()
    assert len(memory.points()["mcp.server.operation.duration"]) == 1_001


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    with OtlpCollector() as made:
        yield made


def settings_for(collector: OtlpCollector, **more: Any) -> str:
    where = {"endpoint": "traces", "metrics_endpoint": "metrics", "audit_endpoint": "logs"}
    keys = [f'{key} = "{collector.address}/v1/{path}"' for key, path in where.items()]
    return "\n".join(["[telemetry]", *keys, *(f"{key} = {json.dumps(value)}" for key, value in more.items())]) + "\n"


def test_19_a_served_gateway_sends_spans_metrics_and_its_audit_log_over_otlp(
    tmp_path: Path, collector: OtlpCollector
) -> None:
    served = Served(tmp_path)
    served.write(served.table("shop", "buy"), settings_for(collector, traces=True, metrics=True, audit=True))
    with served.over_http() as url:
        wait_for_call(url, "shop.buy")

        async def call() -> None:
            async with asyncio.timeout(60), Client(url, mode="legacy", cache=None) as client:
                await client.call_tool("shop_buy", {})

        asyncio.run(call())
    names = {(span.name, span.kind) for span in collector.spans}
    assert {("tools/call shop_buy", 2), ("tools/call buy", 3), ("initialize", 2)} <= names
    assert {metric.name for metric in collector.metrics} >= {
        "mcp.server.operation.duration",
        "mcp.client.operation.duration",
        "mcp.server.session.duration",
    }
    calls = [one for one in collector.logs if one.event_name == "toolfold.audit.call"]
    assert json.loads(calls[-1].body.string_value)["tool_id"] == "shop.buy"
    assert attributes(calls[-1])["toolfold.tool.id"] == "shop.buy"
    numbers = [attributes(one)["toolfold.audit.number"] for one in collector.logs]
    assert numbers == list(range(1, len(numbers) + 1))


def test_19_a_gateway_on_stdio_says_that_it_is_a_pipe(tmp_path: Path, collector: OtlpCollector) -> None:
    served = Served(tmp_path)
    served.write(served.table("shop", "buy"), settings_for(collector, metrics=True))

    async def call() -> None:
        async with asyncio.timeout(60), Client(parameters(served.command(), tmp_path), cache=None) as client:
            while (await client.call_tool("shop_buy", {})).is_error:  # noqa: ASYNC110 - it is being built
                await asyncio.sleep(0.05)

    asyncio.run(call())
    [metric, *_] = [one for one in collector.metrics if one.name == "mcp.server.operation.duration"]
    assert {attributes(point)["network.transport"] for point in metric.histogram.data_points} == {"pipe"}
    assert not collector.spans


def test_19_while_the_collector_is_away_nothing_is_lost_and_it_is_said(
    tmp_path: Path, collector: OtlpCollector
) -> None:
    served = Served(tmp_path)
    collector.away = True
    served.write(served.table("shop", "buy"), settings_for(collector, audit=True))
    with served.over_http() as url:
        wait_for_call(url, "shop.buy")
        assert collector.refused.wait(20)
        served.wait_for("the audit log cannot be sent, and waits")
        for _ in range(5):
            wait_for_call(url, "shop.buy")
        assert "toolfold_audit_export_waiting" in httpx2.get(url.replace("/mcp", "/metrics")).text
    assert not collector.logs
    collector.away = False
    with served.over_http() as url:  # another process goes on where this one could not
        wait_for_call(url, "shop.buy")
    calls = [one for one in collector.logs if one.event_name == "toolfold.audit.call" and "shop.buy" in str(one)]
    assert len(calls) >= 7
    numbers = [attributes(one)["toolfold.audit.number"] for one in collector.logs]
    assert numbers == list(range(1, len(numbers) + 1)), "each once, in order"
