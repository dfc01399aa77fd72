"""Creates a model from its configuration: chooses the adapter and wraps it in retries."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from toolfold.errors import ConfigError
from toolfold.model import Model
from toolfold.models.retry import RetryingModel

if TYPE_CHECKING:
    from toolfold.config.sections import Model as ModelSettings

__all__ = ["configured_model", "create_model"]


def configured_model(settings: "ModelSettings") -> Model | None:
    """The configured model, where there is one."""
    return create_model(settings) if settings.name else None


def create_model(settings: "ModelSettings", name: str = "", resources: AsyncExitStack | None = None) -> Model:
    """The model of that name, or the configured one. Raises `ConfigError` where there is none.

    With `resources` its connection stays open until those are closed; else each request opens a new one.
    """
    name = name or settings.name or ""
    if not name:
        raise ConfigError(
            "no model is configured",
            next_action="name one, such as --model anthropic:claude-sonnet-4-5, or [model] name in toolfold.toml",
        )
    # The adapters are imported when needed: pydantic-ai is an extra and takes a second to load.
    if settings.base_url:
        from toolfold.models.openai_compatible import OpenAICompatible

        model = OpenAICompatible.from_settings(settings, name)
        if resources is not None:
            resources.push_async_exit(model.connection())
        return RetryingModel(model)
    try:
        from toolfold.models.pydantic_ai import PydanticAIModel
    except ImportError as error:
        raise ConfigError(
            f"the model {name!r} needs the extra `agent`", next_action="pip install 'toolfold[agent]'"
        ) from error
    limits = {"context_tokens": settings.context_tokens, "max_output_tokens": settings.max_output_tokens}
    return RetryingModel(
        PydanticAIModel(
            name,
            calls_tools=settings.calls_tools,
            timeout_s=settings.timeout_s,
            temperature=settings.temperature,
            stream=settings.stream,
            **{key: value for key, value in limits.items() if value},
        )
    )
