"""Any provider's model through pydantic-ai, and patience with failures that pass. The library is real."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
)
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCalls, FunctionModel

from toolfold.agent.commands import BadCommand, parse_commands
from toolfold.config.sections import Model as ModelSettings
from toolfold.errors import ConfigError, ModelError
from toolfold.model import Message, Prompt, Reply, ToolOffer, ToolUse
from toolfold.models.factory import create_model
from toolfold.models.openai_compatible import OpenAICompatible, _decode_tool_use
from toolfold.models.pydantic_ai import PydanticAIModel
from toolfold.models.retry import RetryingModel, TransientModelError

ASKED = Prompt(
    messages=(
        Message(role="system", content="Be good."),
        Message(role="user", content="Count."),
        Message(role="assistant", uses=(ToolUse("1", "add", {"a": 1}),)),
        Message(role="tool", use_id="1", content="2"),
    ),
    tools=(ToolOffer("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}}),),
)


@pytest.mark.requirement("A-01")
def test_a_conversation_with_tools_goes_through_and_comes_back() -> None:
    seen: list[ModelMessage] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(messages)
        assert [tool.name for tool in info.function_tools] == ["add"]
        return ModelResponse(parts=[TextPart("two"), ToolCallPart("add", {"a": 2}, tool_call_id="9")])

    reply = asyncio.run(PydanticAIModel(FunctionModel(answer)).complete(ASKED))
    assert reply.text == "two"
    assert reply.uses == (ToolUse("9", "add", {"a": 2}),)
    assert reply.usage.input_tokens > 0
    last = seen[-1]
    assert isinstance(last, ModelRequest)
    returned = last.parts[0]
    assert isinstance(returned, ToolReturnPart)
    assert (returned.tool_name, returned.content, returned.tool_call_id) == ("add", "2", "1")


def test_an_answer_is_told_piece_by_piece() -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for piece in ("one ", "two ", "three"):
            yield piece

    pieces: list[str] = []
    asked = Prompt(messages=(Message(role="user", content="Count."),))
    reply = asyncio.run(PydanticAIModel(FunctionModel(stream_function=answer)).stream(asked, pieces.append))
    assert "".join(pieces) == reply.text == "one two three"


def test_a_provider_that_is_busy_is_asked_again_and_one_that_refuses_is_not() -> None:
    codes = [429, 503, 200]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        code = codes.pop(0)
        if code != 200:
            raise ModelHTTPError(code, "test", None)
        return ModelResponse(parts=[TextPart("here")])

    model = RetryingModel(PydanticAIModel(FunctionModel(answer)), first_pause_s=0.001)
    asked = Prompt(messages=(Message(role="user", content="?"),))
    assert asyncio.run(model.complete(asked)).text == "here"
    assert codes == []
    codes[:] = [400]
    with pytest.raises(ModelError) as refused:
        asyncio.run(model.complete(asked))
    assert not isinstance(refused.value, TransientModelError)
    codes[:] = [429] * 4
    with pytest.raises(TransientModelError):
        asyncio.run(model.complete(asked))
    assert codes == []


def test_a_model_that_nobody_knows_is_told_with_the_form_of_a_name() -> None:
    with pytest.raises(ConfigError) as told:
        PydanticAIModel("nobody:knows")
    assert "provider:model" in told.value.next_action


def test_half_an_answer_that_was_shown_is_not_said_again() -> None:
    class Breaks:
        name = "breaks"
        context_tokens = 1000
        max_output_tokens = 100
        calls_tools = True
        asked = 0

        async def complete(self, prompt: Prompt) -> Reply:
            raise AssertionError("it is streamed")

        async def stream(self, prompt: Prompt, on_text: object) -> Reply:
            self.asked += 1
            assert callable(on_text)
            on_text("half")
            raise TransientModelError("the line broke")

        def count_tokens(self, text: str) -> int:
            return len(text)

    breaks = Breaks()
    pieces: list[str] = []
    with pytest.raises(TransientModelError):
        asyncio.run(RetryingModel(breaks, first_pause_s=0.001).stream(ASKED, pieces.append))
    assert (pieces, breaks.asked) == (["half"], 1)


def test_the_settings_of_the_model_hold_for_every_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nothing")
    settings = ModelSettings(context_tokens=9_000, max_output_tokens=700, calls_tools=False)
    model = create_model(settings, "openai:gpt-4o")
    assert (model.context_tokens, model.max_output_tokens, model.calls_tools) == (9_000, 700, False)


class Endpoint(BaseHTTPRequestHandler):
    """Says hello to everything, and counts connections."""

    protocol_version = "HTTP/1.1"
    connections = 0

    def setup(self) -> None:
        type(self).connections += 1
        super().setup()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"choices": [{"message": {"content": "hello"}}]}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Says nothing."""


def test_all_answers_of_one_run_travel_by_one_connection() -> None:
    async def main(settings: ModelSettings) -> None:
        asked = Prompt(messages=(Message(role="user", content="?"),))
        async with AsyncExitStack() as resources:
            model = create_model(settings, resources=resources)
            assert [(await model.complete(asked)).text for _ in range(3)] == ["hello"] * 3

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            asyncio.run(main(ModelSettings(name="x", base_url=f"http://127.0.0.1:{server.server_port}/v1")))
        finally:
            server.shutdown()
            thread.join()
    assert Endpoint.connections == 1


@pytest.mark.parametrize("given", ["{no json", "[1]", "5"])
def test_arguments_that_cannot_be_read_go_on_as_they_are(given: str) -> None:
    use = _decode_tool_use({"id": "1", "function": {"name": "search", "arguments": given}})
    assert use == ToolUse("1", "search", {"unreadable": given})
    with pytest.raises(BadCommand, match="cannot be read"):
        parse_commands(Reply(uses=(use,)), ("search",))


async def test_a_model_that_needs_the_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "toolfold.models.pydantic_ai", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ConfigError, match="needs the extra `agent`"):
        create_model(ModelSettings(), "openai:gpt-4o")


async def test_the_schema_of_an_answer_and_odd_arguments_go_through() -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert info.model_request_parameters.output_object is not None
        return ModelResponse(parts=[ToolCallPart("add", "[1]", tool_call_id="9")])

    model = PydanticAIModel(FunctionModel(answer))
    asked = Prompt(messages=(Message(role="user", content="?"),), answer_schema={"type": "object"})
    (use,) = (await model.complete(asked)).uses
    assert list(use.arguments.values()) == ["[1]"]
    assert model.count_tokens("one two") == 2


@pytest.mark.parametrize(
    ("kind", "says"),
    [(ModelAuthenticationError, "refused the key"), (ModelContextWindowExceededError, "the prompt is too long")],
)
async def test_errors_of_a_provider_say_what_to_do(kind: type[ModelAPIError], says: str) -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        yield "half"
        raise kind("test", "no")

    with pytest.raises(ModelError, match=says):
        await PydanticAIModel(FunctionModel(stream_function=answer)).stream(ASKED, lambda piece: None)


def test_a_request_to_an_endpoint_carries_limits_tools_and_schema() -> None:
    model = OpenAICompatible("x", "http://127.0.0.1:1/v1")
    prompt = msgspec.structs.replace(ASKED, max_output_tokens=7, answer_schema={"type": "object"})
    body = model._body(prompt)
    assert body["max_tokens"] == 7
    assert body["tools"][0]["function"]["name"] == "add"
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert model.count_tokens("one two") == 2
