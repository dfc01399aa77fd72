"""The adapter for endpoints with chat completions, against a real HTTP server on loopback."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from toolfold.config.sections import Model as ModelSettings
from toolfold.errors import ConfigError, ModelError
from toolfold.model import Message, Prompt, ToolOffer, ToolUse
from toolfold.models.factory import create_model
from toolfold.models.openai_compatible import OpenAICompatible
from toolfold.models.retry import TransientModelError


class Endpoint(BaseHTTPRequestHandler):
    """Answers what the test put into its server."""

    def do_POST(self) -> None:
        server: Any = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server.seen.append((self.path, self.headers.get("authorization"), body))
        raw = server.answer if isinstance(server.answer, bytes) else json.dumps(server.answer).encode()
        self.send_response(server.status)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        pass


@pytest.fixture
def endpoint() -> Iterator[Any]:
    server: Any = HTTPServer(("127.0.0.1", 0), Endpoint)
    server.seen, server.status, server.answer = [], 200, {}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def model_at(server: Any, **options: Any) -> OpenAICompatible:
    return OpenAICompatible("tiny", f"http://127.0.0.1:{server.server_port}/v1", **options)


def complete(model: Any, *messages: Message, **options: Any) -> Any:
    return asyncio.run(model.complete(Prompt(messages=messages, **options)))


def test_a_conversation_with_tools_travels_whole(endpoint: Any) -> None:
    endpoint.answer = {
        "choices": [
            {
                "finish_reason": "length",
                "message": {
                    "content": None,
                    "tool_calls": [{"id": "c1", "function": {"name": "Grep", "arguments": '{"pattern": "x"}'}}],
                },
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }
    reply = complete(
        model_at(endpoint, key="sesame"),
        Message(role="system", content="s"),
        Message(role="assistant", uses=(ToolUse("c0", "Read", {"file": "f"}),)),
        Message(role="tool", content="text", use_id="c0"),
        tools=(ToolOffer("Grep", "find", {"type": "object"}),),
        max_output_tokens=9,
    )
    assert (reply.uses, reply.cut) == ((ToolUse("c1", "Grep", {"pattern": "x"}),), True)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (7, 3)
    path, authorization, body = endpoint.seen[0]
    assert (path, authorization) == ("/v1/chat/completions", "Bearer sesame")
    assert body["messages"][1]["tool_calls"][0]["function"] == {"name": "Read", "arguments": '{"file":"f"}'}
    assert body["messages"][2] == {"role": "tool", "content": "text", "tool_call_id": "c0"}
    assert (body["max_tokens"], body["tools"][0]["function"]["name"]) == (9, "Grep")


@pytest.mark.parametrize("answer", [b"", b"no json", {"choices": []}, [1], {"choices": [{"message": None}]}])
def test_an_answer_in_another_form_is_a_model_error(endpoint: Any, answer: Any) -> None:
    endpoint.answer = answer
    with pytest.raises(ModelError, match="not in the form"):
        complete(model_at(endpoint), Message(role="user", content="x"))


def test_failures_that_may_pass_are_told_apart_and_never_show_the_key(endpoint: Any) -> None:
    endpoint.answer = {"error": "the key sesame-12345 is over its limit"}
    for status, kind in ((429, TransientModelError), (503, TransientModelError), (401, ModelError)):
        endpoint.status = status
        with pytest.raises(ModelError, match=str(status)) as caught:
            complete(model_at(endpoint, key="sesame-12345"), Message(role="user", content="x"))
        assert type(caught.value) is kind
        assert "sesame" not in str(caught.value)


def test_an_endpoint_that_is_not_there_is_a_failure_that_may_pass() -> None:
    with pytest.raises(TransientModelError, match="could not be asked"):
        complete(OpenAICompatible("x", "http://127.0.0.1:9/v1"), Message(role="user", content="x"))


def test_the_configuration_names_the_endpoint(endpoint: Any) -> None:
    settings = ModelSettings(
        name="openai-compatible:tiny", base_url=f"http://127.0.0.1:{endpoint.server_port}/v1", key="k1234567"
    )
    endpoint.answer = {"choices": [{"message": {"content": "hello"}}]}
    assert complete(create_model(settings), Message(role="user", content="x")).text == "hello"
    assert endpoint.seen[0][2]["model"] == "tiny"
    assert "k1234567" not in repr(settings)
    with pytest.raises(ConfigError, match="no address"):
        OpenAICompatible("x", "not an address")
