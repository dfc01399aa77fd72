"""Any provider's model through pydantic-ai, and patience with failures that pass. The library is real."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCalls, FunctionModel

from toolfold.agent.pydantic_model import PydanticModel
from toolfold.agent.retrying import PassingModelError, Retrying
from toolfold.errors import ConfigError, ModelError
from toolfold.model import Message, Prompt, Reply, ToolOffer, ToolUse

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

    reply = asyncio.run(PydanticModel(FunctionModel(answer)).complete(ASKED))
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
    reply = asyncio.run(PydanticModel(FunctionModel(stream_function=answer)).stream(asked, pieces.append))
    assert "".join(pieces) == reply.text == "one two three"


def test_a_provider_that_is_busy_is_asked_again_and_one_that_refuses_is_not() -> None:
    codes = [429, 503, 200]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        code = codes.pop(0)
        if code != 200:
            raise ModelHTTPError(code, "test", None)
        return ModelResponse(parts=[TextPart("here")])

    told: list[ModelError] = []
    model = Retrying(PydanticModel(FunctionModel(answer)), first_pause_s=0.001, on_retry=told.append)
    asked = Prompt(messages=(Message(role="user", content="?"),))
    assert asyncio.run(model.complete(asked)).text == "here"
    assert len(told) == 2
    codes[:] = [400]
    with pytest.raises(ModelError) as refused:
        asyncio.run(model.complete(asked))
    assert not isinstance(refused.value, PassingModelError)
    codes[:] = [429] * 4
    with pytest.raises(PassingModelError):
        asyncio.run(model.complete(asked))
    assert codes == []


def test_a_model_that_nobody_knows_is_told_with_the_form_of_a_name() -> None:
    with pytest.raises(ConfigError) as told:
        PydanticModel("nobody:knows")
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
            raise PassingModelError("the line broke")

        def count_tokens(self, text: str) -> int:
            return len(text)

    breaks = Breaks()
    pieces: list[str] = []
    with pytest.raises(PassingModelError):
        asyncio.run(Retrying(breaks, first_pause_s=0.001).stream(ASKED, pieces.append))
    assert (pieces, breaks.asked) == (["half"], 1)
