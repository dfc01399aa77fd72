"""OpenTelemetry's MCP conventions where there is no session: every stateless request, also one that is refused, and
whatever it asks for."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp_client_helpers import FIXTURE, mcp_on_port
from opentelemetry.trace import SpanKind
from test_19_conventions import MODERN, PARENT, Memory, observed

from toolfold import Gateway, Settings
from toolfold.faces.mcp_server.profiles import open_app
from toolfold.telemetry.server_spans import _ObservedServer
from toolfold.wire.serving import ServeOptions
from toolfold.wire.serving.http import McpHttpApp

META = "io.modelcontextprotocol/"
TRACE = PARENT.split("-")[1]


def table() -> str:
    return f'[servers.fixture]\ncommand = "{sys.executable}"\nargs = ["{FIXTURE}"]\n'


def post(url: str, method: str, params: dict[str, Any], **changed: str) -> httpx2.Response:
    name = str(params.get("uri") or params.get("name") or "")
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": name, **changed}
    accept = {"Accept": "application/json, text/event-stream"}
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}, "traceparent": PARENT}
    body = {"jsonrpc": "2.0", "id": "one", "method": method, "params": {**params, "_meta": meta}}
    return httpx2.post(url, json=body, headers={**headers, **accept}, timeout=60)


async def ask(url: str, method: str, params: dict[str, Any], **changed: str) -> httpx2.Response:
    return await asyncio.to_thread(post, url, method, params, **changed)


async def test_21_prompts_and_resources_are_what_their_spans_say_they_are(tmp_path: Path) -> None:
    memory = Memory()
    prompt, uri = "fixture.test_simple_prompt", "toolfold://resources/fixture/test%3A%2F%2Fstatic-text"
    async with observed(tmp_path, memory, table()) as url:
        assert "result" in (await ask(url, "prompts/get", {"name": prompt})).text
        assert "result" in (await ask(url, "resources/read", {"uri": uri})).text
        assert "result" in (await ask(url, "server/discover", {})).text
    [served] = memory.spans(f"prompts/get {prompt}", SpanKind.SERVER)
    [sent] = memory.spans("prompts/get test_simple_prompt", SpanKind.CLIENT)
    assert sent.parent.span_id == served.context.span_id
    assert f"{served.context.trace_id:032x}" == TRACE
    assert served.attributes["jsonrpc.request.id"] == "one"
    assert served.attributes["mcp.protocol.version"] == MODERN
    assert "mcp.session.id" not in served.attributes
    assert (served.attributes["network.transport"], sent.attributes["network.transport"]) == ("tcp", "pipe")
    assert sent.attributes["jsonrpc.request.id"].isdigit()
    [read] = memory.spans("resources/read", SpanKind.SERVER)
    [asked] = memory.spans("resources/read", SpanKind.CLIENT)
    assert (read.attributes["mcp.resource.uri"], asked.attributes["mcp.resource.uri"]) == (uri, "test://static-text")
    assert asked.parent.span_id == read.context.span_id
    assert not any("gen_ai.operation.name" in span.attributes for span in (served, sent, read, asked))
    [discovered] = memory.spans("server/discover", SpanKind.SERVER)
    assert discovered.attributes["mcp.method.name"] == "server/discover"
    points = memory.points()["mcp.client.operation.duration"]
    assert any(point.attributes.get("gen_ai.prompt.name") == "test_simple_prompt" for point in points)
    assert not any("mcp.resource.uri" in point.attributes for one in memory.points().values() for point in one)


async def test_21_what_is_refused_is_a_failed_span_and_is_counted(tmp_path: Path) -> None:
    memory = Memory()
    async with observed(tmp_path, memory, table()) as url:
        assert (await ask(url, "tools/list", {}, **{"Mcp-Method": "tools/call"})).status_code == 400
        assert (await ask(url, "ping", {})).status_code == 404
        assert (await ask(url, "no/such", {})).status_code == 404
    for method, code in (("tools/list", "-32020"), ("ping", "-32601"), ("no/such", "-32601")):
        [span] = memory.spans(method, SpanKind.SERVER)
        assert (span.attributes["error.type"], span.attributes["rpc.response.status_code"]) == (code, code)
        assert not span.status.is_ok
        assert f"{span.context.trace_id:032x}" == TRACE
    points = memory.points()["mcp.server.operation.duration"]
    assert {point.attributes.get("error.type") for point in points} == {"-32020", "-32601"}


async def test_21_a_client_cannot_make_endless_series_of_methods() -> None:
    memory = Memory()
    for number in range(1_100):
        memory.tracing.measure("mcp.server.operation.duration", 0.1, {"mcp.method.name": f"made-up/{number}"})
    await memory.tracing.aclose()
    assert len(memory.points()["mcp.server.operation.duration"]) == 1_001


async def test_21_what_is_passed_through_carries_its_own_context_on(tmp_path: Path) -> None:
    memory = Memory()
    meta: Any = {"traceparent": PARENT}
    (tmp_path / "toolfold.toml").write_text(table())
    async with Gateway(Settings.load(tmp_path / "toolfold.toml", home=tmp_path)) as gateway:
        vars(gateway)["tracing"] = memory.tracing
        await gateway.build()
        async with (
            open_app(gateway, "transparent") as app,
            mcp_on_port(McpHttpApp(_ObservedServer(memory.tracing, "tcp", app, ServeOptions()))) as url,
            Client(url, mode=MODERN, cache=None, read_timeout_seconds=30) as client,
        ):
            await client.get_prompt("test_simple_prompt")
            said = await client.call_tool("extra_meta", {}, meta=meta)
    [served] = memory.spans("prompts/get test_simple_prompt", SpanKind.SERVER)
    [sent] = memory.spans("prompts/get test_simple_prompt", SpanKind.CLIENT)
    assert sent.parent.span_id == served.context.span_id
    assert sent.attributes["jsonrpc.request.id"].isdigit()
    [call] = memory.spans("tools/call extra_meta", SpanKind.CLIENT)
    assert f"{call.context.span_id:016x}" in json.dumps([block.model_dump() for block in said.content])
