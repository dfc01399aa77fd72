"""A number that no JSON reader takes costs the schema it stands in, or that part of a result, never more."""

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
from mcp.types import CallToolResult
from msgspec import Raw
from shop_service import DOCUMENT

from toolfold import Gateway, Settings, extract
from toolfold.__main__ import main as command_line
from toolfold.faces.surface.direct import DirectSurface
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.text import NOTE_KEY, has_large_number, replace_large_numbers
from toolfold.types import LOCAL, ServerSpec
from toolfold.upstream.openapi import OpenApiUpstream

LARGE = ("9" * 4_301, "9" * 6_000, "-" + "9" * 5_000, "1e999", "-1E+309", "1" * 400 + ".5", "NaN", "-Infinity")
LEFT_OUT = "(left out: a number that no JSON reader takes)"
NOTE = "numbers that no JSON reader takes are left out"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def large_spec() -> ServerSpec:
    return ServerSpec(name="large", transport="stdio", command=sys.executable, args=(str(large_server),))


@pytest.mark.parametrize(
    ("number", "key"),
    [(LARGE[0], "inputSchema"), (LARGE[1], "outputSchema"), (LARGE[2], "_meta"), (LARGE[3], "inputSchema")],
    ids=["input", "output", "meta", "exponent"],
)
def test_15_14_a_large_number_in_a_definition_costs_its_schema_alone(tmp_path: Path, number: str, key: str) -> None:
    schema = f'{{"type":"object","properties":{{"n":{{"type":"integer","maximum":{number}}}}}}}'
    odd = f'{{"name":"odd","description":"Counts.","inputSchema":{{"type":"object"}},"{key}":{schema}}}'
    plain = '{"name":"plain","description":"Lists the orders.","inputSchema":{"type":"object"}}'
    (tmp_path / "tools.json").write_text(f"[{plain},{odd}]", encoding="utf-8")

    async def main() -> None:
        settings = Settings(servers=(filed_spec("filed", tmp_path / "tools.json"),), home=tmp_path / "home")
        async with Gateway(settings) as gateway:
            assert (await gateway.build()).report.tools == 2
            page = await gateway.search_tool_by_category("list the orders")
            assert page["results"][0]["tool_id"] == "filed.plain"
            assert await gateway.search_nodes("orders")
            for tool_id in ("filed.plain", "filed.odd"):
                json.loads(msgspec.json.encode(await gateway.expand_tool(tool_id)))
                assert b"done" in bytes((await gateway.call_tool(tool_id, {})).raw)
            tools = await DirectSurface(gateway).tools(LOCAL)
            assert len(json.loads(msgspec.json.encode(tools))) >= 2
            (state,) = await gateway.servers()
            if key != "_meta":
                assert any("'odd'" in line and "no JSON reader takes" in line for line in state.warnings)

    run(main())


@pytest.mark.parametrize(
    ("number", "padding"),
    [*((number, 0) for number in LARGE), (LARGE[1], 40_000), (LARGE[3], 4_300_000)],
    ids=[*range(len(LARGE)), "stored", "spilled"],
)
def test_15_14_a_large_number_in_a_result_is_left_out_and_said(tmp_path: Path, number: str, padding: int) -> None:
    text = "x" * padding
    (tmp_path / "result.json").write_text(
        f'{{"content":[{{"type":"text","text":"{text}"}}],"structuredContent":{{"n":{number},"m":{"8" * 300}}}}}'
    )
    arguments = {"file": str(tmp_path / "result.json")}

    async def main() -> None:
        async with Gateway(Settings(servers=(large_spec(),), home=tmp_path / "home")) as gateway:
            await gateway.build()
            asked = Raw(json.dumps({"tool_id": "large.give", "args": arguments}).encode())
            result = bytes(await DiscoverySurface(gateway).call("call_tool", asked))
            CallToolResult.model_validate_json(result)
            answer = msgspec.json.decode(result)
            assert answer["structuredContent"] == {"n": LEFT_OUT, "m": int("8" * 300)}
            assert answer["_meta"][NOTE_KEY] == NOTE
            assert answer["content"][-1]["text"] == f"note: {NOTE}"
            whole = await gateway.call_tool("large.give", arguments, whole=True)
            assert msgspec.json.decode(whole.raw)["structuredContent"]["n"] == LEFT_OUT

    run(main())


def test_15_14_a_large_number_in_a_member_that_stands_there_twice_does_not_pass(tmp_path: Path) -> None:
    twice = '"structuredContent":{"n":1e999},"structuredContent":{"n":1}'
    (tmp_path / "result.json").write_text(f'{{"content":[{{"type":"text","text":"x"}}],{twice}}}')

    async def main() -> None:
        async with Gateway(Settings(servers=(large_spec(),), home=tmp_path / "home")) as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("large.give", {"file": str(tmp_path / "result.json")})
            assert b"1e999" not in bytes(outcome.raw)
            assert msgspec.json.decode(outcome.raw)["_meta"][NOTE_KEY] == NOTE

    run(main())


@pytest.mark.parametrize(
    ("number", "is_large"), [("1e+22", False), ("1E+308", True), ("2e308", True), ("+" * 400, False)]
)
def test_15_14_only_long_exponents_and_long_runs_of_digits_look_large(number: str, is_large: bool) -> None:
    assert has_large_number(b"[%b]" % number.encode()) is is_large


def test_15_14_the_command_line_prints_a_result_with_a_large_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "result.json").write_text('{"content":[],"structuredContent":{"n":%s}}' % ("9" * 5_000))
    config = tmp_path / "toolfold.toml"
    config.write_text(f'[servers.large]\ncommand = "{sys.executable}"\nargs = ["{large_server}"]\n', encoding="utf-8")
    monkeypatch.setenv("TOOLFOLD_HOME", str(tmp_path / "home"))
    options = ["--config", str(config)]
    assert command_line([*options, "build"]) == 0
    capsys.readouterr()
    assert command_line([*options, "call", "large.give", json.dumps({"file": str(tmp_path / "result.json")})]) == 0
    printed = capsys.readouterr()
    assert LEFT_OUT in printed.out
    assert NOTE in printed.err


def test_15_14_a_large_number_in_a_document_costs_its_operation_alone(tmp_path: Path) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    operation = next(iter(next(iter(document["paths"].values())).values()))
    operation.setdefault("parameters", []).append(
        {"name": "odd", "in": "query", "schema": {"type": "integer", "maximum": "@"}}
    )
    (tmp_path / "api.json").write_text(json.dumps(document).replace('"@"', "9" * 5_000))

    async def main() -> None:
        spec = ServerSpec(
            name="shop", transport="openapi", url="http://127.0.0.1:9", document=str(tmp_path / "api.json")
        )
        upstream = OpenApiUpstream(spec)
        await upstream.open()
        assert len((await upstream.listing()).tools) > 1
        await upstream.aclose()

    run(main())


def test_15_14_a_function_that_returns_a_large_number_says_so(tmp_path: Path) -> None:
    def huge() -> int:
        """Returns a number of 5,000 digits."""
        return 10**5_000

    async def main() -> None:
        async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("f", [huge])]) as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("f.huge", {})
            assert b"has no JSON form" in bytes(outcome.raw)

    run(main())


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"1e999 NaN"}',
        f'{{"a":"{"9" * 5_000}"}}',
        '["\\"",1e300]',
        f"[{'9' * 4_300}]",
        "[1e-999]",
        f"[0.{'1' * 5_000}]",
        f"[{'1' * 400}e-300]",
    ],
    ids=range(7),
)
def test_15_14_what_readers_take_stays_as_it_is(text: str) -> None:
    assert replace_large_numbers(text.encode()) == text.encode()


def test_15_14_a_large_number_is_found_wherever_it_stands() -> None:
    """Also across the pieces in which a long text is looked through."""
    for at in range((1 << 20) - 330, (1 << 20) + 10, 11):
        text = b'["%b",%b]' % (b"x" * at, b"1e999")
        assert replace_large_numbers(text) == b'["%b","%b"]' % (b"x" * at, LEFT_OUT.encode())


def test_15_14_a_mean_of_numbers_that_cannot_be_rounded_is_told() -> None:
    assert "Mean of n" in str(extract("n,k\n1e300,1\n2,2\n", "average n"))
