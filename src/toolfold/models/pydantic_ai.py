"""Models of every provider, through pydantic-ai (extra `agent`): our prompts to its messages, its answers to ours.

Only this file knows that library. Its errors become `ModelError`; those that may pass are marked so.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from toolfold import tokens
from toolfold.errors import ConfigError, ModelError
from toolfold.model import Message, OnText, Prompt, Reply, ToolUse, Usage
from toolfold.models.retry import TransientModelError

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model as ForeignModel
    from pydantic_ai.models import ModelRequestParameters

CONTEXT_TOKENS = 128_000
MAX_OUTPUT_TOKENS = 8_192


class PydanticAIModel:
    """`model` is a name that pydantic-ai knows, such as `anthropic:claude-…`, or one of its models."""

    def __init__(
        self,
        model: "str | ForeignModel",
        *,
        context_tokens: int = CONTEXT_TOKENS,
        max_output_tokens: int = MAX_OUTPUT_TOKENS,
        calls_tools: bool = True,
    ) -> None:
        self._model = _infer_model(model) if isinstance(model, str) else model
        self.name = f"{self._model.system}:{self._model.model_name}"
        self.context_tokens = context_tokens
        self.max_output_tokens = max_output_tokens
        self.calls_tools = calls_tools

    def count_tokens(self, text: str) -> int:
        """By the o200k table: near enough for budgets, and offline."""
        return tokens.count(text)

    async def complete(self, prompt: Prompt) -> Reply:
        from pydantic_ai.direct import model_request
        from pydantic_ai.exceptions import AgentRunError, UserError

        try:
            answer = await model_request(
                self._model,
                list(_messages(prompt)),
                model_settings=self._settings(prompt),
                model_request_parameters=_parameters(prompt),
            )
        except (AgentRunError, UserError) as error:
            raise _model_error(error, self.name) from error
        return _reply(answer)

    async def stream(self, prompt: Prompt, on_text: OnText) -> Reply:
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.exceptions import AgentRunError, UserError

        try:
            async with model_request_stream(
                self._model,
                list(_messages(prompt)),
                model_settings=self._settings(prompt),
                model_request_parameters=_parameters(prompt),
            ) as answer:
                async for event in answer:
                    piece = _text_delta(event)
                    if piece:
                        on_text(piece)
                return _reply(answer.get())
        except (AgentRunError, UserError) as error:
            raise _model_error(error, self.name) from error

    def _settings(self, prompt: Prompt) -> Any:
        return {"max_tokens": prompt.max_output_tokens or self.max_output_tokens}


def _infer_model(name: str) -> "ForeignModel":
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as error:
        raise ConfigError(
            f"the model {name!r} needs the extra `agent`", next_action="pip install 'toolfold[agent]'"
        ) from error
    try:
        return infer_model(name)
    except (UserError, ValueError, ImportError) as error:
        raise ConfigError(
            f"the model {name!r} cannot be used: {error}",
            next_action="name one as provider:model, such as anthropic:claude-sonnet-4-5, and give its key",
        ) from error


def _messages(prompt: Prompt) -> "Iterator[ModelMessage]":
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    names = {use.id: use.name for message in prompt.messages for use in message.uses}
    asked: list[Any] = []

    def part(message: Message) -> Any:
        if message.role == "system":
            return SystemPromptPart(message.content)
        if message.role == "tool":
            return ToolReturnPart(names.get(message.use_id, ""), message.content, tool_call_id=message.use_id)
        return UserPromptPart(message.content)

    for message in prompt.messages:
        if message.role != "assistant":
            asked.append(part(message))
            continue
        if asked:
            yield ModelRequest(parts=asked)
            asked = []
        said: list[Any] = [TextPart(message.content)] if message.content else []
        said += [ToolCallPart(use.name, use.arguments, tool_call_id=use.id) for use in message.uses]
        yield ModelResponse(parts=said or [TextPart("…")])
    if asked:
        yield ModelRequest(parts=asked)


def _parameters(prompt: Prompt) -> "ModelRequestParameters":
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    offered = [
        ToolDefinition(name=offer.name, description=offer.description, parameters_json_schema=offer.parameters)
        for offer in prompt.tools
    ]
    if prompt.answer_schema is None:
        return ModelRequestParameters(function_tools=offered, allow_text_output=True)
    wanted = OutputObjectDefinition(json_schema=prompt.answer_schema, name="answer")
    return ModelRequestParameters(
        function_tools=offered, output_mode="native", output_object=wanted, allow_text_output=True
    )


def _text_delta(event: Any) -> str:
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _reply(answer: "ModelResponse") -> Reply:
    from pydantic_ai.messages import TextPart, ToolCallPart

    text = "".join(part.content for part in answer.parts if isinstance(part, TextPart))
    uses = tuple(
        ToolUse(part.tool_call_id, part.tool_name, _arguments(part))
        for part in answer.parts
        if isinstance(part, ToolCallPart)
    )
    return Reply(text=text, uses=uses, usage=_usage(answer), cut=answer.finish_reason == "length")


def _arguments(part: Any) -> dict[str, Any]:
    """What a model gave as arguments; what is no object goes on under a name that no command has."""
    try:
        return dict(part.args_as_dict())
    except (ValueError, AssertionError):
        return {"unreadable": str(part.args)}


def _usage(answer: "ModelResponse") -> Usage:
    try:
        cost: float | None = float(answer.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        cost = None  # the price of this model is not known
    return Usage(answer.usage.input_tokens, answer.usage.output_tokens, cost)


def _model_error(error: Exception, name: str) -> ModelError:
    from pydantic_ai import exceptions as their

    passing = (
        their.ModelRateLimitError,
        their.ModelUnavailableError,
        their.ModelServerError,
        their.ModelConnectionError,
    )
    status = error.status_code if isinstance(error, their.ModelHTTPError) else 0
    if isinstance(error, passing) or status in (408, 409, 429) or status >= 500:
        return TransientModelError(f"{name} is busy or out of reach: {error}", next_action="try again later")
    if isinstance(error, their.ModelAuthenticationError):
        return ModelError(f"{name} refused the key: {error}", next_action="give a valid key for this provider")
    if isinstance(error, their.ModelContextWindowExceededError):
        return ModelError(f"the prompt is too long for {name}: {error}", next_action="lower history_tokens")
    return ModelError(f"{name} did not answer: {error}", next_action="see the message; try another model")
