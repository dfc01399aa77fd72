"""What had to be replaced in a result is said with it, to models as a text and to programs in `_meta`."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from large_stdio import __file__ as large_server
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.faces.mcp_server.profiles import open_app
from toolfold.faces.surface.direct import DirectSurface
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.text import NOTE_KEY
from toolfold.types import ServerSpec

REPLACED = "characters that were no text are replaced by U+FFFD"
LEFT_OUT = "what was nested over 200 levels is left out"
TEXT = b'{"content":[{"type":"text","text":"%b"}]%b}'


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def large_gateway(folder: Path) -> Gateway:
    spec = ServerSpec(name="large", transport="stdio", command=sys.executable, args=(str(large_server),))
    return Gateway(Settings(servers=(spec,), home=folder / "home"))


@pytest.mark.parametrize(
    ("result", "note"),
    [
        (TEXT % (rb"a\ud800b", b""), REPLACED),
        (TEXT % (b"a\xffb", b""), REPLACED),
        (TEXT % (rb"a\udc00b" * 9000, b""), REPLACED),
        (TEXT % (b"ab", b',"structuredContent":' + b"[" * 5000 + b"]" * 5000), LEFT_OUT),
        (
            TEXT % (rb"a\ud800b", b',"_meta":{"x/y":1,"deep":' + b"[" * 5000 + b"]" * 5000 + b"}"),
            f"{REPLACED}; {LEFT_OUT}",
        ),
    ],
    ids=["half a character", "a byte that is no UTF-8", "stored", "deep", "both"],
)
def test_15_18_a_result_says_what_was_replaced_in_it(tmp_path: Path, result: bytes, note: str) -> None:
    (tmp_path / "result.json").write_bytes(result)
    arguments = {"file": str(tmp_path / "result.json")}

    async def main() -> None:
        async with large_gateway(tmp_path) as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("large.give", arguments)
            assert json.loads(bytes(outcome.result))["_meta"][NOTE_KEY] == note
            asked = {"tool_id": "large.give", "args": arguments}
            for surface, name, given in (
                (DiscoverySurface(gateway), "call_tool", asked),
                (DirectSurface(gateway), "large_give", arguments),
            ):
                answer = json.loads(bytes(await surface.call(name, Raw(json.dumps(given).encode()))))
                assert answer["content"][-1] == {"type": "text", "text": f"note: {note}"}
                assert answer["_meta"][NOTE_KEY] == note

    run(main())


def test_15_18_a_function_says_it_too(tmp_path: Path) -> None:
    def half() -> str:
        """Returns half a character."""
        return "a\ud800b"

    def halves() -> dict[str, str]:
        """Returns half a character in an object."""
        return {"a": "\udc00"}

    async def main() -> None:
        async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("f", [half, halves])]) as gateway:
            await gateway.build()
            for tool_id in ("f.half", "f.halves"):
                given = Raw(json.dumps({"tool_id": tool_id}).encode())
                answer = json.loads(bytes(await DiscoverySurface(gateway).call("call_tool", given)))
                assert answer["content"][-1]["text"] == f"note: {REPLACED}"

    run(main())


def test_15_18_a_result_that_is_as_it_came_has_no_note(tmp_path: Path) -> None:
    """Also one that holds the replacement character itself, or speaks of the note."""
    text = rf"a\ufffd b \\ud800 {NOTE_KEY} \"{NOTE_KEY}\":\"x\"".encode() + "\ufffd é".encode()
    (tmp_path / "result.json").write_bytes(TEXT % (text, b""))

    async def main() -> None:
        async with large_gateway(tmp_path) as gateway, open_app(gateway, "direct"):
            await gateway.build()
            given = Raw(json.dumps({"file": str(tmp_path / "result.json")}).encode())
            answer = json.loads(bytes(await DirectSurface(gateway).call("large_give", given)))
            assert len(answer["content"]) == 1
            assert "_meta" not in answer

    run(main())
