"""What a legacy session over HTTP keeps of its answers, and messages of it that are not proper."""

import asyncio
import gc
import json
from typing import Any

import pytest
from serving_helpers import EchoApp, Port, events, hello, legacy, on_http

from toolfold.wire.serving import http_session
from toolfold.wire.serving.http_stream import ResponseStream

MEGABYTE = 1_000_000


def kept_bytes() -> int:
    gc.collect()
    return sum(one.size for one in gc.get_objects() if type(one) is ResponseStream)


@pytest.mark.parametrize(("linger_s", "most"), [(60.0, 6 * MEGABYTE), (0.0, 0)])
def test_of_the_answers_that_were_sent_few_bytes_are_kept_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch, linger_s: float, most: int
) -> None:
    monkeypatch.setattr(http_session, "_LINGER_S", linger_s)

    async def main() -> int:
        async with on_http(EchoApp()) as port:
            name = await port.session()
            for _ in range(20):
                answer = await port.post(legacy("echo", {"text": "x" * MEGABYTE}), Mcp_Session_Id=name)
                assert len(answer.content) > MEGABYTE
            await asyncio.sleep(0)
            return kept_bytes()

    assert asyncio.run(main()) <= most


async def cut_off(port: Port, name: str) -> tuple[str, Any]:
    """A request that asks something, its stream broken off after the question: the last event, and the question."""
    request = legacy("tools/call", {"name": "ask"}, key="c")
    headers = port.headers(request, Mcp_Session_Id=name)
    last = ""
    async with port.client.stream("POST", port.url, json=request, headers=headers) as answer:
        async for line in answer.aiter_lines():
            last = line.removeprefix("id: ") if line.startswith("id: ") else last
            if line.startswith("data: ") and len(line) > 6:
                return last, json.loads(line[6:])
    raise AssertionError("nothing was asked")


def test_a_large_answer_that_was_cut_off_can_still_be_fetched() -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            name = await port.session(able={"elicitation": {}})
            last, asked = await cut_off(port, name)
            given = {"action": "accept", "content": {"text": "x" * MEGABYTE}}
            reply = {"jsonrpc": "2.0", "id": asked["id"], "result": given}
            assert (await port.post(reply, Mcp_Session_Id=name)).status_code == 202
            await port.post(legacy("echo", {"text": "x" * 60_000}), Mcp_Session_Id=name)
            headers = {"Accept": "text/event-stream", "Mcp-Session-Id": name, "Last-Event-ID": last}
            [answer] = events((await port.client.get(port.url, headers=headers)).text)
            assert answer["id"] == "c"
            assert len(json.dumps(answer["result"])) > MEGABYTE

    asyncio.run(main())


@pytest.mark.parametrize("mark", ["g_²", "g_" + "9" * 5000, "g_", "_", "²_1"])
def test_an_odd_event_number_breaks_nothing(mark: str) -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            name = await port.session()
            headers = {b"Accept": b"text/event-stream", b"Mcp-Session-Id": name.encode()}
            headers |= {b"Last-Event-ID": mark.encode("latin-1")}
            async with port.client.stream("GET", port.url, headers=headers) as answer:
                assert answer.status_code == (200 if mark.startswith("g_") else 404)

    asyncio.run(main())


@pytest.mark.parametrize("key", [None, 1.5])
def test_a_request_without_a_proper_id_is_refused(key: Any) -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_http(app) as port:
            name = await port.session()
            answer = await port.post(legacy("tools/call", {"name": "steps"}, key=key), Mcp_Session_Id=name)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
            assert (await port.post(hello(key=key))).status_code == 400

    asyncio.run(main())
