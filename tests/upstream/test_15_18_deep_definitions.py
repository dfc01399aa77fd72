"""What one tool nests too deep costs that tool, or that part of a result: never its server, never the call."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from filed_stdio import filed_spec
from large_stdio import __file__ as large_server
from shop_service import DOCUMENT

from toolfold import Gateway, Settings
from toolfold.faces.mcp_server.profiles import open_app
from toolfold.faces.surface.direct import DirectSurface
from toolfold.text import MAX_LEVELS, cut_deep
from toolfold.types import LOCAL, ServerSpec
from toolfold.upstream.openapi import OpenApiUpstream
from toolfold.upstream.passthrough import Passthrough

NESTS = {"anyOf": ('{"anyOf":[', "]}"), "properties": ('{"properties":{"a":', "}}"), "array": ("[", "]")}
# 491 of two brackets each is where the envelope can be read and a page within it cannot.
DEPTHS = (491, 800, 5_000)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def nested(kind: str, depth: int) -> str:
    opening, closing = NESTS[kind]
    return opening * depth + "{}" + closing * depth


def tools_with(schema: str, key: str = "inputSchema") -> str:
    deep = f'{{"name":"deep","description":"Goes deep.","inputSchema":{{"type":"object"}},"{key}":{schema}}}'
    return f'[{{"name":"plain","description":"Is plain.","inputSchema":{{"type":"object"}}}},{deep}]'


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    ("kind", "key"), [("anyOf", "inputSchema"), ("properties", "outputSchema"), ("array", "_meta")]
)
def test_15_18_a_deep_definition_costs_its_schema_and_not_the_server(
    tmp_path: Path, depth: int, kind: str, key: str
) -> None:
    (tmp_path / "tools.json").write_text(tools_with(nested(kind, depth), key), encoding="utf-8")

    async def main() -> None:
        spec = filed_spec("filed", tmp_path / "tools.json")
        async with Gateway(Settings(servers=(spec,), home=tmp_path / "home")) as gateway:
            build = await gateway.build()
            assert build.report.tools == 2
            for tool_id in ("filed.plain", "filed.deep"):
                assert b"done" in bytes((await gateway.call_tool(tool_id, {})).result)
                msgspec.json.encode(await gateway.expand_tool(tool_id))
            (state,) = await gateway.servers()
            assert state.error == ""
            if key != "_meta":
                assert any("'deep'" in warning and "over 100 levels" in warning for warning in state.warnings)
            names = [msgspec.json.decode(tool)["name"] for tool in await DirectSurface(gateway).tools(LOCAL)]
            assert names[:2] == ["filed_deep", "filed_plain"]

    run(main())


@pytest.mark.parametrize("method", ["resources/list", "prompts/list", "tools/list"])
def test_15_18_other_lists_come_through_with_what_is_too_deep_left_out(tmp_path: Path, method: str) -> None:
    (tmp_path / "tools.json").write_text(tools_with(nested("anyOf", 800)), encoding="utf-8")

    async def main() -> None:
        spec = filed_spec("filed", tmp_path / "tools.json")
        async with (
            Gateway(Settings(servers=(spec,), home=tmp_path / "home")) as gateway,
            open_app(gateway, "transparent"),
        ):
            passthrough = Passthrough("filed", gateway.pool, gateway.events, lambda method, params: None)
            listed = msgspec.json.decode(await passthrough.request(method))
            plain, deep = listed[method.partition("/")[0]]
            assert (plain["name"], deep["name"]) == ("plain", "deep")
            assert "left out: nested over 200 levels" in json.dumps(deep)

    run(main())


@pytest.mark.parametrize("depth", DEPTHS)
def test_15_18_a_deep_result_of_a_call_that_was_made_is_not_lost(tmp_path: Path, depth: int) -> None:
    result = f'{{"content":[{{"type":"text","text":"the text"}}],"structuredContent":{nested("properties", depth)}}}'
    (tmp_path / "result.json").write_text(result, encoding="ascii")

    async def main() -> None:
        spec = ServerSpec(name="large", transport="stdio", command=sys.executable, args=(str(large_server),))
        async with Gateway(Settings(servers=(spec,), home=tmp_path / "home")) as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("large.give", {"file": str(tmp_path / "result.json")})
            text = bytes(outcome.result).decode()
            assert "the text" in text
            assert "left out: nested over 200 levels" in text or depth == 491

    run(main())


def test_15_18_an_operation_with_a_deep_schema_costs_no_other_operation(tmp_path: Path) -> None:
    document = json.dumps(DOCUMENT)
    wanted = f'[{{"name": "p", "in": "query", "schema": {nested("anyOf", 800)}}}]'
    (path, methods), *_ = DOCUMENT["paths"].items()
    deep = f'{{"/deep": {{"get": {{"operationId": "deep", "parameters": {wanted}}}}}, {json.dumps(path)}:'
    document = document.replace(f"{{{json.dumps(path)}:", deep, 1)
    (tmp_path / "api.json").write_text(document, encoding="utf-8")

    async def main() -> None:
        upstream = OpenApiUpstream(
            ServerSpec(name="shop", transport="openapi", document=str(tmp_path / "api.json"), url="http://127.0.0.1:1")
        )
        await upstream.open()
        names = {tool.name for tool in (await upstream.listing()).tools}
        await upstream.aclose()
        assert len(names) > len(methods)
        assert "deep" in names

    run(main())


def test_15_18_what_is_cut_is_the_same_json_but_for_what_is_too_deep() -> None:
    inner = '["\\"}]", {"a": ["[", "{"]}]'
    text = "[" * (MAX_LEVELS - 1) + f'{inner}, {{"deep": [[1]], "x": "]]"}}, 7' + "]" * (MAX_LEVELS - 1)
    cut = msgspec.json.decode(cut_deep(text.encode()))
    whole = msgspec.json.decode(text)
    for _ in range(MAX_LEVELS - 2):
        (cut,), (whole,) = cut, whole
    assert whole == [['"}]', {"a": ["[", "{"]}], {"deep": [[1]], "x": "]]"}, 7]
    mark = "(left out: nested over 200 levels)"
    assert cut == [['"}]', mark], {"deep": mark, "x": "]]"}, 7]


@pytest.mark.parametrize(
    "text", ["[" * 300, '"' + "[" * 300, '{"a":' * 300, "]" * 300 + "[" * 300, '"\\"' * 300 + "[" * 201]
)
def test_15_18_what_is_no_json_stays_as_it_is(text: str) -> None:
    assert cut_deep(text.encode()) == text.encode()
