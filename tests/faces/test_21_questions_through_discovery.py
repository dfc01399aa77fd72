"""What a modern server asks or refuses behind the discovery profile reaches a modern client as the protocol has it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from mcp_client_helpers import command, served_over_http

import fork_server

META = "io.modelcontextprotocol/"
ABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("home")
    build = [*command(home)[:-1], "build"]
    fork_server.run(build, capture_output=True, text=True, timeout=90, check=True)
    with served_over_http(home, "--profile", "discovery") as url:
        yield url


def call(url: str, tool: str, capabilities: dict[str, Any], **more: Any) -> httpx2.Response:
    meta = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": capabilities}
    arguments = {"tool_id": f"fixture.{tool}", "args": {}}
    params = {"name": "call_tool", "arguments": arguments, "_meta": meta, **more}
    headers = {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "call_tool",
        "Accept": "application/json, text/event-stream",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return httpx2.post(url, json=body, headers=headers, timeout=60)


def result(answer: httpx2.Response) -> dict[str, Any]:
    text = answer.text
    data = text if text.startswith("{") else text.rsplit("data: ", 1)[1]
    return dict(json.loads(data)["result"])


def test_21_all_questions_of_one_round_reach_the_client_in_one_round(address: str) -> None:
    tool = "test_input_required_result_multiple_inputs"
    first = result(call(address, tool, ABLE))
    asked = {key: request["method"] for key, request in first["inputRequests"].items()}
    assert set(asked.values()) == {"elicitation/create", "sampling/createMessage", "roots/list"}
    answers: dict[str, Any] = {
        "elicitation/create": {"action": "accept", "content": {"name": "ann"}},
        "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"},
        "roots/list": {"roots": [{"uri": "file:///here"}]},
    }
    responses = {key: answers[method] for key, method in asked.items()}
    done = result(call(address, tool, ABLE, inputResponses=responses, requestState=first["requestState"]))
    assert done["resultType"] == "complete"
    assert not done.get("isError")


def test_21_nobody_is_asked_where_one_of_the_questions_cannot_be_answered(address: str) -> None:
    refused = result(call(address, "test_input_required_result_multiple_inputs", {"elicitation": {}}))
    assert refused["resultType"] == "complete"
    assert refused["isError"]
    assert "INPUT_UNAVAILABLE" in refused["content"][0]["text"]


def test_21_a_capability_that_the_client_lacks_is_an_error_of_the_protocol(address: str) -> None:
    answer = call(address, "test_missing_capability", {})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["data"]["requiredCapabilities"]) == (-32021, {"sampling": {}})
