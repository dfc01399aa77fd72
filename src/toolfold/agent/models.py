"""A model by its configuration: which adapter, with patience around it. Says how to add one where there is none."""

from typing import TYPE_CHECKING

from toolfold.agent.retrying import Retrying
from toolfold.errors import ConfigError
from toolfold.model import Model

if TYPE_CHECKING:
    from toolfold.config.values import Model as ModelSettings


def configured(settings: "ModelSettings", name: str = "") -> Model:
    """The model of that name, or the configured one. Raises `ConfigError` where there is none."""
    chosen = name or settings.name or ""
    if not chosen:
        raise ConfigError(
            "no model is configured",
            next_action="name one, such as --model anthropic:claude-sonnet-4-5, or [model] name in toolfold.toml",
        )
    if settings.base_url:
        from toolfold.agent.openai_compatible import OpenAICompatible

        return Retrying(OpenAICompatible.configured(settings, chosen))
    from toolfold.agent.pydantic_model import PydanticModel

    return Retrying(PydanticModel(chosen))
