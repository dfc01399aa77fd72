"""A model by its configuration: which adapter, with patience around it. Says how to add one where there is none."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from toolfold.errors import ConfigError
from toolfold.model import Model
from toolfold.models.retry import RetryingModel

if TYPE_CHECKING:
    from toolfold.config.sections import Model as ModelSettings


def create_model(settings: "ModelSettings", name: str = "", resources: AsyncExitStack | None = None) -> Model:
    """The model of that name, or the configured one. Raises `ConfigError` where there is none.

    With `resources` its connection stays open until those are closed; else each answer takes a new one.
    """
    chosen = name or settings.name or ""
    if not chosen:
        raise ConfigError(
            "no model is configured",
            next_action="name one, such as --model anthropic:claude-sonnet-4-5, or [model] name in toolfold.toml",
        )
    if settings.base_url:
        from toolfold.models.openai_compatible import OpenAICompatible

        model = OpenAICompatible.configured(settings, chosen)
        if resources is not None:
            resources.push_async_exit(model.connection())
        return RetryingModel(model)
    from toolfold.models.pydantic_ai import CONTEXT_TOKENS, MAX_OUTPUT_TOKENS, PydanticAIModel

    known = PydanticAIModel(
        chosen,
        context_tokens=settings.context_tokens or CONTEXT_TOKENS,
        max_output_tokens=settings.max_output_tokens or MAX_OUTPUT_TOKENS,
        calls_tools=settings.calls_tools,
    )
    return RetryingModel(known)
