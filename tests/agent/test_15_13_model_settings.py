"""Time-out, temperature and streaming of a model are settings, and what goes wrong names the right one."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from toolfold.config.sections import Model as ModelSettings
from toolfold.errors import ModelError
from toolfold.model import Message, Prompt, ToolUse, Usage, complete
from toolfold.models.factory import create_model
from toolfold.models.openai_compatible import _StreamedAnswer
from toolfold.models.pydantic_ai import PydanticAIModel
from toolfold.models.retry import TransientModelError

ASKED = Prompt(messages=(Message(role="user", content="?"),))


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta}]}


STREAM: list[dict[str, Any]] = [
    chunk(role="assistant", content=None),
    chunk(content="I look"),
    chunk(content=" it up."),
    chunk(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "find", "arguments": ""}}]),
    chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"q"'}}]),
    chunk(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "pay", "arguments": "{}"}}]),
    chunk(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
    {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
]


@contextmanager
def endpoint(*, hangs: threading.Event | None = None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of an endpoint that streams where it is asked to, and the requests that it got."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            if hangs is not None:
                hangs.wait(30)
                return
            whole = b'{"choices": [{"message": {"content": "hello"}}]}'
            lines = [f"data: {json.dumps(one)}\n\n" for one in STREAM]
            streamed = "".join([": ping\n\n", *lines, "data: [DONE]\n\n"]).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(streamed if bodies[-1].get("stream") else whole)

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", bodies
        finally:
            if hangs is not None:
                hangs.set()
            server.shutdown()
            thread.join()


def test_15_13_a_model_that_is_too_slow_is_asked_once_and_the_advice_is_the_setting() -> None:
    with endpoint(hangs=threading.Event()) as (address, bodies):
        model = create_model(ModelSettings(name="x", base_url=address, timeout_s=0.2))
        with pytest.raises(ModelError, match=r"did not answer within 0\.2 s") as told:
            asyncio.run(model.complete(ASKED))
    assert not isinstance(told.value, TransientModelError)
    assert "[model] timeout_s" in told.value.next_action
    assert "stream = true" in told.value.next_action
    assert len(bodies) == 1


def test_15_13_the_temperature_is_sent_where_it_is_set() -> None:
    with endpoint() as (address, bodies):
        for temperature in (None, 0.0, 0.7):
            settings = ModelSettings(name="x", base_url=address, temperature=temperature)
            assert asyncio.run(create_model(settings).complete(ASKED)).text == "hello"
    assert [body.get("temperature", "none") for body in bodies] == ["none", 0.0, 0.7]


def test_15_13_a_streamed_answer_is_the_same_answer_and_comes_piece_by_piece() -> None:
    pieces: list[str] = []
    with endpoint() as (address, bodies):
        model = create_model(ModelSettings(name="x", base_url=address, stream=True))
        whole = asyncio.run(model.complete(ASKED))
        assert asyncio.run(complete(model, ASKED, pieces.append)) == whole
    assert (whole.text, whole.usage) == ("I look it up.", Usage(7, 3))
    assert whole.uses == (ToolUse("c1", "find", {"q": 1}), ToolUse("c2", "pay", {}))
    assert pieces == ["I look", " it up."]
    assert [body["stream"] for body in bodies] == [True, True]


@pytest.mark.parametrize("line", ["data: {no json", "data: [1]", 'data: {"choices": 5}', 'data: {"choices": [[]]}'])
def test_15_13_a_stream_of_something_else_is_an_error(line: str) -> None:
    with pytest.raises(ModelError, match="not in the form"):
        _StreamedAnswer(lambda piece: None).add_line(line)


def test_15_13_a_stream_without_an_end_has_a_limit() -> None:
    answer = _StreamedAnswer(lambda piece: None)
    line = "data: " + json.dumps(chunk(content="x" * (9 * 1024 * 1024)))
    answer.add_line(line)
    with pytest.raises(ModelError, match="longer than"):
        answer.add_line(line)


async def test_15_13_the_settings_reach_a_providers_model_too() -> None:
    seen: list[Any] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info.model_settings)
        return ModelResponse(parts=[TextPart("hello")])

    model = PydanticAIModel(FunctionModel(answer), timeout_s=5.0, temperature=0.3)
    await model.complete(ASKED)
    assert (seen[0]["timeout"], seen[0]["temperature"]) == (5.0, 0.3)


async def test_15_13_a_provider_that_is_too_slow_is_told_by_the_setting() -> None:
    class SomeTimeoutError(Exception):
        """As each provider's library has one."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelAPIError("test", "timed out") from SomeTimeoutError()

    with pytest.raises(ModelError, match="did not answer within 5 s"):
        await PydanticAIModel(FunctionModel(answer), timeout_s=5.0).complete(ASKED)


def test_15_04_a_providers_model_keeps_the_name_it_was_asked_for_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nothing")
    for name in ("openai:gpt-4o", "openai-responses:gpt-4o"):
        assert create_model(ModelSettings(), name).name == name
