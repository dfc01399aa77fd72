"""The small stdio server itself: eras, errors, cancellation, and what goes to stdout."""

import io
import json
import subprocess
import sys
import threading
from typing import Any

import pytest

from toolfold.demo.stdio import StdioServer

DEEP = "[" * 100_000 + "]" * 100_000
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def slow_add(a: int, b: int) -> int:
    """Add two numbers, some time."""
    return a + b


def fail() -> None:
    """Fail."""
    raise ValueError("no luck")


def talk(*lines: Any) -> list[Any]:
    """What the server answers to these messages; texts go as they are."""
    out = io.BytesIO()
    encoded = [line.encode() if isinstance(line, str) else json.dumps(line).encode() for line in lines]
    StdioServer("test", [add, slow_add, fail]).run(io.BytesIO(b"\n".join(encoded) + b"\n"), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def request(method: str, params: Any = None, number: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method} | ({"params": params} if params is not None else {})


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": arguments, **more})


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ],
)
def test_the_handshake_settles_on_a_known_version(asked: str, given: str) -> None:
    (answer,) = talk(request("initialize", {"protocolVersion": asked, "capabilities": {}}))
    assert answer["result"]["protocolVersion"] == given
    assert "resultType" not in answer["result"]


def test_modern_requests_need_no_handshake_and_are_marked_complete() -> None:
    (found,) = talk(request("server/discover", {"_meta": META}))
    assert found["result"]["supportedVersions"] == ["2026-07-28"]
    (listed,) = talk(request("tools/list", {"_meta": META}))
    assert listed["result"]["resultType"] == "complete"
    assert listed["result"]["cacheScope"] == "public"
    (called,) = talk(call("add", {"a": 1, "b": 2}, _meta=META))
    assert called["result"] == {
        "resultType": "complete",
        "content": [{"type": "text", "text": "3"}],
        "structuredContent": {"result": 3},
    }


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", -32700),
        ("[]", -32600),
        ("17", -32600),
        ('{"id": 1, "method": 5}', -32600),
        ('{"id": 1, "method": "ping", "params": ' + "[" * 100_000, -32700),
        ('{"id": 1, "method": "ping", "params": {"_meta": ' + DEEP + "}}", -32700),
        (request("no/such"), -32601),
        (request("ping", {"_meta": META}), -32601),  # The modern era has no ping.
        (request("tools/call", {"name": "nothing"}), -32602),
        (request("tools/call", []), -32602),
        (request("server/discover"), -32602),
        (request("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}), -32602),
        (request("tools/list", {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}}), -32022),
    ],
)
def test_what_is_wrong_is_answered_with_its_code_and_the_server_goes_on(message: Any, code: int) -> None:
    wrong, right = talk(message, request("ping", number="next"))
    assert wrong["error"]["code"] == code
    assert right == {"jsonrpc": "2.0", "id": "next", "result": {}}
    if code == -32022:
        assert wrong["error"]["data"]["supported"] == ["2026-07-28"]


def test_notifications_and_answers_get_no_answer() -> None:
    assert (
        talk(
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 7, "result": {}},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": []},
            "",
        )
        == []
    )


def test_faults_of_a_tool_are_results_and_async_tools_work() -> None:
    (failed,) = talk(call("fail", {}))
    assert failed["result"] == {"content": [{"type": "text", "text": "ValueError: no luck"}], "isError": True}
    (wrong,) = talk(call("add", {"a": "x"}))
    assert "`b` is missing" in wrong["result"]["content"][0]["text"]
    (slow,) = talk(call("slow_add", {"a": 1, "b": 2}))
    assert slow["result"]["structuredContent"] == {"result": 3}


def test_a_call_that_runs_holds_up_no_ping_and_a_cancelled_one_is_not_answered() -> None:
    started, release = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        release.wait(30)

    class Source(io.BytesIO):
        """Gives the second message once the first one runs."""

        def __iter__(self) -> Any:
            yield json.dumps(call("wait", {})).encode() + b"\n"
            assert started.wait(30)
            yield json.dumps(request("ping", number=2)).encode() + b"\n"
            yield b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n'
            release.set()

    out = io.BytesIO()
    StdioServer("test", [wait]).run(Source(), out)
    assert [json.loads(line)["id"] for line in out.getvalue().splitlines()] == [2]


def test_what_a_tool_prints_never_reaches_stdout() -> None:
    code = (
        "import os, subprocess\n"
        "from toolfold.demo.stdio import serve\n"
        "def loud() -> str:\n"
        "    print('printed')\n"
        "    os.write(1, b'written')\n"
        "    subprocess.run(['echo', 'echoed'])\n"
        "    return 'ok'\n"
        "serve('loud', [loud])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(call("loud", {})) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [json.loads(line)["result"]["content"][0]["text"] for line in done.stdout.splitlines()] == ["ok"]
    for word in ("printed", "written", "echoed"):
        assert word in done.stderr
