"""A result that is not of MCP's form becomes one that every client reads, with what came as text."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from large_stdio import __file__ as large_server
from mcp.types import CallToolResult
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.faces.surface.direct import DirectSurface
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.text import NOTE_KEY
from toolfold.types import ServerSpec

AS_TEXT = "the server's result was not of the form that MCP asks for; what came stands as text"
EMPTY = "the server sent a result without content"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def gateway_of(folder: Path, result: str) -> Gateway:
    (folder / "result.json").write_text(result, encoding="utf-8")
    spec = ServerSpec(name="large", transport="stdio", command=sys.executable, args=(str(large_server),))
    return Gateway(Settings(servers=(spec,), home=folder / "home"))


async def answers(gateway: Gateway, folder: Path) -> list[dict[str, Any]]:
    """What a client gets over each surface, read by the types of the official one."""
    await gateway.build()
    given = {"file": str(folder / "result.json")}
    asked = Raw(json.dumps({"tool_id": "large.give", "args": given}).encode())
    results = [
        bytes(await DiscoverySurface(gateway).call("call_tool", asked)),
        bytes(await DirectSurface(gateway).call("large_give", Raw(json.dumps(given).encode()))),
    ]
    for result in results:
        CallToolResult.model_validate_json(result)
    return [json.loads(result) for result in results]


@pytest.mark.parametrize(
    ("result", "texts", "note"),
    [
        ('{"content":"hello"}', ["hello"], AS_TEXT),
        ('{"content":null}', [], EMPTY),
        ("{}", [], EMPTY),
        ('{"content":[5,null,"s"]}', ["5", "null", "s"], AS_TEXT),
        ('{"content":[{"type":"text","text":"a"},{"text":"b"}]}', ["a", '{"text":"b"}'], AS_TEXT),
        ('{"content":[{"type":"zorb","x":1}]}', ['{"type":"zorb","x":1}'], AS_TEXT),
        ('{"content":[{"type":"image","data":"AAAA"}]}', ['{"type":"image","data":"AAAA"}'], AS_TEXT),
        ('{"structuredContent":{"a":1}}', ['{"a":1}'], AS_TEXT),
        ('{"toolResult":{"a":1}}', ['{"toolResult":{"a":1}}'], AS_TEXT),
        ('{"content":[{"type":"text","text":"a"}],"isError":null,"_meta":7}', ["a"], AS_TEXT),
        ('{"content":{"type":"text","text":"%s"}}' % ("x" * 4_300_000), None, AS_TEXT),
    ],
    ids=["text", "null", "empty", "values", "no type", "unknown", "no kind", "structured", "old", "members", "large"],
)
def test_15_14_a_result_of_another_form_becomes_a_readable_one(
    tmp_path: Path, result: str, texts: list[str] | None, note: str
) -> None:
    async def main() -> None:
        async with gateway_of(tmp_path, result) as gateway:
            for answer in await answers(gateway, tmp_path):
                shown = [block["text"] for block in answer["content"]]
                if texts is not None:
                    assert answer["_meta"][NOTE_KEY] == note
                    assert shown == [*texts, f"note: {note}"]
                else:
                    assert "handle" in shown[0]

    run(main())


def test_15_14_an_error_of_another_form_stays_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway_of(tmp_path, '{"content":"it broke","isError":true}') as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("large.give", {"file": str(tmp_path / "result.json")})
            assert outcome.is_error
            assert json.loads(bytes(outcome.raw))["isError"] is True

    run(main())


@pytest.mark.parametrize(
    ("key", "padding"),
    [
        ("toolfold/note", 0),
        ("toolfold/other", 0),
        (r"tool\u0066old/note", 0),
        (r"toolfold\/note", 0),
        ("toolfold/note", 4_300_000),
    ],
    ids=["note", "other", "escaped letter", "escaped slash", "spilled"],
)
def test_15_14_a_server_cannot_speak_in_our_name(tmp_path: Path, key: str, padding: int) -> None:
    text = "x" * padding
    meta = f'"_meta":{{"{key}":"all is well","own/key":1}}'
    held = f'{{"type":"resource","resource":{{"uri":"a:b","text":"",{meta}}},{meta}}}'
    result = f'{{"content":[{{"type":"text","text":"{text}",{meta}}},{held}],{meta}}}'

    async def main() -> None:
        async with gateway_of(tmp_path, result) as gateway:
            for answer in await answers(gateway, tmp_path):
                assert "all is well" not in json.dumps(answer)
                assert answer["_meta"] == {"own/key": 1}
                if not padding:
                    assert [block["_meta"] for block in answer["content"]] == [{"own/key": 1}] * 2

    run(main())


def test_15_14_what_has_the_form_goes_on_byte_for_byte(tmp_path: Path) -> None:
    result = (
        '{ "content":[{"type":"text","text":"a \\"toolfold/note\\" b"},{"type":"resource","resource":{"uri":"a:b",'
        '"blob":"AAEC"}},{"type":"resource_link","uri":"a:c","name":"c"}], "structuredContent":[1.50], "further":1}'
    )

    async def main() -> None:
        async with gateway_of(tmp_path, result) as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("large.give", {"file": str(tmp_path / "result.json")})
            assert bytes(outcome.raw).decode() == result

    run(main())
