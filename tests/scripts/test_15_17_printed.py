"""What a script prints is bounded over every face: too much of it is stored, and all else stands in the answer."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.faces.http_api import make_app
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL
from toolfold.wire.serving.http_guard import HttpGuard

CODE = "import sys\nfor n in range(5000): print('line', n, file=sys.{stream})\nprint('short', file=sys.{other})\n6 * 7"


async def over_http(gateway: Gateway, path: str, **body: Any) -> Any:
    transport = httpx2.ASGITransport(make_app(gateway, HttpGuard(identify=lambda headers: LOCAL)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return (await (client.post(path, json=body) if body else client.get(path))).text


@pytest.mark.parametrize(("stream", "other"), [("stdout", "stderr"), ("stderr", "stdout")])
async def test_15_17_what_is_printed_is_stored_where_it_is_too_large(tmp_path: Path, stream: str, other: str) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("s")]) as gateway:
        await gateway.build()
        code = CODE.format(stream=stream, other=other)
        answer = json.loads(await over_http(gateway, "/v1/run_script", code=code))
        printed = "".join(f"line {n}\n" for n in range(5000))
        assert (answer[stream], answer[other], answer["answer"]) == ("", "short\n", 42)
        assert answer[f"{stream}_stored"]["bytes"] == len(printed)
        assert f"{other}_stored" not in answer
        assert await over_http(gateway, f"/v1/outputs/{answer[f'{stream}_stored']['handle']}") == printed
        raw = await DiscoverySurface(gateway).call("run_script", Raw(json.dumps({"code": code}).encode()))
        ((text,),) = [[block["text"] for block in json.loads(bytes(raw))["content"]]]
        handle = re.search('handle = "([0-9a-f-]{36})"', text)
        assert handle is not None
        assert "Tool output is too large (" in text
        assert "summary: 42" in text
        assert "short" in text
        assert (await gateway.outputs.file(handle[1])).read_text(encoding="utf-8") == printed


async def test_15_17_what_fits_stands_in_the_answer(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("s")]) as gateway:
        await gateway.build()
        answer = json.loads(await over_http(gateway, "/v1/run_script", code="print('a')"))
        assert (answer["stdout"], answer["stderr"]) == ("a\n", "")
        assert not [key for key in answer if key.endswith("_stored")]
