"""Models of every provider, through pydantic-ai (extra `agent`): our prompts to its messages, its answers to ours.

Only this module knows that library, and imports it: `factory` imports the module when such a model is wanted. Its
errors become `ModelError`, or `TransientModelError` where a second attempt may help.
"""

from collections.abc import Iterator
from typing import Any

from pydantic_ai import exceptions
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model as ProviderModel
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from toolfold import tokens
from toolfold.errors import ConfigError, ModelError
from toolfold.model import Message, OnText, Prompt, Reply, ToolUse, Usage
from toolfold.models.retry import SLOW_ADVICE, TransientModelError

_CONTEXT_TOKENS = 128_000
_MAX_OUTPUT_TOKENS = 8_192


class PydanticAIModel:
    """`model` is a name that pydantic-ai knows, such as `anthropic:claude-…`, or one of its models."""

    def __init__(
        self,
        model: str | ProviderModel,
        *,
        context_tokens: int = _CONTEXT_TOKENS,
        max_output_tokens: int = _MAX_OUTPUT_TOKENS,
        calls_tools: bool = True,
        timeout_s: float | None = None,
        temperature: float | None = None,
        stream: bool = False,
    ) -> None:
        self._model = _infer_model(model) if isinstance(model, str) else model
        # The name that it was asked for by: what a run that is resumed asks for again.
        self.name = model if isinstance(model, str) else f"{self._model.system}:{self._model.model_name}"
        self._timeout_s = timeout_s
        options = {"timeout": timeout_s, "temperature": temperature}
        self._options = {key: value for key, value in options.items() if value is not None}
        self._streams = stream
        self.context_tokens = context_tokens
        self.max_output_tokens = max_output_tokens
        self.calls_tools = calls_tools

    def count_tokens(self, text: str) -> int:
        # By the o200k table: near enough for budgets, and offline.
        return tokens.count(text)

    async def complete(self, prompt: Prompt) -> Reply:
        if self._streams:
            return await self.stream(prompt, lambda piece: None)
        try:
            return _reply(await model_request(self._model, **self._request(prompt)))
        except (exceptions.AgentRunError, exceptions.UserError) as error:
            raise self._error(error) from error

    async def stream(self, prompt: Prompt, on_text: OnText) -> Reply:
        try:
            async with model_request_stream(self._model, **self._request(prompt)) as events:
                async for event in events:
                    piece = _text_delta(event)
                    if piece:
                        on_text(piece)
                return _reply(events.get())
        except (exceptions.AgentRunError, exceptions.UserError) as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> ModelError:
        # Each provider's library has a time-out of its own.
        if self._timeout_s is not None and "Timeout" in type(error.__cause__).__name__:
            return ModelError(f"{self.name} did not answer within {self._timeout_s:g} s", next_action=SLOW_ADVICE)
        return _model_error(error, self.name)

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        return {
            "messages": list(_messages(prompt)),
            "model_settings": {"max_tokens": prompt.max_output_tokens or self.max_output_tokens, **self._options},
            "model_request_parameters": _parameters(prompt),
        }


def _infer_model(name: str) -> ProviderModel:
    try:
        return infer_model(name)
    except (exceptions.UserError, ValueError, ImportError) as error:
        raise ConfigError(
            f"the model {name!r} cannot be used: {error}",
            next_action="name one as provider:model, such as anthropic:claude-sonnet-4-5, and give its key",
        ) from error


def _messages(prompt: Prompt) -> Iterator[ModelMessage]:
    names = {use.id: use.name for message in prompt.messages for use in message.uses}
    request: list[Any] = []
    for message in prompt.messages:
        if message.role != "assistant":
            request.append(_request_part(message, names))
            continue
        # Their protocol alternates requests and responses: turns between two answers make up one request.
        if request:
            yield ModelRequest(parts=request)
            request = []
        parts: list[Any] = [TextPart(message.content)] if message.content else []
        parts += [ToolCallPart(use.name, use.arguments, tool_call_id=use.id) for use in message.uses]
        yield ModelResponse(parts=parts or [TextPart("…")])
    if request:
        yield ModelRequest(parts=request)


def _request_part(message: Message, names: dict[str, str]) -> Any:
    if message.role == "system":
        return SystemPromptPart(message.content)
    if message.role == "tool":
        return ToolReturnPart(names.get(message.use_id, ""), message.content, tool_call_id=message.use_id)
    return UserPromptPart(message.content)


def _parameters(prompt: Prompt) -> ModelRequestParameters:
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
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _reply(response: ModelResponse) -> Reply:
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    uses = tuple(
        ToolUse(part.tool_call_id, part.tool_name, _arguments(part))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )
    return Reply(text=text, uses=uses, usage=_usage(response), cut=response.finish_reason == "length")


def _arguments(part: ToolCallPart) -> dict[str, Any]:
    # Arguments that are no object are passed on under a name that no tool has: its schema refuses them.
    try:
        return dict(part.args_as_dict())
    except (ValueError, AssertionError):
        return {"unreadable": str(part.args)}


def _usage(response: ModelResponse) -> Usage:
    try:
        cost: float | None = float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        cost = None  # the price of this model is unknown
    return Usage(response.usage.input_tokens, response.usage.output_tokens, cost)


def _model_error(error: Exception, name: str) -> ModelError:
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else 0
    transient = (
        *(exceptions.ModelRateLimitError, exceptions.ModelUnavailableError),
        *(exceptions.ModelServerError, exceptions.ModelConnectionError),
    )
    if isinstance(error, transient) or status in (408, 409, 429) or status >= 500:
        return TransientModelError(f"{name} is busy or out of reach: {error}", next_action="try again later")
    if isinstance(error, exceptions.ModelAuthenticationError):
        return ModelError(f"{name} refused the key: {error}", next_action="give a valid key for this provider")
    if isinstance(error, exceptions.ModelContextWindowExceededError):
        return ModelError(f"the prompt is too long for {name}: {error}", next_action="lower history_tokens")
    return ModelError(f"{name} did not answer: {error}", next_action="see the message; try another model")
