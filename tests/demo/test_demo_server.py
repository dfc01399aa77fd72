"""Functions as an MCP server: eras, errors, cancellation, and what goes to stdout."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from toolfold.demo.server import _FunctionApp
from toolfold.wire import LEGACY_VERSIONS, MODERN_VERSION
from toolfold.wire.serving import Server
from toolfold.wire.serving.stdio import serve_stdio

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


class Served:
    """A server of functions on pipes, in a thread; `answers` are there once its input has ended."""

    def __init__(self, functions: list[Any]) -> None:
        (read_from, self._write_to), (read_answers, write_to) = os.pipe(), os.pipe()
        self._output = os.fdopen(read_answers, "rb")
        self.answers: list[Any] = []

        async def serve() -> None:
            await serve_stdio(Server(_FunctionApp("test", functions)), read_from=read_from, write_to=write_to)

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()))

    def __enter__(self) -> "Served":
        self._thread.start()
        return self

    def send(self, line: bytes) -> None:
        with open(self._write_to, "wb", closefd=False) as file:
            file.write(line + b"\n")

    def initialize(self, version: str = "2025-11-25") -> Any:
        """Shakes hands, as a legacy client must before it goes on, and returns the answer."""
        self.send(json.dumps(request("initialize", {"protocolVersion": version, "capabilities": {}})).encode())
        return json.loads(self._output.readline())

    def __exit__(self, *exception: object) -> None:
        os.close(self._write_to)
        with self._output:
            self.answers = [json.loads(line) for line in self._output]
        self._thread.join(30)


def talk(*lines: Any) -> list[Any]:
    """What the server answers to these messages of a legacy session; texts are sent as they are."""
    encoded = [line.encode() if isinstance(line, str) else json.dumps(line).encode() for line in lines]
    with Served([add, slow_add, fail]) as served:
        served.initialize()
        served.send(b"\n".join(encoded))
    return served.answers


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
    with Served([add]) as served:
        answer = served.initialize(asked)
    assert answer["result"]["protocolVersion"] == given
    assert "resultType" not in answer["result"]


def test_modern_requests_need_no_handshake_and_are_marked_complete() -> None:
    (found,) = talk(request("server/discover", {"_meta": META}))
    assert found["result"]["supportedVersions"] == [MODERN_VERSION, *LEGACY_VERSIONS]
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
        ("[]", -32700),
        ("17", -32700),
        ('{"id": 1, "method": 5}', -32700),
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
        assert wrong["error"]["data"]["supported"] == [MODERN_VERSION, *LEGACY_VERSIONS]


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

    with Served([wait]) as served:
        served.send(json.dumps(call("wait", {}, _meta=META)).encode())
        assert started.wait(30)
        served.send(json.dumps(request("tools/list", {"_meta": META}, 2)).encode())
        served.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
    release.set()
    assert [answer["id"] for answer in served.answers] == [2]


def test_what_a_tool_prints_never_reaches_stdout() -> None:
    code = (
        "import os, subprocess\n"
        "from toolfold.demo.server import serve\n"
        "def loud() -> str:\n"
        "    print('printed')\n"
        "    os.write(1, b'written')\n"
        "    subprocess.run(['echo', 'echoed'])\n"
        "    return 'ok'\n"
        "serve('loud', [loud])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(call("loud", {}, _meta=META)) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [json.loads(line)["result"]["content"][0]["text"] for line in done.stdout.splitlines()] == ["ok"]
    for word in ("printed", "written", "echoed"):
        assert word in done.stderr
